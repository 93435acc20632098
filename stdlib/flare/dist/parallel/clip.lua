--- The norm of gradients of which ranks have parts.
local core = require "flare.core"
local fail = require "flare.fail"
local options = require "flare.options"
local walk = require "flare.nn.walk"

-- Calls f(parameter, split) once for each parameter that counts on this rank. Of one that several
-- stages have, that of the first stage counts.
local function each(model, f)
  local seen = {}
  local function once(p, split)
    if seen[p.id] then return end
    seen[p.id] = true
    f(p, split)
  end
  if not model.pieces then
    walk.visit(model, function(_, p, owner, key)
      local splits = rawget(owner, "_split")
      once(p, splits and splits[key])
    end, "parameter")
    return
  end
  local first = {}
  for _, piece in ipairs(model.pieces) do
    for _, slot in ipairs(piece.slots) do
      first[slot.id] = first[slot.id] or piece
      local p = slot.holder[slot.key]
      if slot.kind == "parameter" and first[slot.id] == piece and p:numel() > 0 then
        once(p, slot.split)
      end
    end
  end
end

-- All gradients of this rank.
local function gradients(model)
  local list = {}
  for _, p in ipairs(model:parameters()) do list[#list + 1] = p.grad end
  return list
end

--- Scales the gradients of a model that several ranks have so that their norm is at most `limit`.
-- @param model a divided module, a dist.Pipeline or a dist.Ring; its gradients are averaged already
-- @param limit the largest norm
-- @return the norm before, the same on all ranks
local function clip_grad_norm_(model, limit)
  if type(model) ~= "table" or not (walk.is_module(model) or model.pieces) then
    fail("dist.clip_grad_norm_: a model, a Pipeline or a Ring is expected, got %s",
      options.kind(model))
  elseif type(limit) ~= "number" or limit <= 0 or limit ~= limit then
    fail("dist.clip_grad_norm_: the limit must be a number above 0, got %s", tostring(limit))
  end
  local _ <close> = core.no_grad()
  local whole, parts, groups = {}, {}, {}
  each(model, function(p, split)
    if not p.grad then return end
    if not split then
      whole[#whole + 1] = p.grad
      return
    end
    local group = split.group
    if not parts[group.id] then
      parts[group.id], groups[#groups + 1] = {}, group
    end
    table.insert(parts[group.id], p.grad)
  end)
  local all = gradients(model)
  local device = all[1] and all[1].device or "cpu"
  local sum = core.zeros({}, {dtype = "f64", device = device})
  if #whole > 0 then sum = sum + core.global_norm(whole):to "f64":square() end
  table.sort(groups, function(a, b) return a.id < b.id end)
  for _, group in ipairs(groups) do
    sum = sum + group:all_reduce(core.global_norm(parts[group.id]):to "f64":square())
  end
  if model.pieces then sum = model.group:all_reduce(sum) end
  local norm = sum:sqrt()
  if #all > 0 then
    local wide = all[1].dtype == "f64" and "f64" or "f32"
    core.scale_step((limit / (norm + 1e-6)):clamp{max = 1}:to(wide), all)
  end
  return norm
end

return {clip_grad_norm_ = clip_grad_norm_}
