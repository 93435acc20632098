--- Compares gradients of first and second order with central differences in f64: eps 1e-6, atol
-- 1e-5, rtol 1e-3 (PyTorch's defaults). Small inputs and results are checked by the whole Jacobian,
-- larger ones, above 64 elements, in random directions and projections. `flare.gradcheck` is
-- `check`.
local flare = require "flare"
local fail = require "flare.fail"
local options = require "flare.options"

local M = {eps = 1e-6, atol = 1e-5, rtol = 1e-3, full = 64, directions = 3}

local function is_wanted(t)
  return flare.is_tensor(t) and t.dtype == "f64" and t:numel() > 0
end

local function results(f, inputs)
  local kept = {}
  options.callable("gradcheck", f)
  for _, t in ipairs(table.pack(f(table.unpack(inputs, 1, #inputs)))) do
    if is_wanted(t) then kept[#kept + 1] = t end
  end
  return kept
end

-- All elements of all results in one list of numbers.
local function numbers(list)
  local all = {}
  for _, t in ipairs(list) do
    local values = t:detach():reshape(-1):tolist()
    table.move(values, 1, #values, #all + 1, all)
  end
  return all
end

local function unit(x, n)
  local list = {}
  for i = 1, x:numel() do list[i] = i == n and 1.0 or 0.0 end
  return flare.tensor(list, {dtype = "f64"}):reshape(x.shape)
end

local function random(x)
  return flare.randn(x.shape, {dtype = "f64", generator = M.generator}):to(x.device)
end

-- The directions in which an input is varied.
local function directions(x)
  local list = {}
  if x:numel() <= M.full then
    for n = 1, x:numel() do list[n] = unit(x, n):to(x.device) end
  else
    for n = 1, M.directions do list[n] = random(x) end
  end
  return list
end

-- The weights of results, for projections: one element at a time, or random. Each is a list of
-- tensors, one for each result.
local function projections(list)
  local total, sets = 0, {}
  for _, y in ipairs(list) do total = total + y:numel() end
  if total > M.full then
    for n = 1, M.directions do
      sets[n] = {}
      for k, y in ipairs(list) do sets[n][k] = random(y) end
    end
    return sets
  end
  for k, y in ipairs(list) do
    for n = 1, y:numel() do
      local set = {}
      for j, z in ipairs(list) do set[j] = unit(z, j == k and n or 0):to(z.device) end
      sets[#sets + 1] = set
    end
  end
  return sets
end

local function dot(a, b)
  local sum = 0
  for i = 1, #a do sum = sum + a[i] * b[i] end
  return sum
end

local function moved(f, arguments, i, x, d, step)
  local _ <close> = flare.no_grad()
  local list = table.move(arguments, 1, #arguments, 1, {})
  list[i] = x + d * step
  return numbers(results(f, list))
end

--- Checks the gradients of f(inputs) with respect to the inputs at the positions `wanted`.
-- @return true, or nil and a message about the first difference
function M.gradcheck(f, inputs, wanted)
  M.generator = flare.generator(20)
  local leaves, arguments = {}, table.move(inputs, 1, #inputs, 1, {})
  for k, i in ipairs(wanted) do
    leaves[k] = inputs[i]:detach():clone():requires_grad_(true)
    arguments[i] = leaves[k]
  end
  local ys = results(f, arguments)
  local differentiable, roots, which = false, {}, {}
  for k, y in ipairs(ys) do
    if y.requires_grad then
      differentiable = true
      roots[#roots + 1], which[#which + 1] = y, k
    end
  end
  if #ys == 0 then return true end
  if not differentiable then return nil, "no result requires a gradient" end
  local sets, rules = projections(ys), {}
  for s, set in ipairs(sets) do
    local seeds = {}
    for n, k in ipairs(which) do seeds[n] = set[k] end
    rules[s] = table.pack(flare.grad(roots, leaves,
      {gradient = seeds, retain_graph = true, allow_unused = true}))
    for k, leaf in ipairs(leaves) do
      local g = rules[s][k]
      if g and tostring(g.shape) ~= tostring(leaf.shape) then
        return nil, ("input %d has shape %s, its gradient %s"):format(wanted[k], leaf.shape,
          g.shape)
      end
      if g and g.dtype ~= "f64" then return nil, "a gradient has dtype " .. g.dtype end
      rules[s][k] = g and numbers {g} or false
    end
    set.list = numbers(set)
  end
  for k, i in ipairs(wanted) do
    local x = inputs[i]:detach()
    for n, d in ipairs(directions(x)) do
      local up, down = moved(f, arguments, i, x, d, M.eps), moved(f, arguments, i, x, d, -M.eps)
      local slope, along = {}, numbers {d}
      for e = 1, #up do slope[e] = (up[e] - down[e]) / (2 * M.eps) end
      for s, set in ipairs(sets) do
        local numeric = dot(slope, set.list)
        local analytic = rules[s][k] and dot(rules[s][k], along) or 0
        local off = math.abs(numeric - analytic)
        if off ~= off or off > M.atol + M.rtol * math.abs(numeric) then
          return nil, ("input %d, direction %d, result %d: %.9g by the rule, %.9g by differences")
            :format(i, n, s, analytic, numeric)
        end
      end
    end
  end
  return true
end

--- Checks the second derivatives: the gradients of the gradients, with respect to the inputs and to
-- the gradients of the results.
function M.gradgradcheck(f, inputs, wanted)
  M.generator = flare.generator(21)
  local start
  do
    local _ <close> = flare.no_grad()
    start = results(f, inputs)
  end
  local n_in, all, positions = #inputs, table.move(inputs, 1, #inputs, 1, {}), {}
  for k, i in ipairs(wanted) do positions[k] = i end
  for k, y in ipairs(start) do
    all[n_in + k] = random(y)
    positions[#positions + 1] = n_in + k
  end
  if #start == 0 then return true end
  local function gradients(...)
    local given = table.pack(...)
    local _ <close> = flare.enable_grad()
    local arguments, leaves = table.move(given, 1, n_in, 1, {}), {}
    for k, i in ipairs(wanted) do
      local x = arguments[i]
      leaves[k] = x.requires_grad and x or x:detach():requires_grad_(true)
      arguments[i] = leaves[k]
    end
    local roots, seeds = {}, {}
    for k, y in ipairs(results(f, arguments)) do
      if y.requires_grad then
        roots[#roots + 1], seeds[#seeds + 1] = y, given[n_in + k]
      end
    end
    local grads = table.pack(flare.grad(roots, leaves,
      {gradient = seeds, create_graph = true, allow_unused = true}))
    local out = {}
    for k = 1, #leaves do if grads[k] then out[#out + 1] = grads[k] end end
    return table.unpack(out)
  end
  local function constant()
    for _, g in ipairs(table.pack(gradients(table.unpack(all)))) do
      if g.requires_grad then return false end
    end
    return true
  end
  for k, i in ipairs(positions) do
    if i > n_in then all[i] = all[i]:detach() end
    assert(positions[k])
  end
  local ok, why = M.gradcheck(gradients, all, positions)
  if not ok and why == "no result requires a gradient" and constant() then
    return nil, "the gradient cannot be differentiated"
  end
  return ok, why
end

-- Inputs with floats in f64, and the positions to look at.
local function prepare(where, inputs, given)
  if type(inputs) ~= "table" then
    fail("%s: the inputs must be a list of tensors, got %s", where, options.kind(inputs))
  end
  local all, wanted = {}, {}
  for i, x in ipairs(inputs) do
    local float = flare.is_tensor(x) and x:is_floating_point()
    all[i] = float and x:detach():to("f64") or x
    if float then wanted[#wanted + 1] = i end
  end
  wanted = given or wanted
  if #wanted == 0 then fail("%s: none of the inputs is a float tensor", where) end
  return all, wanted
end

--- Compares the gradients of f(inputs) with central differences. Float inputs are converted to f64.
-- @param f a function of tensors (and numbers), or a kernel
-- @param inputs a list
-- @param o {inputs = positions of the inputs to check, by default all floats; second = whether to
--   check second derivatives as well}
-- @return true, or nil and a message about the first difference
function M.check(f, inputs, o)
  o = options.check("gradcheck", o, {inputs = options.none, second = false})
  local all, wanted = prepare("gradcheck", inputs, o.inputs)
  local ok, why = M.gradcheck(f, all, wanted)
  if ok and o.second then ok, why = M.gradgradcheck(f, all, wanted) end
  if ok then return true end
  return nil, why
end

--- Compares the second derivatives of f(inputs), with respect to the inputs and to the gradients of
-- the results, with central differences.
-- @param o {inputs = positions of the inputs to check, by default all floats}
-- @return true, or nil and a message about the first difference
function M.check_second(f, inputs, o)
  o = options.check("gradgradcheck", o, {inputs = options.none})
  local ok, why = M.gradgradcheck(f, prepare("gradgradcheck", inputs, o.inputs))
  if ok then return true end
  return nil, why
end

return M
