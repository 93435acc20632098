--- What the transforms of images share: their class, checks of arguments, draws.
local class = require "flare.class"
local core = require "flare.core"
local fail = require "flare.fail"
local options = require "flare.options"

local M = {}
local Transform = class("Transform")
Transform.__keeps = true

-- Runs f with the numbers of a generator in place of those of the state's default one.
local function drawing_from(generator, f, ...)
  local default = core.default_generator()
  local seed, offset = default:state()
  default:set_state(generator:state())
  local results = table.pack(pcall(f, ...))
  generator:set_state(default:state())
  default:set_state(seed, offset)
  if not results[1] then error(results[2], 0) end
  return table.unpack(results, 2, results.n)
end

local function bytes_again(x, ...) return x:round():clamp(0, 255):to "u8", ... end

-- The transform of a batch. Samples of u8 that a class does not take go through f32.
local function run(self, x, ...)
  if x.dtype == "u8" and not self.takes_bytes then
    return bytes_again(self:apply(x:to "f32", ...))
  end
  return self:apply(x, ...)
end

function Transform:__call(x, ...)
  local name = getmetatable(self).__name
  if not core.is_tensor(x) or x:dim() < 3 or x:dim() > 4
     or not (x.dtype == "u8" or x.dtype:find "^b?f%d") then
    fail("transforms.%s: floats or u8 (batch, channels, height, width) are expected, got %s", name,
         core.is_tensor(x) and x.dtype .. " " .. tostring(x.shape) or options.kind(x))
  end
  if x:dim() == 4 then return run(self, x, ...) end
  local function one(y, ...) return y:squeeze(1), ... end
  return one(run(self, x:unsqueeze(1), ...))
end

function Transform:__tostring()
  local fields = {}
  for key, value in pairs(self) do
    if key == "list" then
      for i, part in ipairs(value) do fields[i] = tostring(part) end
    elseif key ~= "where" and key ~= "generator" then
      fields[#fields + 1] = ("%s = %s"):format(key, core.is_tensor(value)
        and "{" .. table.concat(value:view(-1):totable(), ", ") .. "}"
        or type(value) == "table" and "{" .. table.concat(value, ", ") .. "}" or tostring(value))
    end
  end
  if not self.list then table.sort(fields) end
  return ("%s(%s)"):format(getmetatable(self).__name, table.concat(fields, ", "))
end

--- The module and arguments from which a worker thread makes this transform again.
function Transform:describe()
  return require("flare.data.recipe").describe_transform(self)
end

-- A transform: `take(...)` gives its fields, `apply(self, x, ...)` the new batch and what follows,
-- `images(self, x)` the new batch alone; takes_bytes: of u8, too.
function M.define(name, call, what, take, methods)
  local cls = class(name, Transform)
  cls.about = {("data.transforms.%s(%s)"):format(name, call), what}
  function cls:init(...)
    for key, value in pairs(take("transforms." .. name, ...)) do self[key] = value end
  end
  function cls:apply(x, ...) return self:images(x), ... end
  for key, f in pairs(methods) do cls[key] = f end
  M[name] = cls
  return cls
end

-- Height and width of a number or a list of two.
function M.sizes(where, size)
  if type(size) ~= "table" then size = {size, size} end
  return {options.count(where, "size", size[1]), options.count(where, "size", size[2])}
end

-- A list of two numbers, {from, to}.
function M.range(where, name, value)
  if type(value) ~= "table" or type(value[1]) ~= "number" or type(value[2]) ~= "number"
     or value[1] > value[2] then
    fail("%s: %s must be two numbers, {from, to}", where, name)
  end
  return value
end

function M.share(where, name, p)
  if type(p) ~= "number" or p < 0 or p > 1 then
    fail("%s: %s must be from 0 to 1, got %s", where, name, tostring(p))
  end
  return p
end

-- A draw for each image, (batch, 1, 1, 1), between two numbers.
function M.draw(x, low, high)
  local y = core.rand({x:size(1), 1, 1, 1}, {low = low, high = high, device = x.device})
  return x.dtype == "u8" and y or y:to(x.dtype)
end

-- A mask of the images to change, each with probability p.
function M.chosen(x, p)
  return core.rand({x:size(1), 1, 1, 1}, {device = x.device}):lt(p)
end

-- A mask: 1 inside a random rectangle of each image, with these fractions of height and width.
function M.rectangle(x, h, w)
  local function inside(n, part, shape)
    local length = (part * n):round()
    local first = (M.draw(x, 0, 1) * (n - length + 1)):floor():minimum(n - length)
    local at = core.arange(0, n, {device = x.device}):to(length.dtype):view(shape)
    return at:ge(first) & at:lt(first + length)
  end
  local height, width = x:size(3), x:size(4)
  return inside(height, h, {1, 1, height, 1}) & inside(width, w, {1, 1, 1, width})
end

local function apply_all(list, ...)
  local values = table.pack(...)
  for _, f in ipairs(list) do values = table.pack(f(table.unpack(values, 1, values.n))) end
  return table.unpack(values, 1, values.n)
end

M.define("Compose", "{a, b, ...}, {generator =}",
  "Applies transforms in order. Random numbers come from the generator or, without one, from the "
    .. "default one, which a loader seeds for each batch.", function(where, list, opts)
  if type(list) ~= "table" or getmetatable(list) then
    fail("%s: a list of functions is expected, got %s", where, options.kind(list))
  end
  return {list = list,
          generator = options.check(where, opts, {generator = options.none}).generator}
end, {
  __call = function(self, ...)
    if self.generator then return drawing_from(self.generator, apply_all, self.list, ...) end
    return apply_all(self.list, ...)
  end,
})

return M
