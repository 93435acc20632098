--- Parts of the schedulers.
local configs = require "flare.models.config"
local core = require "flare.core"
local options = require "flare.options"

local M = {}

--- A number, rounded to f32.
function M.single(x) return (string.unpack("f", string.pack("f", x))) end

--- A table of fields with further ones.
function M.with(fields, more)
  local out = {}
  for name, value in pairs(fields) do out[name] = value end
  for name, value in pairs(more) do out[name] = value end
  return out
end

--- A tensor (batch) as (batch, 1, ...), with as many dims as `like`.
function M.column(x, like)
  local shape = {-1}
  for k = 2, like:dim() do shape[k] = 1 end
  return x:view(shape)
end

--- The noise of a step: the option `noise`, or drawn by the option `generator`.
function M.draw(like, o)
  if o.noise then return options.tensor("step", "noise", o.noise) end
  return core.randn(like.shape, {dtype = like.dtype, device = like.device,
                                 generator = o.generator})
end

--- Makes a class public: notes the defaults of its configuration.
-- @return the class
function M.publish(cls, defaults)
  cls.config_defaults = defaults
  local known = {}
  for name, value in pairs(defaults) do
    if value ~= configs.null and type(value) ~= "table" then known[name] = value end
  end
  local text = options.describe("", known):gsub("^%((.*)%)$", "%1"):gsub("=", " = ")
  cls.about = {("models.%s({%s})"):format(cls.__name, text),
               "The options are the fields of scheduler_config.json; these are the defaults."}
  return cls
end

return M
