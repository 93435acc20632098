--- Two slips of those who are new to Lua, where a script has failed: a line that begins with "("
-- and so is a call of what the line before ends with, and a text in [[ ]] that has ]] itself.
local core = require "flare.core"
local lex = require "flare.repl.lex"

local M = {}

-- The tokens of a file that are no comments, with the lines that they begin and end on; nil if it
-- cannot be read, or not twice, as a pipe.
local function tokens_of(path)
  local stat = path and core.file.stat(path)
  local text = stat and stat.kind == "file" and core.file.read(path)
  if not text then return nil end
  local list, line, at = {}, 1, 1
  local function line_of(position)
    for _ in text:sub(at, position - 1):gmatch "\n" do line = line + 1 end
    at = position
    return line
  end
  for _, token in ipairs(lex.tokens(text)) do
    if token.kind ~= "comment" then
      token.text = text:sub(token.from, token.to)
      token.first, token.last = line_of(token.from), line_of(token.to)
      list[#list + 1] = token
    end
  end
  return list
end

-- The line that line n continues, or nil.
local function continued(tokens, n)
  for k = 2, #tokens do
    local token, last = tokens[k], tokens[k - 1]
    if token.first == n then
      local called = last.kind == "name" or last.kind == "string" or last.text:find "^[%]})]$"
      return token.text == "(" and last.last < n and called and last.last or nil
    end
  end
end

--- What a traceback says about a line that begins with "(": a text behind a line break, or "".
function M.joined(text)
  for path, number in text:gmatch "\n\t([^\n<>%[%]]-):(%d+): in" do
    local tokens = tokens_of(path)
    for n = tonumber(number), tokens and tonumber(number) + 1 or 0 do
      local last = continued(tokens, n)
      if last then
        return ("\n%s:%d begins with '(', so it is a call of what line %d ends with; "
          .. "put ';' in front of it"):format(path, n, last)
      end
    end
  end
  return ""
end

--- What a syntax error of a file says about a text in [[ ]] before it that has ended inside of
-- other brackets, or "".
function M.ended(problem, path)
  local n = tonumber(tostring(problem):match ":(%d+): ")
  for _, token in ipairs(n and tokens_of(path) or {}) do
    if token.kind == "string" and token.last <= n and token.first < token.last
       and token.text:find "^%[%[" then
      local inside = token.text:sub(3, -3)
      local _, opened = inside:gsub("%[", "")
      local _, closed = inside:gsub("%]", "")
      if opened > closed then
        return ("\nthe text that [[ begins on line %d ends at the first ]], on line %d; "
          .. "write [==[ and ]==] around a text that has ]] itself"):format(token.first, token.last)
      end
    end
  end
  return ""
end

return M
