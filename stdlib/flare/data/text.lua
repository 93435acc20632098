--- Texts as tensors of character numbers.
local core = require "flare.core"
local options = require "flare.options"
local Vocabulary = require "flare.data.vocabulary"

local M = {}

--- A whole file as a string; one that is not plain text is refused.
-- @return the text, or nil and a message
function M.read(path)
  local text, message = core.file.read(path)
  if not text then return nil, message end
  if #text == 0 then return nil, ("%s: the file is empty"):format(path) end
  if text:sub(1, 4096):find("\0", 1, true) then
    return nil, ("%s: not a text: it has zero bytes"):format(path)
  end
  return text
end

--- Reads a text and numbers its characters.
-- @param path of the file
-- @param vocabulary to use; left out: made from the text
-- @return the numbers (i64, from 1) and the vocabulary, or nil and a message
function M.load(path, vocabulary)
  local text, message = M.read(path)
  if not text then return nil, message end
  vocabulary = vocabulary or Vocabulary(text)
  local tokens
  tokens, message = vocabulary:encode(text)
  if not tokens then return nil, ("%s: %s"):format(path, message) end
  return tokens, vocabulary
end

--- Iterates over the windows of `block` tokens that follow each other without overlap, up
-- to `batch` at a time; a shorter rest comes last, so that every token is predicted once.
-- @return an iterator over x, y (rows, block): y is x one further
function M.blocks(tokens, block, batch)
  options.tensor("data.text.blocks", "tokens", tokens)
  options.count("data.text.blocks", "block", block)
  options.count("data.text.blocks", "batch", batch)
  local usable = #tokens - 1
  local rows, row = usable // block, 1
  local tail = usable % block
  return function()
    if row <= rows then
      local n = math.min(batch, rows - row + 1)
      local start = (row - 1) * block + 1
      row = row + n
      return tokens:narrow(1, start, n * block):view(n, block),
             tokens:narrow(1, start + 1, n * block):view(n, block)
    end
    if tail > 0 then
      local n = tail
      tail = 0
      return tokens:narrow(1, rows * block + 1, n):view(1, n),
             tokens:narrow(1, rows * block + 2, n):view(1, n)
    end
  end
end

return M
