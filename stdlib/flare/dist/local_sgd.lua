--- Local SGD (arXiv:1805.09767): ranks train independently and average their parameters every K
-- steps, directly or as a step of an outer optimizer (DiLoCo, arXiv:2311.08105).
--
--     local sgd = dist.LocalSGD(model, optimizer, {every = 8})
--     loss:backward()
--     sgd:step()
local class = require "flare.class"
local core = require "flare.core"
local dist = require "flare.dist"
local fail = require "flare.fail"
local options = require "flare.options"
local Group = require "flare.dist.group"

local LocalSGD = class "dist.LocalSGD"
LocalSGD.__keeps = true

--- dist.LocalSGD(model, optimizer, {every = 1}). All ranks start with rank 0's parameters.
-- @param model a module, or a list of parameters
-- @param optimizer which each rank steps by itself
-- @param o.every steps between two means; default 1, which with plain SGD equals data parallel
-- @param o.group the ranks that work together, default dist.world
-- @param o.outer a function from a list of parameters to the outer optimizer; its gradient is the
--   distance that the parameters moved since the last mean
-- @param o.async true: the mean is applied K steps later, and the steps taken meanwhile are kept
function LocalSGD:init(model, optimizer, o)
  dist.rank()
  o = options.check("LocalSGD", o, {every = 1, group = dist.world, outer = options.none,
    async = false})
  options.count("LocalSGD", "every", o.every)
  if o.outer and o.async then fail "LocalSGD: outer and async do not go together" end
  self.params = type(model) == "table" and model.__module and model:parameters() or model
  self.group = Group.of("LocalSGD", o.group)
  self.optimizer, self.every, self.async = optimizer, o.every, o.async
  self.steps = 0
  local _ <close> = core.no_grad()
  if self.group.size > 1 then
    for _, p in ipairs(self.params) do self.group:broadcast_(p) end
  end
  if o.outer then
    self.kept = {}
    for k, p in ipairs(self.params) do self.kept[k] = p:detach():clone():requires_grad_(true) end
    self.outer = o.outer(self.kept)
  end
end

-- The mean of the parameters of K steps ago has arrived: applies it, and keeps the steps since.
local function arrive(self)
  for k, p in ipairs(self.params) do
    local mean = self.works[k]:wait()
    p:copy_(mean + (p - self.sent[k]))
  end
  self.works = nil
end

local function average(self)
  local o = {reduce = "mean", async = self.async or nil}
  if self.async then
    if self.works then arrive(self) end
    self.works, self.sent = {}, {}
    for k, p in ipairs(self.params) do
      self.sent[k] = p:detach():clone()
      self.works[k] = self.group:all_reduce(self.sent[k], {reduce = "mean", async = true})
    end
    return
  end
  for k, p in ipairs(self.params) do
    local mean = self.group:all_reduce(p:detach(), o)
    if self.outer then self.kept[k].grad = self.kept[k]:detach() - mean
    else p:copy_(mean) end
  end
  if not self.outer then return end
  self.outer:step()
  for k, p in ipairs(self.params) do p:copy_(self.kept[k]:detach()) end
end

--- Steps the optimizer; every K-th step then averages the parameters.
function LocalSGD:step()
  self.optimizer:step()
  self.steps = self.steps + 1
  if self.steps % self.every ~= 0 then return end
  local _ <close> = core.no_grad()
  average(self)
end

--- Ends training: waits for a pending mean and averages once more, so that all ranks have the same
-- parameters.
function LocalSGD:finish()
  local _ <close> = core.no_grad()
  if self.works then arrive(self) end
  for _, p in ipairs(self.params) do
    p:copy_(self.group:all_reduce(p:detach(), {reduce = "mean"}))
  end
end

local function copies(list)
  local all = {}
  for k, t in ipairs(list) do all[k] = t:detach():clone() end
  return all
end

--- The state that an exact continuation needs in addition to those of the model and the optimizer.
-- Each rank has its own, and between two means its own model and optimizer.
-- @return a table
function LocalSGD:state_dict()
  local state = {steps = self.steps}
  if self.outer then state.outer, state.kept = self.outer:state_dict(), copies(self.kept) end
  if self.works then
    local means = {}
    for k, work in ipairs(self.works) do means[k] = work:wait() end
    state.means, state.sent = copies(means), copies(self.sent)
  end
  return state
end

--- Loads a state. The model's state is loaded after LocalSGD is made, because that copies rank 0's
-- parameters.
-- @param state what state_dict() returned
-- @param message what a reader returned with nil in place of the state
function LocalSGD:load_state_dict(state, message)
  options.state("LocalSGD:load_state_dict", state, message)
  if not state.steps then
    fail "LocalSGD:load_state_dict: a table is expected that state_dict() gave"
  elseif (state.outer ~= nil) ~= (self.outer ~= nil) then
    fail("LocalSGD:load_state_dict: the state is of one with%s an outer optimizer",
      state.outer and "" or "out")
  end
  local _ <close> = core.no_grad()
  self.steps, self.works = state.steps, nil
  if self.outer then
    self.outer:load_state_dict(state.outer)
    for k, t in ipairs(state.kept) do self.kept[k]:copy_(t) end
  end
  if state.means then
    local works, means = {}, copies(state.means)
    for k, mean in ipairs(means) do works[k] = {wait = function() return mean end} end
    self.works, self.sent = works, copies(state.sent)
  end
end

return LocalSGD
