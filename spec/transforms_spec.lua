-- Transforms of images: exact where nothing is drawn, else what must hold for every draw.
local flare = require "flare"
local data = flare.data
local T = data.transforms
local expect = require "spec.support.expect"
local support = require "spec.support.fill"
local fill, near, refused, i64 = support.fill, support.near, expect.refused, expect.i64

local function shape(x) return {table.unpack(x.shape)} end

-- Images whose channels are the row and the column of each pixel, from 0, and 1.
local function places(n, h, w)
  local rows = flare.arange(0, h):double():view(1, 1, h, 1):expand(n, 1, h, w)
  local columns = flare.arange(0, w):double():view(1, 1, 1, w):expand(n, 1, h, w)
  return flare.cat({rows, columns, flare.ones_like(rows)}, 2)
end

describe("transforms", function()
  before_each(function() flare.manual_seed(7) end)

  it("hand on what follows, and take one image as well", function()
    local f = T.Compose{T.CenterCrop(2), T.Normalize({1, 2, 3}, {4, 5, 6})}
    local x = fill({2, 3, 4, 4}, 1)
    local y, label, more = f(x, "label", nil)
    assert.equal("label", label)
    assert.is_nil(more)
    local middle = x[{{}, {}, {2, 3}, {2, 3}}]
    local function per(list) return flare.tensor(list, {dtype = "f64"}):view(1, 3, 1, 1) end
    near(y, ((middle - per{1, 2, 3}) / per{4, 5, 6}):reshape(-1):totable(), 1e-12)
    near(f(x[2]), y[2]:reshape(-1):totable(), 0)
  end)

  it("resize as interpolate does", function()
    local x = fill({2, 3, 8, 6}, 1)
    near(T.Resize({4, 3})(x), flare.interpolate(x, {size = {4, 3}, mode = "linear",
                                                   antialias = true}):view(-1):totable(), 0)
    assert.same({2, 3, 5, 5}, shape(T.Resize(5, {mode = "nearest"})(x)))
  end)

  it("crop pieces at places of their own", function()
    local y = T.RandomCrop({3, 4})(places(60, 5, 7))
    assert.same({60, 3, 3, 4}, shape(y))
    local top, left = y[{{}, 1, 1, 1}], y[{{}, 2, 1, 1}]
    near(y - y[{{}, {}, {1}, {1}}], places(60, 3, 4):sub(places(60, 3, 4)[{{}, {}, {1}, {1}}])
                                      :view(-1):totable(), 0)
    assert.same({0, 1, 2}, (top:unique()):totable())
    assert.same({0, 1, 2, 3}, (left:unique()):totable())
    local padded = T.RandomCrop(5, {padding = 2, value = -1})(places(40, 5, 5))
    assert.same({40, 3, 5, 5}, shape(padded))
    assert.is_true(padded:eq(-1):any():item())
    refused("6 x 6 does not fit into images of 5 x 7", T.RandomCrop(6), places(1, 5, 7))
    refused("6 x 6 does not fit into images of 5 x 7", T.CenterCrop(6), places(1, 5, 7))
  end)

  it("mirror a share of the images", function()
    local x = places(2000, 2, 3)
    for name, dim in pairs{RandomHorizontalFlip = 4, RandomVerticalFlip = 3} do
      local y = T[name](0.3)(x)
      local turned = (y - x):abs():sum{dims = {2, 3, 4}}:gt(0)
      near(turned:double():mean(), {0.3}, 0.05)
      near(y, flare.where(turned:view(-1, 1, 1, 1), x:flip(dim), x):view(-1):totable(), 0)
      near(T[name](1)(x), x:flip(dim):reshape(-1):totable(), 0)
      refused("p must be from 0 to 1, got 2", T[name], 2)
    end
  end)

  it("turn, move and enlarge around the middle", function()
    local x = places(30, 21, 31)
    near(T.RandomAffine()(x), x:reshape(-1):totable(), 1e-9)
    local y = T.RandomAffine{degrees = 30, scale = {1.5, 2}, padding = "border"}(x)
    local middle = y[{{}, {1, 2}, 11, 16}]
    near(middle[{{}, 1}], flare.full({30}, 10):totable(), 1e-9)
    near(middle[{{}, 2}], flare.full({30}, 15):totable(), 1e-9)
    local right, down = y[{{}, {1, 2}, 11, 17}] - middle, y[{{}, {1, 2}, 12, 16}] - middle
    near(right[{{}, 2}], down[{{}, 1}]:totable(), 1e-9)
    near(right[{{}, 1}], (-down[{{}, 2}]):totable(), 1e-9)
    local scale = 1 / right:norm{dims = {2}}
    local angle = flare.atan2(right[{{}, 1}], right[{{}, 2}]) * (180 / math.pi)
    assert.is_true(scale:amin():item() >= 1.5 - 1e-6 and scale:amax():item() <= 2 + 1e-6)
    assert.is_true(angle:abs():amax():item() <= 30 and angle:amax():item() > 5)
    assert.is_true(angle:amin():item() < -5)
    local moved = T.RandomAffine{translate = {0.1, 0}, padding = "border"}(x)
    local by = moved[{{}, 2, 11, 16}] - 15
    assert.is_true(by:abs():amax():item() <= 3.1 and by:amin():item() < 0 and by:amax():item() > 0)
    near(moved[{{}, 1, 11, 16}], flare.full({30}, 10):totable(), 1e-9)
  end)

  it("resize parts inside the image, of the requested area", function()
    local f = T.RandomResizedCrop(8, {scale = {0.2, 0.5}, ratio = {0.8, 1.25}, antialias = false})
    local y = f(places(50, 40, 40))
    assert.same({50, 3, 8, 8}, shape(y))
    local h = (y[{{}, 1, 8, 1}] - y[{{}, 1, 1, 1}]) * 8 / 7 / 40
    local w = (y[{{}, 2, 1, 8}] - y[{{}, 2, 1, 1}]) * 8 / 7 / 40
    local area, ratio = h * w, w / h
    assert.is_true(area:amin():item() > 0.18 and area:amax():item() < 0.53)
    assert.is_true(ratio:amin():item() > 0.75 and ratio:amax():item() < 1.33)
    assert.is_true(y[{{}, {1, 2}}]:amin():item() >= 0 and y[{{}, {1, 2}}]:amax():item() <= 39)
    -- where no draw fits: the largest part in the middle that has the ratio
    local wide = T.RandomResizedCrop({1, 2}, {scale = {4, 4}, ratio = {2, 2}})(places(1, 8, 6))
    near(wide[{1, 1}], {3, 3}, 1e-6)
    assert.is_true(wide[{1, 2, 1, 1}]:item() < 2 and wide[{1, 2, 1, 2}]:item() > 3)
  end)

  it("keep bytes bytes", function()
    local x = flare.randint(0, 256, {6, 3, 12, 10}):to "u8"
    for _, f in ipairs{T.RandomCrop(8, {padding = 1}), T.RandomHorizontalFlip(), T.RandomErasing(),
                       T.RandomVerticalFlip(), T.RandomAffine{degrees = 9}, T.GaussianBlur(3),
                       T.RandomResizedCrop(5, {mode = "cubic"}), T.Resize(4, {mode = "nearest"}),
                       T.ColorJitter{brightness = 0.4, contrast = 2, hue = 0.5}, T.Grayscale()} do
      assert.equal("u8", f(x).dtype, tostring(f))
      assert.equal("u8", f(x[1]).dtype, tostring(f))
    end
    near(T.Normalize({0.5, 0, 0}, {2, 1, 1})(x)[{{}, 1}], ((x[{{}, 1}]:float() / 255 - 0.5) / 2)
                                                             :view(-1):totable(), 1e-6)
    near(T.ToFloat()(x), (x:float() / 255):view(-1):totable(), 1e-7)
    local y, labels = T.MixUp{classes = 3}(x, i64{1, 2, 3, 1, 2, 3})
    assert.equal("u8f32", y.dtype .. labels.dtype)
    local affine = T.RandomAffine{degrees = 9}
    flare.manual_seed(3)
    local want = affine(x:float()):round()
    flare.manual_seed(3)
    near(affine(x):float(), want:view(-1):totable(), 0)
  end)

  it("draw from a generator of their own, if they have one", function()
    local x = flare.randint(0, 256, {9, 3, 7, 7}):to "u8"
    local list = {T.RandomCrop(4), T.ColorJitter{hue = 0.2, saturation = 0.5}, T.MixUp{classes = 9}}
    local labels = flare.arange(1, 10)
    local function run(seed)
      local f = T.Compose(list, {generator = flare.generator(seed)})
      local a, b = f(x, labels), f(x, labels)
      return a:to "f32", b:to "f32"
    end
    flare.manual_seed(1)
    local drawn = flare.rand(1):item()
    flare.manual_seed(1)
    local a, b = run(5)
    assert.equal(drawn, flare.rand(1):item())
    local c, d = run(5)
    assert.is_true(a:equal(c) and b:equal(d))
    assert.is_false(a:equal(b))
    assert.is_false(a:equal((run(6))))
    refused("cannot be sent to worker threads", data.Loader, data.Tensors(x, labels),
            {workers = 1, transform = T.Compose(list, {generator = flare.generator(1)})})
  end)

  it("change colours by factors within their range", function()
    local x = fill({20, 3, 4, 4}, 1):abs() * 0.5 + 0.2
    local gray = T.Grayscale()(x)
    near(gray[{1, 1, 1, 1}], {(x[{1, 1, 1, 1}] * 0.299 + x[{1, 2, 1, 1}] * 0.587
                               + x[{1, 3, 1, 1}] * 0.114):item()}, 1e-7)
    local bright = T.ColorJitter{brightness = 0.2}(x) / x
    near(bright:flatten(2):std(2), flare.zeros(20):totable(), 1e-9)
    assert.is_true(bright:amin():item() >= 0.8 and bright:amax():item() <= 1.2)
    assert.is_true(bright:std():item() > 0.05)
    local mean = gray:mean{dims = {2, 3, 4}}
    near(T.Grayscale()(T.ColorJitter{contrast = 0.2}(x)):mean{dims = {2, 3, 4}}, mean:totable(),
         1e-6)
    near(T.Grayscale()(T.ColorJitter{saturation = 0.2}(x)), gray:view(-1):totable(), 1e-6)
    refused("3 channels (red, green, blue), got 2", T.Grayscale(), flare.ones(1, 2, 3, 3))
  end)

  it("erase rectangles and blur", function()
    local x = flare.ones(200, 2, 20, 20)
    local y = T.RandomErasing{p = 0.4, scale = {0.1, 0.2}, value = 5}(x)
    local share = y:eq(5):double():mean{dims = {2, 3, 4}}
    near(share:gt(0):double():mean(), {0.4}, 0.1)
    local some = share[share:gt(0)]
    assert.is_true(some:amin():item() > 0.07 and some:amax():item() < 0.24)
    local rows, columns = y[{{}, 1}]:eq(5):any(3):sum(2), y[{{}, 1}]:eq(5):any(2):sum(2)
    near(rows * columns / 400, share:totable(), 1e-6)
    local blur = T.GaussianBlur(5, {sigma = {1, 1}})
    near(blur(x), flare.ones(x:numel()):totable(), 1e-5)
    local dot = flare.zeros(1, 1, 9, 9, {dtype = "f64"})
    dot[{1, 1, 5, 5}] = 1
    local spot = blur(dot)
    near(spot:sum(), {1}, 1e-6)
    near(spot[{1, 1, 5, 6}] / spot[{1, 1, 5, 5}], {math.exp(-0.5)}, 1e-6)
    refused("the kernel must be odd, got 4", T.GaussianBlur, 4)
  end)

  it("mix images with their labels", function()
    local x = flare.eye(4):view(4, 1, 2, 2):repeat_interleave(2, 3):repeat_interleave(2, 4):double()
    local labels = i64{1, 2, 3, 4}
    local mixed, y = T.MixUp{classes = 4, alpha = 0.5}(x, labels)
    near(y:sum(2), {1, 1, 1, 1}, 1e-6)
    near(mixed[{{}, 1}][{{}, {1, -1, 2}, {1, -1, 2}}], y:view(-1):totable(), 1e-6)
    local cut, z, more = T.CutMix{classes = 4}(flare.arange(1, 5):double():view(4, 1, 1, 1)
                                                :expand(4, 1, 6, 6), labels, 9)
    assert.equal(9, more)
    for k = 1, 4 do near(cut:eq(k):double():mean{dims = {2, 3, 4}}, z[{{}, k}]:totable(), 1e-9) end
    local again = select(2, T.MixUp{classes = 4}(x, z))
    near(again:sum(2), {1, 1, 1, 1}, 1e-6)
    flare.cross_entropy(flare.zeros(4, 4, {dtype = "f64"}), z)
    refused("the labels of the images are needed", T.MixUp{classes = 4}, x)
    refused("classes must be an integer", T.MixUp, {})
  end)

  it("draw what the loader's seed says", function()
    local function epoch(seed)
      local set = data.Tensors(places(12, 6, 6):float(), flare.arange(1, 13))
      local loader = data.Loader(set, {batch = 5, seed = seed, transform = T.RandomCrop(3)})
      local all = {}
      for x in loader:epoch() do all[#all + 1] = x end
      return flare.cat(all, 1)
    end
    assert.is_true(epoch(1):equal(epoch(1)))
    assert.is_false(epoch(1):equal(epoch(2)))
  end)

  it("say what they take", function()
    refused("floats or u8 (batch, channels, height, width) are expected, got i64 (3)",
            T.RandomHorizontalFlip(), i64{1, 2, 3})
    refused("got table", T.Resize(3), {})
    refused("size must be an integer of at least 1, got 0", T.Resize, 0)
    refused("hue must be from -0.5 to 0.5", T.ColorJitter, {hue = 0.6})
    refused("brightness must not be negative", T.ColorJitter, {brightness = -1})
    refused("with keep_ratio, size must be a number", T.Resize, {3, 4}, {keep_ratio = true})
    refused("scale must be two numbers, {from, to}", T.RandomResizedCrop, 3, {scale = {1, 0.5}})
    refused("did you mean 'padding'", T.RandomCrop, 3, {pading = 1})
    refused("a list of functions is expected, got a tensor", T.Compose, flare.ones(1))
    refused("did you mean 'RandomCrop'", function() return T.RandomCorp(1) end)
  end)
end)

describe("Concat", function()
  it("is one set behind the other, in any order", function()
    local a = data.Tensors(flare.arange(1, 4), flare.arange(11, 14))
    local b = {size = function() return 2 end,
               get = function(_, i) return flare.tensor(100 + i, {dtype = "i64"}), 200 + i end}
    local set = data.Concat(a, b, data.Subset(a, {3, 1}))
    assert.equal(7, #set)
    local x, y = set:fetch(i64{7, 1, 5, 4, 2, 6, 1})
    assert.same({1, 1, 102, 101, 2, 3, 1}, x:totable())
    assert.same({11, 11, 202, 201, 12, 13, 11}, y:totable())
    assert.same({0}, shape((set:fetch(flare.zeros({0}, {dtype = "i64"})))))
    local words = {size = function() return 2 end, get = function(_, i) return "abc", i end}
    local text = data.Concat(words, words):fetch(i64{4, 1})
    assert.same({"abc", "abc"}, text)
  end)

  it("goes to workers", function()
    local a = data.Tensors(flare.arange(1, 5):float())
    local loader = data.Loader(data.Concat(a, data.Subset(a, {2, 3})), {batch = 4, workers = 1})
    local all = {}
    for x in loader:epoch() do all[#all + 1] = x end
    loader:close()
    assert.same({1, 2, 3, 4, 2, 3}, flare.cat(all, 1):totable())
    refused("argument 2 must be a data set, got number", data.Concat, a, 3)
    refused("at least one data set", data.Concat)
    refused("has no method describe", data.Concat.describe,
            data.Concat{size = function() return 1 end})
  end)
end)
