-- Pictures in terminals that show pixels: the spec decodes what the program sends. The program
-- knows the terminal by the environment and by its answers.
local Session = require "spec.support.session"
local png = require "spec.support.png"
local tree = require "spec.support.tree"

local sixels = {attributes = "\27[?62;4;22c"}

-- A decoder of sixels: the size and a function(x, y) -> red, green, blue in percent.
local function decode_sixels(data)
  local width, height, at = data:match '^0;1q"1;1;(%d+);(%d+)()'
  assert(width, "it does not begin with the size")
  local colours, rows, x, y, colour = {}, {}, 0, 0, nil
  width, height = tonumber(width), tonumber(height)
  while at <= #data do
    local index, r, g, b, after = data:match("^#(%d+);2;(%d+);(%d+);(%d+)()", at)
    local count, letter, behind = data:match("^!(%d+)([?-~])()", at)
    local chosen, next_at = data:match("^#(%d+)()", at)
    if index then
      assert(tonumber(index) < 256)
      colours[index], at = {tonumber(r), tonumber(g), tonumber(b)}, after
    elseif chosen then
      colour, at = assert(colours[chosen]), next_at
    elseif data:find("^%$", at) then
      x, at = 0, at + 1
    elseif data:find("^%-", at) then
      x, y, at = 0, y + 6, at + 1
    else
      letter = letter or assert(data:match("^[?-~]", at))
      for _ = 1, tonumber(count or 1) do
        for k = 0, 5 do
          if letter:byte() - 63 >> k & 1 == 1 then
            assert(x < width and y + k < height, "a point outside")
            rows[y + k] = rows[y + k] or {}
            assert(not rows[y + k][x], "a point that is painted twice")
            rows[y + k][x] = colour
          end
        end
        x = x + 1
      end
      at = behind or at + 1
    end
  end
  return width, height, function(column, row) return table.unpack(rows[row][column]) end
end

-- The picture in base 64 that the commands of the kitty protocol carry.
local function decode_kitty(list)
  local parts = {}
  for i, one in ipairs(list) do
    local keys, data = one.data:match "^G([^;]*);(.*)$"
    assert(#data <= 4096)
    assert.equal((i == 1 and "a=T,f=100,q=2," or "") .. (i < #list and "m=1" or "m=0"), keys)
    parts[i] = data
  end
  local name = os.tmpname()
  local file <close> = assert(io.open(name, "w"))
  file:write(table.concat(parts))
  file:close()
  local bytes = tree.output(("base64 -d '%s'"):format(name))
  os.remove(name)
  return png(bytes)
end

describe("a picture in pixels", function()
  local s
  local function open(answers, setup)
    s = Session.open {columns = 60, rows = 30, setup = setup, answers = answers}
    if not s then pending "there are no pseudo-terminals" end
    return s
  end
  after_each(function() if s then s:close() end end)

  local colours = "img = flare.tensor{{{1, 0}, {0, 1}}, {{0, 1}, {0, 1}}, {{0, 0}, {1, 1}}}"

  it("is sixels where the terminal's answer has them, small ones larger", function()
    open(sixels)
    s:enter(colours)
    s:enter ":image img"
    assert.equal(1, #s.screen.graphics)
    local width, height, at = decode_sixels(s.screen.graphics[1].data)
    assert.same({256, 256}, {width, height})
    for i, expected in ipairs {{100, 0, 0}, {0, 100, 0}, {0, 0, 100}, {100, 100, 100}} do
      local left, top = (i - 1) % 2 * 128, (i - 1) // 2 * 128
      for _, p in ipairs {{0, 0}, {127, 0}, {0, 127}, {127, 127}, {60, 61}} do
        assert.same(expected, {at(left + p[1], top + p[2])})
      end
    end
    s:enter ":heat flare.tensor{{0, 1, 4}}"
    width, height, at = decode_sixels(s.screen.graphics[2].data)
    assert.same({258, 86}, {width, height})
    assert.same({27, 0, 33}, {at(0, 0)}) -- 68, 1, 84 of 255
    assert.same({99, 91, 15}, {at(257, 85)})
    s:see "0 (dark) to 4 (light)"
    assert.is_nil(s.screen:text():find("\u{2580}", 1, true))
  end)

  it("fits the terminal, by the size of its cells", function()
    open {attributes = sixels.attributes, cell = "\27[6;6;3t"}
    s:enter ":image flare.rand(300, 1000)"
    local width, height = decode_sixels(s.screen.graphics[1].data)
    assert.same({59 * 3, math.floor(300 * 59 * 3 / 1000)}, {width, height})
  end)

  it("has colours near to those of an image with thousands", function()
    open(sixels)
    s:enter "x = flare.arange(0, 64); y = x:reshape(64, 1)"
    s:enter ":image flare.stack{x:expand(64, 64) / 64, y:expand(64, 64) / 64, (x + y) / 128}"
    local width, height, at = decode_sixels(s.screen.graphics[1].data)
    assert.same({256, 256}, {width, height})
    local worst, sums, exact = 0, {0, 0, 0}, {0, 0, 0}
    for row = 0, 255 do
      for column = 0, 255 do
        local got, x, y = {at(column, row)}, column // 4, row // 4
        for c, value in ipairs {x / 64, y / 64, (x + y) / 128} do
          worst = math.max(worst, math.abs(got[c] - value * 100))
          sums[c], exact[c] = sums[c] + got[c] / 65536, exact[c] + value * 100 / 65536
        end
      end
    end
    assert.truthy(worst < 21, worst) -- a step of six levels
    for c = 1, 3 do assert.truthy(math.abs(sums[c] - exact[c]) < 1, sums[c] - exact[c]) end
  end)

  it("is a PNG where the environment names a terminal with kitty's protocol", function()
    open(nil, "export KITTY_WINDOW_ID=1")
    s:enter(colours)
    s:enter ":image img"
    local image = decode_kitty(s.screen.graphics)
    assert.same({256, 256, 3}, {image.width, image.height, image.channels})
    assert.same({255, 0, 0}, {image.at(0, 0)})
    assert.same({0, 0, 255}, {image.at(127, 128)})
    s.screen.graphics = {}
    s:enter ":image flare.rand(3, 200, 200)" -- in several commands
    assert.truthy(#s.screen.graphics > 10)
    image = decode_kitty(s.screen.graphics)
    assert.same({400, 400}, {image.width, image.height})
    s:close()
    open(nil, "export KITTY_WINDOW_ID=1 TMUX=x") -- which does not pass it on
    s:enter ":image flare.ones(2, 2)"
    assert.same({}, s.screen.graphics)
    s:see "\u{2580}\u{2580}"
  end)

  it("is half blocks where the terminal does not answer; keys that come meanwhile stay", function()
    open {}
    s:keys ":image flare.ones(2, 2)"
    s.terminal:write "\r"
    s:wait(function() return s.raw:find("\27[c", 1, true) end, "the question")
    s.terminal:write "6 * 7\r"
    s:see "42"
    assert.same({}, s.screen.graphics)
    s:see "\u{2580}\u{2580}"
    s.terminal:write "\27[?62;4c" -- too late
    s:enter "'later'"
    assert.equal("later", s:after "> 'later'")
  end)

  it("is not there without colours, and the terminal is not asked", function()
    open(sixels, "export NO_COLOR=1")
    s:enter ":image flare.ones(2, 2)"
    assert.same({}, s.screen.graphics)
    s:see "@@"
    assert.is_nil(s.raw:find("\27[c", 1, true))
    local program = os.getenv "FLARE_PROGRAM" or tree.build .. "/flare"
    local out = tree.output(("echo ':image flare.ones(2, 2)' | FLARE_HISTORY= '%s' -i 2>&1")
      :format(program))
    assert.is_nil(out:find("\27[c", 1, true))
    assert.is_nil(out:find("\27P", 1, true))
  end)
end)
