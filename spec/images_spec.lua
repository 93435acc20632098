-- PNG and JPEG files, against what Pillow reads (spec/support/images_data.py), and what is refused.
local flare = require "flare"
local core, images = flare.core, flare.data.images
local refused = require("spec.support.expect").refused
local folder = "spec/data/images/"
local pixels = core.json.decode(core.file.read(folder .. "pixels.json"))

local function bytes_of(hex)
  return (hex:gsub("%x%x", function(digits) return string.char(tonumber(digits, 16)) end))
end

-- The samples that Pillow gives.
local function samples(name)
  local p = pixels[name]
  local bytes = bytes_of(p.hex)
  if p.bits == 8 then return core.from_bytes(bytes, "u8", p.shape) end
  local list = {}
  for k = 1, #bytes // 2 do list[k] = string.unpack(">I2", bytes, 2 * k - 1) end
  return core.tensor(list, {dtype = "i32"}):view(p.shape)
end

local function same(want, got, message)
  assert.is_truthy(got, message)
  assert.equal(want.dtype .. tostring(want.shape), got.dtype .. tostring(got.shape))
  assert.is_true(want:eq(got):all():item())
end

local function furthest(a, b) return (a:to "i32" - b:to "i32"):abs():amax():item() end

describe("images", function()
  for name, p in pairs(pixels) do
    if name:find "%.%a+$" and not name:find " " then
      it("have the samples of Pillow: " .. name, function()
        same(samples(name), images.read(folder .. name, {bits = p.bits}))
      end)
    end
  end

  it("of 16 bits become 8, rounded, and of 8 bits 16", function()
    local deep = samples "rgb16.png"
    same((deep:to "f64" / 257):round():to "u8", images.read(folder .. "rgb16.png"))
    same(samples "rgb.png":to "i32" * 257, images.read(folder .. "rgb.png", {bits = 16}))
  end)

  it("get the channels that are asked for", function()
    local grey, rgb, rgba = samples "grey.png", samples "rgb.png", samples "rgba.png"
    local function read(name, n) return images.read(folder .. name, {channels = n}) end
    same(grey:expand(3, 13, 17), read("grey.png", 3))
    same(samples "luminance of rgb.png", read("rgb.png", 1))
    same(rgba:narrow(1, 1, 3), read("rgba.png", 3))
    same(core.cat({rgb, core.full({1, 13, 17}, 255, {dtype = "u8"})}, 1), read("rgb.png", 4))
    same(rgba:narrow(1, 4, 1), read("rgba.png", 2):narrow(1, 2, 1))
    same(samples "grey_alpha.png", read("grey_alpha.png", 2))
    same(samples "grey_alpha.png":narrow(1, 1, 1), read("grey_alpha.png", 1))
  end)

  it("stay as they lie where orient is false", function()
    local x = assert(images.read(folder .. "turn6.png", {orient = false}))
    same(x:transpose(2, 3):flip(3):contiguous(), samples "turn6.png")
  end)

  it("are the same after PNG, for any bits and channels", function()
    flare.manual_seed(3)
    for n = 1, 4 do
      local x = core.randint(0, 256, {n, 7, 9}):to "u8"
      same(x, images.decode(images.encode(x, "png")))
      local flipped = x:transpose(2, 3)
      same(flipped:contiguous(), images.decode(images.encode(flipped, "png", {level = 0})))
      local deep = core.randint(0, 65536, {n, 7, 9}):to "i32"
      same(deep, images.decode(images.encode(deep, "png", {bits = 16}), {bits = 16}))
    end
    local x = core.tensor{{0, 0.5, 1}, {-3, 0.1, 7}}
    assert.same({{{0, 128, 255}, {0, 26, 255}}}, images.decode(images.encode(x, "png")):totable())
  end)

  it("are nearly the same after JPEG", function()
    local x = samples "optimized.jpg"
    local fine = images.decode(images.encode(x, "jpeg", {quality = 100, sampling = "4:4:4"}))
    local coarse = images.decode(images.encode(x, "jpeg", {quality = 10}))
    assert(furthest(x, fine) <= 3)
    assert(furthest(x, coarse) > 10)
    local grey = samples "grey.jpg"
    assert(furthest(grey, images.decode(images.encode(grey, "jpeg", {quality = 100}))) <= 2)
  end)

  it("are written by the path's ending", function()
    local path = os.tmpname()
    for _, ending in ipairs {".png", ".jpg", ".JPEG"} do
      assert(images.write(path .. ending, samples "rgb.png"))
      assert(furthest(samples "rgb.png", assert(images.read(path .. ending))) < 100)
      os.remove(path .. ending)
    end
    os.remove(path)
    refused("must end in .png, .jpg or .jpeg, got x.gif", images.write, "x.gif", core.zeros(2, 2))
    assert.match("no/such.png: ", select(2, images.write("no/such.png", core.zeros(2, 2))))
  end)

  it("that end too early are refused, at any length", function()
    for _, name in ipairs {"palette_alpha.png", "interlaced.png", "rgb.jpg", "progressive.jpg"} do
      local whole = core.file.read(folder .. name)
      for n = 0, #whole - 13, 7 do
        local x, message = images.decode(whole:sub(1, n))
        assert.is_nil(x, name .. " " .. n)
        assert.match("^not a", message)
      end
    end
  end)

  it("that claim a size beyond their data or the limit cost nothing", function()
    local head = "\0\0\x40\0\0\0\x40\0\8\6\0\0\0"
    local bomb = "\x89PNG\r\n\x1a\n" .. string.pack(">I4", 13) .. "IHDR" .. head
      .. string.pack(">I4", core.crc32("IHDR" .. head)) .. string.pack(">I4", 1) .. "IDAT\0"
      .. string.pack(">I4", core.crc32 "IDAT\0")
    assert.equal("not a good PNG image: the data end too early", select(2, images.decode(bomb)))
    local jpeg = core.file.read(folder .. "rgb.jpg")
    local at = assert(jpeg:find("\xff\xc0", 1, true)) -- length, bits, height, width
    local tall = jpeg:sub(1, at + 4) .. "\x3f\xff\x3f\xff" .. jpeg:sub(at + 9)
    assert.equal("not a good JPEG image: the data end too early", select(2, images.decode(tall)))
    local _, message = images.read(folder .. "rgb.png", {limit = 100})
    assert.match("rgb.png: not a good PNG image: 17 x 13 pixels are more than the limit of 100$",
                 message)
    assert.match("30 x 21 pixels are more than the limit of 629",
                 select(2, images.read(folder .. "rgb.jpg", {limit = 629})))
  end)

  it("with other checksums or of other formats are refused by name", function()
    local bytes = core.file.read(folder .. "rgb.png")
    local _, message = images.decode(bytes:sub(1, 60) .. "\0\1\2" .. bytes:sub(64))
    assert.match("^not a good PNG image: ", message)
    assert.match("^not a PNG or JPEG image.*GIF", select(2, images.decode "GIF89a\1\0\1\0"))
    assert.match("not/there.png: ", select(2, images.read "not/there.png"))
  end)

  it("refuse wrong calls", function()
    refused("channels must be 1 (grey)", images.read, "x.png", {channels = 5})
    refused("bits must be 8 or 16, got 12", images.decode, "", {bits = 12})
    refused("unknown option 'channel' (did you mean 'channels'?)", images.decode, "",
            {channel = 1})
    local x = core.zeros(2, 2)
    refused("the format must be \"png\" or \"jpeg\", got gif", images.encode, x, "gif")
    refused("1 to 4 channels, got 5", images.encode, core.zeros(5, 2, 2), "png")
    refused("1 or 3 channels, got 4", images.encode, core.zeros(4, 2, 2), "jpeg")
    refused("samples must be from 0 to 255", images.encode, x:to "i32" + 256, "png")
    refused("an image (channels, height, width) is expected", images.encode, core.zeros(0, 2),
            "png")
    refused("quality must be 1 to 100", images.encode, x, "jpeg", {quality = 101})
    refused("sampling must be", images.encode, x, "jpeg", {sampling = "4:1:1"})
  end)
end)
