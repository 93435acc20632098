-- What the C program in this folder calls: a model and a function that trains it.
-- luacheck: globals model train
local flare = require "flare"
local nn, optim = flare.nn, flare.optim

model = nn.Linear(1, 1)

function train(x, y, steps)
  local optimizer = optim.Adam(model:parameters(), {lr = 0.05})
  local loss
  for _ = 1, steps do
    loss = flare.mse_loss(model(x), y)
    optimizer:zero_grad()
    loss:backward()
    optimizer:step()
  end
  return loss:item()
end
