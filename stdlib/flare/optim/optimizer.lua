--- What all optimizers are: groups of parameters with options, and state for each parameter.
--
-- A subclass has `defaults` (its options), `moments(group)` (how many tensors of state a
-- parameter has), `moment_shape(p, k)` where the k-th is not of p's shape, and
-- `update(group, xs, step, moments)`, as a rule one call of a fused operator; xs is all parameters,
-- then all gradients, then all first moments, and so on; step counts from 1. Gradients are turned
-- round for `maximize`, unless the subclass `ascends` by itself. `prepare(options)` checks options
-- of its own.
local class = require "flare.class"
local core = require "flare.core"
local fail = require "flare.fail"
local options = require "flare.options"
local walk = require "flare.nn.walk"

--- optim.Optimizer(parameters, {lr = 1e-3})
local Optimizer = class("Optimizer")
Optimizer.defaults = {lr = 1e-3}

-- Options that must not be negative, and those that must be below 1 as well.
local ranges = {lr = math.huge, weight_decay = math.huge, eps = math.huge, momentum = math.huge,
                beta1 = 1, beta2 = 1, alpha = 1}

local function check_options(where, o)
  for key, limit in pairs(ranges) do
    local value = o[key]
    if value ~= nil and not (type(value) == "number" and value >= 0
                             and (value < limit or limit == math.huge)) then
      fail("%s: %s must be a number %s, got %s", where, key,
           limit == 1 and "in [0, 1)" or "of at least 0", tostring(value))
    end
  end
end

--- `parameters` is a list of tensors, a module, or a list of groups {params = {...}, lr = ..., ...}
-- with options of their own.
function Optimizer:init(params, opts)
  local where = "optim." .. getmetatable(self).__name
  local defaults = {}
  for key, value in pairs(self.defaults) do defaults[key] = value end
  self.options = options.check(where, opts, defaults)
  if self.prepare then self:prepare(self.options) end
  check_options(where, self.options)
  self.groups = {}
  self._known = {}
  params = walk.parameters(params)
  if core.is_tensor(params) then fail("%s: a list of parameters is expected, got one tensor",
                                      where) end
  if type(params) ~= "table" or #params == 0 then
    fail("%s: a list of parameters is expected, got %s", where,
         type(params) == "table" and "an empty one" or type(params))
  end
  if type(params[1]) == "table" then
    for _, group in ipairs(params) do self:add_group(group) end
  else
    self:add_group{params = params}
  end
end

-- optimizer.lr = 0.1 would change nothing.
function Optimizer:__newindex(key, value)
  if self.defaults[key] ~= nil then
    fail("options belong to groups: optimizer.groups[1].%s = %s", key, tostring(value))
  end
  rawset(self, key, value)
end

--- Adds a group {params = {...}, lr = ..., ...}; options left out are the optimizer's.
function Optimizer:add_group(group)
  local where = "optim." .. getmetatable(self).__name
  local given, params = {}, nil
  for key, value in pairs(group) do
    if key == "params" then params = value else given[key] = value end
  end
  params = walk.parameters(params)
  if type(params) ~= "table" then fail("%s: a group needs params = {...}", where) end
  local o = options.check(where .. " group", given, self.options)
  if self.prepare then self:prepare(o) end
  check_options(where, o)
  o.params, o.state = {}, {}
  for i, p in ipairs(params) do
    if not core.is_tensor(p) then
      fail("%s: parameter %d is a %s, not a tensor", where, i, type(p))
    end
    if not p.is_leaf then
      fail("%s: parameter %d is the result of %s, not a leaf", where, i, tostring(p.grad_fn))
    end
    if self._known[p.id] then fail("%s: parameter %d is in the optimizer already", where, i) end
    self._known[p.id] = true
    o.params[i], o.state[i] = p, {step = 0}
  end
  o.initial_lr = o.lr
  self.groups[#self.groups + 1] = o
  return self
end

--- Drops the gradients of all parameters.
function Optimizer:zero_grad()
  for _, group in ipairs(self.groups) do
    for _, p in ipairs(group.params) do p.grad = nil end
  end
end

function Optimizer:moment_shape(p)
  return p.shape
end

-- The k-th tensor of a parameter's state, at first.
local function moment_of(self, p, k)
  local shape = self:moment_shape(p, k)
  if shape == p.shape then return core.zeros_like(p) end
  return core.zeros(shape, {dtype = p.dtype, device = p.device})
end

-- Parameters with gradients, put together as the fused operators want them: by how often
-- they have been updated and where they are, which for most models is one list.
local function buckets(self, group, n_moments)
  local list, by_key = {}, {}
  for i, p in ipairs(group.params) do
    local grad = p.grad
    if grad then
      local state = group.state[i]
      if not state.moments then
        state.moments = {}
        for k = 1, n_moments do state.moments[k] = moment_of(self, p, k) end
      end
      local key = state.step .. p.device
      local bucket = by_key[key]
      if not bucket then
        bucket = {step = state.step, params = {}, grads = {}, states = {}}
        by_key[key] = bucket
        list[#list + 1] = bucket
      end
      local n = #bucket.params + 1
      bucket.params[n], bucket.grads[n], bucket.states[n] = p, grad, state
    end
  end
  return list
end

--- One update of every parameter that has a gradient.
-- @param closure a function that computes the loss and its gradients again (optional)
-- @return what the closure returned
function Optimizer:step(closure)
  if not class.is(self, Optimizer) then
    fail("step: an optimizer is expected; methods are called with ':', as in optimizer:step()")
  elseif closure ~= nil and type(closure) ~= "function" then
    fail("step: the closure must be a function, got %s", type(closure))
  end
  local loss
  if closure then loss = closure() end
  local _ <close> = core.no_grad()
  for _, group in ipairs(self.groups) do
    local n_moments = self:moments(group)
    for _, bucket in ipairs(buckets(self, group, n_moments)) do
      local xs, n = bucket.params, #bucket.params
      if group.maximize and not self.ascends then
        for i, grad in ipairs(bucket.grads) do bucket.grads[i] = -grad end
      end
      table.move(bucket.grads, 1, n, n + 1, xs)
      for k = 1, n_moments do
        for i = 1, n do xs[(k + 1) * n + i] = bucket.states[i].moments[k] end
      end
      self:update(group, xs, bucket.step + 1, n_moments)
      for i = 1, n do bucket.states[i].step = bucket.step + 1 end
    end
  end
  if closure then return loss end
end

-- Options of a group that are saved: everything but the tensors.
local function saved_options(group)
  local out = {}
  for key, value in pairs(group) do
    if key ~= "params" and key ~= "state" then out[key] = value end
  end
  return out
end

--- Options, step counts and moments as a tree of tables, numbers and tensors.
function Optimizer:state_dict()
  local groups = {}
  for g, group in ipairs(self.groups) do
    local states = {}
    for i, state in ipairs(group.state) do
      states[i] = {step = state.step, moments = state.moments or {}}
    end
    groups[g] = {options = saved_options(group), state = states}
  end
  return {class = getmetatable(self).__name, groups = groups}
end

--- Takes over what state_dict returned, for the same parameters in the same order.
-- Everything is checked before anything changes.
function Optimizer:load_state_dict(saved)
  local name = getmetatable(self).__name
  if type(saved) ~= "table" or type(saved.groups) ~= "table" then
    fail("%s: this is not an optimizer's state", name)
  end
  if saved.class ~= name then
    fail("%s: the state is that of %s", name, tostring(saved.class))
  end
  if #saved.groups ~= #self.groups then
    fail("%s: the state has %d groups, the optimizer %d", name, #saved.groups, #self.groups)
  end
  for g, group in ipairs(self.groups) do
    local states = saved.groups[g].state
    if #states ~= #group.params then
      fail("%s: group %d of the state has %d parameters, the optimizer %d", name, g, #states,
           #group.params)
    end
    for i, state in ipairs(states) do
      for k, moment in ipairs(state.moments) do
        local has = table.concat(moment.shape, ", ")
        local wants = table.concat(self:moment_shape(group.params[i], k), ", ")
        if has ~= wants then
          fail("%s: the state of parameter %d in group %d is (%s), the parameter's is (%s)", name,
               i, g, has, wants)
        end
      end
    end
  end
  for g, group in ipairs(self.groups) do
    for key, value in pairs(saved.groups[g].options) do group[key] = value end
    for i, state in ipairs(saved.groups[g].state) do
      local moments
      for k, moment in ipairs(state.moments) do
        moments = moments or {}
        -- a copy of its own: the state may be a live optimizer's
        moments[k] = moment_of(self, group.params[i], k)
        local _ <close> = core.no_grad()
        moments[k]:copy_(moment)
      end
      group.state[i] = {step = state.step, moments = moments}
    end
  end
  return self
end

function Optimizer:__tostring()
  local lines = {getmetatable(self).__name .. "("}
  for g, group in ipairs(self.groups) do
    local keys = {}
    for key in pairs(saved_options(group)) do keys[#keys + 1] = key end
    table.sort(keys)
    for i, key in ipairs(keys) do
      local value = group[key]
      keys[i] = ("%s=%s"):format(key, type(value) == "table"
        and ("{%s}"):format(table.concat(value, ", ")) or tostring(value))
    end
    lines[#lines + 1] = ("  (%d): %d parameters, %s"):format(g, #group.params,
                                                            table.concat(keys, ", "))
  end
  lines[#lines + 1] = ")"
  return table.concat(lines, "\n")
end

return Optimizer
