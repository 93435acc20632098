-- The printed form of tensors.
local flare = require "flare"

-- tensor, expected text
local cases = {
  scalar = {function() return flare.tensor(3.14159) end, "3.142\nflare.tensor f32 [] cpu"},
  vector = {function() return flare.tensor{1, 2.5, -3} end,
            "[  1, 2.5,  -3]\nflare.tensor f32 [3] cpu"},
  matrix = {function() return flare.tensor({{1, 20}, {300, 4}}, {dtype = "i64"}) end,
            "[[  1,  20],\n [300,   4]]\nflare.tensor i64 [2 x 2] cpu"},
  cube = {function() return flare.arange(1, 9):view(2, 2, 2) end,
          "[[[1, 2],\n  [3, 4]],\n\n [[5, 6],\n  [7, 8]]]\nflare.tensor i64 [2 x 2 x 2] cpu"},
  bools = {function() return flare.tensor{1, -1}:gt(0) end,
           "[ true, false]\nflare.tensor bool [2] cpu"},
  empty = {function() return flare.zeros(0, 3) end, "[]\nflare.tensor f32 [0 x 3] cpu"},
  special = {function() return flare.tensor{0 / 0, math.huge, -math.huge, 1e-10, 123456} end,
             "[      nan,       inf,      -inf,     1e-10, 1.235e+05]\nflare.tensor f32 [5] cpu"},
  small = {function() return flare.tensor({0.1, 100}, {dtype = "f16"}) end,
           "[0.09998,     100]\nflare.tensor f16 [2] cpu"},
  history = {function() return flare.ones(1, {requires_grad = true}) * 2 end,
             "[2]\nflare.tensor f32 [1] cpu grad_fn=mul"},
  leaf = {function() return flare.ones(1, {requires_grad = true}) end,
          "[1]\nflare.tensor f32 [1] cpu requires_grad"},
  long = {function() return flare.arange(1, 1001) end,
          "[   1,    2,    3, ...,  998,  999, 1000]\nflare.tensor i64 [1000] cpu"},
  large = {function() return flare.zeros(1000, 2) end,
           "[[0, 0],\n [0, 0],\n [0, 0],\n ...\n [0, 0],\n [0, 0],\n [0, 0]]\n"
           .. "flare.tensor f32 [1000 x 2] cpu"},
}

describe("tostring of a tensor", function()
  for name, case in pairs(cases) do
    it("shows a " .. name, function()
      local expected = case[2]:gsub("%] cpu", "] " .. flare.device())
      assert.equal(expected, tostring(case[1]()))
    end)
  end

  it("prints as flare.printing says", function()
    local x = flare.tensor{{1.5, 22.75}, {-333.125, 0.001}}
    local function body(y) return tostring(y):match "^(.*)\n[^\n]*$" end
    local before = flare.printing {digits = 6, scientific = false}
    local _ <close> = setmetatable({}, {__close = function() flare.printing(before) end})
    assert.equal("[[   1.500,   22.750],\n [-333.125,    0.001]]", body(x))
    assert.equal("[0.00000,     inf,     nan]", body(flare.tensor{1e-9, math.huge, 0 / 0}))
    flare.printing {scientific = true, digits = 3}
    assert.equal("[[ 1.50e+00,  2.28e+01],\n [-3.33e+02,  1.00e-03]]", body(x))
    flare.printing {edge = 1, width = 20}
    assert.equal("[  1, ..., 300]", body(flare.arange(1, 301)))
    assert.equal("[ 1,  2,  3,  4,\n  5,  6,  7,  8,\n  9, 10]", body(flare.arange(1, 11)))
    flare.printing()
    assert.equal("[[   1.5,  22.75],\n [-333.1,  0.001]]", body(x))
    assert.match("digits must be an integer of at least 1, got 0",
                 select(2, pcall(flare.printing, {digits = 0})))
    assert.match("scientific must be true or false, got yes",
                 select(2, pcall(flare.printing, {scientific = "yes"})))
    assert.match("unknown option 'digit'", select(2, pcall(flare.printing, {digit = 3})))
  end)

  it("breaks long rows", function()
    for line in tostring(flare.rand(30)):gmatch("[^\n]+") do assert.is_true(#line <= 80) end
  end)

  it("does not change what it shows", function()
    local x = flare.ones(3, {requires_grad = true})
    tostring(x)
    assert.is_nil(x.grad)
    assert.is_true(x.is_leaf)
  end)
end)
