--- Parameters of divided models in the ordinary layout, by which checkpoints do not depend on the
-- number of ranks.
local core = require "flare.core"
local fail = require "flare.fail"
local layers = require "flare.dist.parallel.layers"
local options = require "flare.options"
local walk = require "flare.nn.walk"

local M = {}

-- Calls f(name, tensor, split) for parameters and buffers, each under all of its names.
local function visit(model, f)
  local function one(name, tensor, owner, key)
    local splits = rawget(owner, "_split")
    f(name, tensor, splits and splits[key])
  end
  walk.visit(model, one, "parameter", true)
  walk.visit(model, one, "buffer", true)
end

--- The parameters and buffers of a model whose layers are divided, whole, as `state_dict()` of the
-- ordinary model has them. All ranks of the model call it, and all get them.
-- @param model a module, divided or not
-- @return names and tensors
function M.state_dict(model)
  local _ <close> = core.no_grad()
  local state, seen = {}, {}
  visit(model, function(name, tensor, split)
    local whole = seen[tensor.id]
    if not whole then
      whole = split and layers.whole(tensor:detach(), split, split.total) or tensor:detach()
      seen[tensor.id] = whole
    end
    state[name] = whole
  end)
  return state
end

--- Takes each rank's part of whole parameters and buffers.
-- @param model a divided module
-- @param state names and tensors, as dist.state_dict or an ordinary model's state_dict gives them
-- @return the model
function M.load_state_dict(model, state)
  if type(state) ~= "table" then
    fail("dist.load_state_dict: a table of names and tensors is expected, got %s",
      options.kind(state))
  end
  local parts = {}
  for name, tensor in pairs(state) do parts[name] = tensor end
  visit(model, function(name, _, split)
    local whole = state[name]
    if split and core.is_tensor(whole) then
      if whole:dim() < split.dim or whole:size(split.dim) ~= split.total then
        fail("dist.load_state_dict: '%s' is (%s), dim %d must have size %d", name,
          table.concat(whole.shape, ", "), split.dim, split.total)
      end
      parts[name] = core.no_grad(layers.cut, whole, split)
    end
  end)
  return model:load_state_dict(parts)
end

--- Writes a published model of which ranks have parts, as the ordinary model's save does. All ranks
-- call it; rank 0 of the job writes.
-- @param model the divided model @param state its whole parameters and buffers, on all ranks
-- @return true, or nil and a message
function M.save(model, state, folder, opts)
  if type(rawget(model, "config")) ~= "table" then
    fail("save: a model of flare.models is expected, got %s: save its state_dict",
      getmetatable(model).__name)
  end
  if require("flare.dist").rank() ~= 0 then return true end
  local whole = getmetatable(model)(model.config):to(model:dtype())
  whole:load_state_dict(state)
  whole.generation = model.generation
  return whole:save(folder, opts)
end

--- Lets model:save write the whole model.
function M.replace_save(model)
  if type(rawget(model, "config")) ~= "table" then return end
  rawset(model, "save", function(self, folder, opts)
    return M.save(self, M.state_dict(self), folder, opts)
  end)
end

return M
