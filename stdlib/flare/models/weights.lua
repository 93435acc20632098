--- Weights between modules and published files: which tensor of a file is which of a module, in
-- both directions.
local core = require "flare.core"
local names = require "flare.models.names"
local options = require "flare.options"
local walk = require "flare.nn.walk"

local M = {}

local function text_of(shape) return "(" .. table.concat(shape, ", ") .. ")" end

-- Parameters and buffers of a module by tensor: a tensor that has several names, as tied weights
-- have, is one group.
local function groups_of(module)
  local groups, by_id = {}, {}
  for _, kind in ipairs{"parameter", "buffer"} do
    walk.visit(module, function(name, tensor, owner, key, holder)
      local group = by_id[tensor.id]
      if not group then
        group = {tensor = tensor, kind = kind, places = {}}
        by_id[tensor.id], groups[#groups + 1] = group, group
      end
      table.insert(group.places, {name = name, owner = owner, key = key, holder = holder})
    end, kind, true)
  end
  return groups
end

-- What a file must have for one of our tensors: a list of {name, shape}, and how they differ.
-- @param weights of the file, which tell whether it has other names; nil: those that we write
local function wanted(class, name, tensor, weights)
  local there, how, other, half = names.there(class, name)
  local shape = table.move(tensor.shape, 1, tensor:dim(), 1, {})
  if other and weights and weights:entry(other) then
    if half then shape[2] = 2 * shape[2] end
    return {{name = other, shape = shape, half = half}}, half and "half" or nil
  elseif how == "transpose" then
    shape[1], shape[2] = shape[2], shape[1]
  elseif how == "stack" then
    local list, part = {}, table.move(shape, 2, #shape, 1, {})
    for k = 1, shape[1] do list[k] = {name = names.part(there, k), shape = part} end
    return list, how
  end
  return {{name = there, shape = shape}}, how
end

-- The published name with or without the class's prefix, whichever the file has.
local function prefixed(class, weights, want)
  local prefix = class.tensor_prefix
  if weights:entry(want.name) or not prefix then return end
  local bare = want.name:match("^" .. prefix .. "%.(.*)$")
  for _, name in ipairs{bare or false, prefix .. "." .. want.name} do
    if name and weights:entry(name) then want.name = name end
  end
end

local Report = {}
Report.__index = Report

local function sorted(list)
  table.sort(list)
  local most = 8
  return table.concat(list, "\n    ", 1, math.min(#list, most))
    .. (#list > most and ("\n    and %d more"):format(#list - most) or "")
end

-- A message that lists what does not fit, or nil.
function Report:message(folder, class)
  local text = {}
  for _, part in ipairs{{"missing", self.missing}, {"unknown", self.unknown},
                        {"of another shape or type", self.wrong}} do
    if #part[2] > 0 then text[#text + 1] = ("  %s:\n    %s"):format(part[1], sorted(part[2])) end
  end
  if #text == 0 then return end
  return ("%s does not have the weights of %s:\n%s"):format(folder, class.__name,
                                                           table.concat(text, "\n"))
end

-- Finds the tensors of a group in the file; notes what is wrong.
local function find(report, class, weights, group)
  local first
  for _, place in ipairs(group.places) do
    local list, how = wanted(class, place.name, group.tensor, weights)
    for _, want in ipairs(list) do prefixed(class, weights, want) end
    first = first or list[1].name
    if weights:entry(list[1].name) then
      if not group.parts then group.parts, group.how = list, how end
      for _, want in ipairs(list) do report.used[want.name] = true end
    end
  end
  for _, want in ipairs(group.parts or {}) do
    local e = weights:entry(want.name)
    if not e then
      table.insert(report.missing, want.name)
    elseif text_of(e.shape) ~= text_of(want.shape) then
      table.insert(report.wrong, ("%s is %s, config.json needs %s"):format(
        want.name, text_of(e.shape), text_of(want.shape)))
    elseif e.dtype == e.stored then
      table.insert(report.wrong, ("%s is %s, which flare does not read"):format(want.name,
                                                                              e.stored))
    end
  end
  if not group.parts then table.insert(report.missing, first) end
end

-- Reads a group's tensor in its dtype and on its device.
local function read(weights, group, o)
  local e = weights:entry(group.parts[1].name)
  local dtype = o.dtype and e.dtype:find "^b?f%d" and o.dtype or e.dtype
  if o.map and not group.how and dtype == e.dtype and o.device == "cpu" then
    return weights:map(group.parts[1].name)
  end
  local shape = group.tensor.shape
  local to = core.empty(shape, {dtype = dtype, device = o.device})
  for k, part in ipairs(group.parts) do
    local at = group.how == "stack" and to:select(1, k) or group.how == "transpose" and to:t()
      or group.how == "half" and core.empty(part.shape, {dtype = dtype, device = o.device}) or to
    local ok, message = weights:copy(part.name, at)
    if not ok then return nil, message end
    if part.half then
      local n = to:size(2)
      to:copy_(at:narrow(2, (part.half - 1) * n + 1, n))
    end
  end
  return to
end

-- Names in the file that are no tensor of the module, and the nearest missing one.
local function unknown(report, class, weights)
  local missing = {}
  for _, name in ipairs(report.missing) do missing[name] = true end
  for name in pairs(weights.entries) do
    if not report.used[name] and not names.is_ignored(class, name) then
      local near = options.nearest(name, missing)
      table.insert(report.unknown, near and ("%s (did it become '%s'?)"):format(name, near) or name)
    end
  end
end

--- Gives a module, which may have been made in meta mode, the tensors of files. All names and
-- shapes are checked before any data are read.
-- @param weights what files.open returned
-- @param o {dtype =, device =, map =, strict =}
-- @return true, or nil and a message
function M.fill(module, weights, o)
  local cls = getmetatable(module)
  local report = setmetatable({missing = {}, unknown = {}, wrong = {}, used = {}}, Report)
  local groups = groups_of(module)
  for _, group in ipairs(groups) do find(report, cls, weights, group) end
  if o.strict then unknown(report, cls, weights) end
  local message = report:message(weights.folder, cls)
  if message then return nil, message end
  for _, group in ipairs(groups) do
    local tensor
    tensor, message = read(weights, group, o)
    if not tensor then return nil, message end
    if group.kind == "parameter" then tensor:requires_grad_(true) end
    for _, place in ipairs(group.places) do
      walk.mark(place.owner, tensor, group.kind)
      place.holder[place.key] = tensor
    end
  end
  return true
end

--- A module's tensors under their published names, each tensor once.
-- @param of function(tensor) gives what is wanted of a tensor, by default the tensor itself;
--   tensors for which it gives nil are left out
function M.published(module, of)
  local cls, out = getmetatable(module), {}
  for _, group in ipairs(groups_of(module)) do
    local tensor = group.tensor
    if of then tensor = of(tensor) end
    tensor = tensor and tensor:detach()
    local list, how = wanted(cls, group.places[1].name, group.tensor)
    for k, want in ipairs(tensor and list or {}) do
      out[want.name] = how == "stack" and tensor:select(1, k) or how == "transpose" and tensor:t()
        or tensor
    end
  end
  return out
end

--- The gradients of a module's parameters under the parameters' published names.
function M.gradients(module)
  return M.published(module, function(tensor) return tensor.grad end)
end

return M
