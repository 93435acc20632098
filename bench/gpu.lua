--- flare beside PyTorch on one GPU: runs bench/gpu/SET.lua and bench/peers/gpu_SET.py one after
-- the other and writes a table of each set, with what it was measured on.
local usage = [[
usage: flare bench gpu [--python PATH] [--out FILE] [SET ...]
SET: rows, index, products, attention (all of them if none is named). FILE: - for none.
It needs an NVIDIA GPU, and PyTorch for CUDA under PATH (python3).
]]
local options, sets, i = {python = "python3", out = "-"}, {}, 1
local known = {rows = true, index = true, products = true, attention = true}
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
if #sets == 0 then sets = {"rows", "index", "products", "attention"} end

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
    output "git rev-parse --short HEAD 2>/dev/null":match "%w+" or "?"),
  "Medians of five. Ratio: PyTorch's time over flare's; above 1 flare is faster, bold is below."}

local compared = 0
for _, set in ipairs(sets) do
  io.stderr:write(set, "\n")
  local ours, rates = {}, {}
  for line in output(("%s %sgpu/%s.lua"):format(program, root, set)):gmatch "[^\n]+" do
    local name, seconds, rate = line:match "^([^\t]+)\t([^\t]+)\t([^\t]*)$"
    if name then ours[name], rates[name] = tonumber(seconds), rate end
  end
  text[#text + 1] = ("\n## %s\n\n| work | flare | | PyTorch | ratio |"):format(set)
  text[#text + 1] = "|---|--:|--:|--:|--:|"
  local peers = output(("%s %speers/gpu_%s.py"):format(options.python, root, set))
  for name, seconds in peers:gmatch "([^\n\t]+)\t(%S+)\n" do
    local key = name:gsub(" %[%w+%]$", "") -- "[cuDNN]": another way of the peer's
    if ours[key] then
      compared = compared + 1
      local ratio = tonumber(seconds) / ours[key]
      text[#text + 1] = ("| %s | %s | %s | %s | %s |"):format(name, time_text(ours[key]),
        rates[key], time_text(tonumber(seconds)),
        (ratio < 1 and "**%.2f**" or "%.2f"):format(ratio))
    end
  end
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
