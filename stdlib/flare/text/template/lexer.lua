--- Splits a chat template, the subset of Jinja that models are published with, into text and
-- tokens. Blocks are trimmed as transformers does: the first line break after a block goes, and so
-- do the spaces before one that begins a line.
local M = {}

--- Raises an error at a line of the template.
function M.fail(line, format, ...)
  error({template = true, line = line, message = format:format(...)}, 0)
end

local closers = {["{{"] = "}}", ["{%"] = "%}", ["{#"] = "#}"}

local escapes = {n = "\n", t = "\t", r = "\r", ["\\"] = "\\", ['"'] = '"', ["'"] = "'", b = "\b",
  f = "\f", a = "\a", v = "\v", ["\n"] = ""}

-- The string that begins with the quote at `at`: its value and where it ends.
local function read_string(source, at, line)
  local quote, out, i = source:sub(at, at), {}, at + 1
  while true do
    local c = source:sub(i, i)
    if c == "" then M.fail(line, "a string does not end") end
    if c == quote then return table.concat(out), i + 1 end
    if c == "\\" then
      local following = source:sub(i + 1, i + 1)
      local hex = following == "x" and source:match("^%x%x", i + 2)
        or following == "u" and source:match("^%x%x%x%x", i + 2)
      if hex then
        out[#out + 1] = utf8.char(tonumber(hex, 16))
        i = i + 2 + #hex
      else
        out[#out + 1] = escapes[following] or "\\" .. following
        i = i + 2
      end
    else
      out[#out + 1] = c
      i = i + 1
    end
  end
end

local operators = {"**", "//", "==", "!=", "<=", ">=", "+", "-", "*", "/", "%", "~", "<", ">", "=",
  "(", ")", "[", "]", "{", "}", ",", ".", ":", "|"}

-- The token at `at`: {kind, value, line} and where it ends.
local function read_token(source, at, line)
  local c = source:sub(at, at)
  if c == '"' or c == "'" then
    local value, stop = read_string(source, at, line)
    return {"string", value, line}, stop
  end
  local number = source:match("^%d[%d_]*%.%d+[eE]?[+-]?%d*", at) or source:match("^%d[%d_]*", at)
  if number then
    return {"number", math.tointeger(tonumber((number:gsub("_", ""))))
      or tonumber((number:gsub("_", ""))), line}, at + #number
  end
  local name = source:match("^[%a_\x80-\xff][%w_\x80-\xff]*", at)
  if name then return {"name", name, line}, at + #name end
  for _, operator in ipairs(operators) do
    if source:sub(at, at + #operator - 1) == operator then
      return {"operator", operator, line}, at + #operator
    end
  end
  M.fail(line, "unexpected character '%s'", c)
end

local function count_lines(text) return select(2, text:gsub("\n", "")) end

-- The tokens of a block whose content begins at `at`: the list, where the block ends, and whether
-- it ends with a minus.
local function read_block(source, at, closer, line)
  local tokens, depth, begun = {}, 0, line
  while true do
    local space = source:match("^%s*", at)
    line, at = line + count_lines(space), at + #space
    local sign = source:match("^[-+]?", at)
    if depth == 0 and source:sub(at + #sign, at + #sign + 1) == closer then
      return tokens, at + #sign + 2, sign, line
    end
    if at > #source then M.fail(begun, "a block does not end with '%s'", closer) end
    local token, stop = read_token(source, at, line)
    if token[1] == "operator" then
      if token[2]:find "^[%(%[{]$" then depth = depth + 1 end
      if token[2]:find "^[%)%]}]$" then depth = math.max(depth - 1, 0) end
    end
    line = line + count_lines(source:sub(at, stop - 1))
    tokens[#tokens + 1], at = token, stop
  end
end

--- The parts of a template: {"text", text}, {"print", tokens, line} or {"block", tokens, line}.
function M.split(source)
  source = source:gsub("\r\n?", "\n")
  if source:sub(-1) == "\n" then source = source:sub(1, -2) end
  local parts, at, line, trim = {}, 1, 1, ""
  local function add_text(text, opener, sign)
    local fresh = at == 1 -- whether the text begins a line
    if trim == "-" then
      local space
      space, text = text:match "^(%s*)(.*)$"
      fresh = fresh or space:sub(-1) == "\n"
    elseif trim == "block" and text:sub(1, 1) == "\n" then
      text, fresh = text:sub(2), true
    end
    if sign == "-" then
      text = text:gsub("%s+$", "")
    elseif sign ~= "+" and opener and opener ~= "{{" then
      local before = text:match "^(.*\n)[^%S\n]*$"
      text = before or fresh and not text:find "%S" and "" or text
    end
    if text ~= "" then parts[#parts + 1] = {"text", text} end
  end
  while true do
    local start = source:find("{[{%%#]", at)
    if not start then break end
    local opener = source:sub(start, start + 1)
    local text = source:sub(at, start - 1)
    local sign = source:match("^[-+]?", start + 2)
    line = line + count_lines(text)
    add_text(text, opener, sign)
    local begun, ending = line
    if opener == "{#" then
      local stop = source:find("#}", start + 2, true)
      if not stop then M.fail(line, "a comment does not end") end
      ending = source:sub(stop - 1, stop - 1)
      line = line + count_lines(source:sub(start, stop))
      at = stop + 2
    else
      local tokens
      tokens, at, ending, line = read_block(source, start + 2 + #sign, closers[opener], line)
      local name = opener == "{%" and tokens[1] and tokens[1][2]
      if name == "raw" then
        local first, last, open_sign, close_sign =
          source:find("{%%([-+]?)%s*endraw%s*([-+]?)%%}", at)
        if not first then M.fail(begun, "raw does not end with endraw") end
        local raw = source:sub(at, first - 1)
        trim = ending == "-" and "-" or "block"
        line = line + count_lines(raw)
        add_text(raw, "{%", open_sign)
        at, ending = last + 1, close_sign
      else
        parts[#parts + 1] = {opener == "{{" and "print" or "block", tokens, begun}
      end
    end
    trim = ending == "-" and "-" or opener ~= "{{" and ending ~= "+" and "block" or ""
  end
  add_text(source:sub(at), nil, "")
  return parts
end

return M
