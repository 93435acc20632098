-- What holds for every layer and loss of flare.nn, from the table in spec/support/nn_classes.lua.
local flare = require "flare"
local nn = flare.nn
local class = require "flare.class"
local classes = require "spec.support.nn_classes"
local fill = require("spec.support.fill").fill
local rows = require "spec.support.rows"
local tree = require "spec.support.tree"

local function is_float(x) return flare.is_tensor(x) and x.dtype:find "^b?f%d" ~= nil end

-- The inputs of an entry. Its first dim that may be empty is so with `empty`.
local function inputs_of(entry, dtype, empty)
  local list = {}
  for k, x in ipairs(entry.x) do
    if type(x) == "function" then
      list[k] = x(dtype)
      if is_float(list[k]) then list[k] = list[k]:to(dtype) end
    else
      list[k] = fill(x, k):to(dtype)
    end
    if empty then list[k] = list[k]:narrow(entry.batch, 1, 0) end
  end
  return list
end

local function made(entry, dtype)
  flare.manual_seed(7)
  local layer = entry.make(nn):to(dtype or "f64"):eval()
  return layer
end

local function run(layer, inputs) return (layer(table.unpack(inputs))) end

local function near(a, b, tolerance, what)
  local off = a:numel() == 0 and 0 or (a:detach():to("cpu"):double()
    - b:detach():to("cpu"):double()):abs():amax():item()
  assert(off <= tolerance, ("%s: %g off"):format(what, off))
end

local checks = {}

checks["has the shape that it should, twice the same"] = function(entry)
  local layer, inputs = made(entry), inputs_of(entry, "f64")
  local y = run(layer, inputs)
  assert.same(entry.y, {table.unpack(y.shape)})
  assert.equal("f64", y.dtype)
  near(run(layer, inputs), y, 0, "the second call")
end

checks["has the gradients that differences have"] = function(entry)
  local layer, inputs, at = made(entry), inputs_of(entry, "f64"), {}
  for k, x in ipairs(inputs) do
    if is_float(x) and type(entry.x[k]) == "table" then at[#at + 1] = k end
  end
  if #at > 0 then
    assert.is_true(flare.gradcheck(function(...)
      local given = table.move(inputs, 1, #inputs, 1, {})
      for i, k in ipairs(at) do given[k] = (select(i, ...)) end
      return run(layer, given)
    end, (function()
      local list = {}
      for i, k in ipairs(at) do list[i] = inputs[k] end
      return list
    end)()))
  end
  -- of parameters: along one direction each
  local function loss()
    local y = run(layer, inputs)
    return (y * fill(y.shape, 5)):sum()
  end
  layer:zero_grad()
  if #layer:parameters() > 0 then loss():backward() end
  for name, p in layer:named_parameters() do
    assert(p.grad, name .. " has no gradient")
    local direction, eps = fill(p.shape, 9), 1e-6
    local function moved(by)
      flare.no_grad(function() p:add_(direction * by) end)
      local value = flare.no_grad(loss):item()
      flare.no_grad(function() p:sub_(direction * by) end)
      return value
    end
    local want = (moved(eps) - moved(-eps)) / (2 * eps)
    local got = (p.grad * direction):sum():item()
    assert(math.abs(got - want) <= 1e-5 * (1 + math.abs(want)),
           ("%s: %g, by differences %g"):format(name, got, want))
  end
end

checks["saves its state and loads it"] = function(entry)
  local layer, inputs = made(entry), inputs_of(entry, "f64")
  local path = os.tmpname()
  assert(flare.save(path, layer:state_dict()))
  local other = entry.make(nn):to("f64"):eval()
  other:load_state_dict(assert(flare.load(path)))
  os.remove(path)
  near(run(other, inputs), run(layer, inputs), 0, "the loaded one")
  local copy = layer:clone()
  near(run(copy, inputs), run(layer, inputs), 0, "the copy")
  for _, p in ipairs(copy:parameters()) do flare.no_grad(function() p:zero_() end) end
  near(run(other, inputs), run(layer, inputs), 0, "after the copy has changed, the layer")
  for name in layer:named_parameters() do assert.is_truthy(copy:state_dict()[name]) end
end

checks["runs in f32, f16 and bf16"] = function(entry)
  local want = run(made(entry), inputs_of(entry, "f64"))
  for dtype, tolerance in pairs {f32 = 1e-4, f16 = 2e-2, bf16 = 1.5e-1} do
    local y = run(made(entry, dtype), inputs_of(entry, dtype))
    assert.equal(dtype ~= "f32" and entry.low or dtype, y.dtype)
    near(y, want, tolerance * (1 + want:detach():abs():amax():item()), dtype)
  end
end

checks["moves to other devices and dtypes"] = function(entry)
  local layer, inputs = made(entry), inputs_of(entry, "f64")
  local want = run(layer, inputs)
  for _, device in ipairs(rows.devices) do
    local moved, there = layer:clone():to(device), {}
    for k, x in ipairs(inputs) do there[k] = x:to(device) end
    for _, p in ipairs(moved:parameters()) do assert.equal("f64", p.dtype) end
    local y = run(moved, there)
    near(y, want, 1e-9, device)
  end
end

checks["prints itself, trains and evaluates"] = function(entry, name)
  local layer = made(entry)
  assert.match("^" .. name .. "%(", tostring(layer))
  assert.is_nil(tostring(layer):find "0x")
  assert.is_true(class.is(layer, nn[name]) and class.is(layer, nn.Module))
  layer:train()
  for _, module in ipairs(layer:modules()) do assert.is_true(module.training) end
  local y = run(layer, inputs_of(entry, "f64"))
  assert.same(entry.y, {table.unpack(y.shape)})
  layer:eval()
  for _, module in ipairs(layer:modules()) do assert.is_false(module.training) end
end

checks["takes an empty batch"] = function(entry)
  if not entry.batch then return end
  local shape = table.move(entry.y, 1, #entry.y, 1, {})
  shape[entry.batch] = 0
  local layer = made(entry)
  local y = run(layer, inputs_of(entry, "f64", true))
  assert.same(shape, {table.unpack(y.shape)})
  if y.requires_grad then y:sum():backward() end
end

checks["maps over samples as a loop does"] = function(entry)
  if entry.vmap then return end
  local layer, inputs = made(entry), inputs_of(entry, "f64")
  local first = inputs[1]
  local function one(x)
    local given = table.move(inputs, 1, #inputs, 1, {})
    given[1] = x
    return run(layer, given)
  end
  local samples = {first, is_float(first) and first * 0.5 or first, first}
  local want = {}
  for k, x in ipairs(samples) do want[k] = one(x) end
  near(flare.vmap(one)(flare.stack(samples, 1)), flare.stack(want, 1), 1e-9, "vmap")
end

describe("flare.nn", function()
  it("has an entry for each of its names in spec/support/nn_classes.lua", function()
    local without = {}
    for name in pairs(nn) do
      if not classes[name] and not classes.functions[name] then without[#without + 1] = name end
    end
    assert(#without == 0, "no entry in spec/support/nn_classes.lua: "
      .. table.concat(without, ", "))
    for name in pairs(classes) do assert(name == "functions" or nn[name], name) end
  end)

  it("has no layer that hides a method of all modules", function()
    local own = {forward = true, describe = true}
    for name, layer in next, nn do
      for key, value in next, type(layer) == "table" and name ~= "Module" and layer or {} do
        assert(type(value) ~= "function" or own[key] or key:find "^__"
          or not rawget(nn.Module, key), ("nn.%s:%s"):format(name, key))
      end
    end
  end)

  for name, file in pairs(classes.functions) do
    it("checks " .. name .. " in a spec of its own", function()
      assert.is_truthy(nn[name])
      local path = ("spec/nn/%s_spec.lua"):format(file)
      assert(tree.read(path):find("nn%." .. name .. "%f[^%w_]"), path .. " does not name it")
    end)
  end

  for name, entry in pairs(classes) do
    if name ~= "functions" then
      for what, check in pairs(checks) do
        it(name .. " " .. what, function() check(entry, name) end)
      end
    end
  end
end)
