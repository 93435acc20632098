-- Products of groups and mixtures of experts on a GPU: 16384 tokens of 1024, two experts of 4096
-- each; bench/peers/gpu_moe.py is the peer.
local flare = require "flare"
local m = dofile((arg[0]:match "^(.*/)" or "") .. "measure.lua")
local nn = flare.nn
local tokens, width, hidden, k = 16384, 1024, 4096, 2
local rows = tokens * k

flare.manual_seed(1)
for _, experts in ipairs{8, 64} do
  local x, dy = m.normal("bf16", rows, width), m.normal("bf16", rows, hidden)
  local w = m.normal("bf16", experts, hidden, width) * 0.02
  local chosen = (flare.rand({rows}, {device = "cuda"}) * experts):floor():to "i64" + 1
  local ends = chosen:sort():bincount{minlength = experts + 1}[{{2, -1}}]:cumsum(1)
  local wt, xt, work = w:transpose(2, 3), x:t(), 2 * rows * width * hidden
  local name = ("grouped E%d "):format(experts)
  m.products(name .. "y", work, function() return flare.grouped_mm(x, wt, ends) end)
  m.products(name .. "dx", work, function() return flare.grouped_mm(dy, w, ends) end)
  m.products(name .. "dw", work, function() return flare.grouped_mm(dy:t(), x, ends) end)
  m.products(name .. "dw turned", work, function() return flare.grouped_mm(xt, dy, ends) end)
  for _, gated in ipairs{false, true} do
    local layer = nn.MoE(width, {experts = experts, top_k = k, hidden = hidden, gated = gated,
                                 act = gated and "silu" or "gelu"}):to("cuda"):to("bf16")
    local input = m.normal("bf16", tokens, width):requires_grad_(true)
    local out, one = m.normal("bf16", tokens, width), flare.ones({}, {device = "cuda"})
    local function step()
      local y = layer(input)
      flare.backward({y, nn.moe_loss(layer)}, {gradient = {out, one}})
      layer:zero_grad()
      input.grad = nil
    end
    local label = ("MoE E%d %s"):format(experts, gated and "swiglu" or "gelu")
    local total = work * (gated and 3 or 2)
    m.products(label .. " forward", total, function() return layer(input) end)
    m.show(label .. " step", m.seconds(step), 3 * total / 1e12, "TFLOP/s",
      experts == 8 and "330 TFLOP/s" or "300 TFLOP/s")
  end
end
