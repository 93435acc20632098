--- The works of ncu.sh, each under NVIDIA's profiler once it has chosen how it is done; a
-- kernel of arange stands before each. With a FILE of ncu's: the table of its kernels.
--   flare spec/gpu/ncu.lua LIBRARY | flare spec/gpu/ncu.lua table FILE NAMES
local flare = require "flare"

local function fields_of(line)
  local all = {}
  for quoted in line:gmatch '"([^"]*)"' do all[#all + 1] = quoted end
  return all
end

local UNITS = {Gbyte = 1e3, Mbyte = 1, Kbyte = 1e-3, byte = 1e-6, ns = 1e-3, us = 1, ms = 1e3,
               usecond = 1, nsecond = 1e-3, msecond = 1e3, second = 1e6, s = 1e6}
local STALL = "smsp__average_warps_issue_stalled_(.+)_per_issue_active.ratio"
local COLUMNS = {
  {"us", "gpu__time_duration.sum", 1}, {"DRAM read, MB", "dram__bytes_read.sum"},
  {"written", "dram__bytes_write.sum"},
  {"DRAM %", "dram__throughput.avg.pct_of_peak_sustained_elapsed"},
  {"SM %", "sm__throughput.avg.pct_of_peak_sustained_elapsed"},
  {"issue %", "smsp__issue_active.avg.pct_of_peak_sustained_active"},
  {"warps %", "sm__warps_active.avg.pct_of_peak_sustained_active"},
  {"registers", "launch__registers_per_thread"},
}

local function show_table(file, names)
  local head, units, name
  local works = {}
  for work in io.lines(names) do works[#works + 1] = work end
  local line = {"kernel", "of"}
  for _, c in ipairs(COLUMNS) do line[#line + 1] = c[1] end
  print("| " .. table.concat(line, " | ") .. " | stalls |")
  print("|---|---|" .. ("--:|"):rep(#COLUMNS) .. "---|")
  local work = 0
  for text in io.lines(file) do
    local row = text:sub(1, 1) == '"' and fields_of(text) or {}
    if row[1] == "ID" then
      head = row
    elseif head and not units then
      units = row
    elseif #row > 0 and head then
      local at, stalls = {}, {}
      for i, title in ipairs(head) do
        local number = tonumber((row[i]:gsub(",", "")))
        at[title] = number and number * (UNITS[units[i]] or 1)
        local stall = title:match(STALL)
        if stall and number then stalls[#stalls + 1] = {number, stall} end
        if title == "Kernel Name" then name = row[i] end
      end
      if name:find "sequence" or name:find "arange" then
        work = work + 1
      else
        line = {name:gsub("[(<].*", ""):gsub("^void ", ""):sub(1, 60), works[work] or "?"}
        for _, c in ipairs(COLUMNS) do
          line[#line + 1] = at[c[2]] and ("%%.%df"):format(c[3] or 0):format(at[c[2]]) or ""
        end
        table.sort(stalls, function(a, b) return a[1] > b[1] end)
        local three = {}
        for i = 1, math.min(3, #stalls) do
          three[i] = ("%s %.1f"):format(stalls[i][2], stalls[i][1])
        end
        print("| " .. table.concat(line, " | ") .. " | " .. table.concat(three, ", ") .. " |")
      end
    end
  end
end

if arg[1] == "table" then return show_table(arg[2], arg[3]) end

local m = dofile "bench/gpu/measure.lua"
local begin = assert(package.loadlib(arg[1], "begin"))
local finish = assert(package.loadlib(arg[1], "finish"))
local normal, last = m.normal, m.last

local function work(name, f)
  for _ = 1, 6 do f() end
  flare.synchronize()
  begin()
  flare.arange(1, 64, {device = "cuda"})
  f()
  flare.synchronize()
  finish()
  print(name)
  collectgarbage()
end

for _, n in ipairs {4096, 8192} do
  local a, b = normal("bf16", n, n), normal("bf16", n, n)
  work("product " .. n, function() return a:matmul(b) end)
end
do
  local x, w, b = normal("bf16", 16384, 4096), normal("bf16", 16384, 4096), normal("bf16", 16384)
  work("linear gelu", function() return flare.linear(x, w, b, {act = "gelu"}) end)
end
do
  local x, w = last(normal("bf16", 256, 128, 28, 28)), last(normal("bf16", 128, 128, 3, 3))
  local o = {padding = 1}
  work("conv", function() return flare.conv(x, w, nil, o) end)
  work("conv dx", function() return flare.conv_input_grad(x, w, x.shape, o) end)
  work("conv dw", function() return flare.conv_weight_grad(x, x, w.shape, o) end)
end
do
  local x, dy = m.leaf("bf16", 16384, 4096), normal("bf16", 16384, 4096)
  local w, b = m.leaf("bf16", 4096), m.leaf("bf16", 4096)
  local z = x:detach()
  work("exp", function() return z:exp() end)
  local fused = flare.elementwise("T x, T y, T z", "T r", "r = relu(x * y + z)")
  work("relu(x * y + z)", function() return fused(z, dy, z) end)
  local y = flare.layer_norm(x, w, b)
  work("layer_norm backward", function()
    y:backward(dy, {retain_graph = true})
    x.grad, w.grad, b.grad = nil, nil, nil
  end)
end
do
  local x = normal("f32", 4096, 4096)
  work("rfft2", function() return flare.rfft2(x) end)
  local a = normal("f32", 8192, 4096)
  work("cat", function() return flare.cat({a, a}, 2) end)
end
