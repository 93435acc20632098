-- Published models beside transformers, where it is installed: that spec/data/models.safetensors is
-- what it computes, that it reads what flare saves, and that bf16 is as exact as its own.
-- limit: 30 min
--   PYTHON  a python with torch and transformers
package.path = "./?.lua;" .. package.path
local flare = require "flare"
local support = require "spec.support.models"

local python = os.getenv "PYTHON" or "python3"
if not os.execute(python .. " -c 'import torch, transformers' 2>/dev/null") then
  print("figure: " .. python .. " has no transformers: nothing was compared")
  return
end

local failed = false
local function figure(good, format, ...)
  print("figure: " .. format:format(...) .. (good and "" or ": FAILED"))
  failed = failed or not good
end

local function run(script, ...)
  return os.execute(("%s spec/support/%s %s"):format(python, script, table.concat({...}, " ")))
end

local folder = os.tmpname()
os.remove(folder)
assert(flare.core.file.mkdir(folder))
assert(run("models_data.py", folder .. "/new.safetensors", folder), "the data cannot be made")

-- the data of the repository and those just made
local new, worst = assert(flare.io.safetensors.load(folder .. "/new.safetensors")), 0
local old = assert(flare.io.safetensors.load "spec/data/models.safetensors")
for name, tensor in pairs(old) do worst = math.max(worst, support.off(new[name], tensor)) end
figure(worst <= 1e-5, "spec/data/models.safetensors is off by %.1e", worst)

for _, name in ipairs(support.names()) do
  local model = assert(flare.models.load(folder .. "/" .. name))
  assert(model:save(folder .. "/" .. name .. ".saved", {shard = "20kB"}))
end
figure(run("models_peer.py", folder), "transformers reads what flare saves, in many files")

local low = assert(flare.io.safetensors.load(folder .. "/low.safetensors"))
for _, name in ipairs(support.names()) do
  local exact, theirs = low[name .. ".f32"], low[name .. ".bf16"]
  if exact then
    local model = assert(flare.models.load(folder .. "/" .. name, {dtype = "bf16"}))
    local ids = support.ids(model.config.vocab_size)
    local f32 = support.off(assert(flare.models.load(folder .. "/" .. name))(ids), exact)
    -- the median of positions: a router that rounds to another expert changes single ones at once
    local function error_of(logits)
      local off = (logits:to "f32" - exact):square():sum(3):sqrt() / exact:square():sum(3):sqrt()
      return off:median():item()
    end
    local mine, peer = error_of(model(ids)), error_of(theirs)
    figure(f32 <= 2e-5 and mine <= 1.2 * peer,
      "%s: f32 off by %.1e of the largest logit; bf16 by %.2f %%, transformers' by %.2f %%", name,
      f32, 100 * mine, 100 * peer)
  end
end
os.execute("rm -rf '" .. folder .. "'")
os.exit(not failed)
