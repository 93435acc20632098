-- An LSTM forecasts a series from a CSV file: windows, scaling, validation, several steps ahead.
local flare = require "flare"
local nn, optim, data = flare.nn, flare.optim, flare.data
flare.manual_seed(5)

-- the file: day, temperature, load
local path = os.tmpname() .. ".csv"
local file = assert(io.open(path, "w"))
file:write "day,temperature,load\n"
for day = 1, 800 do
  local temperature = 10 + 8 * math.sin(2 * math.pi * day / 60) + 0.3 * (math.random() - 0.5)
  local load = 50 - 2 * temperature + 5 * math.sin(2 * math.pi * day / 7)
  file:write(("%d,%.3f,%.3f\n"):format(day, temperature, load))
end
file:close()
local t = assert(data.csv(path))
os.remove(path)
local series = t:matrix("temperature", "load")
local mean, std = series:mean(1), series:std(1)
series = (series - mean) / std
print(#t, series.shape, mean, std)

local window = 28
local x = series:unfold(1, window + 1, 1)          -- (n, features, window + 1)
x = x:transpose(2, 3):contiguous()                 -- (n, window + 1, features)
local n = x:size(1)
local split = n - 150
local train = data.Tensors(x[{{1, split}}])

local Forecaster = flare.class("Forecaster", nn.Module)
function Forecaster:init(features, hidden)
  self.lstm = nn.LSTM(features, hidden, {batch_first = true})
  self.out = nn.Linear(hidden, features)
end
function Forecaster:forward(s, h, c)
  local y
  y, h, c = self.lstm(s, h, c)
  return self.out(y), h, c
end

local model = Forecaster(2, 32)
local optimizer = optim.AdamW(model, {lr = 5e-3})
local schedule = optim.PlateauLR(optimizer, {factor = 0.5, patience = 2})
local held = x[{{split + 1, n}}]
local function validate()
  return flare.no_grad(function()
    local y = model(held[{{}, {1, window}}])
    return flare.mse_loss(y[{{}, -1}], held[{{}, -1}]):item()
  end)
end
local before = validate()
for epoch = 1, 15 do
  for s in data.Loader(train, {batch = 32, shuffle = true, seed = epoch}):epoch() do
    local y = model(s[{{}, {1, -2}}])
    local loss = flare.huber_loss(y, s[{{}, {2, -1}}])
    optimizer:zero_grad()
    loss:backward()
    optim.clip_grad_norm_(model, 1)
    optimizer:step()
  end
  local loss = validate()
  schedule:step(loss)
  if epoch % 5 == 0 then print(epoch, loss, optimizer.groups[1].lr) end
end
local after = validate()
assert(after < 0.05 and after < before / 10, after)

-- ten days ahead, each day from the one before
local _ <close> = flare.no_grad()
local y, h, c = model(held[{{1}, {1, window}}])
local forecast = {y[{{}, {-1}}]}
for k = 2, 10 do
  y, h, c = model(forecast[k - 1], h, c)
  forecast[k] = y
end
local ahead = flare.cat(forecast, 2):squeeze(1) * std + mean
local truth = held[{{1, 10}, -1}] * std + mean
local err = (ahead - truth):abs():mean(1)
print(ahead.shape, err)
assert(err[2]:item() < 5)
