--- Joins the lines of bench/models.lua and bench/peers/models.py to markdown tables.
--   flare bench models_table FILE ...
local flare = require "flare"

local order, rows = {}, {}
for _, path in ipairs(arg) do
  for line in assert(io.open(path)):lines() do
    if line:sub(1, 1) == "{" then
      local d = assert(flare.core.json.decode(line))
      if not rows[d.model] then
        order[#order + 1] = d.model
        rows[d.model] = {}
      end
      rows[d.model][d.side .. " " .. d.mode] = d
    end
  end
end

local function short(x)
  if type(x) ~= "number" then return "" end
  return ((x >= 100 and "%.0f" or x >= 10 and "%.1f" or "%.2f"):format(x))
end

local function value(d, key)
  if not d then return "" end
  if d.error then return "failed" end
  return short(d[key])
end

-- a over b; bold where it is below 1, to the disadvantage of a compiled step of flare
local function ratio(a, b)
  if type(a) ~= "number" or type(b) ~= "number" then return "" end
  local text = ("%.2f"):format(a / b)
  return a < b and "**" .. text .. "**" or text
end

local function field(d, key) return d and d[key] end

local function line(cells) print("| " .. table.concat(cells, " | ") .. " |") end

local function has(side)
  for _, row in pairs(rows) do
    if row[side] then return true end
  end
end

local sides = {"flare eager", "flare compile", "pytorch eager", "pytorch compile"}
if has "flare launches" then table.insert(sides, 2, "flare launches") end
if has "flare graph" then table.insert(sides, 3, "flare graph") end
if has "pytorch graphs" then sides[#sides + 1] = "pytorch graphs" end

local function header(last)
  local head, rule = {"model"}, {"---"}
  for _, text in ipairs(sides) do head[#head + 1], rule[#rule + 1] = text, "--:" end
  for _, text in ipairs(last) do head[#head + 1], rule[#rule + 1] = text, "--:" end
  line(head)
  print("|" .. table.concat(rule, "|") .. "|")
end

print "Units per second; ratios above 1: the compiled step of flare is faster.\n"
header {"compiled / eager", "compiled / PyTorch", "compiled / torch.compile", "unit"}
for _, name in ipairs(order) do
  local row, cells = rows[name], {name}
  for _, side in ipairs(sides) do cells[#cells + 1] = value(row[side], "rate") end
  local ours = field(row["flare compile"], "rate")
  for _, side in ipairs {"flare eager", "pytorch eager", "pytorch compile"} do
    cells[#cells + 1] = ratio(ours, field(row[side], "rate"))
  end
  local _, any = next(row)
  cells[#cells + 1] = any.unit or ""
  line(cells)
end

print "\nPeak memory of tensors in MiB; ratios above 1: the compiled step of flare takes less.\n"
header {"PyTorch / compiled", "torch.compile / compiled", "parameters"}
for _, name in ipairs(order) do
  local row, cells = rows[name], {name}
  for _, side in ipairs(sides) do cells[#cells + 1] = value(row[side], "peak_mib") end
  local ours = field(row["flare compile"], "peak_mib")
  for _, side in ipairs {"pytorch eager", "pytorch compile"} do
    cells[#cells + 1] = ratio(field(row[side], "peak_mib"), ours)
  end
  local n = field(row["flare compile"], "parameters")
  local peer = field(row["pytorch eager"], "parameters")
  cells[#cells + 1] = n and (n == peer or not peer) and ("%d"):format(n)
    or ("%s; PyTorch %s"):format(n, peer)
  line(cells)
end

print "\nSeconds of the first step, and of the steps until the time of a step is steady.\n"
header {"launches -> kernels", "plans", "losses 1 and 4, flare", "PyTorch"}
for _, name in ipairs(order) do
  local row, cells = rows[name], {name}
  for _, side in ipairs(sides) do
    local d = row[side]
    cells[#cells + 1] = d and d.first_s and ("%.2f; %.2f"):format(d.first_s, d.settle_s) or ""
  end
  local plan = field(row["flare compile"], "plan")
  cells[#cells + 1] = plan and ("%d -> %d"):format(plan.launches, plan.kernels) or ""
  cells[#cells + 1] = plan and ("%d%s"):format(plan.plans, plan.off and ", off" or "") or ""
  for _, side in ipairs {"flare compile", "pytorch eager"} do
    local losses = field(row[side], "losses") or {}
    cells[#cells + 1] = losses[4] and ("%.5g; %.5g"):format(losses[1], losses[4]) or ""
  end
  line(cells)
end

for _, name in ipairs(order) do
  for _, side in ipairs(sides) do
    local d = rows[name][side]
    if d and d.error then print(("\n%s, %s: %s"):format(name, side, d.error)) end
  end
end
