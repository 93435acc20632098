--- The base class of all layers: an object with parameters, buffers, children and `forward`.
--
-- A field is a parameter when it holds a tensor that `self:param` returned or one that requires
-- gradients, a buffer when it came from `self:buffer`, a child when it is a module; plain tables
-- are searched too. The order is that of first assignment; positions in tables come first and in
-- ascending order, names in plain tables in alphabetical order. Names that begin with "_" are
-- private to the object. What assignment to the name of a parameter does is in fields.lua.
local class = require "flare.class"
local core = require "flare.core"
local fail = require "flare.fail"
local fields = require "flare.nn.fields"
local options = require "flare.options"
local walk = require "flare.nn.walk"

local Module = class("Module")
Module.__word = "model"
Module.__keeps = true
Module.__module = true
Module.training = true
Module.__newindex = fields.assign
Module.__begin = fields.begin

--- Marks a tensor as a parameter: optimizers update it, state_dict contains it, `to` moves it.
-- @return the tensor, which requires gradients now
function Module:param(tensor)
  if not core.is_tensor(tensor) then
    fail("param: a tensor is expected, got %s", options.kind(tensor))
  end
  tensor:requires_grad_(true)
  fields.register(self, tensor, "parameter")
  return tensor
end

--- Marks a tensor as a buffer: state_dict contains it and `to` moves it, but it is not a parameter.
-- @return the tensor
function Module:buffer(tensor)
  if not core.is_tensor(tensor) then
    fail("buffer: a tensor is expected, got %s", options.kind(tensor))
  end
  fields.register(self, tensor, "buffer")
  return tensor
end

--- Computes the result of the module; every layer defines it.
function Module:forward()
  fail("%s has no forward method", getmetatable(self).__name)
end

local watcher -- while a profile runs: the function that is called instead
local watch -- sets whether there is one

local function run(self, ...)
  if self._hooks then return require("flare.nn.hooks").call(self, ...) end
  return self:forward(...)
end

-- A C function, which calls forward or, if the module has hooks or is watched, this function:
-- after `return self.fc(x)` the caller's line is still known.
Module.__call, watch = core.module_call(function(self, ...)
  if watcher then return watcher(self, run, ...) end
  return run(self, ...)
end)

--- Iterates over name, tensor of all parameters; a shared parameter occurs once.
function Module:named_parameters()
  return walk.iterate(self, "parameter")
end

--- A list of all parameters, in the order in which they were assigned.
function Module:parameters()
  return walk.parameter_list(self)
end

--- Iterates over name, tensor of all buffers.
function Module:named_buffers()
  return walk.iterate(self, "buffer")
end

--- A list of all buffers.
function Module:buffers()
  return (walk.list(self, "buffer"))
end

--- Iterates over name, module: the module itself (name "") and all modules inside.
function Module:named_modules()
  return walk.iterate(self, "module")
end

--- A list of the module itself and all modules inside.
function Module:modules()
  return (walk.list(self, "module"))
end

--- Calls f(module) for all modules inside, innermost first, and for the module itself.
-- @return the module
function Module:apply(f)
  if type(f) ~= "function" then fail("apply: a function is expected, got %s", options.kind(f)) end
  local all = self:modules()
  for i = #all, 1, -1 do f(all[i]) end
  return self
end

--- Training mode: Dropout drops, BatchNorm uses the statistics of the batch. `false` is the same
-- as eval().
function Module:train(on)
  on = on ~= false
  for _, module in ipairs(self:modules()) do module.training = on end
  return self
end

--- Evaluation mode.
function Module:eval()
  return self:train(false)
end

--- Sets the gradients of all parameters to nil.
function Module:zero_grad()
  for _, p in ipairs(self:parameters()) do p.grad = nil end
  return self
end

--- Turns requires_grad of all parameters off (`freeze(false)` turns it on).
function Module:freeze(on)
  local learn = on == false
  walk.visit(self, function(_, tensor, owner)
    walk.mark(owner, tensor, "parameter")
    tensor:requires_grad_(learn)
  end, "parameter")
  return self
end

--- Moves the module to a device and/or converts floating tensors: `model:to("sim:0")`,
-- `model:to("f64")`. `model:to{layout = "channels_last"}` gives parameters and buffers of 4 dims
-- the memory layout N, H, W, C, which convolutions on GPUs are fastest with; "contiguous" undoes
-- it. New tensors replace the old ones, so make the optimizer afterwards. Shorthands are cpu(),
-- cuda(), float(), double(), half() and bfloat16().
-- @return the module
function Module:to(...)
  local arguments = {...}
  local seen = {}
  local function move(_, tensor, owner, key, holder)
    local id = tensor.id
    local new = seen[id]
    if not new then
      local learn = tensor.requires_grad
      new = walk.convert(tensor, table.unpack(arguments))
      if new.id ~= id then
        new = new:detach()
        if learn then new:requires_grad_(true) end
      end
      seen[id] = new
    end
    walk.mark(owner, new, walk.kind(owner, tensor))
    holder[key] = new
  end
  walk.visit(self, move, "parameter", true)
  walk.visit(self, move, "buffer", true)
  return self
end

for name, where in pairs{cpu = "cpu", cuda = "cuda", float = "f32", double = "f64", half = "f16",
                         bfloat16 = "bf16"} do
  Module[name] = function(self) return self:to(where) end
end

--- A deep copy. Tensors that the module uses in several places are one tensor in the copy, too.
function Module:clone()
  return walk.clone(self)
end

--- A table of all parameters and buffers by name. The tensors are detached and share memory with
-- the module.
function Module:state_dict()
  return require("flare.nn.state").get(self)
end

--- Copies values from a table that state_dict returned. All names and shapes are checked first: if
-- any differ, an error lists them and no value has changed.
-- @param state names and tensors
-- @param opts {strict = false} to ignore missing and unexpected names
-- @return the module
function Module:load_state_dict(state, opts)
  require("flare.nn.state").set(self, state, opts)
  return self
end

--- Calls f(module, inputs...) before each forward; a returned value replaces the inputs.
-- @return an object whose remove() takes the hook away
function Module:register_forward_pre_hook(f)
  return require("flare.nn.hooks").add(self, "before", f)
end

--- Calls f(module, input, output) after each forward; a returned value replaces the output.
function Module:register_forward_hook(f)
  return require("flare.nn.hooks").add(self, "after", f)
end

--- Calls f(module, gradient) with the gradient of the module's output in each backward.
function Module:register_backward_hook(f)
  return require("flare.nn.hooks").add(self, "backward", f)
end

--- A backward pass by hand: adds to the gradients of the parameters, returns that of the input.
-- @param x the input of forward, or a list of inputs
-- @param dy the gradient of the output (left out: ones)
-- @param y the output of forward, if x required gradients then; without it forward runs again, so
--   pass y for modules that draw random numbers
-- @return the gradient of each input
function Module:backward(x, dy, y)
  local inputs = core.is_tensor(x) and {x} or x
  if type(inputs) ~= "table" then fail("backward: the input must be a tensor or a list") end
  if y == nil then
    local fresh = {}
    for i, input in ipairs(inputs) do
      fresh[i] = input:detach()
      if input.dtype:find("^b?f%d") then fresh[i]:requires_grad_(true) end
    end
    inputs = fresh
    y = self(table.unpack(inputs))
  end
  if dy == nil then dy = core.ones_like(y) end
  local grads = y:backward(dy)
  local out = {}
  for i, input in ipairs(inputs) do out[i] = input.grad or (grads and grads[input]) end
  return table.unpack(out, 1, #inputs)
end

--- Gives the fully connected layers inside weights of 4 or 8 bits, for computing and for tuning
-- beside them; `flare.quantize` describes the options.
-- @param opts {bits = 4, group = 64, method = "rtn", "gptq" or "awq", data =, skip = {"lm_head"}}
-- @return the module, and a report of the error of each layer
function Module:quantize(opts)
  return require("flare.quantize").quantize(self, opts)
end

--- The number of elements of all parameters.
function Module:count()
  local n = 0
  for _, p in ipairs(self:parameters()) do n = n + p:numel() end
  return n
end

--- The text between the parentheses of tostring, for layers without children.
function Module:describe()
  return ""
end

function Module:__tostring()
  return require("flare.nn.show").tree(self)
end

--- A text with the layers, the shapes and bytes of their outputs, parameter counts, and FLOPs;
-- nothing is computed: print(model:summary({32, 784})).
-- @param ... shapes of the inputs, or tensors
function Module:summary(...)
  return require("flare.nn.show").summary(self, ...)
end


--- Calls f(module, run, ...) in place of every call of a module; run(module, ...) makes the call.
-- nil ends this.
function Module.watch(f)
  if f ~= nil and type(f) ~= "function" then
    fail("watch: a function or nil is expected, got %s", options.kind(f))
  end
  watcher = f
  watch(f ~= nil)
end

return Module
