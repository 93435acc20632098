-- Transforms of images against what Pillow gives for bytes, equal in every sample, and torchvision
-- for floats (spec/support/transforms_data.py).
local flare = require "flare"
local core, T = flare.core, flare.data.transforms
local peers = core.json.decode(core.file.read "spec/data/transforms.json")

local function bytes_of(p)
  local text = p.hex:gsub("%x%x", function(digits) return string.char(tonumber(digits, 16)) end)
  return core.from_bytes(text, "u8", p.shape)
end

local picture, small = bytes_of(peers.picture), bytes_of(peers.center)
local floats = small:to "f32" / 255

local function same(want, got, what)
  assert.equal("u8" .. tostring(want.shape), got.dtype .. tostring(got.shape), what)
  local most = (want:to "i32" - got:to "i32"):abs():amax():item()
  assert.equal(0, most, what)
end

local function near(p, got, tolerance, what)
  local want = flare.tensor(p.values):view(p.shape)
  assert.equal("f32" .. tostring(want.shape), got.dtype .. tostring(got.shape), what)
  local most = (want - got):abs():amax():item()
  assert(most <= tolerance, ("%s: %g"):format(what, most))
end

local function jitter(name, factor) return T.ColorJitter{[name] = {factor, factor}} end

describe("transforms of bytes", function()
  it("resize as Pillow does", function()
    for _, p in ipairs(peers.resize) do
      local f = T.Resize(p.size, {mode = p.mode})
      same(bytes_of(p), f(picture), tostring(f))
      local batch = f(core.stack({picture, picture:flip(3)}, 1))
      same(bytes_of(p), batch[1], "in a batch")
      same(f(picture:flip(3)), batch[2], "in a batch")
    end
  end)

  it("change brightness, contrast and saturation as Pillow does", function()
    for _, p in ipairs(peers.enhance) do
      same(bytes_of(p), jitter(p.name, p.factor)(picture), p.name .. p.factor)
    end
    same(bytes_of(peers.grey), T.Grayscale()(picture), "grey")
  end)

  it("turn the hue as torchvision does", function()
    for _, p in ipairs(peers.float) do
      if p.name == "hue" then
        same(bytes_of{hex = p.bytes, shape = p.shape}, jitter("hue", p.factor)(small), p.factor)
      end
    end
  end)

  it("crop the center as torchvision does", function()
    same(small, T.CenterCrop{9, 8}(picture), "center")
  end)
end)

describe("transforms of floats", function()
  it("resize and turn the hue as torchvision does", function()
    for _, p in ipairs(peers.float) do
      if p.name == "resize" then
        local f = T.Resize(p.size, {mode = p.mode, antialias = p.antialias})
        near(p, f(floats), 2e-6, tostring(f))
      elseif p.name == "hue" then
        near(p, jitter("hue", p.factor)(floats), 2e-6, "hue")
      else -- its luminance has 0.2989 of red, ITU-R 601 and Pillow have 0.299
        near(p, jitter(p.name, p.factor)(floats), 1e-4, p.name)
      end
    end
  end)

  it("resize a part as torchvision does", function()
    local top, left, h, w = table.unpack(peers.crop.box)
    local part = floats:narrow(2, top + 1, h):narrow(3, left + 1, w)
    near(peers.crop, T.Resize(4)(part), 2e-6, "part")
  end)

  it("keep the ratio as torchvision does", function()
    local f = T.Resize(peers.short.size, {keep_ratio = true})
    assert.same(peers.short.shape, {table.unpack(f(picture).shape)})
    assert.same({3, 5, 8}, {table.unpack(f(core.zeros(3, 6, 10)).shape)})
  end)
end)
