--- State dicts: a module's parameters and buffers by name, and their conversion to PyTorch's names.
local class = require "flare.class"
local core = require "flare.core"
local fail = require "flare.fail"
local options = require "flare.options"
local walk = require "flare.nn.walk"

local M = {}

-- Suffixes of names in PyTorch and in flare.
local renamed = {
  {"parametrizations%.([%w_]+)%.original0$", "%1_g"},
  {"parametrizations%.([%w_]+)%.original1$", "%1_v"},
  {"parametrizations%.([%w_]+)%.original$", "%1_orig"},
  {"parametrizations%.([%w_]+)%.0%._([uv])$", "%1_%2"},
}

-- Every name, also all names of a shared tensor, so that a model in which the tensors are not
-- shared can read the file.
local function collect(module)
  local state = {}
  local function put(name, tensor) state[name] = tensor end
  walk.visit(module, put, "parameter", true)
  walk.visit(module, put, "buffer", true)
  return state
end

--- Names and tensors; the tensors are detached and share memory with the module.
function M.get(module)
  local state = collect(module)
  for name, tensor in pairs(state) do state[name] = tensor:detach() end
  return state
end

--- Converts a state dict of PyTorch to flare's names: lists and layers of recurrent networks count
-- from 1, MultiHeadAttention has q, k and v as separate layers, and the parameters of a
-- parametrization are fields of the layer.
-- @param state names and tensors, as PyTorch writes them
-- @return a new table of names and tensors
function M.from_pytorch(state, message)
  options.state("from_pytorch", state, message)
  local out = {}
  local function next_number(k) return tostring(k + 1) end
  for name, tensor in pairs(state) do
    options.text("from_pytorch", "each name", name)
    local kind = name:match "in_proj_(%a+)$"
    local place, out_kind = name:match "^(.-)out_proj(%.%a+)$"
    for _, pair in ipairs(renamed) do name = name:gsub(pair[1], pair[2]) end
    name = name:gsub("([qkv])_proj_weight$", "%1.weight")
    if place and (state[place .. "in_proj_weight"] or state[place .. "q_proj_weight"]) then
      name = place .. "out" .. out_kind
    end
    name = name:gsub("%f[%w_]%d+%f[.\0]", next_number)
               :gsub("^(.-%a_[ih][hr]_l)(%d+)", function(head, k) return head .. next_number(k) end)
    if kind then
      local parts = tensor:chunk(3, 1)
      for i, part in ipairs {"q", "k", "v"} do
        out[name:gsub("in_proj_", part .. ".")] = parts[i]
      end
    else
      out[name] = tensor
    end
  end
  return out
end

-- The names in PyTorch of the parameters of parametrizations, relative to the layer.
local function parametrizations(module)
  local names = {}
  for path, layer in module:named_modules() do
    for name, made in pairs(rawget(layer, "_made") or {}) do
      for part, there in pairs(made.parts) do
        if there then
          names[(path == "" and "" or path .. ".") .. name .. "_" .. part]
            = ("parametrizations.%s.%s"):format(name, there)
        end
      end
    end
  end
  return names
end

--- A module's state dict with PyTorch's names, the inverse of from_pytorch. Saved as safetensors,
-- it can be loaded by load_state_dict in PyTorch.
-- @param module a module
-- @return a table of names and tensors
function M.to_pytorch(module)
  local Attention = require "flare.nn.attention"
  local attention, state, out = {}, M.get(module), {}
  local normalised = parametrizations(module)
  for name, layer in module:named_modules() do
    if class.is(layer, Attention) then attention[name == "" and name or name .. "."] = true end
  end
  local function number_before(k) return tostring(k - 1) end
  for name, tensor in pairs(state) do
    local place, part, kind = name:match "^(.-)(%a+)%.(%a+)$"
    local there = name:gsub("%f[%w_]%d+%f[.\0]", number_before)
      :gsub("(%a_[ih][hr]_l)(%d+)", function(head, k) return head .. number_before(k) end)
    if attention[place] and part == "out" then
      there = there:gsub("out(%.%a+)$", "out_proj%1")
    elseif attention[place] and kind == "weight"
           and state[place .. "q.weight"]:size(2) ~= state[place .. "k.weight"]:size(2) then
      there = there:gsub("(%a+)%.weight$", "%1_proj_weight")
    elseif attention[place] then
      there = there:gsub("%a+%.%a+$", "in_proj_" .. kind)
      tensor = core.cat({state[place .. "q." .. kind], state[place .. "k." .. kind],
                         state[place .. "v." .. kind]}, 1)
    elseif normalised[name] then
      there = there:gsub("[^.]+$", normalised[name])
    end
    out[there] = tensor
  end
  return out
end

-- Whether names are those of PyTorch.
local function is_foreign(names)
  for _, name in ipairs(names) do
    if name:find "%f[%w_]0%f[.\0]" or name:find "_l0$" or name:find "in_proj_" then
      return true
    end
  end
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

-- Whether this is the second result of safetensors.load, the metadata: names and strings.
local function is_metadata(opts)
  if type(opts) ~= "table" or opts.strict ~= nil then return false end
  for key, value in pairs(opts) do
    if type(key) ~= "string" or type(value) ~= "string" then return false end
  end
  return true
end

--- Copies `state` into the module's tensors after checking all of it.
function M.set(module, state, opts)
  if type(state) ~= "table" then
    fail("load_state_dict: a table of names and tensors is expected, got %s%s", options.kind(state),
         options.reason(state, opts))
  end
  if is_metadata(opts) then opts = nil end
  opts = options.check("load_state_dict", opts, {strict = true})
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
    -- PyTorch's BatchNorm always counts batches
    if own[name] == nil and not tostring(name):find "num_batches_tracked$" then
      extra[#extra + 1] = tostring(name)
    end
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
    if is_foreign(extra) then
      text[#text + 1] = "names of PyTorch's are turned into ours by nn.from_pytorch(state)"
    end
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
