--- Reads the comments of functions from the library's files: those that begin with three dashes.
local core = require "flare.core"

local M = {}

-- Comment lines -> {text, params = {{name, text}}, returns}
local function read_comment(lines)
  local doc, last = {text = {}, params = {}}, nil
  for _, line in ipairs(lines) do
    local name, what = line:match "^@param%s+([%w_.]+)%s*(.*)$"
    local gives = line:match "^@return%s+(.*)$"
    if name then
      last = {name = name, text = what}
      doc.params[#doc.params + 1] = last
    elseif gives then
      last = {text = gives}
      doc.returns = last
    elseif last and line:find "%S" then
      last.text = last.text .. " " .. line:match "^%s*(.-)%s*$"
    else
      last = nil
      doc.text[#doc.text + 1] = line
    end
  end
  return doc
end

--- The functions of a file that have comments, the comment at its top, and those of classes.
-- @param text of the file
-- @return a list of {owner, name, method, args, line, text, params, returns}, the top's lines, and
--   for names of classes the lines above them
function M.parse(text)
  local list, comment, number, top, classes = {}, nil, 0, nil, {}
  for line in (text .. "\n"):gmatch "([^\n]*)\n" do
    number = number + 1
    local first = line:match "^%-%-%-%s?(.*)$"
    local more = line:match "^%-%-%s?(.*)$"
    if first then
      comment = {first}
    elseif more and comment then
      comment[#comment + 1] = more
    else
      local owner, mark, name, args =
        line:match "^function%s+([%w_]+)([.:])([%w_]+)%s*%(([^)]*)%)"
      args = args or line:match "^return%s+function%s*%(([^)]*)%)"
        or line:match "^local%s+function%s+[%w_]+%s*%(([^)]*)%)"
      local class = line:match '^local%s+[%w_]+%s*=%s*class%("([%w_]+)"'
        or line:match '^M%.[%w_]+%s*=%s*class%("([%w_]+)"'
      if comment and args then
        local doc = read_comment(comment)
        doc.owner, doc.name, doc.method, doc.args = owner, name, mark == ":", args
        doc.line = number
        list[#list + 1] = doc
      elseif comment and class and top then
        classes[class] = comment
      elseif comment and not top then
        top = comment
      end
      comment = nil
    end
  end
  return list, top or {}, classes
end

-- The text of the file that a function was loaded from.
local function text_of(source)
  local inside = source:match "^@<flare>/(.*)$"
  if inside then return core.source("flare/" .. inside) end
  local file <close> = io.open(source:match "^@(.*)$" or "")
  return file and file:read "a" or nil
end

--- The lines of a Lua function of the library as a text, and its file's; nil if it is not at hand.
function M.body(f)
  local info = debug.getinfo(core.unframed(f), "S")
  local text = info.what == "Lua" and text_of(info.source)
  if not text then return nil end
  local lines = {}
  for line in (text .. "\n"):gmatch "([^\n]*)\n" do lines[#lines + 1] = line end
  return table.concat(lines, "\n", info.linedefined, math.min(info.lastlinedefined, #lines)),
    text
end

-- The text of the file that a class is returned from, by itself or, then the second result is true,
-- as a field of a table; nil if there is none.
local function text_of_class(class)
  local shared
  for name, value in next, package.loaded do
    local field = type(value) == "table" and rawget(value, class.__name) == class
    if value == class or field then
      local path = name:gsub("%.", "/")
      local text = core.source(path .. ".lua") or core.source(path .. "/init.lua")
      if text and value == class then return text, false end
      if text and text:find('class("' .. class.__name .. '"', 1, true) then shared = text end
    end
  end
  return shared, shared ~= nil
end

--- The comment at the top of the file that a class is returned from, and the one above it; of a
-- class that shares its file only the latter.
function M.of_class(class)
  local text, shared = text_of_class(class)
  if not text then return {}, nil end
  local _, top, classes = M.parse(text)
  return shared and {} or top, classes[class.__name]
end

--- The code of a class: of its file or, if it shares the file, of its methods.
function M.code(class)
  local text, shared = text_of_class(class)
  if text and not shared then return text end
  local list = {}
  for _, f in next, class do
    list[#list + 1] = type(f) == "function" and M.body(f) or nil
  end
  return table.concat(list, "\n")
end

--- The fields of self that code names, in alphabetical order.
-- @param code a text, or a class
function M.fields(code)
  local known, list = {}, {}
  if type(code) ~= "string" then code = M.code(code) end
  for name in code:gmatch "%f[%w_]self%.(%a[%w_]*)" do
    if not known[name] then
      known[name] = true
      list[#list + 1] = name
    end
  end
  table.sort(list)
  return list
end

local parsed = setmetatable({}, {__mode = "v"}) -- source: {list, top}

--- The comment above a Lua function of the library; nil if there is none.
function M.of(f)
  if not debug then return nil end
  local info = debug.getinfo(core.unframed(f), "S")
  if info.what ~= "Lua" then return nil end
  local known = parsed[info.source]
  if not known then
    local text = text_of(info.source)
    if not text then return nil end
    known = table.pack(M.parse(text))
    parsed[info.source] = known
  end
  for _, doc in ipairs(known[1]) do
    if doc.line == info.linedefined then return doc, known[2] end
  end
  return nil, known[2]
end

--- The lines of a comment directly above a Lua function in a file; none for other functions.
function M.above(f)
  local info = debug.getinfo(core.unframed(f), "S")
  local text = info.what == "Lua" and text_of(info.source)
  local lines, out = {}, {}
  for line in ((text or "") .. "\n"):gmatch "([^\n]*)\n" do lines[#lines + 1] = line end
  local at = info.linedefined - 1
  while lines[at] and lines[at]:find "^%s*%-%-" do
    table.insert(out, 1, (lines[at]:gsub("^%s*%-%-+%s?", "")))
    at = at - 1
  end
  return out
end

--- Words in lines of 96 characters; the first begins with `start`, the others below it.
function M.wrapped(start, text)
  local lines, line = {}, start
  for word in text:gmatch "%S+" do
    if #line + #word > 96 and #line > #start then
      lines[#lines + 1] = line:match "^(.-)%s*$"
      line = (" "):rep(#start)
    end
    line = line .. word .. " "
  end
  lines[#lines + 1] = line:match "^(.-)%s*$"
  return table.concat(lines, "\n")
end

--- The lines up to the first empty or indented one as text behind two spaces, or below in lines of
-- 96 characters that are indented by six.
function M.paragraph(lines)
  local words = {}
  for _, line in ipairs(lines) do
    if line:find "^%s" or line == "" then break end
    words[#words + 1] = line
  end
  local text = table.concat(words, " ")
  if #text == 0 then return "" end
  return #text <= 50 and "  " .. text or "\n" .. M.wrapped("      ", text)
end

--- Appends the descriptions of arguments and results to the lines `out`.
function M.add_arguments(out, doc)
  for _, p in ipairs(doc.params) do
    out[#out + 1] = M.wrapped(("  %s  "):format(p.name), p.text)
  end
  if doc.returns then out[#out + 1] = M.wrapped("  gives: ", doc.returns.text) end
end

--- A function's comment as a text.
-- @param title the call, such as "flare.vmap(f, opts)"
function M.describe(doc, title)
  local out = {title}
  for _, line in ipairs(doc.text) do out[#out + 1] = "  " .. line end
  M.add_arguments(out, doc)
  return table.concat(out, "\n")
end

return M
