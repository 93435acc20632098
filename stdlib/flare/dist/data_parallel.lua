--- Data parallel training: every rank has a replica of the model and computes a part of the batch.
-- Gradients are averaged in buckets while backward runs.
--
--     model = dist.DataParallel(model)
--     loss(model(x), y):backward()         -- p.grad is the mean over all ranks
--
-- Methods and fields of the wrapped model, such as parameters() and state_dict(), are used as
-- before; names are unchanged.
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
DataParallel.__keeps = true

-- Wrappers by model: a wrapper lives as long as its model, even if the script drops it.
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

-- Makes buckets of the parameters, the last parameter first.
local function arrange(dp)
  local bytes = Bucket.bytes(dp.all, dp.options.bucket_mb)
  local list = Bucket.divide(dp.named, bytes, 1 << 20) -- a small first bucket is sent early
  local compress = dp.group.size > 1 and dp.options.compress
  for b, part in ipairs(list) do list[b] = Bucket(part, 1, compress) end
  dp.queue:line_up(list)
end

-- Reads the parameters that learn again, which may have changed since the last forward.
local function learn(dp)
  local named = {}
  for name, p in dp.model:named_parameters() do named[#named + 1] = {name, p} end
  dp.all, dp.named = dp.model:parameters(), Bucket.learning(dp.model)
  dp.watch = Watch(dp.model, named)
  Bucket.compare("DataParallel", dp.group, dp.named)
  dp.queue.expected = nil
  arrange(dp)
end

--- dist.DataParallel(model, {bucket_mb = 25}). All ranks start with rank 0's parameters and
-- buffers.
-- @param model a module
-- @param o.group the ranks that work together, default dist.world
-- @param o.bucket_mb size of a bucket of gradients; default 25, and a 64th of large models
-- @param o.broadcast_buffers whether forward, in training, first copies rank 0's buffers to all
--   ranks; default true
-- @param o.find_unused true: parameters may have no gradient; default false, they are an error that
--   names them
-- @param o.compress "bf16" or "f16": the dtype in which gradients of f32 and f64 are sent
function DataParallel:init(model, o)
  if type(model) ~= "table" or not model.__module then
    fail("DataParallel: a model is expected, got %s", options.kind(model))
  end
  dist.rank()
  o = options.check("DataParallel", o, {group = dist.world, bucket_mb = options.none,
    broadcast_buffers = true, find_unused = false, compress = options.none})
  Bucket.check_low("DataParallel", "compress", o.compress)
  local dp = {model = model, options = o, group = Group.of("DataParallel", o.group), sync = true}
  rawset(self, "_dp", dp)
  dp.queue = Queue(o.group, function(bucket) return send(dp, bucket) end, 0)
  learn(dp)
  if #dp.named == 0 then fail "DataParallel: the model has no parameters that require gradients" end
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

-- A parameter that backward has not reached is sent with the gradient of earlier passes, or as
-- zeros.
-- @return names of the parameters without a gradient; for each parameter 1 if it has one, else 0
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

-- Sets the gradients to the means; a parameter without a gradient on any rank keeps nil.
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

--- Calls the model; in training, with rank 0's buffers.
-- @return the model's results
function DataParallel:forward(...)
  local dp = rawget(self, "_dp")
  if dp.watch:change() then
    learn(dp)
    broadcast(dp.group, dp.all)
  end
  if dp.queue.count > 0 then dp.queue:reset() end
  for _, bucket in ipairs(dp.queue.buckets) do
    if not bucket.params[1].grad then bucket:close() end -- no gradients are held: free the memory
  end
  if dp.options.broadcast_buffers and dp.model.training and dp.sync and dp.group.size > 1 then
    broadcast(dp.group, dp.model:buffers())
  end
  return dp.model(...)
end

function DataParallel:__call(...) return self:forward(...) end

--- Runs f(...) without averaging: gradients add up on each rank until a backward outside of it.
-- @param f a function
-- @return the results of f
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

--- The wrapped model.
-- @return a module
function DataParallel:unwrap() return own(self, "model") end

local methods = {}
for name, f in pairs(DataParallel) do methods[name] = f end

-- Other names are the model's; its methods get the model in place of the wrapper.
function DataParallel:__index(name)
  if methods[name] ~= nil then return methods[name] end
  local dp = rawget(self, "_dp")
  local value = dp and dp.model[name]
  if value == nil and name == "module" and dp then return dp.model end -- PyTorch's name
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
