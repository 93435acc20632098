--- Captures every row on some of its samples as a graph of launches, and compares a run with the
-- call itself. Prints the rows that a graph refuses, each with the reason.
--   flare spec/support/graph_rows.lua DEVICE [values] [without=NAME,...]
-- `values`: the device computes, so results are compared.
package.path = "./?.lua;" .. package.path
local flare = require "flare"
local rows = require "spec.support.rows"

local words = " " .. table.concat(arg, " ") .. " "
local device, values = arg[1], words:find " values " ~= nil
local without = "," .. (words:match " without=(%S+)" or "") .. ","
local MOST = 2 -- samples of a row
local captured, refused, failed = 0, {}, 0

local function same(a, b)
  if not flare.is_tensor(a) then return a == b end
  if tostring(a.shape) ~= tostring(b.shape) or a.dtype ~= b.dtype then return false end
  if a:numel() == 0 then return true end
  if a.dtype:find "^c" then return same(a:real(), b:real()) and same(a:imag(), b:imag()) end
  local equal = a:eq(b):logical_or(a:ne(a):logical_and(b:ne(b)))
  if not device:find "^sim" and (a.dtype == "f64" or a.dtype:find "^b?f%d") then
    -- autotuning may choose another kernel after the first call
    equal = equal:logical_or((a - b):abs():lt(b:abs() * 1e-4 + 1e-5))
  end
  return equal:all():item()
end

local function try(row, sample)
  local args = rows.with_options(row, sample, rows.tensors(sample, device), device, true)
  local wanted = rows.call(row, args)
  local ok, g = pcall(flare.cuda.graph, function() return table.unpack(rows.call(row, args)) end,
    flare.ones(1, {device = device}))
  if not ok then
    local why = tostring(g):match "a graph cannot capture ([%a ]+)"
    if why then
      refused[row.name] = why
      return
    end
    error(g, 0)
  end
  captured = captured + 1
  local got = table.pack(g(flare.ones(1, {device = device})))
  for k = 1, wanted.n do
    if values and not same(wanted[k], got[k]) then error("result " .. k .. " differs", 0) end
  end
  g:close()
end

for _, family in ipairs(require "spec.support.families") do
  for name, list in pairs(family == "comm" and {} or require("spec.support.samples." .. family)) do
    local row = not without:find("," .. name .. ",", 1, true) and rows.rows[name]
    for k, sample in ipairs(row and rows.accepted(list) or {}) do
      local ok, why = true, nil
      if k <= MOST then ok, why = pcall(try, row, sample) end
      if not ok then
        failed = failed + 1
        print(("%s, sample %d: %s"):format(name, k, tostring(why)))
      end
    end
  end
end
local names = {}
for name, why in pairs(refused) do names[#names + 1] = name .. ": " .. why end
table.sort(names)
print(table.concat(names, "\n"))
print(("%d captured, %d rows refused, %d failed"):format(captured, #names, failed))
