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
local Group = require "flare.dist.group"
local Queue = require "flare.dist.queue"
local ready = require "flare.dist.ready"

local DataParallel = class "dist.DataParallel"

local function own(self, name) return rawget(self, "_dp")[name] end

-- Names, shapes and dtypes must be the same everywhere: said before anything hangs.
local function compare(group, named)
  local words = {}
  for k, pair in ipairs(named) do
    local p = pair[2]
    words[k] = ("%s %s %s"):format(pair[1], p.dtype, table.concat(p.shape, "x"))
  end
  local mine = core.tensor({core.crc32c(table.concat(words, "\n")), #named}, {dtype = "i64"})
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

local function send(dp, bucket)
  bucket:open()
  return dp.group:later(bucket.device, function()
    local flat = bucket:pack(bucket.grads)
    local low = bucket:compressed(flat, dp.group, dp.options.compress)
    local work = dp.group:all_reduce_(low or flat, {reduce = "mean", async = true})
    if not low then return work end
    return work:after(function()
      flat:copy_(low)
      low:close()
      return flat
    end)
  end)
end

-- Buckets of parameters in the order of the list, backwards.
local function arrange(dp)
  local bytes = Bucket.bytes(dp.all, dp.options.bucket_mb)
  local list = Bucket.divide(dp.named, bytes, 1 << 20) -- the first is to leave early
  for b, part in ipairs(list) do list[b] = Bucket(part) end
  dp.queue:line_up(list)
end

-- What learns, which may have changed since the last forward.
local function learn(dp)
  dp.all, dp.learns, dp.named = dp.model:parameters(), {}, Bucket.learning(dp.model)
  for k, p in ipairs(dp.all) do dp.learns[k] = p.requires_grad end
  dp.in_place = dp.all[1] and Bucket.watch(dp.model, dp.all[1])
  if dp.group.size > 1 then compare(dp.group, dp.named) end
  dp.queue.expected = nil
  arrange(dp)
end

--- Options: group; bucket_mb, how much goes at a time (25, of large models a 64th);
-- broadcast_buffers, rank 0's before every forward in training (true); find_unused, parameters
-- may be without a gradient (false: they are an error that names them); compress, "bf16" or "f16"
-- that f32 and f64 gradients travel as.
function DataParallel:init(model, o)
  if type(model) ~= "table" or not model.__module then
    fail("DataParallel: a model is expected, got %s", type(model))
  end
  dist.rank()
  o = options.check("DataParallel", o, {group = dist.world, bucket_mb = options.none,
    broadcast_buffers = true, find_unused = false, compress = options.none})
  Bucket.check_compress("DataParallel", o.compress)
  local dp = {model = model, options = o, group = Group.of("DataParallel", o.group), sync = true}
  rawset(self, "_dp", dp)
  dp.queue = Queue(o.group, function(bucket) return send(dp, bucket) end, 0)
  learn(dp)
  if #dp.named == 0 then fail "DataParallel: the model has no parameters that learn" end
  if dp.group.size > 1 then
    broadcast(dp.group, model:parameters())
    broadcast(dp.group, model:buffers())
  end
  dp.listener = {ready = function(_, leaf) dp.queue:ready(leaf, not dp.sync) end,
    finish = function() return self:_finish() end}
  ready.add(dp.listener)
end

-- What the pass has not reached goes with what was added up before, or as zeros.
-- @return names of what has nothing, whether each parameter has something
local function unreached(queue)
  local names, has = {}, {}
  for _, bucket in ipairs(queue.buckets) do
    for k, p in ipairs(bucket.params) do
      local grad = bucket.grads[k] or p.grad
      bucket.grads[k] = grad
      if not grad then names[#names + 1] = bucket.names[k] end
      has[#has + 1] = grad and 1 or 0
    end
  end
  table.sort(names)
  return names, has
end

-- The means are the gradients; of what has none on any rank they stay nil.
local function give(dp, has)
  if has then
    has = dp.group:all_reduce(core.tensor(has, {dtype = "i32"}), {reduce = "max"}):tolist()
  end
  local n, late = 0, nil
  for _, bucket in ipairs(dp.queue.buckets) do
    bucket.work:wait()
    late = late or bucket.late
    for k, p in ipairs(bucket.params) do
      n = n + 1
      if has and has[n] == 0 then p.grad = nil
      elseif not bucket:holds(k, bucket.grads[k]) then p.grad = bucket:view(bucket.flat, k) end
    end
  end
  return late
end

function DataParallel:_finish()
  local dp = rawget(self, "_dp")
  local queue, find = dp.queue, dp.options.find_unused
  if queue.count == 0 then return end
  local _ <close> = core.no_grad()
  local names, has = {}, nil
  if find or queue.next <= #queue.buckets then names, has = unreached(queue) end
  if #names > 0 and not find then
    queue:reset()
    fail("DataParallel: no gradient came to %s; pass find_unused = true if that is right",
      table.concat(names, ", "))
  end
  queue:flush()
  local late = give(dp, find and has)
  if late then
    queue:reset()
    fail("DataParallel: '%s' had a part of its gradient (one of a checkpoint's, say) that was not "
      .. "there in the first backward, after it had left", late)
  end
  local order = queue:learn()
  if not order then return queue:reset() end
  local at = {}
  for k, p in ipairs(order) do at[p.id] = -k end
  table.sort(dp.named, function(a, b) return at[a[2].id] < at[b[2].id] end)
  arrange(dp)
end

--- The model's result; in training, buffers are rank 0's first.
function DataParallel:forward(...)
  local dp = rawget(self, "_dp")
  if dp.in_place and not dp.in_place() then
    learn(dp)
    broadcast(dp.group, dp.all)
  end
  for k, p in ipairs(dp.all) do
    if p.requires_grad ~= dp.learns[k] then
      learn(dp)
      break
    end
  end
  if dp.queue.count > 0 then dp.queue:reset() end
  for _, bucket in ipairs(dp.queue.buckets) do
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
  if f == nil then fail "no_sync: a function is expected, got nil" end
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
  if value == nil and name == "module" and dp then return dp.model end -- as others call it
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
    #own(self, "queue").buckets, tostring(own(self, "model")))
end

return DataParallel
