--- Batches of a data set, in order or shuffled, which worker threads prepare ahead of time.
--
-- The order depends on seed and epoch only, so three numbers (seed, epoch, batch) describe a
-- position in the data, and a resumed run gets the batches that it would have got without the
-- interruption.
local class = require "flare.class"
local core = require "flare.core"
local fail = require "flare.fail"
local fetch = require "flare.data.fetch"
local options = require "flare.options"
local recipe = require "flare.data.recipe"
local seeds = require "flare.data.seeds"

local Loader = class("Loader")

local function check_transform(f)
  local called = type(f) == "table" and getmetatable(f) and getmetatable(f).__call
  if f ~= nil and type(f) ~= "function" and type(f) ~= "string" and not called then
    fail("data.Loader: transform must be a function, an object that can be called, or the name of "
         .. "a module that returns one, got %s", options.kind(f))
  end
end

-- Prepares what worker threads need to make the data set and the transform again.
local function describe_parts(self)
  if type(self.dataset.describe) ~= "function" then
    fail("data.Loader: with workers, the data set needs a method describe, which returns the name "
         .. "of a module that makes it and what that is called with")
  end
  self.made_from = recipe.of("data.Loader: the data set", self.dataset)
  local f = self.transform
  if type(f) == "function" then
    fail("data.Loader: with workers, transform must be the name of a module that returns the "
         .. "function")
  elseif type(f) == "table" and type(f.describe) ~= "function" then
    fail("data.Loader: with workers, a transform needs a method describe, which returns the name "
         .. "of a module that makes it and what that is called with; this %s has none",
         getmetatable(f).__name or "table")
  end
  self.transform_from = f and recipe.of("data.Loader: the transform", f)
end

--- data.Loader(dataset, {batch = 1, shuffle = false, seed = 0, drop_last = false,
--   workers = 0, prefetch = 2, transform = nil, weights = nil, pin = false})
-- `workers`: the number of threads that fetch, each with a Lua state of its own; `prefetch`: the
-- number of batches that each prepares ahead. `transform` is applied to the results of fetch: a
-- function, an object that can be called, or the name of a module that returns one. With workers it
-- cannot be a function, and an object must have a method describe, as those of data.transforms do.
-- `pin`: the tensors of a batch are in pinned memory.
-- The random numbers of data set and transform, from flare or math.random, depend on seed, epoch
-- and batch only, not on the workers.
-- `weights`: a number for each row; an epoch draws as many rows as the data set has, with
-- replacement, with probabilities proportional to the weights.
-- `shard`: a group of ranks, such as dist.world. Each rank gets its part of every batch, so the
-- global batches and the saved position do not depend on the number of ranks.
-- `repeats`: where a batch has fewer rows than there are ranks, ranks get the same rows; false:
-- a rank without a row ends its epoch there, for validation, where each row shall count once.
function Loader:init(dataset, opts)
  local o = options.check("data.Loader", opts,
                          {batch = 1, shuffle = false, seed = 0, drop_last = false, workers = 0,
                           prefetch = 2, transform = options.none, shard = options.none,
                           weights = options.none, pin = false, repeats = true})
  if type(dataset) ~= "table" or not (dataset.fetch or dataset.get) or not dataset.size then
    fail("data.Loader: a data set with size and fetch (or get), such as data.Tensors(x, y), is "
      .. "expected, got %s", options.kind(dataset))
  end
  self.dataset = dataset
  self.batch = options.count("data.Loader", "batch", o.batch)
  self.workers = options.count("data.Loader", "workers", o.workers, 0)
  self.prefetch = options.count("data.Loader", "prefetch", o.prefetch)
  self.shuffle, self.seed, self.drop_last = o.shuffle, math.tointeger(o.seed), o.drop_last
  if not self.seed then
    fail("data.Loader: the seed must be an integer, got %s", tostring(o.seed))
  end
  self.transform, self.pin = o.transform, o.pin
  if o.weights then
    self.weights = core.is_tensor(o.weights) and o.weights:cpu() or core.tensor(o.weights)
    if self.weights:dim() ~= 1 or #self.weights ~= dataset:size() then
      fail("data.Loader: weights must be %d numbers, one for each row, got %s", dataset:size(),
           tostring(self.weights.shape))
    end
  end
  self.rank, self.ranks = 0, 1
  if o.shard then self.rank, self.ranks = o.shard.rank, o.shard.size end
  self.repeats = o.repeats
  if self.batch < self.ranks then
    fail("data.Loader: a batch of %d has no row for each of %d ranks", self.batch, self.ranks)
  end
  check_transform(o.transform)
  if self.workers > 0 then describe_parts(self) end
  -- the epoch that is being read and how many of its batches have been handed out
  self.at, self.position, self.fresh = 1, 0, true
  if self:batches() == 0 then
    fail("data.Loader: the data set has no batch of %d (%d rows)", self.batch, dataset:size())
  end
end

--- The number of batches of an epoch.
function Loader:batches()
  local n = self.dataset:size()
  return self.drop_last and n // self.batch or (n + self.batch - 1) // self.batch
end
Loader.__len = Loader.batches

function Loader:__tostring()
  local words = {}
  if self.shuffle then words[1] = ", shuffled" end
  if self.weights then words[#words + 1] = ", drawn by weights" end
  if self.workers > 0 then words[#words + 1] = (", %d workers"):format(self.workers) end
  return ("%s: %d batches of %d out of %d rows%s; epoch %d, %d handed out"):format(
    getmetatable(self).__name, self:batches(), self.batch, self.dataset:size(),
    table.concat(words), self.at, self.position)
end

function Loader:__call()
  fail("a %s is read by epochs: for x, y in loader:epoch() do", getmetatable(self).__name)
end

-- The positions of an epoch, kept while it is read.
function Loader:order(epoch)
  if self._order_epoch ~= epoch then
    local n = self.dataset:size()
    local generator = core.generator(seeds.mix(self.seed, epoch))
    if self.weights then
      self._order = self.weights:multinomial(n, {replacement = true, generator = generator})
    elseif self.shuffle then
      self._order = core.randperm(n, {generator = generator})
    else
      self._order = core.arange(1, n + 1)
    end
    core.keep(self._order)
    self._order_epoch = epoch
  end
  return self._order
end

-- This rank's positions of batch k (from 1) of an epoch; nil if it has none.
function Loader:index(epoch, k)
  local first = (k - 1) * self.batch + 1
  local n = math.min(self.batch, self.dataset:size() - first + 1)
  local from, to = n * self.rank // self.ranks, n * (self.rank + 1) // self.ranks
  if from == to and not self.repeats then return nil end
  if from == to then from, to = self.rank % n, self.rank % n + 1 end
  return self:order(epoch):narrow(1, first + from, to - from)
end

-- The seed of the random numbers in data set and transform for batch k; each rank has another.
function Loader:seed_of(epoch, k)
  local seed = seeds.mix(self.seed, epoch, k)
  return self.rank == 0 and seed or seeds.mix(seed, self.rank)
end

-- Makes batch k of an epoch in this thread.
function Loader:make(epoch, k)
  local index = self:index(epoch, k)
  local f = self.transform
  if type(f) == "string" then
    f = require(f)
    self.transform = f
  end
  return seeds.with(self:seed_of(epoch, k), function()
    if not f then return fetch(self.dataset, index) end
    return f(fetch(self.dataset, index))
  end)
end

-- The tensors among the values of a batch and in its lists, in pinned memory.
local function pin(...)
  local values = table.pack(...)
  for i = 1, values.n do
    local value = values[i]
    if core.is_tensor(value) then
      values[i] = value.device == "cpu" and value:pin_memory() or value
    elseif type(value) == "table" and getmetatable(value) == nil then
      for key, inner in pairs(value) do value[key] = pin(inner) end
    end
  end
  return table.unpack(values, 1, values.n)
end

local function fetch_next(self, k)
  if self.workers == 0 then return self:make(self.at, k) end
  self.pool = self.pool or require("flare.data.pool")(self)
  return self.pool:take(self.at, k)
end

function Loader:next()
  local k = self.position + 1
  if k > self:batches() then return nil end
  self.position = k
  if not self.repeats and not self:index(self.at, k) then return nil end
  if self.pin then return pin(fetch_next(self, k)) end
  return fetch_next(self, k)
end

-- Moves to the next epoch if this one has begun, or if a loaded state was taken at its end.
function Loader:begin()
  if self.position > 0 and not self.fresh or self.position >= self:batches() then
    self.at, self.position = self.at + 1, 0
  end
  self.fresh = false
end

--- Iterates over the batches of one epoch: `for x, y in loader:epoch() do`.
-- After a break the next call begins the next epoch; after load_state_dict it continues from the
-- saved position.
function Loader:epoch()
  self:begin()
  local mine = self.at
  return core.framed(function()
    -- a newer loop has taken over
    if self.at ~= mine then return nil end
    return self:next()
  end)
end

--- Iterates over batches without end, epoch after epoch.
function Loader:forever()
  self:begin()
  return core.framed(function()
    if self.position >= self:batches() then self.at, self.position = self.at + 1, 0 end
    return self:next()
  end)
end

--- The position: seed, epoch, and the number of batches returned.
function Loader:state_dict()
  return {seed = self.seed, epoch = self.at, position = self.position, batch = self.batch,
          size = self.dataset:size(), shuffle = self.shuffle, drop_last = self.drop_last,
          weighted = self.weights ~= nil}
end

-- Raises an error if a state is that of a loader with other batches.
local function check_state(self, saved)
  if math.type(saved.position) ~= "integer" or math.type(saved.epoch) ~= "integer"
     or math.type(saved.seed) ~= "integer" or saved.position < 0 or saved.epoch < 1 then
    fail("Loader: this is not a loader's state")
  end
  if saved.size ~= self.dataset:size() or saved.batch ~= self.batch then
    fail("Loader: the state is for a data set of %s rows in batches of %s, this has %d in %d",
         tostring(saved.size), tostring(saved.batch), self.dataset:size(), self.batch)
  end
  local here = self:state_dict()
  for _, key in ipairs {"shuffle", "drop_last", "weighted"} do
    if saved[key] ~= nil and saved[key] ~= here[key] then
      fail("Loader: the state is that of a loader with %s = %s, here it is %s",
           key == "weighted" and "weights" or key, tostring(saved[key]), tostring(here[key]))
    end
  end
end

--- Restores a position; the next loop starts there.
function Loader:load_state_dict(saved, message)
  options.state("Loader", saved, message)
  check_state(self, saved)
  self.seed, self.at, self.position, self.fresh = saved.seed, saved.epoch, saved.position, true
  self._order_epoch = nil
  if self.pool then self.pool:forget() end
  return self
end

--- Ends the workers. The garbage collector does so too when it frees the loader.
function Loader:close()
  if self.pool then self.pool:close() end
  self.pool = nil
end
Loader.__close = Loader.close

return Loader
