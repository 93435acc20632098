--- Has compiled functions write the results of each row with the mark FL_PLACES where the function
-- copies them: into parts of other tensors, with strides of several kinds. Compares them with what
-- the row gives by itself, and counts the copies that are left.
--   flare spec/support/placed_rows.lua DEVICE [values]
-- `values`: the device computes, so results are compared.
package.path = "./?.lua;" .. package.path
local flare = require "flare"
local core = require "flare.core"
local rows = require "spec.support.rows"

local device, values = arg[1], arg[2] == "values"
local calls, placed, failed = 0, 0, 0

-- name of a row -> how many of its first results have the mark
local function marked()
  local list = {}
  for path in io.popen "ls runtime/ops/*.def":lines() do
    local file = assert(io.open(path))
    for name, results in file:read "a":gmatch "\nFL_PLACES%(([%w_]+), *([Y%d|]+)," do
      list[name] = select(2, results:gsub("Y", ""))
    end
    file:close()
  end
  return list
end

-- A tensor of sevens with more elements, and a part of it of this shape: columns of a wider row,
-- also unaligned ones; rows of another order; columns apart from each other, which no kernel
-- takes.
local kinds = {
  wide = function(shape, make)
    local n = shape[#shape]
    shape[#shape] = 3 * n
    local all = make(shape)
    return all, all:narrow(#shape, n + 1, n), true
  end,
  odd = function(shape, make)
    local n = shape[#shape]
    shape[#shape] = n + 3
    local all = make(shape)
    return all, all:narrow(#shape, 2, n), true
  end,
  turned = function(shape, make)
    local order, turned, nd = {}, {}, #shape
    for d = 1, nd do
      order[d] = d == nd and nd or nd - d
      turned[d] = shape[order[d]]
    end
    local all = make(turned)
    return all, all:permute(order), true
  end,
  apart = function(shape, make)
    shape[#shape] = 2 * shape[#shape]
    local all = make(shape)
    return all, all:narrow(#shape, 1, shape[#shape] // 2, 2), false
  end,
}

local function same(a, b)
  return a:eq(b):logical_or(a:ne(a):logical_and(b:ne(b))):all():item()
end

-- The row's results; the first `n` of them, of these shapes and dtypes, as copies.
local function copied(call, n, kind, metas)
  local all, parts, fit = {}, {}, true
  for k = 1, n do
    local shape = {table.unpack(metas[k].shape)}
    local fits
    all[k], parts[k], fits = kinds[kind](shape, function(size)
      return flare.full(size, 7, {dtype = metas[k].dtype, device = device})
    end)
    fit = fit and (fits or metas[k].shape[#metas[k].shape] == 1)
  end
  local y = call()
  for k = 1, n do
    parts[k]:copy_(y[k])
    y[k] = all[k]
  end
  return y, fit
end

local function try(row, sample, n, kind, dtype)
  local retyped = rows.retyped(row, sample, dtype)
  if not retyped then return end
  local inputs = rows.tensors(retyped, device, dtype)
  local function call()
    flare.manual_seed(3)
    return rows.call(row, rows.with_options(row, retyped, inputs, device, true))
  end
  local metas, first = {}, call()
  for k = 1, n do
    local y = first[k]
    if y:dim() == 0 or y:numel() == 0 then return end
    metas[k] = {shape = {table.unpack(y.shape, 1, y:dim())}, dtype = y.dtype}
  end
  local want, fit = copied(call, n, kind, metas)
  local compiled, object = core.compiled(function()
    local y = copied(call, n, kind, metas)
    collectgarbage()
    return y
  end, true, true)
  local got = compiled()
  calls = calls + 1
  for k = 1, want.n do
    if values and flare.is_tensor(want[k]) and not same(want[k], got[k]) then
      error("result " .. k .. " differs", 0)
    end
  end
  local stats = core.compiled_stats(object)
  local saved = stats.launches - stats.kernels
  if fit and saved < n then error(("%d of %d copies are left"):format(n - saved, n), 0) end
  if not fit and saved > 0 then error("kernels write with such strides now", 0) end
  placed = placed + (fit and 1 or 0)
end

local list, dtypes = marked(), {"f32", "bf16", "f64"}
for _, family in ipairs(require "spec.support.families") do
  for name, samples in pairs(require("spec.support.samples." .. family)) do
    for k, sample in ipairs(list[name] and rows.accepted(samples) or {}) do
      for n, kind in ipairs {"wide", "odd", "turned", "apart"} do
        local dtype = dtypes[(k + n) % #dtypes + 1]
        local ok, why = pcall(try, rows.rows[name], sample, list[name], kind, dtype)
        if not ok then
          failed = failed + 1
          print(("%s, sample %d, %s, %s: %s"):format(name, k, kind, dtype, tostring(why)))
        end
      end
    end
  end
end
print(("%d calls, %d without copies, %d failed"):format(calls, placed, failed))
