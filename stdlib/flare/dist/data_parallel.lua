--- Data parallel: every rank has the model and a part of the batch; gradients are averaged while
-- backward goes on.
--
--     model = dist.DataParallel(model)
--     loss(model(x), y):backward()         -- p.grad is the mean over all ranks
--
-- Everything that a model has, parameters(), state_dict() and its fields, is that of the model
-- inside; names are unchanged.
local class = require "flare.class"
local core = require "flare.core"
local dist = require "flare.dist"
local fail = require "flare.fail"
local options = require "flare.options"
local Bucket = require "flare.dist.bucket"
local ready = require "flare.dist.ready"

local DataParallel = class "dist.DataParallel"

local function own(self, name) return rawget(self, "_dp")[name] end

-- Names, shapes and dtypes must be the same everywhere: said before anything hangs.
local function compare(group, names, params)
  local words = {}
  for k, p in ipairs(params) do
    words[k] = ("%s %s %s"):format(names[k], p.dtype, table.concat(p.shape, "x"))
  end
  local mine = core.tensor({core.crc32c(table.concat(words, "\n")), #params}, {dtype = "i64"})
  local all = group:all_gather(mine):tolist()
  for rank = 1, group.size - 1 do
    if all[2 * rank + 1] ~= all[1] then
      fail("DataParallel: the model of rank %d has other parameters (%d tensors) than that of rank "
        .. "%d (%d tensors)", group.ranks[rank + 1], all[2 * rank + 2], group.ranks[1], all[2])
    end
  end
end

local function broadcast(group, tensors)
  local _ <close> = core.no_grad()
  for _, t in ipairs(tensors) do group:broadcast_(t) end
end

-- Buckets with the parameters in the order of `list`.
local function arrange(self, list)
  local dp = rawget(self, "_dp")
  for _, bucket in ipairs(dp.buckets or {}) do bucket:close() end
  dp.buckets, dp.place = {}, {}
  local bytes = Bucket.bytes(list, dp.options.bucket_mb)
  for b, part in ipairs(Bucket.divide(list, bytes, 1 << 20)) do -- the first is to leave early
    local bucket = Bucket(part)
    dp.buckets[b] = bucket
    for k, p in ipairs(bucket.params) do dp.place[p.id] = {b, k} end
  end
  dp.works, dp.next, dp.order, dp.seen = {}, 1, {}, 0
end

--- Options: group; bucket_mb, how much goes at a time (25, of large models a 64th);
-- broadcast_buffers, rank 0's before every forward in training (true); find_unused, parameters
-- without a gradient get zeros (false: they are an error that names them).
function DataParallel:init(model, o)
  if type(model) ~= "table" or not model.__module then
    fail("DataParallel: a model is expected, got %s", type(model))
  end
  dist.rank()
  o = options.check("DataParallel", o, {group = dist.world, bucket_mb = options.none,
    broadcast_buffers = true, find_unused = false})
  local dp = {model = model, options = o, group = o.group, sync = true, names = {}}
  rawset(self, "_dp", dp)
  local params, names = {}, {}
  for name, p in model:named_parameters() do
    if p.requires_grad then
      params[#params + 1], names[#names + 1] = p, name
      dp.names[p.id] = name
    end
  end
  if #params == 0 then fail "DataParallel: the model has no parameters that learn" end
  dp.params = params
  if dp.group.size > 1 then
    compare(dp.group, names, params)
    broadcast(dp.group, model:parameters())
    broadcast(dp.group, model:buffers())
  end
  local backwards = {}
  for k = #params, 1, -1 do backwards[#backwards + 1] = params[k] end
  arrange(self, backwards)
  dp.listener = {ready = function(_, leaf) return self:_ready(leaf) end,
    finish = function() return self:_finish() end}
  ready.add(dp.listener)
end

-- Buckets leave in their order, the same on every rank.
local function depart(dp)
  while dp.buckets[dp.next] and dp.buckets[dp.next].missing == 0 do
    local bucket = dp.buckets[dp.next]
    bucket:open()
    dp.works[dp.next] = dp.group:later(bucket.device, function()
      return dp.group:all_reduce_(bucket:pack(bucket.grads), {reduce = "mean", async = true})
    end)
    dp.next = dp.next + 1
  end
end

function DataParallel:_ready(leaf)
  local dp = rawget(self, "_dp")
  local place = dp.place[leaf.id]
  if not place then return end
  local bucket, after = dp.buckets[place[1]], dp.buckets[place[1] + 1]
  bucket:open()
  if after then after:open() end -- before its gradients come
  if not dp.sync then return end
  if place[1] < dp.next then
    fail("DataParallel: '%s' gets a second gradient in one step; use no_sync for all but the last "
      .. "backward", dp.names[leaf.id])
  end
  local _ <close> = core.no_grad()
  bucket:take(place[2], leaf.grad)
  dp.seen = dp.seen + 1
  dp.order[#dp.order + 1] = bucket.params[place[2]]
  depart(dp)
end

-- What the pass has not reached.
local function unused(dp)
  local names = {}
  for _, bucket in ipairs(dp.buckets) do
    for k, p in ipairs(bucket.params) do
      if bucket.grads[k] == nil then
        names[#names + 1] = dp.names[p.id]
        if dp.options.find_unused then bucket:take(k, false) end
      end
    end
  end
  table.sort(names)
  return names
end

function DataParallel:_finish()
  local dp = rawget(self, "_dp")
  if not dp.sync or dp.seen == 0 then return end
  local _ <close> = core.no_grad()
  if dp.seen < #dp.params then
    local names = unused(dp)
    if not dp.options.find_unused then
      fail("DataParallel: no gradient came to %s; pass find_unused = true if that is right",
        table.concat(names, ", "))
    end
    depart(dp)
  end
  for b, bucket in ipairs(dp.buckets) do
    dp.works[b]:wait()
    bucket:give()
    bucket:clear()
  end
  dp.works, dp.next, dp.seen = {}, 1, 0
  if not dp.settled and #dp.order == #dp.params then self:_settle() end
  dp.order = {}
end

-- After the first pass: buckets in the order in which rank 0's gradients came.
function DataParallel:_settle()
  local dp = rawget(self, "_dp")
  dp.settled = true
  local at, order = {}, {}
  for k, p in ipairs(dp.params) do at[p.id] = k end
  for k, p in ipairs(dp.order) do order[k] = at[p.id] end
  if dp.group.size > 1 then
    order = dp.group:broadcast(core.tensor(order, {dtype = "i64"})):tolist()
  end
  local list = {}
  for k, i in ipairs(order) do list[k] = dp.params[i] end
  arrange(self, list)
end

--- The model's result; in training, buffers are rank 0's first.
function DataParallel:forward(...)
  local dp = rawget(self, "_dp")
  for _, bucket in ipairs(dp.buckets) do
    if not bucket.params[1].grad then bucket:close() end -- dropped: the memory is of use meanwhile
  end
  if dp.options.broadcast_buffers and dp.model.training and dp.sync and dp.group.size > 1 then
    broadcast(dp.group, dp.model:buffers())
  end
  return dp.model(...)
end

function DataParallel:__call(...) return self:forward(...) end

--- Runs f(...) without averaging: gradients add up on each rank until a backward outside of it.
function DataParallel:no_sync(f, ...)
  local dp = rawget(self, "_dp")
  local was = dp.sync
  dp.sync = false
  local results = table.pack(pcall(f, ...))
  dp.sync = was
  if not results[1] then error(results[2], 0) end
  return table.unpack(results, 2, results.n)
end

--- The model inside.
function DataParallel:unwrap() return own(self, "model") end

local methods = {}
for name, f in pairs(DataParallel) do methods[name] = f end

-- All else is the model's; its methods get the model, not this.
function DataParallel:__index(name)
  if methods[name] ~= nil then return methods[name] end
  local dp = rawget(self, "_dp")
  local value = dp and dp.model[name]
  if type(value) ~= "function" or not dp then return value end
  return function(first, ...)
    if rawequal(first, self) then
      local r = table.pack(value(dp.model, ...))
      if rawequal(r[1], dp.model) then r[1] = self end
      return table.unpack(r, 1, r.n)
    end
    return value(first, ...)
  end
end

function DataParallel:__newindex(name, value)
  own(self, "model")[name] = value
end

function DataParallel:__tostring()
  return ("dist.DataParallel (%d ranks, %d buckets)\n%s"):format(own(self, "group").size,
    #own(self, "buckets"), tostring(own(self, "model")))
end

return DataParallel
