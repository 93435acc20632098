--- The work that is compared with PyTorch: the one list of it, for `flare bench peers`.
-- A work is {name = "group: what", given, flare, torch, leaves}. `given` makes the inputs and is
-- text that both languages read alike; normal, uniform, complex, mask and positions(bound, shape)
-- are functions of the two programs (suite.lua, peers/suite.py); flare_given and torch_given are
-- for one side only. Then the timed code: an expression, or statements. With leaves, names of
-- inputs, it is recorded and the backward pass is timed too, unless `forward` is set.
local works = {}

local function add(group, list)
  for _, w in ipairs(list) do
    works[#works + 1] = {
      name = group .. ": " .. w[1], given = w[2], flare = w[3], torch = w[4], leaves = w[5],
      flare_given = w.flare_given, torch_given = w.torch_given, forward = w.forward,
    }
  end
end

add("overhead", {
  {"add 16x16", "x = normal(16, 16); y = normal(16, 16)", "x + y", "x + y"},
  {"add 16x16 with gradient",
    "w = normal(16, 16); y = normal(16, 16)", "w + y", "w + y", "w", forward = true},
  {"row of a matrix", "x = normal(16, 16)", "x[3]", "x[2]"},
  {"4 ops forward and backward", "w = normal(16, 16); v = normal(16, 16); y = normal(16, 16)",
    "(w * v + y):relu():sum()", "(w * v + y).relu().sum()", "w v"},
})

local folder = arg[0]:match "^(.*/)" or ""
local function add_file(name)
  for _, w in ipairs(dofile(folder .. name)) do works[#works + 1] = w end
end
add_file "works_elementwise.lua"

-- One kernel each in flare; PyTorch runs the operators one by one.
for _, size in ipairs {{"32 KiB", 8192}, {"4 MiB", 1048576}} do
  local given = ("x = normal(%d); y = normal(%d); w = normal(%d)"):format(size[2], size[2], size[2])
  local function expression(text, theirs, inputs)
    local made = ('k = flare.elementwise("T %s", "T z", "%s")'):format(inputs:gsub(", ", ", T "),
      text)
    return {text, given, "k(" .. inputs .. ")", theirs, flare_given = made}
  end
  add("expressions " .. size[1], {
    expression("z = x * y + 1", "x * y + 1", "x, y"),
    expression("T d = x - y; z = d * d * 0.5 + w * abs(d) - 0.25 * x",
      "d = x - y; d * d * 0.5 + w * d.abs() - 0.25 * x", "x, y, w"),
    expression("z = gelu(x + y) * w", "F.gelu(x + y) * w", "x, y, w"),
    expression("z = x * sigmoid(y) + tanh(w)", "x * torch.sigmoid(y) + torch.tanh(w)", "x, y, w"),
  })
end
add("expressions", {
  {"sum of exp(x) * y, 4096x1024", "x = normal(4096, 1024); y = normal(1024)", "k(x, y, 2)",
    "(torch.exp(x) * y).sum(1)",
    flare_given = 'k = flare.reduce("T x, T y", "T z", "exp(x) * y", "sum")'},
})

add("rows", {
  {"softmax 4096x1024", "x = normal(4096, 1024)", "x:softmax(2)", "x.softmax(1)"},
  {"sum 4096x1024", "x = normal(4096, 1024)", "x:sum()", "x.sum()"},
  {"sum of columns 4096x1024", "x = normal(4096, 1024)", "x:sum(1)", "x.sum(0)"},
  {"layer_norm 768x128", "h = normal(768, 128); w = normal(128); b = normal(128)",
    "flare.layer_norm(h, w, b)", "F.layer_norm(h, (128,), w, b)"},
})

for _, n in ipairs {16, 32, 64, 128, 256, 512, 1024, 2048} do
  add("product", {{tostring(n), ("a = normal(%d, %d); b = normal(%d, %d)"):format(n, n, n, n),
    "a:matmul(b)", "a @ b"}})
end

add("conv", {
  {"3x3 32 to 64, 128 x 28 x 28, forward and backward",
    "x = normal(128, 32, 28, 28); w = normal(64, 32, 3, 3); b = normal(64)",
    "flare.conv(x, w, b, {padding = {1, 1}})", "F.conv2d(x, w, b, padding=1)", "w b"},
})

add("mlp", {
  {"784-256-128-10, batch 128, a step of Adam", "x = normal(128, 784); y = positions(10, 128)",
    "local loss = flare.cross_entropy(model(x), y); optimizer:zero_grad(); loss:backward(); "
      .. "optimizer:step()",
    "loss = F.cross_entropy(model(x), y); optimizer.zero_grad(); loss.backward(); "
      .. "optimizer.step()", "", forward = true,
    flare_given = "local nn = flare.nn; model = nn.Sequential(nn.Linear(784, 256), nn.ReLU(), "
      .. "nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 10)); "
      .. "optimizer = flare.optim.Adam(model:parameters(), {lr = 1e-3})",
    torch_given = "nn = torch.nn; model = nn.Sequential(nn.Linear(784, 256), nn.ReLU(), "
      .. "nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 10)); "
      .. "optimizer = torch.optim.Adam(model.parameters(), 1e-3)"},
})

add_file "works_ops.lua"
return works
