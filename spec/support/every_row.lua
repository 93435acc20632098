--- Calls every row once on each of its samples, and goes back through those with a gradient:
-- little work for tools that make all work slow, such as NVIDIA's compute-sanitizer.
--   flare spec/support/every_row.lua [--device NAME] [--dtypes f32,bf16] [--check] [--verbose]
--     [--part K/N] [--rows NAME,...] [--without NAME,...] [FAMILY ...]
-- --check compares with the references too; --verbose names each row before it is tried; --part
-- takes each Nth piece, from the Kth: a piece is a row with up to eight of its samples, with --rows
-- one of them.
package.path = "./?.lua;" .. package.path
local flare = require "flare"
local options = require "flare.options"
local o = {device = "cpu", dtypes = "f32", part = "1/1", rows = "", without = "", check = false,
           verbose = false}
local words, i = {}, 1
while arg[i] do
  local name = arg[i]:match "^%-%-(%a+)$"
  if name == "check" or name == "verbose" then
    o[name] = true
  elseif name and o[name] and arg[i + 1] then
    i, o[name] = i + 1, arg[i + 1]
  elseif name then
    error(("unknown option '%s'%s"):format(arg[i], options.hint(name, o)), 0)
  else
    words[#words + 1] = arg[i]
  end
  i = i + 1
end
local gradients = require "spec.support.gradients"
local rows = require "spec.support.rows"

local first, step = o.part:match "^(%d+)/(%d+)$"
first, step = assert(tonumber(first), "--part is K/N"), tonumber(step)

-- {row, some of its samples, the references of its family}
local PIECE, all = o.rows == "" and 8 or 1, {}

local function names_of(list)
  local set = {}
  for name in list:gmatch "[^,]+" do
    assert(rows.rows[name], "there is no row " .. name)
    set[name] = true
  end
  return set
end
local only, without = names_of(o.rows), names_of(o.without)
for _, family in ipairs(#words > 0 and words or require "spec.support.families") do
  local samples, names = require("spec.support.samples." .. family), {}
  for name in pairs(samples) do names[#names + 1] = name end
  table.sort(names)
  for _, name in ipairs(names) do
    local taken = rows.rows[name] and not without[name] and (o.rows == "" or only[name])
    local accepted = taken and rows.accepted(samples[name]) or {}
    for k = 1, #accepted, PIECE do
      all[#all + 1] = {rows.rows[name], table.move(accepted, k, k + PIECE - 1, 1, {}),
                       require("spec.support.reference." .. family)}
    end
  end
end

local function forward(row, sample, reference)
  if o.check then return rows.run(row, sample, reference, o.device, nil, o.device) end
  local args = rows.with_options(row, sample, rows.tensors(sample, o.device), o.device, true)
  return rows.guarded(row, sample, o.device, rows.call, row, args)
end

-- `other` is the sample in another dtype.
local function backward(row, sample, other)
  local args, leaves, sum = rows.tensors(other, o.device), 0, nil
  for _, name in ipairs(gradients.wanted(row, sample)) do
    local place, key = args, name[1]
    if name[2] then place, key = args[name[1]], name[2] end
    place[key], leaves = place[key]:detach():requires_grad_(true), leaves + 1
  end
  if leaves == 0 then return end
  rows.with_options(row, sample, args, o.device, sample._all)
  for _, y in ipairs(table.pack(rows.guarded(row, sample, "forward", rows.call, row, args))) do
    if flare.is_tensor(y) and y.requires_grad then sum = (sum or 0) + y:to("f32"):sum() end
  end
  if sum then rows.guarded(row, sample, "backward", sum.backward, sum) end
end

local calls, failed, counted = 0, 0, 0
local function try(f, ...)
  calls = calls + 1
  local ok, why = pcall(f, ...)
  if ok then return end
  failed = failed + 1
  print("failed: " .. tostring(why))
end

for n = first, #all, step do
  local row, samples, reference = table.unpack(all[n])
  counted = counted + 1
  if o.verbose then
    print("row " .. row.name)
    io.stdout:flush()
  end
  for _, s in ipairs(samples) do
    for dtype in o.dtypes:gmatch "%w+" do
      local other = rows.retyped(row, s, dtype) or dtype == o.dtypes:match "%w+" and s
      if other then
        try(forward, row, other, reference)
        if row.differentiable then try(backward, row, s, other) end
      end
    end
  end
  flare.synchronize()
end
print(("%d pieces of rows, %d calls, %d failed"):format(counted, calls, failed))
os.exit(failed == 0, true)
