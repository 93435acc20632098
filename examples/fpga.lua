-- A transformer block on an FPGA, in an emulator: how far are fixed-point results from the CPU's,
-- how many cycles do the kernels take, and what would an Alveo U250 need for the whole pass?
--
--     flare examples/fpga.lua --length 128
local flare = require "flare"
local nn, fpga = flare.nn, flare.fpga

local o = flare.args(arg, "Runs a transformer block on the emulated FPGA.", {
  width = {64, "of the model"}, heads = {4, "attention heads"}, length = {48, "positions"},
})

local Block = flare.class("Block", nn.Module)

function Block:init()
  self.norm1, self.norm2 = nn.LayerNorm(o.width), nn.LayerNorm(o.width)
  self.qkv, self.proj = nn.Linear(o.width, 3 * o.width), nn.Linear(o.width, o.width)
  self.up = nn.Linear(o.width, 4 * o.width, {act = "gelu"})
  self.down = nn.Linear(4 * o.width, o.width)
end

function Block:forward(x)
  local batch, time, width = table.unpack(x.shape)
  local qkv = self.qkv(self.norm1(x)):view(batch, time, 3, o.heads, width // o.heads)
  local heads = qkv:permute(3, 1, 4, 2, 5)
  local y = flare.attention(heads[1], heads[2], heads[3], {causal = true})
  x = x + self.proj(y:transpose(2, 3):reshape(x.shape))
  return x + self.down(self.up(self.norm2(x)))
end

flare.manual_seed(1)
local block, x = Block():eval(), flare.randn(1, o.length, o.width)
local _ <close> = flare.no_grad()
local exact = block(x)
local step = flare.record(function() return block(x) end)

block:to "fpga"
x = x:to "fpga"
fpga.reset()
local y = block(x):to "cpu"
local report = fpga.report()

print(("results: off by %.5f at most, of %.2f"):format((y - exact):abs():amax():item(),
  exact:abs():amax():item()))
print(("%-12s %6s %9s"):format("kernel", "calls", "cycles"))
for _, name in ipairs {"product", "attention", "elementwise", "lookup", "softmax"} do
  local kernel = report.kernels[name]
  if kernel.calls > 0 then print(("%-12s %6d %9d"):format(name, kernel.calls, kernel.cycles)) end
end
for name, calls in pairs(report.cpu) do print(("%-12s %6d  by the CPU"):format(name, calls)) end
print(("%d cycles, %.0f us at %.0f MHz"):format(report.cycles, 1e6 * report.seconds,
  report.clock / 1e6))

-- The simulator adds the start of each kernel, and counts norms as if they had a kernel.
print(step:replay "u250")
