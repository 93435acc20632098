-- Layers whose input has another dtype than their weights compute in the wider one.
local flare = require "flare"
local nn = flare.nn

local layers = {
  Linear = function() return nn.Linear(4, 4), {2, 4} end,
  Bilinear = function() return nn.Bilinear(4, 4, 2), {2, 4}, {2, 4} end,
  Conv1d = function() return nn.Conv1d(4, 2, 1), {2, 4, 3} end,
  ConvTranspose1d = function() return nn.ConvTranspose1d(4, 2, 1), {2, 4, 3} end,
  LayerNorm = function() return nn.LayerNorm(4), {2, 4} end,
  RMSNorm = function() return nn.RMSNorm(4), {2, 4} end,
  GroupNorm = function() return nn.GroupNorm(2, 4), {2, 4, 3} end,
  BatchNorm1d = function() return nn.BatchNorm1d(4), {5, 4} end,
  PReLU = function() return nn.PReLU(), {2, 4} end,
  LSTM = function() return nn.LSTM(4, 2), {3, 2, 4} end,
  GRU = function() return nn.GRU(4, 2), {3, 2, 4} end,
  TransformerEncoderLayer = function() return nn.TransformerEncoderLayer(4, 2), {2, 3, 4} end,
}

for name, make in pairs(layers) do
  describe("nn." .. name .. " of f32", function()
    it("computes an f64 input in f64, and keeps f32 gradients", function()
      local layer, shape, other = make()
      local x = flare.randn(shape, {dtype = "f64"})
      local y = layer(x, other and flare.randn(other, {dtype = "f64"}))
      assert.equal("f64", y.dtype)
      y:sum():backward()
      for _, p in ipairs(layer:parameters()) do
        assert.equal("f32", p.dtype)
        assert.equal("f32", p.grad.dtype)
      end
    end)
  end)
end
