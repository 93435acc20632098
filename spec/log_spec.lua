local flare = require "flare"
local log = flare.log

-- A file object that keeps what is written.
local function sink()
  local parts = {}
  return {write = function(self, ...)
            for _, text in ipairs{...} do parts[#parts + 1] = tostring(text) end
            return self
          end,
          flush = function() end,
          text = function() return table.concat(parts) end}
end

describe("log.progress", function()
  it("writes a plain line at every tenth when the output is no terminal", function()
    local out = sink()
    local bar = log.progress{total = 50, label = "train", out = out}
    for step = 1, 50 do bar:update(step, {loss = flare.tensor(0.25)}) end
    bar:finish()
    local lines = {}
    for line in out.text():gmatch("[^\n]+") do lines[#lines + 1] = line end
    assert.equal(10, #lines)
    assert.match("^train  5/50   10%%  .*left .*  loss 0%.25$", lines[1])
    assert.match("^train  50/50  100%%  .*in 0:00  loss 0%.25$", lines[10])
  end)

  it("draws over one line on a terminal, at most ten times a second", function()
    local out = sink()
    local bar = log.progress{total = 100000, out = out, terminal = true, width = 60}
    for step = 1, 100000 do bar:update(step) end
    bar:finish()
    local _, drawings = out.text():gsub("\r", "")
    assert.is_true(drawings >= 2 and drawings < 60)
    assert.match("%[=+%]", out.text())
    for piece in out.text():gmatch("[^\r\n]+") do assert.is_true(#piece <= 60) end
  end)

  it("draws the curve of a value above the bar, in its place", function()
    local out = sink()
    local screen = require "spec.support.screen".new(40, 20)
    local bar = log.progress{total = 410, out = out, terminal = true, width = 40, curve = "loss",
                             height = 4}
    local function see(step, loss)
      bar.drawn = -1 -- no matter how long ago
      bar:update(step, {loss = loss})
    end
    bar:print "before"
    for step = 1, 410 do see(step, step == 2 and 0 / 0 or flare.tensor(1000 / step)) end
    bar:print "between"
    bar:finish()
    screen:feed((out.text():gsub("\n", "\r\n")))
    local lines = screen:lines()
    assert.equal("before", (lines[1]:gsub("%s+$", "")))
    assert.equal("between", (lines[2]:gsub("%s+$", "")))
    assert.match("^ +loss", lines[3])
    assert.match("^ +1000 ┤", lines[4])
    assert.match("└", lines[8])
    assert.match("^ +1 +%d+ *$", lines[9])
    assert.match("410/410  100%%", lines[10])
    assert.match("^%s*$", lines[11] or "")
    local _, curves = screen:text():gsub("└", "")
    assert.equal(1, curves)
    assert.is_true(#bar.curve.x < 400)
    assert.equal(1000, bar.curve.y[1])
  end)

  it("goes on from where a run stopped", function()
    local out = sink()
    local bar = log.progress{total = 20, start = 10, out = out}
    for step = 11, 20 do bar:update(step) end
    bar:print("a line")
    assert.match("20/20  100%%", out.text())
    assert.match("a line\n$", out.text())
  end)
end)

describe("log.metrics", function()
  local path
  before_each(function() path = os.tmpname() end)
  after_each(function() os.remove(path) end)

  it("writes a line for each row and reads them back", function()
    local m = assert(log.metrics(path))
    m:write{step = 1, loss = flare.tensor(0.5)}
    m:write{step = 2, loss = 0 / 0, note = "x"}
    m:close()
    local rows = log.read_metrics(path)
    assert.equal(2, #rows)
    assert.equal(0.5, rows[1].loss)
    assert.equal("nan", rows[2].loss)
    assert.has_error(function() m:write{step = 3} end, "metrics:write: " .. path .. " is closed")
    m = assert(log.metrics("/dev/full"))
    local ok, message = m:write{step = 1}
    assert.is_nil(ok)
    assert.equal("/dev/full: No space left on device", message)
  end)

  it("takes out what a resumed run will write again, and half a line", function()
    local m = assert(log.metrics(path))
    for step = 1, 5 do m:write{step = step} end
    m:close()
    local file = io.open(path, "a")
    file:write('{"step": 6, "lo')
    file:close()
    m = assert(log.metrics(path, {after = 3}))
    m:write{step = 4, again = true}
    m:close()
    local rows = log.read_metrics(path)
    assert.equal(4, #rows)
    assert.is_true(rows[4].again)
  end)

  it("returns nil and a message for a file that is not there", function()
    local rows, message = log.read_metrics("/no/such/file")
    assert.is_nil(rows)
    assert.match("/no/such/file", message)
  end)
end)

describe("curves", function()
  local rows = {}
  for step = 1, 100 do rows[step] = {step = step * 10, loss = 3 / math.sqrt(step)} end
  rows[101] = {step = 1000, val_loss = 0.4}

  it("plot in the terminal", function()
    local text = log.curve(rows, {width = 40, height = 8})
    local lines = {}
    for line in text:gmatch("[^\n]+") do lines[#lines + 1] = line end
    assert.equal(10, #lines)
    assert.match("^%s*3 ┤", lines[1])
    assert.match("\xe2[\xa0-\xa3]", lines[1])
    assert.match("10 +1000$", lines[10])
  end)

  it("are written as SVG", function()
    local path = os.tmpname()
    assert(log.curve(rows, {svg = path, title = "a < b"}))
    local file = io.open(path)
    local text = file:read "a"
    file:close()
    os.remove(path)
    assert.match("^<svg xmlns=", text)
    assert.match("</svg>\n$", text)
    assert.match("a &lt; b", text)
    local _, paths = text:gsub("<path d=\"M[^\"]+\" fill=\"none\" stroke=\"#", "")
    assert.is_true(paths >= 2)
    assert.is_nil(text:find("nan") or text:find("inf"))
  end)

  it("survive odd input", function()
    assert.is_string(log.plot{})
    assert.is_string(log.plot{1})
    assert.is_string(log.svg{0 / 0, 1, math.huge})
    assert.is_string(log.svg{a = {1, 2}, b = {2, 1}})
  end)

  it("log itself is the logarithm", function()
    assert.equal(0, flare.log(flare.ones(1)):item())
  end)
end)
