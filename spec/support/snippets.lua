-- Texts as people publish them, to be pasted at the prompt: they print what they do.
local snippets = {}

for text in ([==[
local a, b = 3, 4
print((a^2 + b^2)^0.5)
=====
-- a comment first

local function fact(n)
  if n == 0 then
    return 1
  else
    return n * fact(n - 1)
  end
end

print(fact(10))
=====
for i = 1, 3 do print(i) end
for i = 10, 1, -4 do
  print(i)
end
=====
local t = {}
for w in ("one two three"):gmatch("%a+") do
  t[#t + 1] = w
end

table.sort(t)
print(table.concat(t, ", "))
=====
function counter()
  local i = 0
  return function()
    i = i + 1
    return i
  end
end

c = counter()
print(c(), c(), c())
=====
local n = 0
local function add(k) n = n + k end
add(2)
add(3)
print(n)
=====
local x = 1
local f = function() return x end
local x = 2
print(f(), x)
=====
Account = {balance = 0}
Account.__index = Account
function Account:new(o)
  return setmetatable(o or {}, self)
end
function Account:deposit(v)
  self.balance = self.balance + v
end

local acc = Account:new()
acc:deposit(100.5)
print(acc.balance)
=====
local s = [[
a long text
	with a tab

and a blank line]]
print(#s, s)
=====
for i = 1, 3 do
  for j = 1, 3 do
    if j == 2 then goto continue end
    print(i, j)
    ::continue::
  end
end
=====
do
  local i = 1
  ::top::
  print(i)
  i = i + 1
  if i < 4 then goto top end
end
=====
local co = coroutine.wrap(function(a)
  local b = coroutine.yield(a * 2)
  coroutine.yield(b + 1)
end)
print(co(4))
print(co(10))
=====
local limit <const> = 3
local i = 0
while true do
  i = i + 1
  if i > limit then break end
end
print(i, limit)
=====
print(pcall(function() error({code = 7}) end))
print(select("#", pcall(error, "x", 0)))
print(pcall(error, "x", 0))
=====
local ok, message = pcall(function()
  local t = nil
  return t.x
end)
print(ok, (message:gsub("^.-:%d+: ", "")))
=====
repeat
  local line = "stop"
until line == "stop"
print "done"
=====
local function vararg(...)
  local n = select("#", ...)
  return n, ...
end
print(vararg(nil, nil))
print((vararg(1, 2, 3)))
=====
x = 10
y = x
  + 5
  - 3
print(y)
=====
local text = "a"
  .. "b"
  .. 'c'
print(text)
=====
local big = {
  name = "flare",
  ["a key"] = 1,
  {1, 2; 3},
  nested = {deep = {deeper = true}},
}
print(big.name, big["a key"], #big[1], big.nested.deep.deeper)
=====
local mt = {
  __add = function(a, b) return a.v + b.v end,
  __call = function(self, k) return self.v * k end,
}
local p, q = setmetatable({v = 2}, mt), setmetatable({v = 5}, mt)
print(p + q, p(10))
=====
print(string.format("%5.2f|%-5s|%05d", 3.14159, "ab", 42))
print(("x"):rep(3, "-"))
=====
if false then
  print "no"
elseif nil then
  print "neither"
else
  print "yes"
end
=====
local flare = require "flare"
local x = flare.tensor{{1, 2}, {3, 4}}
local y = x
  :mul(2)
  :add(1)
print(y)
print(y:sum():item())
=====
local flare = require "flare"
local w = flare.tensor({1.0, 2.0}, {requires_grad = true})
local loss = (w * w):sum()
loss:backward()
print(w.grad)
=====
local flare = require "flare"
local nn, optim = flare.nn, flare.optim

flare.manual_seed(0)
local model = nn.Sequential(
  nn.Linear(2, 8),
  nn.Tanh(),
  nn.Linear(8, 1)
)
local opt = optim.SGD(model, {lr = 0.1})
local x = flare.tensor{{0, 0}, {0, 1}, {1, 0}, {1, 1}}
local y = flare.tensor{{0}, {1}, {1}, {0}}

for step = 1, 50 do
  opt:zero_grad()
  local loss = flare.mse_loss(model(x), y)
  loss:backward()
  opt:step()
  if step % 25 == 0 then
    print(step, ("%.6f"):format(loss:item()))
  end
end
=====
local flare = require "flare"
do
  local _ <close> = flare.no_grad()
  print(flare.grad_enabled())
end
print(flare.grad_enabled())
=====
local flare = require "flare"
flare.manual_seed(7)
local x = flare.randn(2, 3)
local mean, variance = x:mean{dims = 2}, x:var{dims = 2}
print(mean.shape, variance.shape)
print(x:softmax(2):sum{dims = 2})
=====
local words = setmetatable({}, {__index = function(t, k)
  t[k] = 0
  return 0
end})
for w in ("to be or not to be"):gmatch "%a+" do words[w] = words[w] + 1 end
print(words.to, words.be, words["or"])
=====
local queue = {first = 1, last = 0}
local function push(v) queue.last = queue.last + 1; queue[queue.last] = v end
local function pop()
  local v = queue[queue.first]
  queue[queue.first] = nil
  queue.first = queue.first + 1
  return v
end
push "a"; push "b"
print(pop(), pop(), pop())
=====
print("before")
local t = setmetatable({}, {__tostring = function() return "an object" end})
print(t)
error("stopped here", 0)
print("never")
=====
local flare = require "flare"
local shape = {2, 3}
local ones_tensor = flare.ones(shape)
local zeros_tensor = flare.zeros(shape)

print("Ones Tensor: \n", ones_tensor)
print("Zeros Tensor: \n", zeros_tensor)
=====
local flare = require "flare"
local tensor = flare.ones(3, 4)

print("Shape of tensor:", tensor.shape)
print("Datatype of tensor:", tensor.dtype)
print("Device tensor is stored on:", tensor.device)
=====
local flare = require "flare"
local tensor = flare.arange(1, 5):view(2, 2):float()
-- matrix multiplication
local y1 = tensor:matmul(tensor.T)
local y2 = tensor:mm(tensor.T)
local y3 = flare.zeros_like(y1)
y3:copy_(tensor:matmul(tensor.T))
print(y1, y2, y3)
-- element-wise product
local z1 = tensor * tensor
local z2 = tensor:mul(tensor)
print(z1:eq(z2):all())
=====
local flare = require "flare"
local x = flare.ones(2, 2, {requires_grad = true})
local y = x + 2
local z = y * y * 3
local out = z:mean()
print(z, out)
out:backward()
print(x.grad)
=====
local flare = require "flare"
local inp = flare.eye(4, 5):clone()
inp.requires_grad = true
local out = (inp + 1):pow(2):t()
out:backward(flare.ones_like(out), {retain_graph = true})
print("First call\n", inp.grad)
out:backward(flare.ones_like(out), {retain_graph = true})
print("\nSecond call\n", inp.grad)
inp.grad:zero_()
out:backward(flare.ones_like(out), {retain_graph = true})
print("\nCall after zeroing gradients\n", inp.grad)
=====
-- A custom autograd function
local flare = require "flare"
local LegendrePolynomial3 = flare.func {
  forward = function(ctx, x)
    ctx:save(x)
    return 0.5 * (5 * x ^ 3 - 3 * x)
  end,
  backward = function(ctx, grad)
    local x = ctx.saved[1]
    return grad * 1.5 * (5 * x ^ 2 - 1)
  end,
}
local x = flare.tensor({0.5, 1.5}, {requires_grad = true})
LegendrePolynomial3(x):sum():backward()
print(x.grad)
=====
-- Control flow and weight sharing
local flare = require "flare"
local nn = flare.nn
local DynamicNet = flare.class("DynamicNet", nn.Module)
function DynamicNet:init()
  for _, name in ipairs{"a", "b", "c"} do
    self[name] = self:param(flare.full({}, 0.5))
  end
end
function DynamicNet:forward(x)
  local y = self.a + self.b * x + self.c * x ^ 2
  for _ = 1, 2 do y = y + self.c * x ^ 4 end
  return y
end
function DynamicNet:string()
  return ("y = %g + %g x + %g x^2 ..."):format(self.a:item(), self.b:item(), self.c:item())
end
local model = DynamicNet()
model(flare.tensor{1, 2}):sum():backward()
print(model.c.grad:item(), model:string())
=====
-- Transfer learning: freeze the body
local flare = require "flare"
local nn = flare.nn
local body = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
body:freeze()
local model = nn.Sequential(body, nn.Linear(4, 2))
local trained = 0
for name, p in model:named_parameters() do
  if p.requires_grad then trained = trained + p:numel() else print("frozen:", name) end
end
print(trained)
=====
-- A DataLoader over your own Dataset
local flare = require "flare"
local data = flare.data
local Squares = flare.class("Squares")
function Squares:init(n) self.n = n end
function Squares:size() return self.n end
function Squares:get(i) return flare.tensor{i}, flare.tensor{i * i} end
local loader = data.Loader(Squares(10), {batch = 4})
for x, y in loader:epoch() do
  print(x.shape, y:view(-1))
end
=====
-- Learning rate schedules
local flare = require "flare"
local optim = flare.optim
local w = flare.ones(1, {requires_grad = true})
local optimizer = optim.SGD({w}, {lr = 1})
local scheduler = optim.StepLR(optimizer, {every = 2, gamma = 0.1})
for epoch = 1, 5 do
  print(epoch, ("%g"):format(optimizer.groups[1].lr))
  optimizer:step()
  scheduler:step()
end
=====
-- Broadcasting, as in the NumPy docs
local flare = require "flare"
local a = flare.tensor{0, 10, 20, 30}
local b = flare.tensor{1, 2, 3}
print(a:view(4, 1) + b)
print((a:unsqueeze(2) + b).shape)
local ok, message = pcall(function() return a + b end)
print(ok, (message:gsub("^.-:%d+: ", "")))
=====
local flare = require "flare"
local x = flare.arange(0, 12):view(3, 4)
print(x)
print(x[{{1, 2}, {2, 3}}])
print(x[2])
print(x[{{}, -1}])
print(x[x:gt(6)])
print(x[{{1, -1, 2}}])
print(x:sum(1), x:sum{dims = 2, keepdim = true})
=====
local flare = require "flare"
local x = flare.tensor{{3, 1, 2}, {9, 7, 8}}
local values, positions = x:sort(2)
print(values, positions)
print(x:max(2))
print(x:argmax())
print(x:topk(2, 2))
=====
local flare = require "flare"
for name, f in pairs{relu = flare.relu} do
  print(name, f(flare.tensor{-1, 0, 1}))
end
print(flare.where(flare.tensor{-1, 1}:gt(0), 1, 0))
print(flare.cat({flare.ones(2), flare.zeros(1)}))
print(flare.stack({flare.ones(2), flare.zeros(2)}, 1))
=====
local flare = require "flare"
local q = flare.randn(1, 2, 4, 8)
local out = flare.attention(q, q, q, {causal = true})
print(out.shape)
=====
-- vmap and grad
local flare = require "flare"
local function f(x) return (x * x):sum() end
local x = flare.tensor({1, 2, 3}, {requires_grad = true})
print(flare.grad(f(x), x))
print(flare.vmap(function(row) return row:sum() end)(flare.ones(3, 4)))
=====
-- FashionMNIST-like accuracy
local flare = require "flare"
local scores = flare.tensor{{0.1, 0.9}, {0.8, 0.2}, {0.3, 0.7}}
local labels = flare.tensor({2, 1, 1}, {dtype = "i64"})
local correct = scores:argmax(2):eq(labels):float():sum():item()
print(("Accuracy: %.1f%%"):format(100 * correct / #labels))
=====
local flare = require "flare"
local ds = flare.data.Tensors(flare.arange(1, 11):view(10, 1):float(), flare.arange(1, 11))
local train, test = flare.data.split(ds, {8, 2}, {seed = 1})
print(train:size(), test:size())
local loader = flare.data.Loader(train, {batch = 3, drop_last = true})
print(#loader)
local seen = 0
for x, y in loader:epoch() do seen = seen + x.shape[1] end
print(seen)
=====
local flare = require "flare"
local nn = flare.nn
local model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
print(model:summary{1, 4})
=====
local flare = require "flare"
local x = flare.linspace(0, 1, 5)
print(x:describe())
print(flare.printing and true)
=====
local flare = require "flare"
local y = flare.einsum("bij,bjk->bik", flare.ones(2, 3, 4), flare.ones(2, 4, 5))
print(y.shape, y[{1, 1, 1}]:item())
=====
local flare = require "flare"
local log = flare.log
local m = flare.metrics.Accuracy()
m:update(flare.tensor{{0.1, 0.9}, {0.8, 0.2}}, flare.tensor({2, 2}, {dtype = "i64"}))
print(m:compute())
=====
local flare = require "flare"
local ok = flare.tensor{1, 2, 3}
local text = ([[
mean: %.2f
std:  %.2f]]):format(ok:mean():item(), ok:std():item())
print(text)
=====
]==]):gmatch "(.-)\n=====\n" do
  snippets[#snippets + 1] = text
end

return snippets
