--- flare beside PyTorch on one GPU: runs bench/gpu/SET.lua and bench/peers/gpu_SET.py one after
-- the other and writes a table of each set, with what it was measured on.
local usage = [[
usage: flare bench gpu [--python PATH] [--out FILE] [--rounds N] [SET ...]
SET: targets, rows, index, products, moe, conv, attention, masks, linalg (all if none is named).
FILE: - for none. Both sides are run N times (1) in turns, and the best of each counts.
It needs an NVIDIA GPU, and PyTorch for CUDA under PATH (python3).
]]
local options, sets, i = {python = "python3", out = "-", rounds = "1"}, {}, 1
local all = {"targets", "rows", "index", "products", "moe", "conv", "attention", "masks",
  "linalg"}
local known = {}
for _, name in ipairs(all) do known[name] = true end
while arg[i] do
  local name = arg[i]:match "^%-%-(%w+)$"
  if name and options[name] and arg[i + 1] then
    i, options[name] = i + 1, arg[i + 1]
  elseif known[arg[i]] then
    sets[#sets + 1] = arg[i]
  else
    io[name == "help" and "stdout" or "stderr"]:write(usage)
    return name == "help" and 0 or 1
  end
  i = i + 1
end
if #sets == 0 then sets = all end

local available, why = require "flare".cuda.available()
if not available then
  io.stderr:write(usage, "flare: no GPU: ", tostring(why), "\n")
  return 1
end

local program = arg[-1] and arg[-1]:find "flare" and arg[-1] or os.getenv "FLARE_PROGRAM"
  or "build/flare"
local root = arg[0]:match "^(.*/)gpu%.lua$" or "bench/"

local function output(command)
  local pipe = assert(io.popen(command))
  local text = pipe:read "a"
  pipe:close()
  return text
end

local function time_text(s)
  if s < 1e-3 then return ("%.1f us"):format(s * 1e6) end
  return ("%.2f ms"):format(s * 1e3)
end

local versions = output(options.python .. [[ -c 'import torch
print("PyTorch", torch.__version__ + ", CUDA", torch.version.cuda)']])
local text = {
  "# flare and PyTorch on a GPU", "",
  ("%s; %s, driver %s; %s; commit %s."):format(os.date "%Y-%m-%d",
    output "nvidia-smi --query-gpu=name --format=csv,noheader":match "[^\n]+" or "?",
    output "nvidia-smi --query-gpu=driver_version --format=csv,noheader":match "[^\n]+" or "?",
    versions:match "[^\n]+" or "no PyTorch",
    output "git rev-parse --short HEAD 2>/dev/null":match "%w+" or os.getenv "FLARE_COMMIT" or "?"),
  "Medians of five. Ratio: PyTorch's time over flare's; above 1 flare is faster, bold is below.",
  "Aim: a ratio, or a part of the rate of copying; ! where it is missed."}

-- The names that a program prints, in order, each with its least time in seconds and its notes.
local function add(found, command)
  for line in output(command):gmatch "[^\n]+" do
    local name, seconds, rest = line:match "^([^\t]+)\t([%d.e+-]+)(.*)$"
    if name then
      local one = found[name]
      if not one then
        one = {name = name, seconds = math.huge}
        found[name], found[#found + 1] = one, one
      end
      if tonumber(seconds) < one.seconds then
        one.seconds = tonumber(seconds)
        one.rate, one.aim = rest:match "^\t([^\t]*)\t?([^\t]*)$"
      end
    end
  end
end

-- A target as text, and whether it is reached.
local function aim_of(one, ratio, copy)
  local least = one.aim and tonumber(one.aim:match "^[%d.]+")
  if not least then return "", nil end
  local reached = ratio >= least
  local rate = tonumber(one.rate:match "^[%d.]+")
  if one.aim:find "%%" then
    reached = copy and rate >= least / 100 * copy
  elseif one.aim:find "TFLOP/s" then
    reached = one.rate:find "TFLOP/s" and rate >= least
  end
  return one.aim .. (reached and "" or " !"), reached
end

local compared, missed, aims = 0, 0, 0
for _, set in ipairs(sets) do
  io.stderr:write(set, "\n")
  local ours, peers = {}, {}
  for _ = 1, tonumber(options.rounds) do
    add(ours, ("%s %sgpu/%s.lua"):format(program, root, set))
    add(peers, ("%s %speers/gpu_%s.py"):format(options.python, root, set))
  end
  local copy = ours.copy and tonumber(ours.copy.rate:match "^[%d.]+")
  text[#text + 1] = ("\n## %s\n\n| work | flare | | PyTorch | ratio | aim |"):format(set)
  text[#text + 1] = "|---|--:|--:|--:|--:|--:|"
  for _, peer in ipairs(peers) do
    local one = ours[peer.name:gsub(" %[%w+%]$", "")] -- "[cuDNN]": another way of the peer's
    if one then
      local ratio = peer.seconds / one.seconds
      local aim, reached = "", nil
      if one.name == peer.name then aim, reached = aim_of(one, ratio, copy) end
      compared = compared + 1
      aims = aims + (reached == nil and 0 or 1)
      missed = missed + (reached == false and 1 or 0)
      text[#text + 1] = ("| %s | %s | %s | %s | %s | %s |"):format(peer.name,
        time_text(one.seconds), one.rate, time_text(peer.seconds),
        (ratio < 1 and "**%.2f**" or "%.2f"):format(ratio), aim)
    end
  end
end
if aims > 0 then
  text[#text + 1] = ("\n%d of %d aims are reached."):format(aims - missed, aims)
end
if compared == 0 then
  io.stderr:write("flare: nothing was compared: is PyTorch there? (--python PATH)\n")
  return 1
end

text = table.concat(text, "\n") .. "\n"
if options.out ~= "-" then
  local file = assert(io.open(options.out, "w"))
  file:write(text)
  file:close()
end
io.stdout:write(text)
return 0
