--- flare.log: what a training shows and writes: a progress bar, metrics, curves.
--
--     local bar = flare.log.progress{total = 1000, label = "train"}
--     for step = 1, 1000 do bar:update(step, {loss = loss}) end
--     bar:finish()
--
-- `flare.log(x)` is the natural logarithm, as the operator's name says.
require "flare"

local core = require "flare.core"

local parts = {
  progress = {"flare.log.progress"}, metrics = {"flare.log.metrics"},
  read_metrics = {"flare.log.metrics", "read"},
  svg = {"flare.log.svg"}, plot = {"flare.log.plot"}, curve = {"flare.log.curve"},
}

return setmetatable({}, {
  __name = "flare.log",
  __call = function(_, ...) return core.log(...) end,
  __index = function(self, name)
    local part = parts[name]
    if not part then
      local hint = require("flare.options").hint(tostring(name), parts)
      require("flare.fail")("there is no flare.log.%s%s", tostring(name), hint)
    end
    local value = require(part[1])
    if part[2] then value = value[part[2]] end
    rawset(self, name, value)
    return value
  end,
  __pairs = function(self)
    return function(_, name)
      local key = next(parts, name)
      if key ~= nil then return key, self[key] end
    end, self, nil
  end,
})
