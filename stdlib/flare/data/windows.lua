--- A data set of all windows of a sequence of tokens: sample i is x = tokens i .. i+block-1 and
-- y = tokens i+1 .. i+block.
local class = require "flare.class"
local core = require "flare.core"
local fail = require "flare.fail"
local options = require "flare.options"
local positions = require "flare.data.positions"

local Windows = class("Windows")
Windows.__word = "set"

--- data.Windows(tokens, block)
-- @param tokens (n), n > block
function Windows:init(tokens, block)
  self.block = options.count("data.Windows", "block", block)
  if not core.is_tensor(tokens) or tokens:dim() ~= 1 then
    fail("data.Windows: tokens must be a tensor of one dim")
  end
  if #tokens <= block then
    fail("data.Windows: %d tokens are too few for windows of %d and one more", #tokens, block)
  end
  self.tokens = tokens
  self.reach = core.arange(0, block + 1):unsqueeze(1)
end

function Windows:size()
  return #self.tokens - self.block
end
Windows.__len = Windows.size

function Windows:__tostring()
  return ("Windows: %d of %d tokens out of %d"):format(self:size(), self.block, #self.tokens)
end

--- x, y (rows, block) for positions (rows), a tensor or a list of them
function Windows:fetch(index)
  index = positions("Windows:fetch", index)
  local at = (index:unsqueeze(2) + self.reach):view(-1)
  local both = self.tokens:index_select(1, at):view(#index, self.block + 1)
  return both:narrow(2, 1, self.block), both:narrow(2, 2, self.block)
end

--- The module and arguments from which a worker thread makes this data set again.
function Windows:describe()
  return "flare.data.windows", self.tokens, self.block
end

return Windows
