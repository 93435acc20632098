--- Texts as tensors of token ids, one for each character.
local core = require "flare.core"
local kind = require "flare.io.kind"
local options = require "flare.options"
local Vocabulary = require "flare.data.vocabulary"

local M = {}

--- Reads a whole text file. A file that is empty or has zero bytes is an error.
-- @return the text, or nil and a message
function M.read(path)
  local text, message = core.file.read(path)
  if not text then return nil, message end
  if #text == 0 then return nil, ("%s: the file is empty"):format(path) end
  if text:sub(1, 4096):find("\0", 1, true) then
    return nil, ("%s: not a text: it has zero bytes%s"):format(path,
      kind.hint(text:sub(1, kind.BYTES), path))
  end
  return text
end

--- Reads a text file and encodes its characters.
-- @param path of the file
-- @param vocabulary a Vocabulary; without it, one is made from the text
-- @return token ids (i64, from 1) and the vocabulary, or nil and a message
function M.load(path, vocabulary)
  local text, message = M.read(path)
  if not text then return nil, message end
  vocabulary = vocabulary or Vocabulary(text)
  local tokens
  tokens, message = vocabulary:encode(text)
  if not tokens then return nil, ("%s: %s"):format(path, message) end
  return tokens, vocabulary
end

--- Iterates over consecutive windows of `block` tokens without overlap, in batches of up to
-- `batch`; the last window may be shorter, so that every token but the first is a target once.
-- @return an iterator over x, y (rows, block): y[t] is the token after x[t]
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
