--- metrics.jsonl: one JSON object a line, so that any tool can follow a run.
local class = require "flare.class"
local clock = require "flare.log.clock"
local core = require "flare.core"
local fail = require "flare.fail"
local observers = require "flare.log.observers"
local options = require "flare.options"

local Metrics = class("Metrics")

--- All complete lines of a metrics file, in order.
-- @return a list of tables, or nil and a message
function Metrics.read(path)
  options.text("log.read_metrics", "path", path)
  local text, message = core.file.read(path)
  if not text then return nil, message end
  local list = {}
  for line in text:gmatch "[^\n]+" do
    local row = core.json.decode(line)
    -- a run that was killed may leave half a line at the end
    if type(row) == "table" then list[#list + 1] = row end
  end
  return list
end

--- flare.log.metrics(path, {after = step})
-- Appends to the file. `after`: the step from which a resumed run continues; later lines of the
-- earlier run are removed first, so that no step occurs twice.
-- @return the writer, or nil and a message
function Metrics.open(path, opts)
  local o = options.check("log.metrics", opts, {after = options.none})
  options.text("log.metrics", "path", path)
  if o.after then
    local rows = Metrics.read(path) or {}
    local kept = {}
    for _, row in ipairs(rows) do
      if type(row.step) ~= "number" or row.step <= o.after then
        kept[#kept + 1] = core.json.encode(row) .. "\n"
      end
    end
    local ok, message = core.file.write_atomic(path, table.concat(kept))
    if not ok then return nil, message end
  end
  local file, message = io.open(path, o.after and "a" or "w")
  if not file then return nil, message end
  local self = Metrics()
  self.path, self.file, self.began = path, file, clock.now()
  return self
end

--- Appends a line. Tensors become numbers; NaN and infinities become strings.
-- @return true, or nil and a message
function Metrics:write(row)
  if type(row) ~= "table" then
    fail("metrics:write needs a table, as in metrics:write{step = 1, loss = 0.5}; got %s",
         type(row))
  end
  if not self.file then fail("metrics:write: %s is closed", self.path) end
  local out = {seconds = tonumber(core.format("%.3f", clock.now() - self.began))}
  for key, value in pairs(row) do
    if core.is_tensor(value) then value = value:item() end
    if type(value) == "number" and (value ~= value or math.abs(value) == math.huge) then
      value = value ~= value and "nan" or tostring(value) -- without the sign of some NaN
    end
    out[key] = value
  end
  local ok, message = self.file:write(core.json.encode(out), "\n")
  if ok then ok, message = self.file:flush() end
  if not ok then return nil, ("%s: %s"):format(self.path, message) end
  observers.tell("row", out)
  return true
end

function Metrics:__tostring()
  return ("Metrics: %s%s"):format(self.path, self.file and "" or ", closed")
end

function Metrics:close()
  if self.file then self.file:close() end
  self.file = nil
end
Metrics.__close = Metrics.close

return setmetatable({open = Metrics.open, read = Metrics.read}, {
  __call = function(_, ...) return Metrics.open(...) end,
})
