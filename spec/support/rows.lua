--- Rows of the op table and their samples: tensors of the arrays in any dtype and with any
-- strides, calls, and comparison with the plain references.
local flare = require "flare"
local core = require "flare.core"
local A = require "spec.support.array"
local dtypes = require "spec.support.dtypes"

local M = {}

--- Where rows are tried: FLARE_SPEC_DEVICES, a list with commas, or what every machine has.
M.devices = {}
for name in (os.getenv "FLARE_SPEC_DEVICES" or "cpu,sim:0"):gmatch "[^,]+" do
  M.devices[#M.devices + 1] = name
end

-- --- rows ---

local rows = {}
for _, row in ipairs(core.ops()) do rows[row.name] = row end
M.rows = rows

local function param(row, name)
  for _, p in ipairs(row.params) do if p.name == name then return p end end
  error(("%s has no parameter '%s'"):format(row.name, name))
end

-- --- tensors of arrays ---

local function is_complex(t) return t.dtype:find "^c" ~= nil end

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
  if a.complex then t = t:view_as_complex() end
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

-- Complex numbers are read as pairs.
local function read(t, shape)
  if is_complex(t) then t = t:detach():contiguous():view_as_real() end
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
    local kept = p.type == "index" or p.type == "id" or p.type == "bool"
    if kept or not A.is_float(a.dtype) then return a end
    changed = true
    if a.complex and dtype ~= "f32" then possible = false end
    if a.complex then
      local b = A.complex(a)
      for k, v in ipairs(read(plain(A.new(a.shape, a, "f64"), "f32"))) do b[k] = v end
      b.dtype = "f32"
      return b
    end
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

-- A number below 0 is no u8: spec/ops/numbers_spec.lua has the refusals.
local function is_negative(sample)
  for _, name in ipairs {"b", "min", "max", "alpha", "beta"} do
    if type(sample[name]) == "number" and sample[name] < 0 then return true end
  end
end

function M.retyped(row, sample, dtype)
  if dtype == "f64" then return sample end
  if dtype == "u8" and is_negative(sample) then return nil end
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
  if is_complex(t) then t = t:view_as_real() end
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

--- The samples that are not refused.
function M.accepted(samples)
  local list = {}
  for _, s in ipairs(samples) do if not s._refused then list[#list + 1] = s end end
  return list
end

M.is_list, M.read, M.make, M.tensors, M.each_array = is_list, read, make, tensors, each_array
M.with_options, M.call, M.call_over = add_options, call, call_over
M.fail, M.guarded, M.run, M.refuse = fail, guarded, check_run, check_refused

return M
