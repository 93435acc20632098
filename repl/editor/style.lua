--- Colours for Lua as it is typed, and the pair of brackets at the cursor. With NO_COLOR there are
-- none.
local lex = require "flare.repl.lex"

local M = {}

local codes = {keyword = "35", string = "32", number = "36", comment = "90"}
local pair, wrong = "1;4", "31"
local longest = 20000 -- bytes of a text that is coloured: all of it is read at each key
local brackets = {["("] = true, [")"] = true, ["["] = true, ["]"] = true, ["{"] = true,
                  ["}"] = true, ["function"] = true, ["do"] = true, ["if"] = true,
                  ["repeat"] = true, ["end"] = true, ["until"] = true}

--- Whether colours are wanted: see https://no-color.org.
function M.wanted()
  local no = os.getenv "NO_COLOR"
  return not no or no == ""
end

--- A text in a colour.
function M.paint(text, code)
  if not code or not M.wanted() or text == "" then return text end
  return ("\27[%sm%s\27[0m"):format(code, text)
end

--- The parts of a text that have a colour: a list of {from, to, code}, in order.
-- @param at the cursor, or nil: the bracket before it, or else behind it, is shown with its mate
function M.spans(text, at)
  local spans = {}
  if not M.wanted() or #text > longest or text:find "^%s*:!" then return spans end
  local tokens = lex.tokens(text)
  local mates = lex.pairs_of(text, tokens)
  local shown = {}
  local function show(position)
    for i, token in ipairs(tokens) do
      if token.from <= position and position <= token.to then
        if mates[i] and brackets[text:sub(token.from, token.to)] then
          shown[i], shown[mates[i]] = true, true
          return true
        end
        return false
      end
    end
  end
  if at and not show(at) then show(at + 1) end
  for i, token in ipairs(tokens) do
    local code = codes[token.kind]
    if shown[i] then code = (code and code .. ";" or "") .. pair end
    if mates[i] == false then code = wrong end
    if code then spans[#spans + 1] = {token.from, token.to, code} end
  end
  return spans
end

return M
