-- Tensors as pictures at the prompt, seen on the screen of an emulated terminal.
local Session = require "spec.support.session"

describe("a picture at the prompt", function()
  local s
  local function open(setup)
    s = Session.open {columns = 60, rows = 30, setup = setup}
    if not s then pending "there are no pseudo-terminals" end
    return s
  end
  after_each(function() if s then s:close() end end)

  -- The rows that a line prints.
  local function ask(line)
    s:keys "\12"
    s:enter(line)
    local rows = s.screen:lines()
    table.remove(rows, 1)
    rows[#rows] = nil
    return rows
  end

  it("of an image has a colour for each point, two in a row", function()
    open "export COLORTERM=truecolor"
    s:enter "img = flare.tensor{{{1, 0}, {0, 0.5}}, {{0, 1}, {0, 0.5}}, {{0, 0}, {1, 0.5}}}"
    assert.same({"\u{2580}\u{2580}"}, ask ":image img")
    local first, second = s.screen.cells[2][1].style, s.screen.cells[2][2].style
    assert.same({front = "2;255;0;0", behind = "2;0;0;255"}, first)
    assert.same({front = "2;0;255;0", behind = "2;128;128;128"}, second)
    assert.same({"\u{2580}\u{2580}"}, ask ":image img:permute(2, 3, 1) * 255")
    assert.same(first, s.screen.cells[2][1].style)
    local rows = ask ":image flare.rand(100, 400)" -- as large as fits
    assert.equal(59, utf8.len(rows[1]))
    assert.equal(7, #rows)
  end)

  it("of a matrix goes from dark to light", function()
    open()
    local rows = ask ":heat flare.tensor{{0, 1}, {2, 4}}"
    assert.same({"\u{2580}\u{2580}", "0 (dark) to 4 (light)"}, rows)
    assert.same(rows, ask "flare.tensor({{0, 1}, {2, 4}}):heat()")
    assert.equal("5;54", s.screen.cells[2][1].style.front)
    assert.equal("5;227", s.screen.cells[2][2].style.behind)
    s:close()
    open "export NO_COLOR=1"
    assert.same({"@", "0 (dark) to 1 (light)"},
                ask ":heat flare.tensor{{1, 0}, {0.5, 0.5}}")
    assert.is_nil(s.raw:find "\27%[[34][%d;]*m")
  end)

  it("of a histogram counts what is in each range", function()
    open()
    local rows = ask ":hist flare.tensor{0, 0, 0, 1, 2, 2, 4, 0 / 0}"
    assert.same({"         0 " .. ("\u{2588}"):rep(36) .. " 3", "       0.8 "
      .. ("\u{2588}"):rep(12) .. " 1", "       1.6 " .. ("\u{2588}"):rep(24) .. " 2",
      "       2.4  0", "       3.2 " .. ("\u{2588}"):rep(12) .. " 1", "         4",
      "1 element is not finite"}, rows)
    assert.equal("         7 " .. ("\u{2588}"):rep(36) .. " 5", ask(":hist flare.full({5}, 7)")[1])
  end)

  it("of curves is as wide as the terminal, and others are refused", function()
    open()
    local rows = ask ":plot flare.stack{flare.arange(1, 9), -flare.arange(1, 9)}"
    assert.truthy(#rows > 10)
    for _, row in ipairs(rows) do assert.truthy(utf8.len(row) <= 60, row) end
    assert.same({":plot: a tensor is expected, got number"}, ask ":plot 3")
    assert.same({":plot: 1 to 2 dims are expected, got (2, 2, 2)"}, ask ":plot flare.ones(2, 2, 2)")
    assert.same({":image: 1 or 3 channels are expected, got (2, 5, 2)"},
                ask ":image flare.ones(2, 5, 2)")
    assert.same({":heat: a tensor with elements is expected, got (0, 3)"},
                ask ":heat flare.ones(0, 3)")
    assert.same({"the tensor is missing: :hist expression"}, ask ":hist")
  end)
end)
