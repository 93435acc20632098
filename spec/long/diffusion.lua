-- Models of diffusion beside diffusers, where it is installed: that spec/data/diffusion.safetensors
-- is what it computes, that it reads what flare saves, and that bf16 is as exact as its own.
-- limit: 20 min
--   PYTHON  a python with torch, transformers and diffusers
package.path = "./?.lua;" .. package.path
local flare = require "flare"
local data, support = require "spec.support.diffusion", require "spec.support.models"

local python = os.getenv "PYTHON" or "python3"
if not os.execute(python .. " -c 'import torch, transformers, diffusers' 2>/dev/null") then
  print("skipped: " .. python .. " has no diffusers")
  return
end

local failed = false
local function figure(good, format, ...)
  print("figure: " .. format:format(...) .. (good and "" or ": FAILED"))
  failed = failed or not good
end

local function run(script, ...)
  return os.execute(("%s -W ignore spec/support/%s %s 2>/dev/null"):format(python, script,
                    table.concat({...}, " ")))
end

local folder = os.tmpname()
os.remove(folder)
assert(flare.core.file.mkdir(folder))
assert(run("diffusion_data.py", folder .. "/new.safetensors", folder), "the data cannot be made")

-- the data of the repository and those just made
local new, worst = assert(flare.io.safetensors.load(folder .. "/new.safetensors")), 0
local old = assert(flare.io.safetensors.load "spec/data/diffusion.safetensors")
for name, tensor in pairs(old) do worst = math.max(worst, support.off(new[name], tensor)) end
figure(worst <= 1e-5, "spec/data/diffusion.safetensors is off by %.1e", worst)

for _, name in ipairs(data.names "tensors") do
  local model = assert(flare.models.load(folder .. "/" .. name))
  assert(model:save(folder .. "/" .. name .. ".saved", {shard = "20kB"}))
end
for _, name in ipairs(data.names "steps") do
  local about = data.about(name)
  assert(flare.models[about.cls](about.config):save(folder .. "/" .. name .. ".scheduler"))
end
figure(run("diffusion_peer.py", folder), "diffusers reads what flare saves, in many files")

-- Predictions in f32, as diffusers' are, and in bf16, as exact as its own.
local low = assert(flare.io.safetensors.load(folder .. "/low.safetensors"))
for _, name in ipairs(data.names "tensors") do
  local exact = data.expected(name, "predicted") or data.expected(name, "decoded")
  local function off(dtype)
    local model = assert(flare.models.load(folder .. "/" .. name, {dtype = dtype}))
    return data.call(model, data.about(name).inputs, dtype):to "f32" - exact
  end
  local function size(x) return (x:square():sum() / exact:square():sum()):sqrt():item() end
  local f32 = off("f32"):abs():max():item() / exact:abs():max():item()
  figure(f32 <= 2e-5, "%s: f32 off by %.1e of the largest number", name, f32)
  if low[name] then
    local mine, peer = size(off "bf16"), size(low[name] - exact)
    -- models as small as these have few numbers to average over
    figure(mine <= 1.5 * peer, "%s: bf16 off by %.2f %%, diffusers' by %.2f %%", name, 100 * mine,
           100 * peer)
  end
end
os.execute("rm -rf '" .. folder .. "'")
os.exit(not failed)
