-- Pictures of tensors as files: the elements of the SVG and the pixels of the PNG.
local flare = require "flare"
local message = require "spec.support.expect".message
local png = require "spec.support.png"
local tree = require "spec.support.tree"

local folder
setup(function()
  folder = os.tmpname()
  os.remove(folder)
  assert(flare.core.file.mkdir(folder))
end)
teardown(function() os.execute("rm -rf '" .. folder .. "'") end)

local function written(x, kind, ending)
  local path = ("%s/%s.%s"):format(folder, kind, ending)
  assert.is_true(x[kind](x, path))
  local bytes = tree.read(path)
  return ending:lower() == "png" and png(bytes) or bytes
end

-- The picture that an SVG holds.
local function embedded(svg)
  local name = folder .. "/embedded"
  assert(flare.core.file.write_atomic(name, svg:match "href=\"data:image/png;base64,([^\"]*)\""))
  return png((tree.output(("base64 -d '%s'"):format(name))))
end

describe("a picture in a file", function()
  it("of an image is its pixels, whatever its layout and range", function()
    local x = flare.tensor{{{1, 0, 0.5}, {0, 1, 0 / 0}}, {{0, 1, 0.5}, {0, 1, 2}},
                           {{0, 0, 0.5}, {1, 1, -1}}}
    -- the largest element is 2: the range is that of bytes
    local expected = {{1, 0, 0}, {0, 1, 0}, {1, 1, 1}, {0, 0, 1}, {1, 1, 1}, {0, 2, 0}}
    local bytes = (x * 100):nan_to_num(0):clamp(0, 255):floor():to "u8"
    for factor, image in pairs {[1] = x, [100] = x * 100} do
      for _, one in ipairs {image, image:permute(2, 3, 1)} do
        local got = written(one, "image", "png")
        assert.same({3, 2, 3}, {got.width, got.height, got.channels})
        for i, colour in ipairs(expected) do
          local r, g, b = table.unpack(colour)
          local half = i == 3 and factor == 100
          assert.same(half and {50, 50, 50} or {r * factor, g * factor, b * factor},
                      {got.at((i - 1) % 3, (i - 1) // 3)})
        end
      end
    end
    local svg = written(bytes, "image", "SVG")
    assert.match('^<svg [^>]*width="3" height="2"', svg)
    assert.same({0, 200, 0}, {embedded(svg).at(2, 1)})
    local grey = written(flare.tensor{{0, 1}, {0.2, 0.4}}, "image", "png")
    assert.same({255, 255, 255}, {grey.at(1, 0)})
    assert.same({51, 51, 51}, {grey.at(0, 1)})
  end)

  it("of a matrix has a field for each element, NaN red, and a scale", function()
    local x = flare.tensor{{0, 1}, {0 / 0, 4}, {1 / 0, -1 / 0}}
    local svg = written(x, "heat", "svg")
    local fields = embedded(svg)
    assert.same({320, 480}, {fields.width, fields.height})
    local dark, light = {68, 1, 84}, {253, 231, 37}
    assert.same(dark, {fields.at(0, 0)})
    assert.same({200, 0, 0}, {fields.at(159, 160)})
    assert.same(light, {fields.at(160, 319)})
    assert.same(light, {fields.at(0, 479)})
    assert.same(dark, {fields.at(319, 479)})
    for _, text in ipairs {">0<", ">4<", ">1<", ">2<", ">3<"} do
      assert.truthy(svg:find(text, 1, true), text)
    end
    local pixels = written(x, "heat", "png") -- the same elements, drawn
    local left, top = svg:match '<image x="(%d+)" y="(%d+)"'
    assert.same({fields.at(200, 200)}, {pixels.at(left + 200, top + 200)})
    assert.same({200, 0, 0}, {pixels.at(left + 10, top + 200)})
    assert.same(light, {pixels.at(left + 320 + 20, top + 0)})
    assert.same(dark, {pixels.at(left + 320 + 20, top + 479)})
    assert.same({255, 255, 255}, {pixels.at(0, 0)})
    assert.truthy(written(flare.full({2, 2}, 0 / 0), "heat", "svg"))
  end)

  it("of a histogram has a bar for each count", function()
    local x = flare.tensor{0, 0, 0, 1, 2, 2, 4, 0 / 0}
    local svg = written(x, "hist", "svg")
    local heights = {}
    for h in svg:gmatch 'height="([%d.]+)" fill="#2563eb"' do
      heights[#heights + 1] = tonumber(h)
    end
    assert.same({300, 100, 200, 0, 100}, heights)
    assert.truthy(svg:find(">1 not finite<", 1, true))
    local pixels = written(x, "hist", "png")
    local bar, back = {37, 99, 235}, {255, 255, 255}
    local function column(k) return math.floor(56 + 568 / 5 * (k - 0.5)) end
    for k, h in ipairs(heights) do
      if h > 0 then assert.same(bar, {pixels.at(column(k), 316 - h + 2)}) end
      if h < 300 then assert.same(back, {pixels.at(column(k), 316 - h - 3)}) end
    end
    local y = flare.arange(0, 1000)
    local counts = require "flare.plot.counts"(y).counts
    local sum = 0
    for _, n in ipairs(counts) do sum = sum + n end
    assert.same({20, y:numel(), y:numel() // 20}, {#counts, sum, counts[1]})
    assert.same({1e-300, {2, 0, 0, 0, 1}}, {flare.tensor({1e-300}, {dtype = "f64"}):item(),
      require "flare.plot.counts"(flare.tensor({-1.7e308, -1.7e308, 1.7e308},
                                               {dtype = "f64"})).counts})
  end)

  it("of curves is the one of log.svg, drawn where its points are", function()
    local x = flare.tensor{{0, 1, 2}, {2, 0, 1}}
    local svg = written(x, "plot", "svg")
    assert.truthy(svg:find(">row 2<", 1, true))
    local pixels = written(x, "plot", "png")
    for colour, rgb in pairs {["#2563eb"] = {37, 99, 235}, ["#dc2626"] = {220, 38, 38}} do
      local d = svg:match('<path d="([^"]*)" fill="none" stroke="' .. colour)
      local n = 0
      for px, py in d:gmatch "[ML]([%d.]+) ([%d.]+)" do
        n = n + 1
        local near
        for dx = -1, 1 do
          for dy = -1, 1 do
            local got = {pixels.at(px // 1 + dx | 0, py // 1 + dy | 0)}
            near = near or got[1] == rgb[1] and got[2] == rgb[2] and got[3] == rgb[3]
          end
        end
        assert.truthy(near, px .. " " .. py)
      end
      assert.equal(3, n)
    end
    assert.truthy(written(flare.rand(5):requires_grad_(true), "plot", "svg"))
  end)

  it("is the result where there is no name", function()
    local x = flare.rand(4, 4)
    for _, kind in ipairs {"plot", "hist", "heat", "image"} do
      local picture = x[kind](x)
      assert.match("^<svg", getmetatable(picture).__mime(picture)["image/svg+xml"])
      assert.equal(('a picture of (4, 4); x:%s("x.svg") writes it to a file'):format(kind),
                   tostring(picture))
    end
  end)

  it("is refused where something is wrong", function()
    local x = flare.ones(3)
    assert.match('the name of a file is expected, as in x:plot "x.svg" or "x.png", got number',
                 message(x.plot, x, 3))
    assert.match("plot: 1 to 2 dims are expected", message(x.plot, flare.ones(1, 1, 1)))
    assert.match("the name of a file that ends in .svg or .png is expected, got 'x.jpg'",
                 message(x.hist, x, "x.jpg"))
    assert.match("heat: 1 to 2 dims are expected, got %(1, 1, 3%)",
                 message(x.heat, x:reshape(1, 1, 3), "x.png"))
    assert.match("image: 1 or 3 channels are expected, got %(2, 5, 2%)",
                 message(x.image, flare.ones(2, 5, 2), "x.png"))
    local done, why = x:plot(folder .. "/none/x.svg")
    assert.is_nil(done)
    assert.match("/none/x.svg: No such file", why)
  end)
end)

describe("a command of the prompt", function()
  it("writes the picture to a file that is named", function()
    local program = os.getenv "FLARE_PROGRAM" or tree.build .. "/flare"
    local lines = {"x = flare.rand(4, 4)", ":heat x a.png", ":plot x[1], 'b.svg'",
      ":hist x \"c.svg\"", "name = 'd'", ":image x, name .. '.PNG'", ":image x e.jpg",
      ":plot x /nowhere/f.svg", ":plot x y", ":plot x * 2 g.svg",
      ":plot x[1], h.svg", "t = {svg = 'i.svg'}", ":hist x, t.svg"}
    local file <close> = assert(io.open(folder .. "/lines", "w"))
    file:write(table.concat(lines, "\n"), "\n")
    file:close()
    local out = tree.output(("cd '%s'; program=$(cd - >/dev/null; realpath '%s'); cd '%s' && "
      .. "FLARE_HISTORY= \"$program\" -i < lines 2>/dev/null"):format(folder, program, folder))
    assert.equal("wrote a.png\nwrote b.svg\nwrote c.svg\nwrote d.PNG\nwrote g.svg\nwrote h.svg\n"
                 .. "wrote i.svg\n",
                 (out:gsub("> ?", "")))
    assert.truthy(png(tree.read(folder .. "/a.png")))
    assert.truthy(png(tree.read(folder .. "/d.PNG")))
    for _, name in ipairs {"b", "c", "g", "i"} do
      assert.match("^<svg ", tree.read(("%s/%s.svg"):format(folder, name)))
    end
  end)
end)
