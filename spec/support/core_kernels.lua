--- The kernels that the first training steps of a GPT and of a residual network ask for, the
-- slowest to compile first: what kernels/cuda/driver/core.def lists, which threads compile ahead.
--   build/flare spec/support/core_kernels.lua > kernels/cuda/driver/core.def
package.path = "./?.lua;" .. package.path
local fakes = require "spec.support.fakes"

local M = {}

-- by how long NVRTC takes; the others after them
local slow = {"gemm_sm90", "attention_sm90", "attention_sm90_backward", "gemm", "reduce", "loss",
              "norm", "optim", "index", "map"}
for i, file in ipairs(slow) do slow[file] = i end

local loaded = '\nprint(require "flare.core".backend_query("cuda", "loaded"))'

local gpt = [[
arg = {[0] = "examples/gpt2.lua", "--layers", "1", "--steps", "2", "--batch", "16"}
dofile "examples/gpt2.lua"]]

local residual = [[
local flare = require "flare"
local nn = flare.nn
local net = nn.Sequential(nn.Conv2d(3, 64, 7, {stride = 2, padding = 3, bias = false}),
  nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1))
local conv, norm = nn.Conv2d(64, 64, 3, {padding = 1, bias = false}), nn.BatchNorm2d(64)
local head = nn.Linear(64, 1000)
local all = nn.ModuleList(net, conv, norm, head):to{device = "cuda", layout = LAYOUT}
local x = flare.zeros(64, 3, 32, 32, {device = "cuda"}):to{layout = LAYOUT}
local y = flare.ones({64}, {device = "cuda", dtype = "i64"})
local optimizer = flare.optim.SGD(all:parameters(), {lr = 0.1, momentum = 0.9, weight_decay = 1e-4})
for _ = 1, 2 do
  optimizer:zero_grad()
  flare.autocast("bf16", function()
    local h = net(x)
    h = (norm(conv(h)) + h):relu()
    return nn.functional.cross_entropy(head(h:mean {3, 4}), y)
  end):backward()
  optimizer:step()
end]]

--- Runs them on a GPU that is not there. The second has NVIDIA's libraries.
-- @return a list of {key, name}
function M.list()
  local place, list, known = os.tmpname() .. ".d", {}, {}
  fakes.tuning(place)
  local function run(settings, script)
    local said, status = fakes.run(place, "FLARE_CACHE=off FAKE_MEMORY=16000000000 " .. settings,
      script .. loaded)
    assert(status == 0, said)
    local from = #list + 1
    for key, name in said:gmatch "(0x%x+) (%g+ [^\n]+)" do
      if not known[key] then list[#list + 1] = {key, name} end
      known[key] = true
    end
    local more = table.move(list, from, #list, 1, {})
    table.sort(more, function(a, b)
      local i, j = slow[a[2]:match "%g+"] or 99, slow[b[2]:match "%g+"] or 99
      if i ~= j then return i < j end
      return a[2] .. a[1] < b[2] .. b[1]
    end)
    table.move(more, 1, #more, from, list)
  end
  run("", gpt)
  for _, layout in ipairs {'"channels_last"', '"contiguous"'} do
    run("FLARE_CUDA_HIDE=none", (residual:gsub("LAYOUT", layout)))
  end
  os.execute("rm -rf " .. place)
  return list
end

--- The text of core.def.
function M.page()
  local lines = {"/* Written by spec/support/core_kernels.lua: what the first training steps of a",
                 " * GPT and of a residual network ask for in bf16, the slowest to compile first",
                 " * (precompile.c). */"}
  for _, k in ipairs(M.list()) do
    lines[#lines + 1] = ("CORE(%s) /* %s */"):format(k[1], k[2])
  end
  lines[#lines + 1] = "#undef CORE\n"
  return table.concat(lines, "\n")
end

if arg and arg[0] and arg[0]:find "core_kernels%.lua$" then io.write(M.page()) end

return M
