--- References of attention and the recurrent cells.
local A = require "spec.support.array"
local elementwise = require "spec.support.reference.elementwise"
local random = require "spec.support.reference.random"
local sigmoid, tanh = elementwise._sigmoid, elementwise._tanh

local R = {}
local inf = math.huge

-- (batch, heads, rows, size) of a tensor that may lack the first two.
local function four(x)
  local shape = A.copy_list(x.shape)
  while #shape < 4 do table.insert(shape, 1, 1) end
  return A.reshape(x, shape)
end

-- Probabilities of each query: p[b][h][i] = list over keys, dropped[...] the same after dropout;
-- lse as an array.
local function probabilities(a)
  local q, k = four(a.q), four(a.k)
  local B, H, T, D = table.unpack(q.shape)
  local keys, group = k.shape[3], k.shape[2] > 0 and H // k.shape[2] or 1
  local scale = a.scale or 1 / math.sqrt(D)
  local scores = {B, H, T, keys}
  local n, p, dropped, lse = 0, {}, {}, {}
  local keep = (a.dropout or 0) > 0 and random._kept(a._seed or {a.seed, a.offset}, a.dropout)
  A.each({B, H, T}, function(at, row)
    local b, h, i = table.unpack(at)
    local s, top = {}, -inf
    for j = 1, keys do
      local dot = 0.0
      local from, to = A.place(q, {b, h, i, 1}), A.place(k, {b, (h - 1) // group + 1, j, 1})
      for d = 0, D - 1 do dot = dot + q[from + (D > 1 and d or 0)] * k[to + (D > 1 and d or 0)] end
      s[j] = dot * scale
      if a.mask then
        local index = {b, h, i, j}
        local m = a.mask[A.place(a.mask, index)]
        if a.mask.dtype == "bool" then s[j] = m ~= 0 and s[j] or -inf else s[j] = s[j] + m end
      end
      if a.causal and j > i + keys - T then s[j] = -inf end
      top = math.max(top, s[j])
    end
    local total = 0.0
    for j = 1, keys do
      s[j] = top == -inf and 0.0 or math.exp(s[j] - top)
      total = total + s[j]
    end
    local kept = {}
    for j = 1, keys do
      s[j] = total > 0 and s[j] / total or 0.0
      kept[j] = s[j]
      if keep then kept[j] = keep(n) and s[j] / (1 - a.dropout) or 0.0 end
      n = n + 1
    end
    p[row], dropped[row] = s, kept
    lse[row] = total > 0 and top + math.log(total) or -inf
  end)
  lse.shape = A.copy_list(a.q.shape)
  table.remove(lse.shape)
  return p, dropped, lse, scores, scale, group
end

function R.attention(a)
  local _, p, lse, _, _, group = probabilities(a)
  local v, shape = four(a.v), A.copy_list(a.q.shape)
  local q = four(a.q)
  local B, H, T = table.unpack(q.shape)
  shape[#shape] = a.v.shape[#a.v.shape]
  local E, y = shape[#shape], A.zeros(shape)
  A.each({B, H, T}, function(at, row)
    local b, h = table.unpack(at)
    for e = 1, E do
      local s = 0.0
      for j, weight in ipairs(p[row]) do
        s = s + weight * v[A.place(v, {b, (h - 1) // group + 1, j, e})]
      end
      y[(row - 1) * E + e] = s
    end
  end)
  -- a query that sees nothing has no finite sum to compare
  for k, value in ipairs(lse) do if value == -inf then lse = nil break end _ = k end
  return {y, lse}
end

-- dv = p^T dy, dp = dy v^T, ds = p (dp - sum(p dp)), dq = ds k scale, dk = ds^T q scale.
function R.attention_backward(a)
  local p, dropped, _, _, scale, group = probabilities(a)
  local q, k, v = four(a.q), four(a.k), four(a.v)
  local B, H, T, D = table.unpack(q.shape)
  local E = v.shape[4]
  local dq, dk, dv = A.zeros(a.q.shape), A.zeros(a.k.shape), A.zeros(a.v.shape)
  A.each({B, H, T}, function(at, row)
    local b, h, i = table.unpack(at)
    local g = (h - 1) // group + 1
    local dp, mean = {}, 0.0
    for j = 1, k.shape[3] do
      local s, from = 0.0, A.place(v, {b, g, j, 1})
      local ratio = p[row][j] > 0 and dropped[row][j] / p[row][j] or 0
      for e = 1, E do
        local dy = a.dy[(row - 1) * E + e]
        local at_v = E > 1 and from + e - 1 or from
        s = s + dy * v[at_v]
        dv[at_v] = dv[at_v] + dropped[row][j] * dy
      end
      dp[j] = s * ratio
      mean = mean + p[row][j] * dp[j]
    end
    for j = 1, k.shape[3] do
      local ds = p[row][j] * (dp[j] - mean) * scale
      for d = 1, D do
        local at_q, at_k = A.place(q, {b, h, i, d}), A.place(k, {b, g, j, d})
        dq[at_q] = dq[at_q] + ds * k[at_k]
        dk[at_k] = dk[at_k] + ds * q[at_q]
      end
    end
  end)
  return {dq, dk, dv}
end

-- --- sequences one behind the other: attention with a mask of what belongs together ---

-- (rows, heads, size) to (1, heads, rows, size), and back.
local function swap(x)
  local n, heads, size = table.unpack(x.shape)
  local out = {shape = {heads, n, size}, dtype = x.dtype}
  A.each({heads, n, size}, function(at, k)
    out[k] = x[((at[2] - 1) * heads + at[1] - 1) * size + at[3]]
  end)
  return out
end

-- The sequence of row i, from 1, and the rows of it that there are from i on; nil behind the last.
local function owner(sums, i)
  for s = 1, #sums - 1 do
    if i > sums[s] and i <= sums[s + 1] then return s, sums[s + 1] - i end
  end
end

local function as_attention(a)
  local of_q, of_k = a.cu_seqlens_q, a.cu_seqlens_k or a.cu_seqlens_q
  local mask = A.zeros({a.q.shape[1], a.k.shape[1]}, "bool")
  A.each(mask.shape, function(at, k)
    local s, left = owner(of_q, at[1])
    local t, left_k = owner(of_k, at[2])
    if s and s == t and (not a.causal or left_k >= left) then mask[k] = 1 end
  end)
  local out = {mask = mask}
  for _, name in ipairs {"q", "k", "v", "dy"} do out[name] = a[name] and swap(a[name]) end
  for _, name in ipairs {"scale", "dropout", "seed", "offset", "_seed"} do out[name] = a[name] end
  return out
end

function R.attention_varlen(a)
  local out = R.attention(as_attention(a))
  return {swap(out[1]), out[2]}
end

function R.attention_varlen_backward(a)
  local out = R.attention_backward(as_attention(a))
  for k = 1, 3 do out[k] = swap(out[k]) end
  return out
end

-- --- recurrent cells; gates lie side by side along the last dim ---

local function gates(a, parts)
  local n = a.shape[#a.shape]
  return function(k) -- of the state's element k: the place of its first gate
    return (k - 1) // n * n * parts + (k - 1) % n + 1, n
  end
end

function R.lstm_cell(a)
  local h, c2, act = {shape = a.c.shape}, {shape = a.c.shape}, {shape = a.gates.shape}
  local place = gates(a.c, 4)
  for k = 1, #a.c do
    local at, n = place(k)
    local i, f = sigmoid(a.gates[at]), sigmoid(a.gates[at + n])
    local g, o = tanh(a.gates[at + 2 * n]), sigmoid(a.gates[at + 3 * n])
    act[at], act[at + n], act[at + 2 * n], act[at + 3 * n] = i, f, g, o
    c2[k] = f * a.c[k] + i * g
    h[k] = o * tanh(c2[k])
  end
  return {h, c2, act}
end

function R.lstm(a)
  local time, batch, n = a.gates.shape[1], a.h.shape[1], a.h.shape[2]
  local y, cs, act = {shape = {time, batch, n}}, {shape = {time, batch, n}}, {shape = a.gates.shape}
  local h, c = a.h, a.c
  for k = 1, time do
    local t = a.reverse and time - k or k - 1
    local own = {shape = {batch, 4 * n}}
    for b = 0, batch - 1 do
      for j = 0, 4 * n - 1 do
        local sum = a.gates[(t * batch + b) * 4 * n + j + 1]
        for i = 1, n do sum = sum + h[b * n + i] * a.weight[j * n + i] end
        own[b * 4 * n + j + 1] = sum
      end
    end
    local out = R.lstm_cell{gates = own, c = {shape = {batch, n}, table.unpack(c)}}
    h, c = out[1], out[2]
    for i, to in ipairs{y, cs, act} do
      table.move(out[i], 1, #out[i], t * #out[i] + 1, to)
    end
  end
  return {y, cs, act}
end

function R.lstm_cell_backward(a)
  local dgates, dc1 = {shape = a.act.shape}, {shape = a.c.shape}
  local place = gates(a.c, 4)
  for k = 1, #a.c do
    local at, n = place(k)
    local i, f, g, o = a.act[at], a.act[at + n], a.act[at + 2 * n], a.act[at + 3 * n]
    local t = tanh(a.c2[k])
    local dh = a.dh and a.dh[k] or 0
    local dc = (a.dc and a.dc[k] or 0) + dh * o * (1 - t * t)
    dgates[at] = dc * g * i * (1 - i)
    dgates[at + n] = dc * a.c[k] * f * (1 - f)
    dgates[at + 2 * n] = dc * i * (1 - g * g)
    dgates[at + 3 * n] = dh * t * o * (1 - o)
    dc1[k] = dc * f
  end
  return {dgates, dc1}
end

function R.lstm_backward(a)
  local time, batch, n = a.cs.shape[1], a.c.shape[1], a.c.shape[2]
  local function slice(x, t, width)
    if not x then return nil end
    local size = batch * width
    return {shape = {batch, width}, table.unpack(x, t * size + 1, (t + 1) * size)}
  end
  local dgates = {shape = a.act.shape}
  local dh, dc = {shape = a.c.shape}, {shape = a.c.shape}
  for i = 1, batch * n do dh[i], dc[i] = 0, 0 end
  for k = time - 1, 0, -1 do
    local t = a.reverse and time - 1 - k or k
    local before = a.reverse and t + 1 or t - 1
    local dy, dcs, dact = slice(a.dy, t, n), slice(a.dcs, t, n), slice(a.dact, t, 4 * n)
    for i = 1, batch * n do
      dh[i], dc[i] = dh[i] + (dy and dy[i] or 0), dc[i] + (dcs and dcs[i] or 0)
    end
    local act = slice(a.act, t, 4 * n)
    local out = R.lstm_cell_backward{dh = dh, dc = dc, c = k > 0 and slice(a.cs, before, n) or a.c,
      c2 = slice(a.cs, t, n), act = act}
    local dg = out[1]
    dh, dc = {shape = a.c.shape}, {shape = a.c.shape, table.unpack(out[2])}
    for i = 1, #dg do
      if dact then
        local x = act[i]
        dg[i] = dg[i] + dact[i] * ((i - 1) // n % 4 == 2 and 1 - x * x or x * (1 - x))
      end
      dgates[t * batch * 4 * n + i] = dg[i]
    end
    for b = 0, batch - 1 do
      for j = 1, n do
        local sum = 0
        for r = 0, 4 * n - 1 do sum = sum + dg[b * 4 * n + r + 1] * a.weight[r * n + j] end
        dh[b * n + j] = sum
      end
    end
  end
  return {dgates, dh, dc}
end

function R.gru_cell(a)
  local y, act = {shape = a.h.shape}, {shape = a.gi.shape}
  local place = gates(a.h, 3)
  for k = 1, #a.h do
    local at, n = place(k)
    local r = sigmoid(a.gi[at] + a.gh[at])
    local z = sigmoid(a.gi[at + n] + a.gh[at + n])
    local new = tanh(a.gi[at + 2 * n] + r * a.gh[at + 2 * n])
    act[at], act[at + n], act[at + 2 * n] = r, z, new
    y[k] = (1 - z) * new + z * a.h[k]
  end
  return {y, act}
end

function R.gru_cell_backward(a)
  local dgi, dgh, dh = {shape = a.act.shape}, {shape = a.act.shape}, {shape = a.h.shape}
  local place = gates(a.h, 3)
  for k = 1, #a.h do
    local at, n = place(k)
    local r, z, new, dy = a.act[at], a.act[at + n], a.act[at + 2 * n], a.dy[k]
    local dn = dy * (1 - z) * (1 - new * new)
    dgi[at] = dn * a.gh[at + 2 * n] * r * (1 - r)
    dgi[at + n] = dy * (a.h[k] - new) * z * (1 - z)
    dgi[at + 2 * n] = dn
    dgh[at], dgh[at + n], dgh[at + 2 * n] = dgi[at], dgi[at + n], dn * r
    dh[k] = dy * z
  end
  return {dgi, dgh, dh}
end

local function slice(x, t, batch, width)
  if not x then return nil end
  local size = batch * width
  return {shape = {batch, width}, table.unpack(x, t * size + 1, (t + 1) * size)}
end

function R.gru(a)
  local time, batch, n = a.gates.shape[1], a.h.shape[1], a.h.shape[2]
  local y, act = {shape = {time, batch, n}}, {shape = {time, batch, 4 * n}}
  local h = a.h
  for k = 1, time do
    local t = a.reverse and time - k or k - 1
    local gh = {shape = {batch, 3 * n}}
    for b = 0, batch - 1 do
      for j = 1, 3 * n do
        local sum = a.bias and a.bias[j] or 0
        for i = 1, n do sum = sum + h[b * n + i] * a.weight[(j - 1) * n + i] end
        gh[b * 3 * n + j] = sum
      end
    end
    local out = R.gru_cell{gi = slice(a.gates, t, batch, 3 * n), gh = gh,
                           h = {shape = {batch, n}, table.unpack(h)}}
    h = out[1]
    for b = 0, batch - 1 do
      table.move(h, b * n + 1, b * n + n, (t * batch + b) * n + 1, y)
      local to = (t * batch + b) * 4 * n + 1
      table.move(out[2], b * 3 * n + 1, b * 3 * n + 3 * n, to, act)
      table.move(gh, b * 3 * n + 2 * n + 1, b * 3 * n + 3 * n, to + 3 * n, act)
    end
  end
  return {y, act}
end

function R.gru_backward(a)
  local time, batch, n = a.y.shape[1], a.h.shape[1], a.h.shape[2]
  local di, ds = {shape = {time, batch, 3 * n}}, {shape = {time, batch, 3 * n}}
  local dh = {shape = a.h.shape}
  for i = 1, batch * n do dh[i] = 0 end
  for k = time - 1, 0, -1 do
    local t = a.reverse and time - 1 - k or k
    local h = k > 0 and slice(a.y, a.reverse and t + 1 or t - 1, batch, n) or a.h
    for i = 1, batch * n do
      local row = t * batch + (i - 1) // n
      local at, to = row * 4 * n + (i - 1) % n + 1, row * 3 * n + (i - 1) % n + 1
      local function of(g) return a.act[at + g * n], a.dact and a.dact[at + g * n] or 0 end
      local r, d_r = of(0)
      local z, d_z = of(1)
      local x, d_x = of(2)
      local own, d_own = of(3)
      local d = dh[i] + (a.dy and a.dy[t * batch * n + i] or 0)
      local dx = (d * (1 - z) + d_x) * (1 - x * x)
      di[to] = (dx * own + d_r) * r * (1 - r)
      di[to + n] = (d * (h[i] - x) + d_z) * z * (1 - z)
      di[to + 2 * n] = dx
      ds[to], ds[to + n], ds[to + 2 * n] = di[to], di[to + n], dx * r + d_own
      dh[i] = d * z
    end
    for i = 1, batch * n do
      local from = (t * batch + (i - 1) // n) * 3 * n
      for j = 1, 3 * n do
        dh[i] = dh[i] + ds[from + j] * a.weight[(j - 1) * n + (i - 1) % n + 1]
      end
    end
  end
  return {di, ds, dh}
end

return R
