-- A small network learns two spirals: layers, a loss, an optimizer.
local flare = require "flare"
flare.args(arg, "Trains a small network to tell two spirals apart.")
local nn, optim = flare.nn, flare.optim

flare.manual_seed(1)
local n = 400
local turn = flare.rand(n):sqrt() * 6
local class = flare.randint(1, 3, {n})                  -- labels 1 and 2
local angle = turn + (class - 1):to("f32") * math.pi
local x = flare.stack({turn * angle:cos(), turn * angle:sin()}, {dim = 2}) / 6
x = x + flare.randn(n, 2) * 0.02

local model = nn.Sequential(nn.Linear(2, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(),
                            nn.Linear(64, 2))
print(model)
local optimizer = optim.Adam(model:parameters(), {lr = 0.01})
local loss_of = nn.CrossEntropyLoss()

for step = 1, 300 do
  local loss = loss_of(model(x), class)
  optimizer:zero_grad()
  loss:backward()
  optimizer:step()
  if step % 100 == 0 then print(("step %d  loss %.4f"):format(step, loss:item())) end
end
local right = model(x):argmax(2):eq(class):to("f32"):mean():item()
print(("right: %.0f %%"):format(right * 100))
