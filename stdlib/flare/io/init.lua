--- flare.io: safetensors, NumPy's files, trees of values, checkpoints.
require "flare"

local parts = {
  safetensors = "flare.io.safetensors", tree = "flare.io.tree", Checkpoint = "flare.io.checkpoint",
  npy = "flare.io.npy", npz = "flare.io.npz",
}

return setmetatable({}, {
  __name = "flare.io",
  __index = function(self, name)
    if not parts[name] then
      local hint = require("flare.options").hint(tostring(name), parts)
      require("flare.fail")("there is no flare.io.%s%s", tostring(name), hint)
    end
    local value = require(parts[name])
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
