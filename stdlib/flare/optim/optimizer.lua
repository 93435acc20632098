--- The base class of all optimizers: groups of parameters with options, and state for each one.
--
-- A subclass has `defaults` (its options), `moments(group)` (the number of state tensors of a
-- parameter), `moment_shape(p, k, group)` and `moment_dtype(p, k, group)` if the k-th has another
-- shape or dtype than p, and `update(group, xs, step, moments)`, usually one call of a fused
-- operator; xs is all parameters, then all gradients, then all first moments, and so on; step
-- counts from 1. `maximize` negates gradients, unless the subclass has `ascends`.
-- `prepare(options)` checks the options of the subclass. For 16-bit parameters `update` gets f32
-- copies (master.lua), unless the group's `master` is false.
local class = require "flare.class"
local core = require "flare.core"
local fail = require "flare.fail"
local master = require "flare.optim.master"
local options = require "flare.options"
local pure = require "flare.compile.pure"
local walk = require "flare.nn.walk"

--- optim.Optimizer(parameters, {lr = 1e-3, master = true})
-- `master`: the optimizer updates f32 copies of f16 and bf16 parameters and rounds them.
local Optimizer = class("Optimizer")
Optimizer.__keeps = true
local VERSION = 2 -- of state_dict; version 1, without this field, had alphabetical order
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
  local defaults = {master = true}
  for key, value in pairs(self.defaults) do defaults[key] = value end
  self.options = options.check(where, opts, defaults)
  if self.prepare then self:prepare(self.options) end
  check_options(where, self.options)
  self.groups = {}
  self._known, self._names = {}, {}
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
  if self.defaults[key] ~= nil or key == "master" then
    fail("options belong to groups: optimizer.groups[1].%s = %s", key, tostring(value))
  end
  rawset(self, key, value)
end

--- Adds a group {params = {...}, lr = ..., ...}; for options left out the optimizer's values hold.
function Optimizer:add_group(group)
  local where = "optim." .. getmetatable(self).__name
  local given, params = {}, nil
  if type(group) ~= "table" then
    fail("%s: a group {params = {...}} is expected, got %s", where, options.kind(group))
  end
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
  local names, old = walk.names(params)
  self._names[#self.groups] = names and {now = names, old = old}
  return self
end

--- Sets the gradients of all parameters to nil.
function Optimizer:zero_grad()
  for _, group in ipairs(self.groups) do
    for _, p in ipairs(group.params) do p.grad = nil end
  end
end

function Optimizer:moment_shape(p)
  return p.shape
end

-- The initial value of the k-th state tensor of a parameter; in f32 where there is a master copy.
local function moment_of(self, group, p, k)
  local shape = self:moment_shape(p, k, group)
  local dtype = self.moment_dtype and self:moment_dtype(p, k, group)
    or master.wanted(group, p) and "f32" or p.dtype
  if shape == p.shape then return core.zeros_like(p, {dtype = dtype}) end
  return core.zeros(shape, {dtype = dtype, device = p.device})
end

-- Parameters with gradients in lists for the fused operators: one for each step count and device,
-- which is one list for most models.
local function buckets(self, group, n_moments)
  local list, by_key = {}, {}
  for i, p in ipairs(group.params) do
    local grad = p.grad
    if grad then
      local state = group.state[i]
      if not state.moments then
        state.moments = {}
        for k = 1, n_moments do state.moments[k] = moment_of(self, group, p, k) end
      end
      local key = state.step .. p.device
      local bucket = by_key[key]
      if not bucket then
        bucket = {step = state.step, params = {}, grads = {}, states = {}, xs = {}}
        by_key[key] = bucket
        list[#list + 1] = bucket
      end
      local n = #bucket.params + 1
      bucket.params[n], bucket.grads[n], bucket.states[n] = p, grad, state
      bucket.xs[n] = master.of(group, p, state)
    end
  end
  return list
end

local function update(self)
  local _ <close> = core.no_grad()
  for _, group in ipairs(self.groups) do
    local n_moments = self:moments(group)
    for _, bucket in ipairs(buckets(self, group, n_moments)) do
      local n = #bucket.params
      local xs = table.move(bucket.xs, 1, n, 1, {})
      if group.maximize and not self.ascends then
        for i, grad in ipairs(bucket.grads) do bucket.grads[i] = -grad end
      end
      table.move(bucket.grads, 1, n, n + 1, xs)
      for k = 1, n_moments do
        for i = 1, n do xs[(k + 1) * n + i] = bucket.states[i].moments[k] end
      end
      self:update(group, xs, bucket.step + 1, n_moments)
      master.write(bucket.params, bucket.xs, bucket.states)
      for i = 1, n do bucket.states[i].step = bucket.step + 1 end
    end
  end
end

--- Updates every parameter that has a gradient.
-- @param closure a function that computes the loss and its gradients again (optional)
-- @return the result of the closure
function Optimizer:step(closure)
  if closure ~= nil and type(closure) ~= "function" then
    fail("step: the closure must be a function, got %s", options.kind(closure))
  end
  if not closure then
    pure.live(update, self)
    return -- nothing, which the prompt does not print
  end
  local loss = closure()
  pure.live(update, self)
  return loss
end

-- Options of a group that are saved: everything but the tensors.
local function saved_options(group)
  local out = {}
  for key, value in pairs(group) do
    if key ~= "params" and key ~= "state" then out[key] = value end
  end
  return out
end

--- Options, step counts, moments and master copies as a tree of tables, numbers and tensors. It has
-- the parameters' names if the optimizer was made from a module or from its parameters().
function Optimizer:state_dict()
  local groups = {}
  for g, group in ipairs(self.groups) do
    local states = {}
    for i, state in ipairs(group.state) do
      states[i] = {step = state.step, moments = state.moments or {}, master = state.master}
    end
    local names = self._names[g]
    groups[g] = {options = saved_options(group), state = states, names = names and names.now}
  end
  return {class = getmetatable(self).__name, groups = groups, version = VERSION}
end

-- For each parameter of group g, the position of its state among the saved states: by name where
-- both sides have the same names; in a state of version 1, by the alphabetical order of names that
-- parameters() had then; otherwise in the same order.
local function places(self, g, saved)
  local own, list = self._names[g], {}
  local from = saved.groups[g].names or saved.version == nil and own and own.old
  local at, n = {}, 0
  for i, name in ipairs(from or {}) do at[name], n = i, i end
  for i in ipairs(self.groups[g].params) do
    local place = own and n == #self.groups[g].params and at[own.now[i]]
    if not place then
      for k in ipairs(self.groups[g].params) do list[k] = k end
      break
    end
    list[i] = place
  end
  return list
end

--- Loads a table that state_dict returned. States go to parameters by name where the optimizer and
-- the table have names, otherwise in the same order. All of it is checked before anything changes.
function Optimizer:load_state_dict(saved, message)
  local name = getmetatable(self).__name
  options.state(name, saved, message)
  if type(saved.groups) ~= "table" then
    fail("%s: this is not an optimizer's state", name)
  end
  if saved.class ~= name then
    fail("%s: the state is that of %s", name, tostring(saved.class))
  end
  if #saved.groups ~= #self.groups then
    fail("%s: the state has %d groups, the optimizer %d", name, #saved.groups, #self.groups)
  end
  local at = {}
  for g, group in ipairs(self.groups) do
    local states = saved.groups[g].state
    if #states ~= #group.params then
      fail("%s: group %d of the state has %d parameters, the optimizer %d", name, g, #states,
           #group.params)
    end
    at[g] = places(self, g, saved)
    for i, place in ipairs(at[g]) do
      local state = states[place]
      for k, moment in ipairs(state.moments) do
        local has = table.concat(moment.shape, ", ")
        local wants = table.concat(self:moment_shape(group.params[i], k, group), ", ")
        if has ~= wants then
          fail("%s: the state of parameter %d in group %d is (%s), the parameter's is (%s)", name,
               i, g, has, wants)
        end
      end
      if state.master and tostring(state.master.shape) ~= tostring(group.params[i].shape) then
        fail("%s: the master copy of parameter %d in group %d is %s, the parameter %s", name, i, g,
             tostring(state.master.shape), tostring(group.params[i].shape))
      end
    end
  end
  for g, group in ipairs(self.groups) do
    for key, value in pairs(saved.groups[g].options) do group[key] = value end
    for i, place in ipairs(at[g]) do self:_load_state(group, i, saved.groups[g].state[place]) end
  end
  return self
end

-- Replaces the state of the group's i-th parameter by a saved one.
function Optimizer:_load_state(group, i, state)
  local p, moments, copy = group.params[i], nil, nil
  local _ <close> = core.no_grad()
  for k, moment in ipairs(state.moments) do
    moments = moments or {}
    -- a copy, since the state may belong to another optimizer in use
    moments[k] = moment_of(self, group, p, k)
    moments[k]:copy_(moment)
  end
  if state.master and master.wanted(group, p) then
    copy = core.zeros_like(p, {dtype = "f32"}):copy_(state.master)
  end
  group.state[i] = {step = state.step, moments = moments, master = copy}
end

function Optimizer:__tostring()
  local lines = {getmetatable(self).__name .. "("}
  for g, group in ipairs(self.groups) do
    local keys = {}
    local copies = false
    for _, p in ipairs(group.params) do copies = copies or master.wanted(group, p) end
    for key in pairs(saved_options(group)) do
      if key ~= "master" or copies then keys[#keys + 1] = key end
    end
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
