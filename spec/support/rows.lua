--- Runs the samples of a row in every way there is: devices, dtypes, strides, in place,
-- without values, first and second gradients; everything against the plain references.
local flare = require "flare"
local core = require "flare.core"
local A = require "spec.support.array"
local dtypes = require "spec.support.dtypes"
local gradcheck = require "spec.support.gradcheck"

local M = {}

M.devices = {"cpu", "sim:0"}
M.layouts = {"turned", "sliced", "backwards"}

-- --- rows ---

local rows = {}
for _, row in ipairs(core.ops()) do rows[row.name] = row end
M.rows = rows

--- Derivatives of unary rows, which their second order reaches.
function M.is_hidden(row)
  return row.family == "backward"
end

local function param(row, name)
  for _, p in ipairs(row.params) do if p.name == name then return p end end
  error(("%s has no parameter '%s'"):format(row.name, name))
end

-- --- tensors of arrays ---

local function plain(a, dtype, device)
  local list = {}
  local bool = dtype == "bool"
  for k = 1, A.count(a.shape) do
    local v = a[k]
    if bool then v = v ~= 0 end
    list[k] = v
  end
  local t
  if #list == 0 then t = flare.zeros(a.shape, {dtype = dtype})
  else t = flare.tensor(list, {dtype = dtype}):reshape(a.shape) end
  return t:to(device or "cpu")
end

--- Same values, other strides.
local function laid_out(t, layout)
  local nd = t:dim()
  if layout == "turned" and nd > 1 then
    local order = {}
    for d = 1, nd do order[d] = nd + 1 - d end
    return t:permute(order):clone():permute(order)
  elseif layout == "sliced" or layout == "turned" then
    if nd == 0 then
      local wide = flare.zeros({3}, {dtype = t.dtype, device = t.device})
      wide[2] = t
      return wide[2]
    end
    local shape = {table.unpack(t.shape, 1, nd)}
    shape[nd] = shape[nd] * 2 + 1
    local wide = flare.ones(shape, {dtype = t.dtype, device = t.device})
    if t:numel() == 0 then return wide:narrow(nd, 1, t.shape[nd]) end
    local part = wide:narrow(nd, 2, t.shape[nd], 2)
    part:copy_(t)
    return part
  elseif layout == "backwards" and nd > 0 and t:numel() > 0 then
    local dims, steps, last = {}, {}, 0
    local strides = t:contiguous():stride()
    for d = 1, nd do
      dims[d], steps[d] = d, -strides[d]
      last = last + (t.shape[d] - 1) * strides[d]
    end
    return t:flip(dims):as_strided(t.shape, steps, last)
  end
  return t
end

local function make(a, dtype, device, layout)
  local t = plain(a, dtype, device)
  return layout and laid_out(t, layout) or t
end

local function read(t, shape)
  local list = t:detach():reshape(-1):tolist()
  if type(list) ~= "table" then list = {list} end
  return A.new(shape or {table.unpack(t.shape, 1, t:dim())}, list, t.dtype)
end

-- --- samples ---

local function is_list(v)
  return type(v) == "table" and not v.shape and A.is(v[1])
end

-- f applied to every array of a sample; the rest as it is, without what begins with "_".
local function each_array(sample, f)
  local made = {}
  for name, v in pairs(sample) do
    if name:sub(1, 1) ~= "_" then
      if A.is(v) then made[name] = f(v, name)
      elseif is_list(v) then
        made[name] = {}
        for k, x in ipairs(v) do made[name][k] = f(x, name) end
      else made[name] = v end
    end
  end
  return made
end

-- Whole numbers for integer dtypes out of a sample's floats.
local function to_whole(a, dtype)
  local b = {shape = a.shape, dtype = dtype}
  for k = 1, A.count(a.shape) do
    local v = math.floor(a[k] * 4 + 0.5)
    if dtype == "bool" then v = a[k] > 0 and 1 or 0
    elseif dtype == "u8" then v = math.abs(v) end
    b[k] = A.convert(v, dtype)
  end
  return b
end

--- The sample with its floats as another dtype, rounded as that one keeps them; nil if the
-- row does not take it.
local function retype(row, sample, dtype)
  local whole, possible = not A.is_float(dtype), true
  local only = sample._dtypes
  if only and not (" " .. only .. " "):find(" " .. dtype .. " ", 1, true) then return nil end
  local changed = false
  local new = each_array(sample, function(a, name)
    local p = param(row, name)
    if not A.is_float(a.dtype) or p.type == "index" or p.type == "bool" then return a end
    changed = true
    if whole then
      if p.type == "float" or p.type == "num" and dtype == "bool" then possible = false end
      return to_whole(a, dtype)
    end
    return read(plain(a, dtype), a.shape)
  end)
  if not possible or not changed then return nil end
  for name, v in pairs(sample) do if name:sub(1, 1) == "_" then new[name] = v end end
  return new
end

local known = setmetatable({}, {__mode = "k"})

function M.retyped(row, sample, dtype)
  if dtype == "f64" then return sample end
  local made = known[sample] or {}
  known[sample] = made
  if made[dtype] == nil then made[dtype] = retype(row, sample, dtype) or false end
  return made[dtype] or nil
end

local function tensors(sample, device, layout)
  return each_array(sample, function(a) return make(a, a.dtype, device, layout) end)
end

local function add_options(row, sample, args, device, all)
  if sample._seed then args.generator = flare.generator(sample._seed) end
  if all and #row.results > row.returns then args.all = true end
  if device and device ~= "cpu" then
    local makes = true
    for _, p in ipairs(row.params) do if p.kind == "tensor" then makes = false end end
    if makes then args.device = device end
  end
  return args
end

-- The inputs that must be there come by position, all else by name.
local function call_with(f, row, args)
  local list, n, rest = {}, 0, {}
  for name, v in pairs(args) do rest[name] = v end
  for _, name in ipairs(row.positional) do
    local p = param(row, name)
    if p.kind ~= "tensor" or p.optional then break end
    n = n + 1
    list[n], rest[name] = args[name], nil
  end
  if next(rest) ~= nil then
    n = n + 1
    list[n] = rest
  end
  return table.pack(f(table.unpack(list, 1, n)))
end

local function call(row, args)
  return call_with(core.ops[row.name], row, args)
end

local function call_over(row, args)
  return call_with(args[row.positional[1]][row.name .. "_"], row, args)[1]
end

local function describe(row, sample)
  local words = {}
  for _, p in ipairs(row.params) do
    local v = sample[p.name]
    if A.is(v) then
      words[#words + 1] = ("%s=%s(%s)"):format(p.name, v.dtype, table.concat(v.shape, ","))
    elseif is_list(v) then
      words[#words + 1] = ("%s={%d}"):format(p.name, #v)
    elseif type(v) == "table" then
      words[#words + 1] = ("%s={%s}"):format(p.name, table.concat(v, ","))
    elseif v ~= nil then
      words[#words + 1] = ("%s=%s"):format(p.name, tostring(v))
    end
  end
  return row.name .. "{" .. table.concat(words, ", ") .. "}"
end
M.describe = describe

local function fail(row, sample, how, text, ...)
  error(("%s, %s: %s"):format(describe(row, sample), how, text:format(...)), 0)
end

-- Calls with the failure told in full.
local function guarded(row, sample, how, f, ...)
  local r = table.pack(pcall(f, ...))
  if not r[1] then fail(row, sample, how, "%s", tostring(r[2])) end
  return table.unpack(r, 2, r.n)
end

-- --- comparing ---

local top = {f16 = 65520, bf16 = 3.3961775292304e38, f32 = 3.4028235677973366e38}

-- A reference's number as a result of that dtype would be.
local function as_kept(v, dtype)
  v = A.convert(v, dtype)
  local most = top[dtype]
  if most and v >= most then return math.huge end
  if most and v <= -most then return -math.huge end
  return v
end

local function same_shape(t, shape)
  if t:dim() ~= #shape then return false end
  for d = 1, #shape do if t.shape[d] ~= shape[d] then return false end end
  return true
end

function M.compare(row, sample, how, t, want, dtype, near)
  if not flare.is_tensor(t) then fail(row, sample, how, "no tensor came: %s", tostring(t)) end
  if dtype and t.dtype ~= dtype then
    fail(row, sample, how, "the result is %s and should be %s", t.dtype, dtype)
  end
  if not same_shape(t, want.shape) then
    fail(row, sample, how, "the result has shape %s and should have (%s)", t.shape,
      table.concat(want.shape, ", "))
  end
  local got = read(t)
  for k = 1, A.count(want.shape) do
    local v = as_kept(want[k], t.dtype)
    if not (near or dtypes.near)(got[k], v, t.dtype, row.name) then
      fail(row, sample, how, "element %d is %.17g and should be %.17g", k, got[k], v)
    end
  end
end

local computed = setmetatable({}, {__mode = "k"})

local function references(reference, row, sample)
  if computed[sample] then return computed[sample] end
  local f = reference[row.name]
  if not f then error(row.name .. " has no reference", 0) end
  local args = each_array(sample, function(a) return a end)
  args._seed = sample._seed
  local r = f(args)
  if A.is(r) or type(r) == "function" then r = {r} end
  computed[sample] = r
  return r
end

-- One run of a sample against the reference: results, and what it wrote in place.
local function check_run(row, sample, reference, device, layout, how)
  local args = add_options(row, sample, tensors(sample, device, layout), device, true)
  local want = references(reference, row, sample)
  local expected = dtypes.results(row, sample)
  local out = guarded(row, sample, how, call, row, args)
  for k = 1, #expected do
    local w = want[k]
    if type(w) == "function" then
      local ok, why = w(read(out[k]))
      if not ok then fail(row, sample, how, "result %d: %s", k, why) end
    elseif w then
      M.compare(row, sample, how, out[k], w, expected[k])
      if row.view and A.count(w.shape) > 0 and not out[k]:shares(args.x) then
        fail(row, sample, how, "the result is no view")
      end
    end
  end
  for name, w in pairs(want.written or {}) do
    if is_list(w) then
      for k, x in ipairs(w) do
        M.compare(row, sample, how .. ", " .. name .. " " .. k, args[name][k], x)
      end
    else
      M.compare(row, sample, how .. ", " .. name, args[name], w)
    end
  end
  return out
end

-- Deterministic refusals: the message must match.
local function check_refused(row, sample, device)
  local ok, why = pcall(function()
    call(row, add_options(row, sample, tensors(sample, device), device))
    flare.synchronize() -- bad positions are found while the device works
  end)
  if ok then fail(row, sample, device, "was not refused") end
  if not tostring(why):find(sample._refused) then
    fail(row, sample, device, "was refused with: %s", tostring(why))
  end
end

-- --- the checks, one by one ---

local function plain_samples(samples)
  local list = {}
  for _, s in ipairs(samples) do if not s._refused then list[#list + 1] = s end end
  return list
end

function M.values(row, samples, reference)
  for _, device in ipairs(M.devices) do
    for _, s in ipairs(samples) do
      if s._refused then check_refused(row, s, device)
      else check_run(row, s, reference, device, nil, device) end
    end
  end
end

function M.dtypes(row, samples, reference)
  for _, device in ipairs(M.devices) do
    for _, s in ipairs(plain_samples(samples)) do
      for _, group in ipairs {A.floats, A.integers} do
        for _, d in ipairs(group) do
          local other = d ~= "f64" and M.retyped(row, s, d)
          if other then
            check_run(row, other, reference, device, nil, device .. " " .. d)
          end
        end
      end
    end
  end
end

function M.strides(row, samples, reference)
  for _, device in ipairs(M.devices) do
    for _, s in ipairs(plain_samples(samples)) do
      for _, layout in ipairs(M.layouts) do
        for _, d in ipairs {"f64", "f32", "i32"} do
          local other = not s._contiguous and M.retyped(row, s, d)
          if other and (d ~= "i32" or layout == "turned") then
            check_run(row, other, reference, device, layout, device .. " " .. d .. " " .. layout)
          end
        end
      end
    end
  end
end

--- Shapes and dtypes without values are those with values.
function M.meta(row, samples)
  for _, s in ipairs(plain_samples(samples)) do
    local real = guarded(row, s, "cpu", call, row,
      add_options(row, s, tensors(s), nil, true))
    local ok, blank = pcall(function()
      local _ <close> = flare.meta()
      return call(row, add_options(row, s, tensors(s), nil, true))
    end)
    if not ok and not tostring(blank):find "depends on values" then
      fail(row, s, "meta", "%s", tostring(blank))
    end
    for k = 1, ok and real.n or 0 do
      if flare.is_tensor(real[k]) and (tostring(real[k].shape) ~= tostring(blank[k].shape)
          or real[k].dtype ~= blank[k].dtype) then
        fail(row, s, "meta", "shape %s and dtype %s, with values %s and %s", blank[k].shape,
          blank[k].dtype, real[k].shape, real[k].dtype)
      end
    end
  end
end

-- --- in place ---

local kind = dtypes.kind

local function fits(to, from)
  return kind[from] <= kind[to] or kind[from] < 3 and kind[to] > 0
end

local function identical(got, want)
  return got == want or got ~= got and want ~= want
end

--- x:op_(...) gives what x:op(...) gives, converted to x's dtype, or is refused where that
-- cannot be.
function M.inplace(row, samples)
  local first = row.positional[1]
  for _, device in ipairs(M.devices) do
    for _, s in ipairs(plain_samples(samples)) do
      for _, d in ipairs {"f64", "f32", "i32"} do
        local other = A.is(s[first]) and M.retyped(row, s, d)
        for _, layout in ipairs {"contiguous", "sliced"} do
          if other then
            local how = ("%s %s %s in place"):format(device, d, layout)
            local want = guarded(row, s, how, call, row,
              add_options(row, s, tensors(other, device)))[1]
            local args = add_options(row, s, tensors(other, device, layout))
            local x = args[first]
            local ok, y = pcall(call_over, row, args)
            local possible = tostring(want.shape) == tostring(x.shape) and fits(x.dtype, want.dtype)
            if ok ~= possible then
              fail(row, s, how, ok and "was not refused" or "%s", tostring(y))
            end
            if ok then
              if y ~= x then fail(row, s, how, "does not return its tensor") end
              M.compare(row, s, how, x, read(want:to(x.dtype)), x.dtype,
                layout == "contiguous" and identical or nil)
            end
          end
        end
      end
    end
  end
end

-- --- gradients ---

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
    elseif asked and is_list(v) then
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
      args[name] = is_list(sample[name]) and table.move(v, 1, #v, 1, {}) or v
    end
    for k, name in ipairs(names) do
      if name[2] then args[name[1]][name[2]] = given[k] else args[name[1]] = given[k] end
    end
    return table.unpack(call(row, add_options(row, sample, args, nil, sample._all)))
  end
end

local function at(base, name)
  return name[2] and base[name[1]][name[2]] or base[name[1]]
end

local function prepared(row, sample, device, layout)
  local base, names, inputs, positions = tensors(sample, device, layout), wanted(row, sample), {},
    {}
  for k, name in ipairs(names) do inputs[k], positions[k] = at(base, name), k end
  return as_function(row, sample, names, base), inputs, positions
end
M.prepared = prepared

function M.gradient(row, samples)
  for _, s in ipairs(plain_samples(samples)) do
    local f, inputs, positions = prepared(row, s)
    if #inputs > 0 then
      local ok, why = guarded(row, s, "gradient", gradcheck.gradcheck, f, inputs, positions)
      if not ok then fail(row, s, "gradient", "%s", why) end
    end
  end
end

function M.second_gradient(row, samples)
  for _, s in ipairs(plain_samples(samples)) do
    local f, inputs, positions = prepared(row, s)
    if #inputs > 0 and not s._once then
      local ok, why = guarded(row, s, "second gradient", gradcheck.gradgradcheck, f, inputs,
        positions)
      if not ok then fail(row, s, "second gradient", "%s", why) end
    end
  end
end

-- The gradients of all results, each weighed with fixed numbers, as arrays.
local function gradients(row, sample, device, layout, create)
  local f, inputs, positions = prepared(row, sample, device, layout)
  local leaves = {}
  for k in ipairs(positions) do leaves[k] = inputs[k]:detach():requires_grad_(true) end
  local roots, seeds = {}, {}
  for _, y in ipairs(table.pack(f(table.unpack(leaves)))) do
    if flare.is_tensor(y) and y.requires_grad then
      roots[#roots + 1] = y
      local shape = {table.unpack(y.shape, 1, y:dim())}
      local seed = A.whole(shape, -8, 8, 40, "f64") -- eighths, the same in every dtype
      for n = 1, #seed do seed[n] = seed[n] / 8 end
      seeds[#seeds + 1] = make(seed, y.dtype, device, layout)
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
function M.other_gradients(row, samples)
  for _, s in ipairs(plain_samples(samples)) do
    if #wanted(row, s) > 0 then
      local exact = guarded(row, s, "f64 gradient", gradients, row, s, "cpu")
      local function same(how, other, ...)
        local list, leaves = guarded(row, s, how, gradients, row, other, ...)
        for k = 1, #list do
          if (exact[k] and true) ~= (list[k] and true) then
            fail(row, s, how, "input %d has no gradient", k)
          elseif list[k] then
            M.compare(row, s, how .. " " .. k, list[k], read(exact[k]), leaves[k].dtype,
              dtypes.near_gradient)
          end
        end
      end
      if not s._once then same("differentiable gradient", s, "cpu", nil, true) end
      same("gradient on sim:0", s, "sim:0")
      for _, layout in ipairs(s._contiguous and {} or M.layouts) do
        same("gradient with strides " .. layout, s, "cpu", layout)
      end
      for _, d in ipairs {"f32", "bf16"} do
        -- against f64 of the rounded values
        local rounded = M.retyped(row, s, d)
        if rounded then
          local wide = each_array(rounded, function(a)
            if a.dtype ~= d then return a end
            local b = A.new(a.shape, a, "f64")
            return b
          end)
          for name, v in pairs(s) do if name:sub(1, 1) == "_" then wide[name] = v end end
          exact = guarded(row, s, "f64 gradient", gradients, row, wide, "cpu")
          same(d .. " gradient", rounded, "cpu")
          if not s._contiguous then same(d .. " turned gradient", rounded, "cpu", "turned") end
        end
      end
    end
  end
end

--- Results of rows that are not differentiable ask for no gradients, or refuse them by name.
function M.no_gradient(row, samples)
  for _, s in ipairs(plain_samples(samples)) do
    local args, leaves = tensors(s), {}
    for _, v in pairs(args) do
      local float = flare.is_tensor(v) and kind[v.dtype] == 3
      if float then leaves[#leaves + 1] = v:requires_grad_(true) end
    end
    local out = #leaves > 0 and guarded(row, s, "no gradient", call, row, add_options(row, s, args))
      or {n = 0}
    for k = 1, out.n do
      if flare.is_tensor(out[k]) and out[k].requires_grad then
        local ok, why = pcall(function() out[k]:sum():backward() end)
        if ok or not tostring(why):find(row.name .. ": its results cannot be differentiated", 1,
          true) then
          fail(row, s, "no gradient", "result %d asks for a gradient", k)
        end
      end
    end
  end
end

--- Declares the tests of a family of rows, for busted.
function M.declare(family, describe_, it_)
  local samples = require("spec.support.samples." .. family)
  local reference = require("spec.support.reference." .. family)
  local names = {}
  for name in pairs(samples) do names[#names + 1] = name end
  table.sort(names)
  for _, name in ipairs(names) do
    local row, list = rows[name], samples[name]
    describe_(name, function()
      it_("is a row", function() assert(row, "there is no row of this name") end)
      if not row then return end
      it_("gives the values", function() M.values(row, list, reference) end)
      it_("takes its dtypes", function() M.dtypes(row, list, reference) end)
      it_("takes any strides", function() M.strides(row, list, reference) end)
      it_("knows shapes without values", function() M.meta(row, list) end)
      if row.inplace and row.method and name ~= "copy" then it_("works in place",
        function() M.inplace(row, list) end) end
      if row.differentiable then
        it_("has its gradient", function() M.gradient(row, list) end)
        it_("has it by every way", function() M.other_gradients(row, list) end)
        it_("has its second gradient", function() M.second_gradient(row, list) end)
      else
        it_("has no gradient", function() M.no_gradient(row, list) end)
      end
    end)
  end
end

return M
