--- State dicts: a module's parameters and buffers by name, out and in.
local core = require "flare.core"
local fail = require "flare.fail"
local options = require "flare.options"
local walk = require "flare.nn.walk"

local M = {}

-- Every name, also those of shared tensors: what is written can be read by a model in
-- which they are not shared.
local function collect(module)
  local state = {}
  local function put(name, tensor) state[name] = tensor end
  walk.visit(module, put, "parameter", true)
  walk.visit(module, put, "buffer", true)
  return state
end

--- Names and tensors, detached, sharing memory with the module's.
function M.get(module)
  local state = collect(module)
  for name, tensor in pairs(state) do state[name] = tensor:detach() end
  return state
end

local function shape_text(t)
  return "(" .. table.concat(t.shape, ", ") .. ")"
end

local function sorted(names)
  table.sort(names)
  local most = 8
  local text = table.concat(names, ", ", 1, math.min(#names, most))
  return #names > most and ("%s and %d more"):format(text, #names - most) or text
end

--- Copies `state` into the module's tensors after checking all of it.
function M.set(module, state, opts)
  opts = options.check("load_state_dict", opts, {strict = true})
  if type(state) ~= "table" then
    fail("load_state_dict: a table of names and tensors is expected, got %s", type(state))
  end
  local own = collect(module)
  local missing, extra, wrong = {}, {}, {}
  for name, tensor in pairs(own) do
    local given = state[name]
    if given == nil then
      missing[#missing + 1] = name
    elseif not core.is_tensor(given) then
      wrong[#wrong + 1] = ("%s is a %s, not a tensor"):format(name, type(given))
    elseif shape_text(given) ~= shape_text(tensor) then
      wrong[#wrong + 1] = ("%s is %s, the module has %s"):format(name, shape_text(given),
                                                              shape_text(tensor))
    end
  end
  for name in pairs(state) do
    if own[name] == nil then extra[#extra + 1] = tostring(name) end
  end
  local text = {}
  if opts.strict and #missing > 0 then text[#text + 1] = "missing: " .. sorted(missing) end
  if opts.strict and #extra > 0 then
    local line = "not in the module: " .. sorted(extra)
    if #extra == 1 then
      local near = options.nearest(extra[1], own)
      if near then line = line .. (" (did you mean '%s'?)"):format(near) end
    end
    text[#text + 1] = line
  end
  if #wrong > 0 then text[#text + 1] = "shapes differ: " .. sorted(wrong) end
  if #text > 0 then
    fail("load_state_dict for %s:\n  %s", getmetatable(module).__name, table.concat(text, "\n  "))
  end
  local _ <close> = core.no_grad()
  for name, tensor in pairs(own) do
    if state[name] ~= nil then tensor:copy_(state[name]) end
  end
end

return M
