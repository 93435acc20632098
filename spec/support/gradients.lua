--- What the gradients of a row must be: those by differences, to the second order, and the same
-- by every way of asking.
local A = require "spec.support.array"
local dtypes = require "spec.support.dtypes"
local flare = require "flare"
local gradcheck = require "flare.gradcheck"
local rows = require "spec.support.rows"

local M = {}

local kind = dtypes.kind
local part = {c64 = "f32", c128 = "f64"}
local layouts = {"turned", "sliced", "backwards"}

-- Names of inputs to differentiate; lists as {name, position}.
local function wanted(row, sample)
  if sample._grad == false then return {} end
  local list = {}
  for _, p in ipairs(row.params) do
    local v = sample[p.name]
    local asked = sample._grad == nil
    for _, name in ipairs(sample._grad or {}) do asked = asked or name == p.name end
    if asked and A.is(v) and v.dtype == "f64" and A.count(v.shape) > 0 then
      list[#list + 1] = {p.name}
    elseif asked and rows.is_list(v) then
      for k, x in ipairs(v) do
        if x.dtype == "f64" and A.count(x.shape) > 0 then list[#list + 1] = {p.name, k} end
      end
    end
  end
  return list
end
M.wanted = wanted

-- The row as a function of the tensors wanted.
local function as_function(row, sample, names, base)
  return function(...)
    local given = {...}
    local args = {}
    for name, v in pairs(base) do
      args[name] = rows.is_list(sample[name]) and table.move(v, 1, #v, 1, {}) or v
    end
    for k, name in ipairs(names) do
      local x = given[k]
      if sample[name[1]].complex then x = x:view_as_complex() end
      if sample._symmetric == name[1] then x = (x + x:transpose(-2, -1)) * 0.5 end
      if name[2] then args[name[1]][name[2]] = x else args[name[1]] = x end
    end
    local out = rows.call(row, rows.with_options(row, sample, args, nil, sample._all))
    for k = 1, out.n do -- complex numbers go in and out as pairs
      if flare.is_tensor(out[k]) and part[out[k].dtype] then out[k] = out[k]:view_as_real() end
    end
    return table.unpack(out, 1, out.n)
  end
end

local function at(base, name)
  local x = name[2] and base[name[1]][name[2]] or base[name[1]]
  return part[x.dtype] and x:contiguous():view_as_real():detach() or x
end

local function prepared(row, sample, device, layout)
  local base, names = rows.tensors(sample, device, layout), wanted(row, sample)
  local inputs, positions = {}, {}
  for k, name in ipairs(names) do inputs[k], positions[k] = at(base, name), k end
  return as_function(row, sample, names, base), inputs, positions
end
M.prepared = prepared

function M.first(row, samples)
  for _, s in ipairs(rows.accepted(samples)) do
    local f, inputs, positions = prepared(row, s)
    if #inputs > 0 then
      local ok, why = rows.guarded(row, s, "gradient", gradcheck.gradcheck, f, inputs, positions)
      if not ok then rows.fail(row, s, "gradient", "%s", why) end
    end
  end
end

function M.second(row, samples)
  for _, s in ipairs(rows.accepted(samples)) do
    local f, inputs, positions = prepared(row, s)
    if #inputs > 0 then
      local ok, why = rows.guarded(row, s, "second gradient", gradcheck.gradgradcheck, f, inputs,
        positions)
      if not ok then rows.fail(row, s, "second gradient", "%s", why) end
    end
  end
end

-- The gradients of all results (of their squares where signs are free), each weighed with fixed
-- numbers, as arrays.
local function gradients(row, sample, device, layout, create)
  local f, inputs, positions = prepared(row, sample, device, layout)
  local leaves = {}
  for k in ipairs(positions) do leaves[k] = inputs[k]:detach():requires_grad_(true) end
  local roots, seeds = {}, {}
  for _, y in ipairs(table.pack(f(table.unpack(leaves)))) do
    if flare.is_tensor(y) and y.requires_grad then
      if sample._signs then y = y * y end
      roots[#roots + 1] = y
      local shape = {table.unpack(y.shape, 1, y:dim())}
      local seed = A.whole(shape, -8, 8, 40, "f64") -- eighths, the same in every dtype
      for n = 1, #seed do seed[n] = seed[n] / 8 end
      seeds[#seeds + 1] = rows.make(seed, y.dtype, device, layout)
    end
  end
  if #roots == 0 then return {}, {} end
  local list = table.pack(flare.grad(roots, leaves,
    {gradient = seeds, allow_unused = true, create_graph = create}))
  for k = 1, #leaves do list[k] = list[k] or false end
  return list, leaves
end

--- Gradients by other ways are those of f64 by the plain one: differentiable ones, on
-- devices, with strides, in f32 and bf16.
function M.others(row, samples)
  for _, s in ipairs(rows.accepted(samples)) do
    if #wanted(row, s) > 0 then
      local exact = rows.guarded(row, s, "f64 gradient", gradients, row, s, "cpu")
      local function same(how, other, ...)
        local list, leaves = rows.guarded(row, s, how, gradients, row, other, ...)
        for k = 1, #list do
          if (exact[k] and true) ~= (list[k] and true) then
            rows.fail(row, s, how, "input %d has no gradient", k)
          elseif list[k] then
            rows.compare(row, s, how .. " " .. k, list[k], rows.read(exact[k]), leaves[k].dtype,
              dtypes.near_gradient)
          end
        end
      end
      same("differentiable gradient", s, "cpu", nil, true)
      for _, device in ipairs(rows.devices) do
        if device ~= "cpu" then same("gradient on " .. device, s, device) end
      end
      for _, layout in ipairs(s._contiguous and {} or layouts) do
        same("gradient with strides " .. layout, s, "cpu", layout)
      end
      for _, d in ipairs {"f32", "bf16"} do
        -- against f64 of the rounded values
        local rounded = rows.retyped(row, s, d)
        if rounded then
          local wide = rows.each_array(rounded, function(a)
            if a.dtype ~= d then return a end
            local b = A.new(a.shape, a, "f64")
            b.complex = a.complex
            return b
          end)
          for name, v in pairs(s) do if name:sub(1, 1) == "_" then wide[name] = v end end
          exact = rows.guarded(row, s, "f64 gradient", gradients, row, wide, "cpu")
          for _, device in ipairs(rows.devices) do
            if not device:find "sim" then same(d .. " gradient on " .. device, rounded, device) end
          end
          if not s._contiguous then same(d .. " turned gradient", rounded, "cpu", "turned") end
        end
      end
    end
  end
end

--- Results of rows that are not differentiable ask for no gradients, or refuse them by name.
function M.none(row, samples)
  for _, s in ipairs(rows.accepted(samples)) do
    local args, leaves, written = rows.tensors(s), {}, {}
    for _, p in ipairs(row.params) do written[p.name] = p.written end
    for name, v in pairs(args) do -- what is written may not require one
      local float = flare.is_tensor(v) and kind[v.dtype] == 3
      if float and not written[name] then leaves[#leaves + 1] = v:requires_grad_(true) end
    end
    local out = rows.guarded(row, s, "no gradient", rows.call, row,
      rows.with_options(row, s, args))
    for k = 1, #leaves > 0 and out.n or 0 do
      if flare.is_tensor(out[k]) and out[k].requires_grad then
        local ok, why = pcall(function() out[k]:sum():backward() end)
        local says = row.name .. ": its results cannot be differentiated"
        if ok or not tostring(why):find(says, 1, true) then
          rows.fail(row, s, "no gradient", "result %d asks for a gradient", k)
        end
      end
    end
  end
end

return M
