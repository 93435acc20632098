--- Convolutions over 1, 2 or 3 dims.
local class = require "flare.class"
local core = require "flare.core"
local fail = require "flare.fail"
local options = require "flare.options"
local window = require "flare.nn.window"
local Module = require "flare.nn.module"

local Conv = class("Conv", Module)

--- nn.Conv2d(inputs, outputs, kernel, {stride = 1, padding = 0, dilation = 1, groups = 1,
--   bias = true, padding_mode = "zeros"})
-- `kernel`, `stride`, `padding`, `dilation` are numbers or one number for each dim; padding
-- "same" keeps the size when the stride is 1. padding_mode: zeros, reflect, replicate,
-- circular. weight is (outputs, inputs / groups, kernel...).
function Conv:init(inputs, outputs, kernel, opts)
  local where = "nn." .. getmetatable(self).__name
  local o = options.check(where, opts, {stride = options.none, padding = options.none,
                                        dilation = options.none, groups = 1, bias = true,
                                        padding_mode = "zeros"})
  window.sizes(self, where, inputs, outputs, kernel, o)
  self.before = nil -- padding done by a pad of its own: pairs, last dim first
  self:set_padding(where, o.padding or 0, o.padding_mode)
  window.parameters(self, outputs, inputs // o.groups, o.bias)
end

local modes = {zeros = "constant", reflect = "reflect", replicate = "replicate",
               circular = "circular"}

function Conv:set_padding(where, padding, mode)
  local n = self.dims
  if not modes[mode] then
    fail("%s: padding_mode '%s' does not exist%s", where, tostring(mode), options.hint(mode, modes))
  end
  local low, high = {}, {}
  if padding == "valid" then padding = 0 end
  if padding == "same" then
    for i = 1, n do
      if self.stride[i] ~= 1 then fail("%s: padding 'same' needs stride 1", where) end
      local total = self.dilation[i] * (self.kernel[i] - 1)
      low[i] = total // 2
      high[i] = total - low[i]
    end
  else
    low = window.list(where, "padding", padding, n, 0)
    high = low
  end
  local even = true
  for i = 1, n do even = even and low[i] == high[i] end
  if mode == "zeros" and even then
    self.padding = low
    return
  end
  self.padding = window.list(where, "padding", 0, n, 0)
  self.mode, self.before = modes[mode], {}
  for i = n, 1, -1 do
    table.insert(self.before, low[i])
    table.insert(self.before, high[i])
  end
end

--- (batch, inputs, size...) or (inputs, size...) -> the same with outputs and new sizes
function Conv:forward(x)
  local single = options.input(self, x):dim() == self.dims + 1
  if single then x = x:unsqueeze(1) end
  if self.before then x = core.pad(x, self.before, self.mode) end
  local y = core.conv(x, self.weight, self.bias, self.stride, self.padding, self.dilation,
                      self.groups)
  return single and y:squeeze(1) or y
end

function Conv:describe()
  local parts = {("%d -> %d, kernel=%s"):format(self.inputs, self.outputs,
                                                window.text(self.kernel))}
  if window.text(self.stride) ~= "1" then parts[2] = "stride=" .. window.text(self.stride) end
  if window.text(self.padding) ~= "0" then
    parts[#parts + 1] = "padding=" .. window.text(self.padding)
  end
  if self.groups > 1 then parts[#parts + 1] = "groups=" .. self.groups end
  if not self.bias then parts[#parts + 1] = "bias=false" end
  return table.concat(parts, ", ")
end

local classes = {}
for n = 1, 3 do
  local cls = class(("Conv%dd"):format(n), Conv)
  cls.dims = n
  classes[("Conv%dd"):format(n)] = cls
end
return classes
