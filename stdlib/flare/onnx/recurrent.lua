--- RNN, GRU and LSTM with ONNX's options: directions, lengths, layouts, activations.
local core = require "flare.core"

local M = {}

-- Activations by name, and the values that alpha and beta have if they are not given.
local activations = {
  relu = {function(x) return x:relu() end},
  tanh = {function(x) return x:tanh() end},
  sigmoid = {function(x) return x:sigmoid() end},
  affine = {function(x, a, b) return x * a + b end, 1, 0},
  leakyrelu = {function(x, a) return x:leaky_relu(a) end, 0.01},
  thresholdedrelu = {function(x, a) return core.where(x:gt(a), x, core.zeros_like(x)) end, 1},
  scaledtanh = {function(x, a, b) return (x * b):tanh() * a end, 1, 1},
  hardsigmoid = {function(x, a, b) return (x * a + b):clamp(0, 1) end, 0.2, 0.5},
  elu = {function(x, a) return x:elu(a) end, 1},
  softsign = {function(x) return x:softsign() end},
  softplus = {function(x) return x:softplus() end},
}

-- The activations of each direction; alpha and beta are used up in order.
local function choose(n, defaults, directions)
  local names, list = n.attr.activations or {}, {}
  local alphas, betas, a, b = n.attr.activation_alpha or {}, n.attr.activation_beta or {}, 0, 0
  for k = 1, #defaults * directions do
    local name = names[k] or defaults[(k - 1) % #defaults + 1]
    local kind = activations[name:lower()]
    if not kind then n:fail("there is no activation '%s'", name) end
    local alpha, beta = kind[2], kind[3]
    if alpha then a, alpha = a + 1, alphas[a + 1] or alpha end
    if beta then b, beta = b + 1, betas[b + 1] or beta end
    local clip = n.attr.clip
    list[k] = function(x)
      if clip then x = x:clamp(-clip, clip) end
      return kind[1](x, alpha, beta)
    end
  end
  return list
end

-- Whether flare's operators for recurrent layers compute this direction.
local function usual(n, defaults)
  local names = n.attr.activations or {}
  for k, name in ipairs(names) do
    if name:lower() ~= defaults[(k - 1) % #defaults + 1]:lower() then return false end
  end
  return not n.attr.clip
end

-- One direction. step(projected x, h, c) gives the next h and c.
local function walk(x, h, c, step, backwards, lengths)
  local size, ys = x.shape[1], {}
  for k = 1, size do
    local t = backwards and size + 1 - k or k
    local h2, c2 = step(x:select(1, t), h, c)
    local y = h2
    if lengths then
      local alive = lengths:ge(t):unsqueeze(2)
      y = core.where(alive, h2, core.zeros_like(h2))
      h2 = core.where(alive, h2, h)
      c2 = c and core.where(alive, c2, c)
    end
    ys[t], h, c = y, h2, c2
  end
  return core.stack(ys, 1), h, c
end

-- All directions. make(n, functions, weights of a direction) gives the projection of the whole
-- input, a step, and what does all steps if a row does.
local function layer(make, defaults)
  return function(n, x, w, r, b, lengths, h0, c0, p)
    local way = n:choice("direction", "forward",
                         {forward = true, reverse = true, bidirectional = true})
    local batch_first = n.attr.layout == 1
    if batch_first then
      x = x:transpose(1, 2)
      h0, c0 = h0 and h0:transpose(1, 2), c0 and c0:transpose(1, 2)
    end
    local directions, hidden = w.shape[1], r.shape[3]
    local functions = choose(n, defaults, directions)
    local plain = not lengths and usual(n, defaults)
    local zeros = core.zeros({x.shape[2], hidden}, {dtype = x.dtype, device = x.device})
    local ys, hs, cs = {}, {}, {}
    for d = 1, directions do
      local own = table.move(functions, (d - 1) * #defaults + 1, d * #defaults, 1, {})
      local projected, step, all = make(n, own, x, {
        w = w:select(1, d), r = r:select(1, d), b = b and b:select(1, d),
        p = p and p:select(1, d), hidden = hidden, plain = plain,
      })
      local backwards = way == "reverse" or d == 2
      local h, c = h0 and h0:select(1, d) or zeros, c0 and c0:select(1, d) or zeros
      if all then
        ys[d], hs[d], cs[d] = all(projected, h, c, backwards)
      else
        ys[d], hs[d], cs[d] = walk(projected, h, c, step, backwards, lengths)
      end
    end
    local at = batch_first and 2 or 1
    local y = core.stack(ys, 2)
    if batch_first then y = y:permute(3, 1, 2, 4) end
    return y, core.stack(hs, at), core.stack(cs, at)
  end
end

local function part(x, k, hidden) return x:narrow(-1, (k - 1) * hidden + 1, hidden) end

-- Both halves of the bias: that of the input and that of the state.
local function biases(v, gates)
  if not v.b then return nil, nil end
  return part(v.b, 1, gates * v.hidden), part(v.b, 2, gates * v.hidden)
end

local function with(x, bias) return bias and x + bias or x end

-- The gates along dim 1 in another order.
local function ordered(x, order, hidden)
  local parts = {}
  for k, at in ipairs(order) do parts[k] = x:narrow(1, (at - 1) * hidden + 1, hidden) end
  return core.cat(parts, 1)
end


M.RNN = layer(function(_, f, x, v)
  local bw, br = biases(v, 1)
  local r = v.r:transpose(1, 2)
  return with(with(x:matmul(v.w:transpose(1, 2)), bw), br), function(xt, h, c)
    return f[1](xt + h:matmul(r)), c
  end
end, {"Tanh"})

-- The row's order of gates is reset, update, new.
local function gru_by_row(x, v)
  local size, order = v.hidden, {2, 1, 3}
  local bw, br = biases(v, 3)
  local weight, bias = ordered(v.r, order, size), br and ordered(br, order, size)
  local gates = core.linear(x, ordered(v.w, order, size), bw and ordered(bw, order, size))
  return gates, function(xt, h, c)
    local h2 = core.gru_cell(xt, core.linear(h, weight, bias), h)
    return h2, c
  end
end

M.GRU = layer(function(n, f, x, v)
  if v.plain and n.attr.linear_before_reset == 1 then return gru_by_row(x, v) end
  local bw, br = biases(v, 3)
  local size, r = v.hidden, v.r:transpose(1, 2)
  local r_gates, r_new = r:narrow(2, 1, 2 * size), r:narrow(2, 2 * size + 1, size)
  local b_gates, b_new = br and br:narrow(1, 1, 2 * size), br and br:narrow(1, 2 * size + 1, size)
  local linear_first = n.attr.linear_before_reset == 1
  return with(x:matmul(v.w:transpose(1, 2)), bw), function(xt, h, c)
    local gates = f[1](xt:narrow(2, 1, 2 * size) + with(h:matmul(r_gates), b_gates))
    local z, reset = part(gates, 1, size), part(gates, 2, size)
    local state
    if linear_first then
      state = reset * with(h:matmul(r_new), b_new)
    else
      state = with((reset * h):matmul(r_new), b_new)
    end
    local new = f[2](part(xt, 3, size) + state)
    return (1 - z) * new + z * h, c
  end
end, {"Sigmoid", "Tanh"})

-- The row's order of gates is input, forget, cell, output.
local function lstm_by_row(x, v)
  local size, order = v.hidden, {1, 3, 4, 2}
  local bw, br = biases(v, 4)
  local gates = core.linear(x, ordered(v.w, order, size), bw and ordered(bw + br, order, size))
  local weight = ordered(v.r, order, size)
  return gates, nil, function(projected, h, c, backwards)
    local y, cs = core.lstm(projected, weight, h, c, {reverse = backwards})
    local last = backwards and 1 or -1
    return y, y[last], cs[last]
  end
end

M.LSTM = layer(function(n, f, x, v)
  local coupled, p = n.attr.input_forget == 1, v.p
  if v.plain and not coupled and not p then return lstm_by_row(x, v) end
  local bw, br = biases(v, 4)
  local size, r = v.hidden, v.r:transpose(1, 2)
  local function peep(gate, k, c) return p and gate + part(p, k, size) * c or gate end
  return with(with(x:matmul(v.w:transpose(1, 2)), bw), br), function(xt, h, c)
    local gates = xt + h:matmul(r)
    local input = f[1](peep(part(gates, 1, size), 1, c))
    local forget = coupled and 1 - input or f[1](peep(part(gates, 3, size), 3, c))
    local c2 = forget * c + input * f[2](part(gates, 4, size))
    local output = f[1](peep(part(gates, 2, size), 2, c2))
    return output * f[3](c2), c2
  end
end, {"Sigmoid", "Tanh", "Tanh"})

return M
