--- Assignment to a module's fields: the order of names, and which values may replace a parameter.
local core = require "flare.core"
local fail = require "flare.fail"
local walk = require "flare.nn.walk"

local M = {}

local behind = setmetatable({}, {__mode = "k"}) -- of classes: the metatable of `_tensors`

--- Gives a module a metatable of its own, by which its parameters and buffers are read from the
-- table `_tensors`; getmetatable still gives the class.
-- @return `_tensors`
function M.attach(module)
  local cls, tensors, meta = getmetatable(module), {}, {}
  for key, value in next, cls do
    if type(key) == "string" and key:sub(1, 2) == "__" then meta[key] = value end
  end
  local index = cls.__index
  if type(index) == "function" then
    meta.__index = function(self, key)
      local tensor = tensors[key]
      if tensor ~= nil then return tensor end
      return index(self, key)
    end
  else
    behind[cls] = behind[cls] or {__index = index}
    setmetatable(tensors, behind[cls])
    meta.__index = tensors
  end
  meta.__metatable = cls
  rawset(module, "_tensors", tensors)
  -- so that a call of the module need not look in its class
  if rawget(module, "_hooks") == nil then rawset(module, "_hooks", false) end
  setmetatable(module, meta)
  return tensors
end

local function refuse(module, key, value, was)
  local make = was == "buffer" and "buffer" or "param"
  fail("%s: '%s' is a %s, %s cannot take its place. To copy values: layer.%s:copy_(tensor) inside "
    .. "flare.no_grad; for another one: layer.%s = layer:%s(tensor); to remove it: layer.%s = nil",
    getmetatable(module).__name, key, was,
    core.is_tensor(value) and "a plain tensor" or "a " .. type(value), key, key, make, key)
end

-- A field hides the method of the same name in the class: module:count() would call the tensor.
local function check_name(module, key, what)
  local cls = getmetatable(module)
  if type(cls[key]) ~= "function" then return end
  fail("%s: the %s '%s' would hide the method %s:%s; give it another name, such as '%s_%s'",
    cls.__name, what, key, cls.__name, key, key, what)
end

-- Counts events: a module is made, a field is assigned.
local clock = 0
local born = setmetatable({}, {__mode = "k"}) -- of modules: when they were made

local function tick()
  clock = clock + 1
  return clock
end

--- Notes when a module is made.
function M.begin(module)
  born[module] = tick()
end

--- Registers a tensor as a parameter or a buffer; the assignment to a field follows.
function M.register(module, tensor, kind)
  walk.mark(module, tensor, kind)
  walk.private(module, "_fresh")[tensor.id] = tick()
end

-- Puts a name into the order. Lua assigns the values of `self.a, self.b = A(), B()` from right to
-- left: a name that is assigned after another on the same line, with a value that was made before
-- the other's value, comes before it.
local function place(module, key, value)
  local order, fresh = walk.private(module, "_order"), rawget(module, "_fresh")
  local made = born[value] or fresh and core.is_tensor(value) and fresh[value.id]
  if fresh and core.is_tensor(value) then fresh[value.id] = nil end
  if order[key] then return end
  local n = (order[0] or 0) + 1
  order[0], order[key] = n, n
  local line = debug and debug.getinfo(3, "l").currentline -- a host may have no debug library
  local last = rawget(module, "_last")
  if not (last and line and last.line == line and made and made < last.time
          and made < (last.made or 0)) then
    rawset(module, "_last", {line = line, time = tick(), made = made, key})
    return
  end
  for _, other in ipairs(last) do order[other] = order[other] + 1 end
  order[key] = n - #last
  last[#last + 1], last.made = key, made
end

--- Assigns module[key] = value, where the module's table does not have the key yet.
function M.assign(module, key, value)
  local kinds = rawget(module, "_kinds")
  local was = kinds and kinds[key]
  if value == nil then
    if was then
      kinds[key] = nil
      rawget(module, "_tensors")[key] = nil
    end
    return
  end
  local tensor = core.is_tensor(value)
  if (tensor or type(value) == "table") and type(key) == "string" and key:byte() ~= 95 then
    local kind = tensor and (walk.kind(module, value) or was == "buffer" and was)
    if was and not (tensor and kind) then refuse(module, key, value, was) end
    if not was and not (getmetatable(value) and not tensor and not walk.is_module(value)) then
      check_name(module, key, kind or tensor and "tensor" or walk.is_module(value) and "module"
                              or "list")
    end
    place(module, key, value)
    local modules = rawget(module, "_modules")
    if walk.is_module(value) then
      walk.private(module, "_modules")[key] = true
    elseif modules then
      modules[key] = nil
    end
    if kind then return walk.hold(module, key, value, kind) end
    if getmetatable(value) == nil then walk.note_table(module, module, key, value, 0) end
  elseif was then
    refuse(module, key, value, was)
  end
  rawset(module, key, value)
end

return M
