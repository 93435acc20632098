-- A custom kernel: a robust loss, written as a string, for fitting a
-- line with outliers. It reads the data once, and flare derives its gradient.
local flare = require "flare"
flare.args(arg, "Fits a line to points with outliers by a loss that is written as a string.")

-- Barron's general loss for alpha = -2 (Geman and McClure): outliers have little influence.
local robust = flare.elementwise("T error, T scale", "T loss",
  "T s = error / scale; T q = s * s; loss = 2 * q / (q + 4)", {name = "robust"})
print("gradient right:", flare.gradcheck(robust, {flare.randn(5), flare.rand(1) + 1}))

flare.manual_seed(1)
local x = flare.linspace(-1, 1, {steps = 64})
local y = 3 * x + 0.5 + flare.randn(64) * 0.05
y[{{1, 10}}] = 8                          -- outliers
local function fit(loss)
  local line = flare.nn.Linear(1, 1)
  local optimizer = flare.optim.Adam(line:parameters(), {lr = 0.05})
  for _ = 1, 400 do
    optimizer:zero_grad()
    loss(line(x:unsqueeze(2)):squeeze(2) - y):mean():backward()
    optimizer:step()
  end
  return ("y = %.1f x + %.1f"):format(line.weight:item(), line.bias:item())
end
print("squares:", fit(function(e) return e * e end))
print("robust: ", fit(function(e) return robust(e, 0.5) end))
