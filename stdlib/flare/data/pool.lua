--- The loader's workers: threads with Lua states of their own that make batches ahead of time.
--
-- Workers take jobs from one channel and push batches into another, in any order; `take` returns
-- batches in order. A job carries a run number: after the loader has moved to another position,
-- batches of earlier runs are dropped when they arrive.
local class = require "flare.class"
local core = require "flare.core"
local fail = require "flare.fail"

local Pool = class("Pool")

-- The program of a worker. If a batch fails, the worker sends the message in its place.
local WORKER = [[
local jobs, results, dataset, transform = ...
local core = require "flare.core"
local fetch = require "flare.data.fetch"
local recipe = require "flare.data.recipe"
local seeds = require "flare.data.seeds"
local ok, made = pcall(recipe.make, dataset)
local problem = not ok and made or nil
local f
if transform and ok then
  ok, f = pcall(recipe.make, transform)
  problem = not ok and f or nil
end
while true do
  local job = jobs:pop()
  if job == nil then break end
  local batch = table.pack(pcall(function()
    if problem then error(problem, 0) end
    return seeds.with(job.seed, function()
      if not f then return fetch(made, job.index) end
      return f(fetch(made, job.index))
    end)
  end))
  if not batch[1] then batch[2] = tostring(batch[2]) end
  -- channels do not carry pinned memory: notes which tensors to pin again
  batch.pinned = {}
  for i = 2, batch.n do
    batch.pinned[i] = core.is_tensor(batch[i]) and batch[i]:is_pinned()
  end
  batch.run, batch.k = job.run, job.k
  if not results:push(batch) then break end
end
]]

function Pool:init(loader)
  local ahead = loader.workers * loader.prefetch
  self.loader, self.ahead = loader, ahead
  self.jobs, self.results = core.channel(ahead + 1), core.channel(ahead + 1)
  self.workers = {}
  for i = 1, loader.workers do
    self.workers[i] = core.spawn(WORKER, self.jobs, self.results, loader.made_from,
                                 loader.transform_from or false)
  end
  self.run, self.waiting, self.sent = 0, {}, 0
  self:forget()
end

--- Drops the batches under way, after the loader has moved to another position.
function Pool:forget()
  self.run, self.waiting, self.epoch, self.next = self.run + 1, {}, nil, nil
end

-- Keeps `ahead` jobs of the current run under way. Jobs of earlier runs take room in the channels
-- until their batches have arrived.
function Pool:feed()
  local loader = self.loader
  local last = loader:batches()
  while self.sent < self.ahead and self.next <= last do
    local k = self.next
    local index = loader:index(self.epoch, k)
    if not index then break end
    self.jobs:push{run = self.run, k = k, seed = loader:seed_of(self.epoch, k),
                   index = index:clone()}
    self.next, self.sent = k + 1, self.sent + 1
  end
end

-- A worker that ended although the pool is open has failed.
function Pool:check()
  for _, worker in ipairs(self.workers) do
    if not worker:alive() then
      local ok, message = worker:join()
      fail("data.Loader: a worker has ended: %s", ok and "its channel is closed" or message)
    end
  end
end

--- Batch k of an epoch: the results of fetch and transform.
function Pool:take(epoch, k)
  if self.epoch ~= epoch or not self.next or k >= self.next or not self.expected
     or self.expected ~= k then
    self:forget()
    self.epoch, self.next = epoch, k
  end
  self.expected = k + 1
  self:feed()
  while not self.waiting[k] do
    local batch = self.results:pop(0.5)
    if batch == nil then
      self:check()
    else
      self.sent = self.sent - 1
      if batch.run == self.run then self.waiting[batch.k] = batch end
      if batch.k ~= k then core.keep(batch) end -- a later call hands it out
      self:feed()
    end
  end
  local batch = self.waiting[k]
  self.waiting[k] = nil
  if not batch[1] then fail("data.Loader: a worker failed: %s", batch[2]) end
  for i, pinned in pairs(batch.pinned) do
    if pinned then batch[i] = batch[i]:pin_memory() end
  end
  return table.unpack(batch, 2, batch.n)
end

--- Ends the threads; batches under way are dropped.
function Pool:close()
  self.jobs:close()
  self.results:close()
  for _, worker in ipairs(self.workers) do worker:join() end
  self.workers = {}
end

return Pool
