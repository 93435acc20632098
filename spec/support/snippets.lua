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
]==]):gmatch "(.-)\n=====\n" do
  snippets[#snippets + 1] = text
end

return snippets
