-- What wrong lines say: the exact text, with the line and the place in the model.
local flare = require "flare"
local cases = require "spec.support.messages"

-- A model of a user's, in a file of their own.
local model = [[
local flare = require "flare"
local class, nn = flare.class, flare.nn
local Block = class("Block", nn.Module)
function Block:init(inputs)
  self.mlp = nn.Sequential(nn.Linear(inputs, 4), nn.GELU())
end
function Block:forward(x)
  return (self.mlp(x))
end
local Net = class("Net", nn.Module)
function Net:init() self.blocks = {Block(3), Block(5)} end
function Net:forward(x)
  for _, block in ipairs(self.blocks) do x = block(x) end
  return x
end
return Net]]
local Net = assert(load(model, "=net.lua"))()

local function message(source)
  local env = setmetatable({
    flare = flare, nn = flare.nn, optim = flare.optim, data = flare.data, net = Net(),
    x = flare.arange(1, 7):to("f32"):view(2, 3), i = flare.tensor({1, 2}, {dtype = "i64"}),
    w = flare.ones(3, {requires_grad = true}),
  }, {__index = _G})
  local ok, err = pcall(assert(load(source, "=user.lua", "t", env)))
  assert(not ok, "no error: " .. source)
  return err
end

describe("the message of", function()
  for _, case in ipairs(cases) do
    it(case[1], function() assert.equal(case[2], message(case[1])) end)
  end
end)
