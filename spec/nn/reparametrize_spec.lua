-- Weights made of other parameters: their lengths and singular values, by other ways of computing.
local expect = require "spec.support.expect"
local flare = require "flare"
local nn = flare.nn
local close, refused = expect.close, expect.refused

local function keys(state)
  local list = {}
  for key in pairs(state) do list[#list + 1] = key end
  table.sort(list)
  return list
end

describe("weight_norm", function()
  it("keeps the weight, whose rows have the lengths that are learned", function()
    for _, layer in ipairs{nn.Linear(3, 4):double(), nn.Conv2d(3, 4, 2):double()} do
      local before = layer.weight:detach():clone()
      nn.weight_norm(layer)
      close(layer.weight:detach(), before)
      flare.no_grad(function() layer.weight_g:mul_(3) end)
      layer(flare.ones(before:dim() == 2 and {9, 3} or {1, 3, 3, 3}, {dtype = "f64"}))
      close(layer.weight:detach(), before * 3)
      assert.same({"bias", "weight_g", "weight_v"}, keys(layer:state_dict()))
    end
  end)

  it("has one length for all with dim = false, and gradients for both parts", function()
    local layer = nn.weight_norm(nn.Linear(3, 2):double(), {dim = false})
    assert.equal(1, layer.weight_g:numel())
    local x = flare.randn(4, 3, {dtype = "f64"})
    assert.is_true(flare.gradcheck(function(g, v)
      layer.weight_g, layer.weight_v = nil, nil
      layer.weight_g, layer.weight_v = g, v
      return layer(x)
    end, {layer.weight_g:detach(), layer.weight_v:detach()}, {second = true}))
  end)
end)

describe("spectral_norm", function()
  it("makes the largest singular value 1", function()
    for _, layer in ipairs{nn.Linear(6, 4), nn.ConvTranspose2d(3, 5, 2)} do
      layer:double()
      local dim = layer.weight:dim() == 2 and 1 or 2
      nn.spectral_norm(layer, {iterations = 100})
      local x = flare.randn(dim == 1 and {2, 6} or {2, 3, 4, 4}, {dtype = "f64"})
      layer(x)
      close(layer.weight:detach():movedim(dim, 1):flatten(2):svdvals()[1], flare.ones{})
      assert.same({"bias", "weight_orig", "weight_u", "weight_v"}, keys(layer:state_dict()))
      assert.equal(2, #layer:parameters())
    end
  end)

  it("moves its vectors while training only, and may run twice before backward", function()
    local layer = nn.spectral_norm(nn.Linear(6, 4))
    local x, u = flare.randn(2, 6), layer.weight_u:clone()
    layer:eval()
    layer(x)
    assert.is_true(layer.weight_u:equal(u))
    layer:train();
    (layer(x):sum() + layer(-x):square():sum()):backward()
    assert.is_false(layer.weight_u:equal(u))
    assert.same({4, 6}, {table.unpack(layer.weight_orig.grad.shape)})
  end)

  it("follows conversions, copies and state dicts", function()
    local a = nn.spectral_norm(nn.Linear(6, 4)):double():eval()
    local b = nn.spectral_norm(nn.Linear(6, 4)):double():eval()
    local x = flare.randn(2, 6, {dtype = "f64"})
    b:load_state_dict(a:state_dict())
    close(b(x):detach(), a(x):detach())
    local copy = a:clone()
    flare.no_grad(function() a.weight_orig:add_(1) end)
    close(copy(x):detach(), b(x):detach())
  end)

  it("says what it cannot take, and leaves the layer as it was", function()
    local norm = nn.LayerNorm(3)
    refused("'weight' has 1 dims, at least 2", nn.spectral_norm, norm)
    assert.is_truthy(norm.weight)
    refused("the layer has no tensor 'weight'", nn.weight_norm, nn.ReLU())
    refused("a layer is expected, got a tensor", nn.weight_norm, flare.ones(2))
    refused("did you mean 'name'", nn.weight_norm, nn.Linear(2, 2), {nmae = "bias"})
  end)
end)
