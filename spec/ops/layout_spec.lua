-- Channels-last tensors: what has that layout, which operators keep it, and that values and
-- gradients are those of contiguous tensors.
local flare = require "flare"
local rows = require "spec.support.rows"

local function last(x) return x:to{layout = "channels_last"} end
local function is_last(x) return x:is_contiguous "channels_last" end
local function off(a, b)
  return (a:to("cpu"):to "f64" - b:to("cpu"):to "f64"):abs():max():item()
end

describe("x:to{layout}", function()
  it("gives the strides of N, H, W, C and back, and x itself if nothing changes", function()
    local x = flare.randn(2, 3, 4, 5)
    local y = last(x)
    assert.same({60, 1, 15, 3}, y:stride())
    assert.same(x:totable(), y:totable())
    assert.same("(2, 3, 4, 5)", tostring(y.shape))
    assert.is_false(y:is_contiguous())
    assert.is_true(y:is_contiguous "channels_last")
    assert.is_false(x:is_contiguous "channels_last")
    assert.equal(y, last(y))
    local z = y:to{layout = "contiguous"}
    assert.is_true(z:is_contiguous())
    assert.same(x:totable(), z:totable())
    assert.equal(x, x:to{layout = "contiguous"})
  end)
  it("goes with a dtype and a device", function()
    local x = flare.randn(2, 3, 4, 5)
    local y = x:to{layout = "channels_last", dtype = "f64", device = "sim:0"}
    assert.same({"f64", "sim:0", true}, {y.dtype, y.device, is_last(y)})
    assert.same(0, off(x, y))
    assert.is_true(is_last(y:to "cpu"))
    assert.same(0, off(x, y:to "cpu"))
    assert.is_true(is_last(last(x):to "sim:0"))
    assert.same(0, off(x, last(x):to "sim:0"))
    local t = flare.randn(3, 4):t()
    assert.same({1, 4}, t:to("sim:0"):stride())
    assert.same(t:totable(), t:to("sim:0"):totable())
  end)
  it("has the gradient of a copy", function()
    local x = flare.randn(2, 3, 4, 5):requires_grad_(true)
    local by = flare.randn(2, 3, 4, 5)
    local y = last(x) * by
    y:sum():backward()
    assert.same(0, off(x.grad, by))
  end)
  it("refuses other layouts and shapes", function()
    local x = flare.randn(2, 3, 4, 5)
    assert.error_matches(function() return x:to{layout = "channels_first"} end,
      'to: layout: there is no "channels_first", only "contiguous" and "channels_last"')
    assert.error_matches(function() return x:to{layout = 3} end, "to: layout: expected")
    assert.error_matches(function() return last(flare.randn(2, 3)) end,
      "is for 4 dims, %(N, C, H, W%), not for %(2, 3%)")
    assert.error_matches(function() return last(flare.randn(1, 2, 3, 4, 5)) end,
      "not for %(1, 2, 3, 4, 5%): volumes stay contiguous")
    assert.error_matches(function() return flare.randn(2, 3):copy{layout = "channels_last"} end,
      "copy: channels_last is a layout of %(N, C, H, W%)")
    assert.error_matches(function() return flare.ones(2):is_contiguous "channels_last" end,
      "is_contiguous: ")
  end)
  it("is contiguous as well where there is one channel, or one pixel", function()
    for _, shape in ipairs{{2, 1, 4, 5}, {2, 3, 1, 1}} do
      local x = flare.randn(shape)
      assert.equal(x, last(x))
      assert.is_true(x:is_contiguous() and is_last(x))
    end
  end)
end)

describe("the result's order of dims", function()
  it("is that of the first input of its shape, for elementwise operators", function()
    local x, y = flare.randn(3, 4):t(), flare.randn(4, 3)
    assert.same({1, 4}, (x + 1):stride())
    assert.same({1, 4}, (x + y):stride())
    assert.same({3, 1}, (y + x):stride())
    assert.same({1, 4}, (x * flare.randn(3)):stride())
    assert.same({1, 4}, x:gt(0):stride())
    assert.same({1, 4}, flare.where(x:gt(0), x, y):stride())
    assert.same({1, 4}, (flare.ones(1, 1):expand{4, 3} + x):stride())
    assert.same((x:contiguous() + y):totable(), (x + y):totable())
    assert.same((x:contiguous() * 2):totable(), (x * 2):totable())
    local f = flare.elementwise("T a, T b", "T y", "y = a * b + 1")
    assert.same({1, 4}, f(x, y):stride())
    assert.same(f(x:contiguous(), y):totable(), f(x, y):totable())
  end)
  it("has no gaps where the input has", function()
    local x = last(flare.randn(2, 6, 4, 5)):narrow(2, 2, 3)
    assert.same({60, 1, 15, 3}, (x * 2):stride())
    assert.same((x:contiguous() * 2):totable(), (x * 2):totable())
    assert.same({4, 1}, (flare.randn(3, 8):narrow(2, 1, 4) + 1):stride())
  end)
  it("is kept in place, by clone and by tensors that are like another", function()
    local x = last(flare.randn(2, 3, 4, 5))
    local before = x:contiguous()
    local y = x:clone()
    assert.is_true(is_last(y))
    y:add_(1)
    assert.is_true(is_last(y))
    assert.same((before + 1):totable(), y:totable())
    for _, name in ipairs{"zeros_like", "ones_like", "empty_like"} do
      assert.is_true(is_last(flare[name](x)), name)
    end
    assert.is_true(is_last(flare.full_like(x, 3)))
    assert.same(3 * 120, flare.full_like(x, 3):sum():item())
    assert.is_true(flare.zeros_like(x:contiguous()):is_contiguous())
  end)
  it("is row-major for contiguous and reshape", function()
    local x = last(flare.randn(2, 3, 4, 5))
    assert.is_true(x:contiguous():is_contiguous())
    assert.same(x:to{layout = "contiguous"}:reshape(6, 20):totable(), x:reshape(6, 20):totable())
  end)
end)

local function window(k, s, p)
  return {stride = {s, s}, padding = {p, p}}, {k, k}
end

local cases = {
  conv = {{{2, 6, 9, 8}, {5, 6, 3, 3}, {5}}, function(x, w, b)
    return flare.conv(x, w, b, (window(3, 1, 1)))
  end},
  ["conv with stride"] = {{{2, 3, 9, 8}, {4, 3, 3, 3}}, function(x, w)
    return flare.conv(x, w, nil, (window(3, 2, 1)))
  end},
  ["conv with a kernel of 1"] = {{{2, 6, 9, 8}, {4, 6, 1, 1}}, function(x, w)
    return flare.conv(x, w)
  end},
  ["conv of groups"] = {{{2, 6, 9, 8}, {4, 3, 3, 3}}, function(x, w)
    return flare.conv(x, w, nil, {groups = 2})
  end},
  batch_norm = {{{4, 6, 5, 3}, {6}, {6}}, function(x, w, b) return x:batch_norm(w, b) end},
  ["batch_norm in evaluation"] = {{{4, 6, 5, 3}, {6}, {6}}, function(x, w, b)
    local d = {device = x.device}
    return x:batch_norm(w, b, flare.full({6}, 0.5, d), flare.full({6}, 2, d), {training = false})
  end},
  max_pool = {{{2, 6, 9, 8}}, function(x)
    local o, k = window(3, 2, 1)
    return x:max_pool(k, o)
  end},
  avg_pool = {{{2, 6, 9, 8}}, function(x)
    local o, k = window(3, 2, 1)
    return x:avg_pool(k, o)
  end},
  adaptive_avg_pool = {{{2, 6, 9, 8}}, function(x) return x:adaptive_avg_pool{3, 3} end},
  adaptive_max_pool = {{{2, 6, 9, 8}}, function(x) return x:adaptive_max_pool{3, 4} end},
  interpolate = {{{2, 6, 5, 4}}, function(x) return x:interpolate{scale = 2, mode = "linear"} end},
  ["interpolate to the nearest"] = {{{2, 6, 5, 4}}, function(x)
    return x:interpolate{scale = 2}
  end},
  cat = {{{2, 6, 9, 8}, {2, 3, 9, 8}}, function(x, y) return flare.cat({x, y}, 2) end},
  ["cat of rows"] = {{{2, 6, 2, 8}, {2, 6, 3, 8}}, function(x, y) return flare.cat({x, y}, 3) end},
  dropout = {{{2, 6, 9, 8}}, function(x) return x:dropout{p = 0.4} end},
  relu = {{{2, 6, 9, 8}}, function(x) return x:relu() end},
  gelu = {{{2, 6, 9, 8}}, function(x) return x:gelu() end},
  add = {{{2, 6, 9, 8}, {2, 6, 9, 8}}, function(x, y) return x + y end},
  ["mul by channels"] = {{{2, 6, 9, 8}, {6, 1, 1}}, function(x, y) return x * y end},
  to = {{{2, 6, 9, 8}}, function(x) return x:to "f64" end},
}

local function run(case, dtype, device, lay)
  local g, inputs, grads = flare.generator(7), {}, {}
  for i, shape in ipairs(case[1]) do
    local x = flare.randn(shape, {generator = g}):to(dtype):to(device)
    inputs[i] = (#shape == 4 and lay(x) or x):detach():requires_grad_(true)
  end
  flare.manual_seed(3)
  local y = case[2](table.unpack(inputs))
  local dy = flare.randn(y.shape, {generator = g}):to(y.dtype):to(device)
  y:backward(lay(dy))
  for i, x in ipairs(inputs) do grads[i] = x.grad end
  return y:detach(), grads
end

describe("a channels-last tensor", function()
  local names = {}
  for name in pairs(cases) do names[#names + 1] = name end
  table.sort(names)
  for _, device in ipairs(rows.devices) do
    for _, name in ipairs(names) do
      it(("has the values, gradients and layout of %s on %s"):format(name, device), function()
        for _, dtype in ipairs{"f32", "bf16"} do
          local far = dtype == "f32" and 1e-5 or 2e-2
          local want, want_grads = run(cases[name], dtype, device, function(x) return x end)
          local got, grads = run(cases[name], dtype, device, last)
          assert.is_true(is_last(got), "the result is not channels-last")
          assert(off(got, want) <= far * (1 + want:to("f32"):abs():max():item()), "values differ")
          for i, g in ipairs(want_grads) do
            assert(off(grads[i], g) <= far * (1 + g:to("f32"):abs():max():item()),
              ("gradient %d differs in %s by %g"):format(i, dtype, off(grads[i], g)))
            if #cases[name][1][i] == 4 then
              assert.is_true(is_last(grads[i]), "gradient " .. i .. " is not channels-last")
            end
          end
        end
      end)
    end
  end
end)

-- A block of a ResNet, and the head behind it.
local nn = flare.nn
local Block = flare.class("Block", nn.Module)
function Block:init()
  self.stem = nn.Conv2d(3, 8, 3, {padding = 1, bias = false})
  self.norm1 = nn.BatchNorm2d(8)
  self.conv = nn.Conv2d(8, 8, 3, {padding = 1, bias = false})
  self.norm2 = nn.BatchNorm2d(8)
  self.down = nn.Conv2d(8, 8, 1, {stride = 2, bias = false})
  self.head = nn.Linear(8, 4)
end
function Block:forward(x)
  local a = self.norm1(self.stem(x)):relu()
  local b = (self.norm2(self.conv(a)) + a):relu()
  b = b:max_pool({3, 3}, {stride = {2, 2}, padding = {1, 1}})
  local c = (self.down(a) + b):relu()
  self.last = c
  return self.head(c:adaptive_avg_pool{1, 1}:flatten(2))
end

local function step(device, dtype, lay)
  flare.manual_seed(5)
  local model = Block():to(device)
  if lay then model:to{layout = "channels_last"} end
  local optimizer = flare.optim.SGD(model:parameters(), {lr = 0.1, momentum = 0.9})
  local x = flare.randn(4, 3, 10, 8):to(device)
  if lay then x = last(x) end
  local grads, report
  for turn = 1, 2 do
    model:zero_grad()
    local work = function()
      local function forward() return model(x) end
      local y = dtype == "bf16" and flare.autocast("bf16", forward) or forward()
      y:square():mean():backward()
      optimizer:step()
    end
    if turn == 2 then report = flare.profile(work) else work() end
  end
  grads = {}
  for name, p in model:named_parameters() do grads[name] = {p.grad, p} end
  return model, grads, report
end

describe("a channels-last block of a ResNet", function()
  for _, device in ipairs(rows.devices) do
    it("keeps the layout without copies, forward and backward, on " .. device, function()
      for _, dtype in ipairs{"f32", "bf16"} do
        local want_model, want = step(device, dtype, false)
        local model, got, report = step(device, dtype, true)
        assert.is_true(want_model.last:is_contiguous())
        assert.is_true(is_last(model.last))
        for name, pair in pairs(got) do
          local far = dtype == "f32" and 1e-4 or 6e-2
          for k = 1, 2 do
            local by = 1e-3 + want[name][k]:to("f32"):abs():max():item()
            assert(off(pair[k], want[name][k]) <= far * by, ("%s differs in %s by %g of %g")
              :format(name, dtype, off(pair[k], want[name][k]), by))
            if pair[k]:dim() == 4 then assert.is_true(is_last(pair[k]), name) end
          end
        end
        if dtype == "f32" then
          for i = 1, report.count do
            local op = report:row(i).op
            assert(op ~= "copy" and op ~= "assign", "a launch of " .. op)
          end
        end
      end
    end)
  end
  it("moves parameters of 4 dims alone, and back", function()
    local model = Block():to{layout = "channels_last"}
    local before = model.stem.weight:to{layout = "contiguous"}
    assert.is_true(is_last(model.stem.weight) and not model.stem.weight:is_contiguous())
    assert.is_true(model.stem.weight.requires_grad)
    assert.is_true(model.head.weight:is_contiguous())
    model:to{layout = "contiguous"}
    assert.is_true(model.stem.weight:is_contiguous())
    assert.same(before:totable(), model.stem.weight:totable())
    assert.error_matches(function() model:to{layout = "channels_first"} end,
      'layout: there is no "channels_first"')
  end)
end)

describe("an optimizer's step", function()
  it("takes parameters, gradients and state of one or of several layouts", function()
    for _, device in ipairs(rows.devices) do
      for _, name in ipairs{"SGD", "Adam"} do
        local out = {}
        for k, lays in ipairs{{false, false}, {true, true}, {true, false}, {false, true}} do
          local g = flare.generator(4)
          local function draw(lay)
            local x = flare.randn({4, 3, 3, 2}, {generator = g}):to(device)
            return lay and last(x) or x
          end
          local p = draw(lays[1]):detach():requires_grad_(true)
          local o = flare.optim[name]({p}, name == "SGD" and {lr = 0.1, momentum = 0.9} or {})
          for _ = 1, 2 do
            p.grad = draw(lays[2])
            o:step()
          end
          assert.same(lays[1], is_last(p))
          out[k] = p:detach():to("cpu"):contiguous():totable()
          assert.same(out[1], out[k])
        end
      end
    end
  end)
end)
