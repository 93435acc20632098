-- The networks of training_programs.lua, of four kinds: rows of features, sequences of positions,
-- images, graphs.
local flare = require "flare"
local class = require "flare.class"
local nn = flare.nn

local M = {}

-- A module out of a function of itself and its input.
local Made = class("Made", nn.Module)
function Made:init(fields, f)
  for name, value in pairs(fields) do self[name] = value end
  self._f = f
end
function Made:forward(...) return self._f(self, ...) end
local function made(fields, f) return Made(fields, f) end

local activations = {"ReLU", "GELU", "SiLU", "Tanh", "Sigmoid", "ELU", "Mish", "Softplus",
  "Hardswish", "LeakyReLU", "Softsign"}

-- Blocks of (..., n) -> (..., n).
local blocks = {
  function(_, n) return nn.Linear(n, n) end,
  function(p, n) return nn.Linear(n, n, {act = p:one {"relu", "gelu", "silu", "tanh"}}) end,
  function(p) return nn[p:one(activations)]() end,
  function(_, n) return nn.LayerNorm(n) end,
  function(_, n) return nn.RMSNorm(n) end,
  function(p) return nn.Dropout(p:draw(5) / 10) end,
  function(p, n) -- residual
    return made({inner = M.block(p, n), norm = nn.LayerNorm(n)}, function(m, x)
      return x + m.inner(m.norm(x))
    end)
  end,
  function(_, n) -- gated
    return made({up = nn.Linear(n, 2 * n), down = nn.Linear(n, n)}, function(m, x)
      local h = m.up(x)
      local d = #h.shape
      return m.down(h:narrow(d, 1, n):silu() * h:narrow(d, n + 1, n))
    end)
  end,
  function(_, n) -- a norm written out
    return made({weight = flare.ones(n):requires_grad_()}, function(m, x)
      local c = x - x:mean(-1, {keepdim = true})
      return c * (c:square():mean(-1, {keepdim = true}) + 1e-5):rsqrt() * m.weight
    end)
  end,
  function(p, n)
    return made({inner = M.block(p, n)}, function(m, x)
      return flare.checkpoint(function(t) return m.inner(t):tanh() end, x)
    end)
  end,
  function(p, n)
    local f = p.clip
    return made({linear = nn.Linear(n, n)}, function(m, x) return f(m.linear(x)) end)
  end,
  function(p, n) -- left out now and then
    return made({inner = M.block(p, n)}, function(m, x)
      return flare.rand(1):item() < 0.5 and m.inner(x) or x * 0.5
    end)
  end,
  function(p, n)
    local f = flare.compile(function(x) return (x * 2):tanh() + x end, {exact = p.bits})
    return made({linear = nn.Linear(n, n)}, function(m, x) return f(m.linear(x)) end)
  end,
  function(_, n) -- writes a part of its result
    return made({linear = nn.Linear(n, n)}, function(m, x)
      local y = m.linear(x)
      y:narrow(-1, 1, n // 2):mul_(0.5)
      return y:tanh()
    end)
  end,
  function(_, n) -- halves that change places
    return made({}, function(_, x)
      local h = n // 2
      return flare.cat({x:narrow(-1, h + 1, n - h):neg(), x:narrow(-1, 1, h)}, -1) * 0.7 + x * 0.3
    end)
  end,
  function(_, n) -- an expert for each row
    return made({gate = nn.Linear(n, 3), w = (flare.randn(3, n, n) * 0.2):requires_grad_()},
      function(m, x)
        local flat = x:reshape(-1, n)
        local score, at = m.gate(flat):softmax(-1):topk(2)
        local y = flat:unsqueeze(2):matmul(m.w:index_select(1, at:select(2, 1))):squeeze(2)
        return (y * score:narrow(2, 1, 1)):reshape(x.shape)
      end)
  end,
  function(_, n) -- a buffer that is written, and read later
    local m = made({linear = nn.Linear(n, n)}, function(m, x)
      local y = m.linear(x)
      if m.training then
        flare.no_grad(function() m.level:mul_(0.9):add_(y:detach():abs():mean() * 0.1) end)
      end
      return y / (1 + m.level)
    end)
    m.level = m:buffer(flare.ones({}))
    return m
  end,
}

function M.block(p, n) return p:one(blocks)(p, n) end

local function stack(p, n, most)
  local list = {}
  for k = 1, 1 + p:draw(most) do list[k] = M.block(p, n) end
  return nn.Sequential(table.unpack(list))
end

local function rows(p)
  local n, out = p:one {6, 8, 12, 17}, p:one {3, 5, 8}
  local parts = {nn.Linear(9, n), stack(p, n, 5)}
  if p:chance(3) then parts[#parts + 1] = nn.BatchNorm1d(n) end
  parts[#parts + 1] = nn.Linear(n, out)
  return nn.Sequential(table.unpack(parts)), function(size)
    local o = {device = p.device, dtype = p.dtype}
    return flare.randn({size, 9}, o), flare.randn({size, out}, o)
  end
end

local function attend(p, n)
  local function written(causal)
    return made({qkv = nn.Linear(n, 3 * n), out = nn.Linear(n, n)}, function(m, x)
      local b, t = x.shape[1], x.shape[2]
      local h = m.qkv(x):reshape(b, t, 3, 2, n // 2):permute(3, 1, 4, 2, 5)
      local s = h[1]:matmul(h[2]:transpose(-1, -2)) / math.sqrt(n // 2)
      if causal then
        s = s:masked_fill(flare.ones({t, t}, {device = x.device}):tril():eq(0), -1e9)
      end
      local y = s:softmax(-1):matmul(h[3]):permute(1, 3, 2, 4):reshape(b, t, n)
      return x + m.out(y)
    end)
  end
  local kinds = {
    function() return nn.MultiHeadAttention(n, 2, {causal = true}) end,
    function()
      return nn.TransformerEncoderLayer(n, 2, {hidden = 16, dropout = 0.2, norm_first = true})
    end,
    function() return written(true) end,
    function() return written(false) end,
    function()
      local rnn = p:one {"GRU", "LSTM", "RNN"}
      return made({rnn = nn[rnn](n, n, {batch_first = true})}, function(m, x)
        return (m.rnn(x))
      end)
    end,
    function()
      return made({conv = nn.Conv1d(n, n, 3, {padding = 1})}, function(m, x)
        return m.conv(x:transpose(2, 3)):transpose(2, 3):tanh() + x
      end)
    end,
    function() return made({}, function(_, x) return x:cumsum(2) * 0.3 end) end,
  }
  return p:one(kinds)()
end

local function sequence(p)
  local n, words = p:one {8, 12}, 11
  local m = made({table = nn.Embedding(words, n), a = attend(p, n), b = stack(p, n, 2),
    c = p:chance(2) and attend(p, n) or nn.Identity(), norm = nn.LayerNorm(n),
    head = nn.Linear(n, words)}, function(m, ids)
    local y = m.norm(m.c(m.b(m.a(m.table(ids)))))
    return m.tied and y:matmul(m.table.weight:t()) or m.head(y)
  end)
  m.tied = p:chance(2)
  return m, function(size)
    local o = {device = p.device, dtype = p.dtype}
    return flare.randint(1, words + 1, {size, 5}, {device = p.device}),
      flare.randn({size, 5, words}, o)
  end
end

local function image(p)
  local c = p:one {4, 6}
  local norm = p:one {
    function() return nn.BatchNorm2d(c) end, function() return nn.GroupNorm(2, c) end,
    function() return nn.InstanceNorm2d(c) end,
  }
  local pool = p:one {
    function() return nn.MaxPool2d(2) end, function() return nn.AvgPool2d(2) end,
    function() return nn.Conv2d(c, c, 2, {stride = 2}) end,
  }
  local last = p:chance(3) and "channels_last"
  local m = made({a = nn.Conv2d(3, c, 3, {padding = 1}), norm = norm(),
    act = nn[p:one(activations)](), b = nn.Conv2d(c, c, 3, {padding = 1, groups = p:one {1, 2, c}}),
    pool = pool(), drop = nn.Dropout2d(0.2), head = nn.Linear(c, 5)}, function(m, x)
    if last then x = x:to {layout = last} end
    local y = m.act(m.norm(m.a(x)))
    y = m.pool(m.b(y) + y)
    return m.head(m.drop(y):mean({3, 4}))
  end)
  return m, function(size)
    local o = {device = p.device, dtype = p.dtype}
    return flare.randn({size, 3, 6, 6}, o), flare.randn({size, 5}, o)
  end
end

local function graph(p)
  local n, nodes, edges = 8, 7, 20
  local from = flare.randint(1, nodes + 1, {edges}, {device = p.device})
  local to = flare.randint(1, nodes + 1, {edges}, {device = p.device})
  local m = made({w = nn.Linear(5, n), a = (flare.randn(n, 1) * 0.3):requires_grad_(),
    b = stack(p, n, 2), head = nn.Linear(n, 4)}, function(m, x)
    local y = {}
    for k = 1, x.shape[1] do
      local h = m.w(x[k])
      local s, d = h:index_select(1, from), h:index_select(1, to)
      local e = ((s + d):tanh():matmul(m.a)):exp()
      local total = flare.zeros({nodes, 1}, {device = x.device, dtype = e.dtype})
      total = total:index_add(1, to, e) + 1e-6
      local sum = flare.zeros({nodes, n}, {device = x.device, dtype = e.dtype})
      y[k] = sum:index_add(1, to, s * e) / total
    end
    return m.head(m.b(flare.stack(y)):mean(2))
  end)
  return m, function(size)
    local o = {device = p.device, dtype = p.dtype}
    return flare.randn({size, nodes, 5}, o), flare.randn({size, 4}, o)
  end
end

--- The network, and a function that makes a batch and targets of a size.
function M.network(p)
  local kinds = {rows = rows, sequence = sequence, image = image, graph = graph}
  p.kind = p:one {"rows", "rows", "sequence", "sequence", "image", "graph"}
  return kinds[p.kind](p)
end

return M
