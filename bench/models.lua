--- Training steps of well-known models, eager, compiled, and compiled in a CUDA graph (without the
-- optimizer; no random draws): a line of JSON for each model and mode.
-- bench/peers/models.py has the same models in PyTorch, models_table.lua joins the lines.
--   flare bench models [MODEL[:option=value,...] ...] [options]
local flare = require "flare"
local folder = arg[0]:match "^(.*/)" or "./"
local common = assert(loadfile(folder .. "models/loop.lua"))()

local wanted = {}
while arg[1] and arg[1]:sub(1, 2) ~= "--" do wanted[#wanted + 1] = table.remove(arg, 1) end
local o = flare.args(arg, "Times training steps; models first, or all. Models: "
  .. table.concat(common.names, ", "), {
  size = {"full", "small or full"}, device = {"cuda", "where to compute"},
  mode = {"eager,compile", "eager, compile, launches (compile without graphs), graph"},
  steps = {0, "timed steps; 0: 20, or the model's own"},
  warm = {10, "steps before the clock starts"},
  amp = {"", "dtype of autocast, or none; each model has its own"},
  threads = {0, "threads of the CPU"},
})
if #wanted == 0 then wanted = common.default end
if o.threads > 0 then flare.threads(o.threads) end

local function run(text, mode)
  local name, given = common.parse(text)
  local def = assert(common.load(name))
  if o.amp ~= "" then given.amp = o.amp end
  local built = common.build(def, o.size, o.device, given, mode)
  local figures = common.measure(built, mode, {
    warm = o.warm, steps = o.steps > 0 and o.steps or def.steps or 20}, o.device, def.read)
  figures.unit = def.unit
  figures.parameters = built.model and built.model:count() or 0
  return figures
end

for _, text in ipairs(wanted) do
  for mode in o.mode:gmatch "[^,]+" do
    local ok, figures = xpcall(run, debug.traceback, text, mode)
    if not ok then figures = {mode = mode, error = figures} end
    figures.model, figures.size, figures.side = text, o.size, "flare"
    print(flare.core.json.encode(figures))
    io.stdout:flush()
    collectgarbage()
    collectgarbage()
    flare.memory.flush(o.device)
  end
end
