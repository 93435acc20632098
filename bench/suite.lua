--- The work that is compared with PyTorch (bench/peers/suite.py does the same): prints lines of
-- name, tab, seconds for one round of it.
--   flare bench/suite.lua [WORD ...]     only groups of which a word is part
local flare = require "flare"
local nn, optim = flare.nn, flare.optim
local core = flare.core

core.collector "flare"
local others = {} -- a program has other things alive
for i = 1, 20000 do others[i] = {i} end

local function wanted(group)
  if #arg == 0 then return true end
  for _, word in ipairs(arg) do
    if group:find(word, 1, true) then return true end
  end
end

-- Median seconds of f() over runs of at least 20 ms.
local function measure(name, f)
  local start = core.clock()
  f()
  local once = core.clock() - start
  local n = math.max(1, 0.02 / math.max(once, 1e-8) // 1 | 0)
  for _ = 1, n // 4 do f() end
  local times = {}
  for r = 1, 9 do
    start = core.clock()
    for _ = 1, n do f() end
    times[r] = (core.clock() - start) / n
    if r >= 3 and times[r] * n > 1 then break end
  end
  table.sort(times)
  print(("%s\t%.9g"):format(name, times[#times // 2 + 1]))
  io.stdout:flush()
end

if wanted "overhead" then
  local x, y = flare.randn(16, 16), flare.randn(16, 16)
  local w = flare.randn(16, 16, {requires_grad = true})
  local v = flare.randn(16, 16, {requires_grad = true})
  measure("overhead: add 16x16", function() local _ = x + y end)
  measure("overhead: add 16x16 with gradient", function() local _ = w + y end)
  measure("overhead: row of a matrix", function() local _ = x[3] end)
  measure("overhead: 4 ops forward and backward", function()
    local loss = (w * v + y):relu():sum()
    loss:backward()
    w.grad, v.grad = nil, nil
  end)
end

-- Rows with inputs that suit them; the peer has the same list.
local unary = {"neg", "abs", "square", "reciprocal", "sqrt", "rsqrt", "exp", "expm1", "log",
  "log1p", "sin", "cos", "tanh", "sigmoid", "erf", "floor", "round", "relu", "leaky_relu", "elu",
  "gelu", "silu", "softplus", "mish", "hardtanh", "logsigmoid"}
local binary = {"add", "sub", "mul", "div", "maximum", "minimum", "lt", "eq", "pow"}

if wanted "elementwise" then
  local _ <close> = flare.no_grad()
  for _, size in ipairs {{"32 KiB", 8192}, {"4 MiB", 1048576}} do
    local a, b = flare.rand(size[2]) + 0.5, flare.rand(size[2]) + 0.5
    for _, name in ipairs(unary) do
      local f = flare[name]
      measure(("elementwise %s: %s"):format(size[1], name), function() local _ <close> = f(a) end)
    end
    for _, name in ipairs(binary) do
      local f = flare[name]
      measure(("elementwise %s: %s"):format(size[1], name), function()
        local _ <close> = f(a, b)
      end)
    end
  end
end

-- One kernel each; the peer has the operators one by one.
if wanted "expressions" then
  local _ <close> = flare.no_grad()
  local texts = {"z = x * y + 1", "T d = x - y; z = d * d * 0.5 + w * abs(d) - 0.25 * x",
    "z = gelu(x + y) * w", "z = x * sigmoid(y) + tanh(w)"}
  for _, size in ipairs {{"32 KiB", 8192}, {"4 MiB", 1048576}} do
    local x, y, w = flare.randn(size[2]), flare.randn(size[2]), flare.randn(size[2])
    for _, text in ipairs(texts) do
      local inputs = text:find "w" and "T x, T y, T w" or "T x, T y"
      local k = flare.elementwise(inputs, "T z", text)
      local f = inputs:find "w" and function() local _ <close> = k(x, y, w) end
        or function() local _ <close> = k(x, y) end
      measure(("expressions %s: %s"):format(size[1], text), f)
    end
  end
  local x, y = flare.randn(4096, 1024), flare.randn(1024)
  local sum = flare.reduce("T x, T y", "T z", "exp(x) * y", "sum")
  measure("expressions: sum of exp(x) * y, 4096x1024", function()
    local _ <close> = sum(x, y, 2)
  end)
end

if wanted "rows" then
  local _ <close> = flare.no_grad()
  local x = flare.randn(4096, 1024)
  local h, w, b = flare.randn(768, 128), flare.randn(128), flare.randn(128)
  measure("rows: softmax 4096x1024", function() local _ <close> = x:softmax(2) end)
  measure("rows: sum 4096x1024", function() local _ <close> = x:sum() end)
  measure("rows: sum of columns 4096x1024", function() local _ <close> = x:sum(1) end)
  measure("rows: layer_norm 768x128", function() local _ <close> = flare.layer_norm(h, w, b) end)
end

if wanted "product" then
  local _ <close> = flare.no_grad()
  for _, n in ipairs {16, 32, 64, 128, 256, 512, 1024, 2048} do
    local a, b = flare.randn(n, n), flare.randn(n, n)
    measure(("product: %d"):format(n), function() local _ <close> = a:matmul(b) end)
  end
end

if wanted "conv" then
  local x = flare.randn(128, 32, 28, 28)
  local layer = nn.Conv2d(32, 64, 3, {padding = 1})
  measure("conv: 3x3 32 to 64, 128 x 28 x 28, forward and backward", function()
    layer(x):sum():backward()
    layer:zero_grad()
  end)
end

if wanted "mlp" then
  local model = nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(),
    nn.Linear(128, 10))
  local optimizer = optim.Adam(model:parameters(), {lr = 1e-3})
  local x, y = flare.randn(128, 784), flare.randint(1, 11, {128})
  measure("mlp: 784-256-128-10, batch 128, a step of Adam", function()
    local loss = flare.cross_entropy(model(x), y)
    optimizer:zero_grad()
    loss:backward()
    optimizer:step()
  end)
end
assert(#others == 20000)
