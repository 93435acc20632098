--- The tokens of Lua text that may be unfinished or wrong, with their positions: for colours,
-- brackets, indentation and the locals of a chunk.
local M = {}

local keywords = {}
for word in ([[and break do else elseif end false for function goto if in local nil not or repeat
    return then true until while]]):gmatch "%S+" do
  keywords[word] = true
end

M.keywords = keywords

-- The last position of a quoted string that begins at `at`, and whether it is closed.
local function end_of_string(text, at)
  local quote = text:sub(at, at)
  local i = at + 1
  while true do
    local stop = text:find("[\\\n" .. quote .. "]", i)
    if not stop then return #text, false end
    local letter = text:sub(stop, stop)
    if letter == quote then return stop, true end
    if letter == "\n" then return stop - 1, false end
    if text:find("^z%s*", stop + 1) then -- \z skips white space with newlines
      i = select(2, text:find("^z%s*", stop + 1)) + 1
    else
      i = stop + 2
    end
  end
end

-- The last position of a long bracket that begins at `at`, whether it is closed; nil if none does.
local function end_of_long(text, at)
  local level = text:match("^%[(=*)%[", at)
  if not level then return nil end
  local _, stop = text:find("]" .. level .. "]", at, true)
  return stop or #text, stop ~= nil
end

--- A list of {kind, from, to}: kind is "keyword", "name", "number", "string", "comment" or
-- "mark"; `open` is set in a string or comment that is not closed.
function M.tokens(text)
  local list, at, size = {}, 1, #text
  local function add(kind, from, to, open)
    list[#list + 1] = {kind = kind, from = from, to = to, open = open}
    at = to + 1
  end
  while true do
    at = text:find("%S", at)
    if not at then break end
    local letter = text:sub(at, at)
    if letter:find "[%a_]" then
      local word = text:match("^[%w_]+", at)
      add(keywords[word] and "keyword" or "name", at, at + #word - 1)
    elseif letter:find "%d" or text:find("^%.%d", at) then
      local number = text:match("^0[xX][%x.]*[pP]?[+-]?%x*", at)
                     or text:match("^[%d.]+[eE][+-]?%d+", at) or text:match("^%d*%.?%d*", at)
      if number:find "%.%.$" then number = number:match "^(.-)%.%.$" end
      add("number", at, at + math.max(#number, 1) - 1)
    elseif letter == '"' or letter == "'" then
      local stop, closed = end_of_string(text, at)
      add("string", at, stop, not closed)
    elseif text:find("^%-%-", at) then
      local stop, closed = end_of_long(text, at + 2)
      if not stop then stop, closed = (text:find("\n", at, true) or size + 1) - 1, true end
      add("comment", at, stop, not closed)
    elseif text:find("^%[=*%[", at) then
      local stop, closed = end_of_long(text, at)
      add("string", at, stop, not closed)
    else
      local mark = text:match("^%.%.%.", at) or text:match("^[.=~<>/:][.=</>:]", at) or letter
      add("mark", at, at + #mark - 1)
    end
  end
  return list
end

local opening = {["function"] = "end", ["do"] = "end", ["if"] = "end", ["repeat"] = "until",
                 ["("] = ")", ["["] = "]", ["{"] = "}"}
local closing = {["end"] = true, ["until"] = true, [")"] = true, ["]"] = true, ["}"] = true}

--- Pairs of what opens and closes: for the number of a token the number of its mate; false where it
-- closes what is not open. What is open at the end is listed, outermost first.
function M.pairs_of(text, tokens)
  local mates, stack = {}, {}
  for i, token in ipairs(tokens) do
    if token.kind == "keyword" or token.kind == "mark" then
      local word = text:sub(token.from, token.to)
      if opening[word] then
        stack[#stack + 1] = i
      elseif closing[word] then
        local top = stack[#stack]
        local open = top and text:sub(tokens[top].from, tokens[top].to)
        if open and opening[open] == word then
          mates[i], mates[top] = top, i
          stack[#stack] = nil
        else
          mates[i] = false
        end
      end
    end
  end
  return mates, stack
end

return M
