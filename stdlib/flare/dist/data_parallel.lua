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
local Bucket = require "flare.dist.gradients.bucket"
local Group = require "flare.dist.group"
local Queue = require "flare.dist.gradients.queue"
local ready = require "flare.dist.gradients.ready"
local Watch = require "flare.dist.gradients.watch"

local DataParallel = class "dist.DataParallel"

-- By model: what averages its gradients lives as long as it does, held by somebody or not.
local wrappers = setmetatable({}, {__mode = "k"})

local function own(self, name) return rawget(self, "_dp")[name] end

local function broadcast(group, tensors)
  local _ <close> = core.no_grad()
  for _, t in ipairs(tensors) do group:broadcast_(t) end
end

local function send(dp, bucket)
  bucket:open()
  return dp.group:later(bucket.device, function()
    local flat = bucket:pack(bucket.grads, bucket.sends)
    local work = dp.group:all_reduce_(flat, {reduce = "mean", async = true})
    return work:after(function() return flat:to(bucket.dtype) end)
  end)
end

-- Buckets of parameters in the order of the list, backwards.
local function arrange(dp)
  local bytes = Bucket.bytes(dp.all, dp.options.bucket_mb)
  local list = Bucket.divide(dp.named, bytes, 1 << 20) -- the first is to leave early
  local compress = dp.group.size > 1 and dp.options.compress
  for b, part in ipairs(list) do list[b] = Bucket(part, 1, compress) end
  dp.queue:line_up(list)
end

-- What learns, which may have changed since the last forward.
local function learn(dp)
  local named = {}
  for name, p in dp.model:named_parameters() do named[#named + 1] = {name, p} end
  dp.all, dp.named = dp.model:parameters(), Bucket.learning(dp.model)
  dp.watch = Watch(dp.model, named)
  Bucket.compare("DataParallel", dp.group, dp.named)
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
  Bucket.check_low("DataParallel", "compress", o.compress)
  local dp = {model = model, options = o, group = Group.of("DataParallel", o.group), sync = true}
  rawset(self, "_dp", dp)
  dp.queue = Queue(o.group, function(bucket) return send(dp, bucket) end, 0)
  learn(dp)
  if #dp.named == 0 then fail "DataParallel: the model has no parameters that learn" end
  if dp.group.size > 1 then
    broadcast(dp.group, model:parameters())
    broadcast(dp.group, model:buffers())
  end
  dp.listener = {
    ready = function(_, leaf)
      if not dp.queue:ready(leaf, not dp.sync) then dp.watch:meet(leaf) end
    end,
    finish = function() return self:_finish() end,
  }
  ready.add(dp.listener)
  wrappers[model] = self
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
    local flat = bucket.work:wait()
    late = late or bucket.late
    for k, p in ipairs(bucket.params) do
      n = n + 1
      if has and has[n] == 0 then p.grad = nil
      elseif not flat:shares(bucket.flat) or not bucket:holds(k, bucket.grads[k]) then
        p.grad = bucket:view(flat, k)
      end
    end
    if bucket.sends ~= bucket.dtype then
      bucket:close()
      flat:close()
    end
  end
  return late
end

function DataParallel:_finish()
  local dp = rawget(self, "_dp")
  local queue, find = dp.queue, dp.options.find_unused
  if queue.count == 0 then return end
  local stranger = dp.watch:stranger()
  if stranger then
    queue:reset()
    fail("DataParallel: '%s' has come into the model since it was wrapped, and is not averaged: "
      .. "add all parameters first", stranger)
  end
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
  if dp.watch:change() then
    learn(dp)
    broadcast(dp.group, dp.all)
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
