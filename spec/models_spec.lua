-- The training steps of bench/models compute under flare.compile what they compute at once: losses
-- and parameters after four steps, from the same weights and with the same random draws.
local flare = require "flare"
local tree = require "spec.support.tree"
local common = assert(loadfile "bench/models/loop.lua")()

local STEPS = 4

local function train(text, device, amp, compile, mode)
  local name, given = common.parse(text)
  given.amp = amp
  local built = common.build(assert(common.load(name)), "small", device, given, mode)
  local step = built.step
  if compile then step = flare.compile(step, compile) end
  flare.manual_seed(7)
  local losses, params = {}, {}
  for k = 1, STEPS do losses[k] = step():to("f32"):to "cpu" end
  if built.model then
    for key, p in built.model:named_parameters() do params[key] = p:detach():to "cpu" end
  end
  return losses, params, compile and flare.compile_stats(step)
end

local function distance(a, b)
  return ((a - b):abs() / (b:abs() + 1)):max():item()
end

-- How far losses and parameters may be off, relative to numbers above 1. Adam moves a parameter
-- whose gradient is rounding noise, such as the bias of attention's keys, by up to lr in each step:
-- so parameters are compared less strictly than losses.
local function compare(name, device, amp, exact, loss, parameter)
  local want, want_params = train(name, device, amp)
  local got, got_params, stats = train(name, device, amp, {exact = exact})
  assert.truthy(stats.planned > 0 and not stats.off, "no plan was used")
  for k = 1, STEPS do
    assert.truthy(want[k]:isfinite():all():item(), "the loss is not finite")
    local far = distance(got[k], want[k])
    assert.truthy(far <= loss, ("loss of step %d is off by %g"):format(k, far))
  end
  for key, p in pairs(want_params) do
    local far = distance(got_params[key], p)
    assert.truthy(far <= parameter, ("parameter %s is off by %g"):format(key, far))
  end
end

describe("a compiled training step of", function()
  local names = {"resnet50:layout=last", table.unpack(common.names)}
  for _, name in ipairs(names) do
    it(name .. " gives the same bits when it must be exact", function()
      compare(name, "cpu", "none", true, 0, 0)
    end)

    it(name .. " differs by rounding otherwise", function()
      compare(name, "cpu", "none", false, 1e-5, 1e-2)
    end)

    it(name .. " gives the same bits on sim:0 in bf16 when it must be exact", function()
      compare(name, "sim:0", "bf16", true, 0, 0)
    end)

    it(name .. " differs by rounding on sim:0 in bf16 otherwise", function()
      compare(name, "sim:0", "bf16", false, 1e-2, 2e-2)
    end)
  end
end)

describe("a training step in a graph", function()
  for _, name in ipairs {"resnet50", "dlrm", "mlp", "linear_ce", "mixer", "wavenet", "realnvp",
                         "vae:noise=fixed"} do
    it("of " .. name .. " has the losses of the step outside", function()
      local want, got = train(name, "sim:0", "none"), train(name, "sim:0", "none", nil, "graph")
      for k = 1, STEPS do assert.truthy(distance(got[k], want[k]) <= 1e-5) end
    end)
  end
end)

-- The options in "batch=2, depths=(3, 4), layout=\"last\"": numbers, strings, lists of numbers.
local function options(text)
  local o = {}
  for key, value in text:sub(2, -2):gsub("%b()", function(list) return list:gsub(",", ";") end)
    :gmatch "([%w_]+)=([^,]+)" do
    if value:sub(1, 1) == "(" then
      o[key] = {}
      for number in value:gmatch "%d+" do table.insert(o[key], tonumber(number)) end
    else
      o[key] = tonumber(value) or value:match '^"(.*)"%s*$'
    end
  end
  return o
end

describe("the models in PyTorch", function()
  it("have the names, units, options and defaults of those in Lua", function()
    local seen, text = 0, tree.read "bench/peers/models.py"
    for name, unit, small, full in
      text:gmatch '@model%("([%w_]+)", "(%w+)",%s*dict(%b()),%s*dict(%b())' do
      local def = assert(common.load(name))
      seen = seen + 1
      assert.equal(common.names[seen], name)
      assert.equal(def.unit, unit)
      assert.same(def.sizes.small, options(small), name .. " small")
      assert.same(def.sizes.full, options(full), name .. " full")
    end
    assert.equal(#common.names, seen)
    local list, default = text:match "DEFAULT = (%b[])", {}
    for name in list:gmatch '"([^"]+)"' do default[#default + 1] = name end
    assert.same(common.default, default)
  end)
end)

describe("flare bench models", function()
  local function bench(arguments)
    return tree.output(("FLARE_SOURCE=. '%s/flare' bench %s 2>&1"):format(tree.build, arguments))
  end

  it("prints a line for each model and mode, which models_table joins", function()
    local path = os.tmpname()
    local file <close> = assert(io.open(path, "w"))
    local out = bench "models mlp:batch=3 nothing --size small --device cpu --warm 4 --steps 2"
    file:write(out, '{"model": "mlp:batch=3", "side": "pytorch", "mode": "eager", "rate": 1,'
      .. ' "parameters": 25818, "first_s": 2, "settle_s": 3, "unit": "steps"}\n')
    file:close()
    local lines = {}
    for line in out:gmatch "[^\n]+" do lines[#lines + 1] = assert(flare.core.json.decode(line)) end
    assert.equal(4, #lines)
    assert.equal("compile", lines[2].mode)
    assert.equal(25818, lines[2].parameters)
    assert.truthy(lines[2].step_ms > 0 and lines[2].peak_mib > 0 and lines[2].plan.plans == 1)
    assert.equal(4, #lines[1].losses)
    assert.near(lines[1].losses[4], lines[2].losses[4], 1e-4)
    assert.truthy(lines[3].error:find "no model 'nothing'; there are: gpt2, llama")
    local tables = bench("models_table " .. path)
    os.remove(path)
    assert.truthy(tables:find "\n| mlp:batch=3 | %d+ | %d+ | 1%.00 |  | [%d.*]+ | %d+", tables)
    assert.truthy(tables:find "\n| nothing | failed | failed |", tables)
    assert.truthy(tables:find "| 25818 |", tables)
    assert.truthy(tables:find "| 2%.00; 3%.00 |  | %d+ %-> %d+ | 1 | [%d.]+; [%d.]+ |  |", tables)
  end)

  it("refuses an option that a model does not have", function()
    local out = bench "models mlp:bach=3 --size small --device cpu --mode eager"
    assert.truthy(out:find("mlp has no option 'bach'; there are: amp, batch, device, width", 1,
                           true), out)
  end)
end)
