-- What a notebook does, at the prompt: cells with results, help, a plot, an error and the state
-- behind it, and the same text as a script.
local flare = require "flare"
local folder = os.tmpname()
os.remove(folder)
assert(flare.core.file.mkdir(folder))
local function prompt(text, options)
  assert(flare.core.file.write_atomic(folder .. "/cells.txt", text))
  local pipe = io.popen(("cd %s && FLARE_HISTORY= TERM=dumb flare -i %s < cells.txt 2>&1")
    :format(folder, options or ""))
  local out = pipe:read "a"
  pipe:close()
  return out
end

local out = prompt [[
x = flare.linspace(0, 1, 5)
x
x:describe()
local y <const> = x ^ 2
y:sum():item()
?softmax
model = nn.Sequential(nn.Linear(5, 3), nn.ReLU())
model(x).shape
?model
:time model(x)
:plot y curve.svg
:heat flare.rand(4, 4), heat.png
x:softmx(1)
x:sum():item()
:mem
function f(a)
  return a:matmul(flare.ones(7, 2))
end
f(x)
:debug
a.shape
:quit
:quit
]]
print(out)
for _, part in ipairs{"0.25", "1.875", "softmax(x, dim = -1)", "(3)", "did you mean 'softmax'",
                      "2.5", "inner sizes", "(5)"} do
  assert(out:find(part, 1, true), part)
end
local file = flare.core.file
assert(file.exists(folder .. "/curve.svg") and file.exists(folder .. "/heat.png"))
os.execute("rm -r " .. folder)
