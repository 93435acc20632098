-- Sounds into classes: a data set of one's own with workers, spectra, a convolution over time.
local flare = require "flare"
local nn, optim, data = flare.nn, flare.optim, flare.data
local here = arg[0]:match "^(.*)/" or "."
package.path = here .. "/?.lua;" .. package.path
local Tones = require "tones"
flare.manual_seed(1)

local loader = data.Loader(Tones(120, 1), {batch = 20, shuffle = true, workers = 2, seed = 4})
local model = nn.Sequential(nn.Conv1d(40, 32, 5, {padding = 2}), nn.BatchNorm1d(32), nn.ReLU(),
  nn.MaxPool1d(2), nn.Conv1d(32, 32, 5, {padding = 2}), nn.ReLU(), nn.AdaptiveAvgPool1d(1),
  nn.Flatten(),
  nn.Linear(32, 3))
local optimizer = optim.AdamW(model, {lr = 3e-3})
for epoch = 1, 5 do
  local mean = flare.metrics.Mean()
  for x, y in loader:epoch() do
    local loss = flare.cross_entropy(model(x), y)
    optimizer:zero_grad()
    loss:backward()
    optimizer:step()
    mean:update(loss, #x)
  end
  print(epoch, mean:compute())
end
loader:close()
model:eval()
local matrix = flare.metrics.ConfusionMatrix{classes = 3}
for x, y in data.Loader(Tones(60, 2), {batch = 20}):epoch() do
  matrix:update(flare.no_grad(model, x), y)
end
local m = matrix:compute()
print(m)
assert(m:trace():item() / m:sum():item() > 0.9)

-- a file
local path = os.tmpname() .. ".wav"
local tone = (flare.arange(0, 44100) * (2 * math.pi * 350 / 44100)):sin() * 0.5
assert(data.audio.write(path, tone, 44100))
local x, rate = assert(data.audio.read(path))
local spectrum = data.audio.log_mel(data.audio.resample(x, rate, 16000):mean(1),
  {mels = 40, seconds = 0})
print(model(spectrum:unsqueeze(1)):argmax(2):item())
assert(model(spectrum:unsqueeze(1)):argmax(2):item() == 1)
os.remove(path)
