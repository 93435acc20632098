--- The curves of a metrics file: an SVG beside it, and a text for the terminal.
local fail = require "flare.fail"
local metrics = require "flare.log.metrics"
local options = require "flare.options"

--- flare.log.curve(metrics or path of a metrics.jsonl, {keys = {"loss", "val_loss"},
--   svg = path to write, title = "", smooth = 0, width = 64, height = 12})
-- `smooth`: the decay of an exponential moving average over series with more than 50 points.
-- @return the plot's text, or nil and a message
return function(source, opts)
  local o = options.check("log.curve", opts, {keys = options.none, svg = options.none, title = "",
                                              smooth = 0, width = 64, height = 12})
  local rows = source
  if type(source) == "string" then
    local list, message = metrics.read(source)
    if not list then return nil, message end
    rows = list
  elseif type(source) ~= "table" then
    fail("log.curve: a path or a list of rows is expected, got %s", options.kind(source))
  end
  local series = {}
  for _, key in ipairs(o.keys or {"loss", "val_loss"}) do
    local s = {name = key, x = {}, y = {}}
    for i, row in ipairs(rows) do
      if type(row) ~= "table" then
        fail("log.curve: row %d is %s, not a table such as {step = 1, loss = 0.5}", i,
             options.kind(row))
      end
      local y = tonumber(row[key])
      if y then
        s.x[#s.x + 1] = tonumber(row.step) or i
        s.y[#s.y + 1] = y
      end
    end
    if #s.y > 50 and o.smooth > 0 then
      local mean = s.y[1]
      for i, y in ipairs(s.y) do
        mean = o.smooth * mean + (1 - o.smooth) * y
        s.y[i] = mean
      end
    end
    if #s.y > 0 then series[#series + 1] = s end
  end
  if o.svg then
    local ok, problem = require("flare.log.svg")(series, {title = o.title, path = o.svg})
    if not ok then return nil, problem end
  end
  return require("flare.log.plot")(series, {title = o.title, width = o.width, height = o.height})
end
