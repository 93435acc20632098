-- What a call writes besides its results is what its row's signature says: the inputs of every
-- sample are compared before and after, values and versions.
local flare = require "flare"
local rows = require "spec.support.rows"

local families = {"attention", "complex", "conv", "elementwise", "fft", "index", "linalg", "math",
  "norm", "optim", "quantized", "random", "reduce", "shape", "space", "statistics"}

local function bits(x) return x:contiguous():clone() end

local function same(a, b)
  if a:numel() == 0 then return true end
  return (a:eq(b) | (a:ne(a) & b:ne(b))):all():item()
end

-- The inputs by name, those of a list as name.k.
local function inputs(row, args)
  local list = {}
  for _, p in ipairs(row.params) do
    local v = args[p.name]
    if flare.is_tensor(v) then
      list[#list + 1] = {p.name, v, p}
    elseif type(v) == "table" and flare.is_tensor(v[1]) then
      for k, x in ipairs(v) do list[#list + 1] = {p.name .. "." .. k, x, p} end
    end
  end
  return list
end

local function check(row, sample)
  local args = rows.tensors(sample)
  local list = inputs(row, args)
  for _, input in ipairs(list) do input.before, input.version = bits(input[2]), input[2].version end
  rows.guarded(row, sample, "writes", rows.call, row, rows.with_options(row, sample, args))
  local wrote = false
  for _, input in ipairs(list) do
    local name, x, p = table.unpack(input)
    local changed, noted = not same(input.before, x), x.version ~= input.version
    if changed and not p.written then rows.fail(row, sample, "writes", "%s was written", name) end
    if changed and not noted then
      rows.fail(row, sample, "writes", "%s was written without a new version", name)
    end
    if noted and not p.written then
      rows.fail(row, sample, "writes", "%s has a new version", name)
    end
    wrote = wrote or changed
  end
  return wrote
end

describe("a call writes no input but those with a mark:", function()
  local marked = {}
  for _, family in ipairs(families) do
    it(family, function()
      for name, list in pairs(require("spec.support.samples." .. family)) do
        local row = rows.rows[name]
        for _, sample in ipairs(rows.accepted(list)) do
          local wrote = check(row, sample)
          if wrote then marked[name] = true end
        end
      end
    end)
  end

  it("each row with a mark has a sample that writes", function()
    for name, row in pairs(rows.rows) do
      for _, p in ipairs(row.params) do
        if p.written then assert(marked[name], name .. " is marked and writes nothing") end
      end
    end
  end)
end)

describe("batch_norm", function()
  local function used(training)
    local bn = flare.nn.BatchNorm1d(3)
    local w = flare.ones(3, {requires_grad = true})
    local y = (bn.running_mean * w):sum()
    if not training then bn:eval() end
    local line = debug.getinfo(1, "l").currentline + 1
    bn(flare.randn(4, 3))
    return y, w, line
  end

  it("is a write of the running statistics, which backward notices", function()
    local y = used(true)
    assert.error_matches(function() y:backward() end,
      "mul %(.*writes_spec.lua:%d+%) needs a tensor %(3%) .* changed in place since, at .*:%d+")
  end)

  it("writes nothing in evaluation", function()
    local y, w = used(false)
    y:backward()
    assert.same({0, 0, 0}, w.grad:totable())
  end)

  it("refuses statistics that require a gradient", function()
    local x, mean = flare.randn(4, 3), flare.zeros(3, {requires_grad = true})
    assert.error_matches(function()
      flare.batch_norm(x, {running_mean = mean, running_var = flare.ones(3)})
    end, "running_mean is written, so it cannot require a gradient")
  end)
end)
