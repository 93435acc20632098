--- Indentation: how far a new line begins, and what a line that closes a block goes back to.
local lex = require "flare.repl.lex"

local M = {}

local step = "  "

-- The white space at the beginning of the line that a position is in.
local function indentation(text, position)
  local from = text:sub(1, position - 1):match ".*()\n" or 0
  return text:match("^[ \t]*", from + 1)
end

--- The indentation of a line that begins behind `before`.
function M.after(before)
  local tokens = lex.tokens(before)
  local last = tokens[#tokens]
  if last and last.open then return "" end -- inside of a long string or comment
  local _, open = lex.pairs_of(before, tokens)
  local line = before:match "[^\n]*$"
  local start = #before - #line
  local deeper = open[#open] and tokens[open[#open]].from > start
  -- "else" and "then" belong to an "if" that a line above may have opened
  local word = line:match "%f[%w_](%a+)%s*$"
  if word == "else" or word == "then" and line:find "^%s*elseif%f[^%w_]" then deeper = true end
  local base = line:match "^[ \t]*"
  if deeper then return base .. step end
  local closes = line:find "[%)%]}]" or line:find "%f[%w_]end%f[^%w_]"
                 or line:find "%f[%w_]until%f[^%w_]"
  if closes and open[#open] then return indentation(before, tokens[open[#open]].from) .. step end
  if closes and not open[1] then return "" end
  return base
end

--- Where the line at the end of `before` only closes a block: the indentation of the line that
-- opened it, and the white space and the word of this one; else nil.
function M.closing(before)
  local space, word = before:match "\n([ \t]+)(%a+)$"
  if not space then space, word = before:match "\n([ \t]+)([%)%]}])$" end
  local closes = {["end"] = true, ["else"] = true, ["elseif"] = true, ["until"] = true,
                  [")"] = true, ["]"] = true, ["}"] = true}
  if not closes[word] then return nil end
  local front = before:sub(1, #before - #word)
  local tokens = lex.tokens(front)
  if tokens[#tokens] and tokens[#tokens].open then return nil end
  local _, open = lex.pairs_of(front, tokens)
  local opener = open[#open] and tokens[open[#open]]
  if not opener then return nil end
  return indentation(front, opener.from), space, word
end

return M
