--- A model as a list of pieces that follow each other: the children of an nn.Sequential, or what
-- the model's `parts` gives. A rank keeps the parameters and buffers of some pieces; the others are
-- empty there.
local class = require "flare.class"
local core = require "flare.core"
local fail = require "flare.fail"
local options = require "flare.options"
local walk = require "flare.nn.walk"

local M = {}

local function parts_of(model)
  if type(model.parts) == "function" then return model:parts() end
  if class.is(model, require("flare.nn").Sequential) then
    local parts = {}
    for k, child in ipairs(model) do
      parts[k] = {names = {tostring(k)}, run = function(x) return child(x) end}
    end
    return parts
  end
  fail("pipeline: %s has no parts that follow each other: pass an nn.Sequential, or give the model "
    .. "a method `parts` that returns {{names = {\"embed\"}, run = function(x) ... end}, ...}",
    getmetatable(model).__name)
end

--- The loss of the last piece's result: f(output, target), or that of the model's next token.
-- @param where the class, for errors @param f what the user gave
function M.loss(where, model, list, f)
  local finish = list[#list].finish
  if f ~= nil and type(f) ~= "function" then
    fail("%s: loss must be a function of output and target, got %s", where, options.kind(f))
  elseif f then
    return finish and function(y, target) return f(finish(y), target) end or f
  elseif type(model.criterion) ~= "function" then
    fail("%s: pass loss = function(output, target) that gives a mean; %s has none of its own",
      where, getmetatable(model).__name)
  end
  return function(features, ids)
    local time = ids:size(2)
    return model:criterion(features:narrow(2, 1, time - 1), ids:narrow(2, 2, time - 1))
  end
end

--- The pieces of a model: {name, names, run, slots, tensors}. A slot is a place of a parameter or
-- buffer: {name, owner, key, holder, id, split}.
function M.of(model)
  if not walk.is_module(model) then
    fail("pipeline: a model is expected, got %s", options.kind(model))
  end
  local pieces = parts_of(model)
  if type(pieces) ~= "table" or not pieces[1] then fail "pipeline: the model has no parts" end
  local function find(name)
    local found
    for k, piece in ipairs(pieces) do
      for _, prefix in ipairs(piece.names) do
        if name:sub(1, #prefix + 1) == prefix .. "." then found = k end
      end
    end
    return found or fail("pipeline: '%s' belongs to no part of the model", name)
  end
  for k, piece in ipairs(pieces) do
    piece.number, piece.slots = k, {}
    piece.name = piece.names[1]
  end
  for _, kind in ipairs {"parameter", "buffer"} do
    walk.visit(model, function(name, tensor, owner, key, holder)
      local splits, piece = rawget(owner, "_split"), pieces[find(name)]
      piece.slots[#piece.slots + 1] = {name = name, owner = owner, key = key, holder = holder,
        kind = kind, id = tensor.id, split = splits and splits[key],
        shape = {table.unpack(tensor.shape)}, learns = tensor.requires_grad}
    end, kind, true)
  end
  return pieces
end

--- The tensor of a slot.
function M.get(slot) return slot.holder[slot.key] end

--- The device of the pieces; dropped ones have theirs, too.
function M.device(list)
  for _, piece in ipairs(list) do
    if piece.slots[1] then return M.get(piece.slots[1]).device end
  end
  return "cpu"
end

--- Puts a tensor into a slot.
function M.put(slot, tensor)
  walk.mark(slot.owner, tensor, slot.kind)
  slot.holder[slot.key] = tensor
end

--- Drops the tensors of a piece. They keep their dtype and device.
function M.drop(piece)
  for _, slot in ipairs(piece.slots) do
    local was = M.get(slot)
    M.put(slot, core.zeros({0}, {dtype = was.dtype, device = was.device})
      :requires_grad_(slot.learns))
  end
end

--- Makes tensors for a piece that was dropped; tied ones, which `there` may have, are one tensor.
-- @param there tensors by the id of their slots
function M.make(piece, there)
  for _, slot in ipairs(piece.slots) do
    local was = M.get(slot)
    local tensor = there[slot.id] or core.zeros(slot.shape, {dtype = was.dtype,
      device = was.device}):requires_grad_(slot.learns)
    there[slot.id] = tensor
    M.put(slot, tensor)
  end
end

--- Slots of several pieces that have one tensor: a list of lists of {piece, slot}.
function M.ties(pieces)
  local by, list = {}, {}
  for _, piece in ipairs(pieces) do
    local here = {}
    for _, slot in ipairs(piece.slots) do
      if not here[slot.id] then
        here[slot.id] = true
        by[slot.id] = by[slot.id] or {}
        table.insert(by[slot.id], {piece = piece, slot = slot})
      end
    end
  end
  for _, piece in ipairs(pieces) do
    for _, slot in ipairs(piece.slots) do
      local tie = by[slot.id]
      if tie and #tie > 1 and slot.kind == "parameter" then list[#list + 1] = tie end
      by[slot.id] = nil
    end
  end
  return list
end

return M
