--- Sends buckets while backward runs, each when its gradients are complete, in the same order on
-- all ranks: the order in which they were complete on rank 0 in the first backward. The first
-- backward also counts the contributions of each gradient, because every checkpoint adds one of its
-- own.
local class = require "flare.class"
local core = require "flare.core"

local Queue = class "dist.Queue"
Queue.__keeps = true

-- The newest queue of each parameter, by id. A queue that newer ones replaced in all its parameters
-- sends nothing: on some ranks it may have been collected already.
local newest = setmetatable({}, {__mode = "v"})

--- @param send a function that sends a bucket and returns a handle
-- @param first contributions of a gradient in the first backward; 0: known at its end
function Queue:init(group, send, first)
  self.group, self.send, self.first, self.mine = group, send, first, 0
end

function Queue:line_up(buckets)
  for _, bucket in ipairs(self.buckets or {}) do bucket:close() end
  self.buckets, self.place = buckets, {}
  for turn, bucket in ipairs(buckets) do
    bucket.turn = turn
    for k, p in ipairs(bucket.params) do
      local id = p.id
      self.place[id] = {bucket, k}
      local before = newest[id]
      if before then before.mine = before.mine - 1 end
      newest[id], self.mine = self, self.mine + 1
    end
  end
  self:reset()
end

--- Restores the state before a backward, also after one that failed.
function Queue:reset()
  self.next, self.count, self.parts, self.last = 1, 0, {}, {}
  for _, bucket in ipairs(self.buckets) do
    if bucket.work then bucket.work:wait() end
    bucket:clear()
    bucket.work, bucket.late = nil, nil
  end
end

local function depart(self)
  local bucket = self.buckets[self.next]
  while bucket and bucket.missing == 0 do
    self.next = self.next + 1
    bucket.work = self.send(bucket)
    bucket = self.buckets[self.next]
  end
end

--- Called when a leaf has a gradient.
-- @param hold it is accumulated and not sent
-- @return whether some queue sends it
function Queue:ready(leaf, hold)
  local id = leaf.id
  local place = self.place[id]
  if not place or self.mine == 0 then return newest[id] ~= nil end
  local bucket, k = place[1], place[2]
  local after = self.buckets[bucket.turn + 1]
  local _ <close> = core.no_grad()
  if bucket.turn >= self.next then bucket:open(hold) end
  if after and bucket.turn + 1 >= self.next then after:open(hold) end -- before its gradients come
  if hold then return true end
  local parts = (self.parts[id] or 0) + 1
  self.count = self.count + 1
  self.parts[id], self.last[id] = parts, self.count
  bucket:take(k, leaf.grad)
  local all = self.expected and (self.expected[id] or 1) or self.first
  bucket.late = bucket.late or bucket.turn < self.next and bucket.names[k] -- it was sent already
  if parts == all then
    bucket.missing = bucket.missing - 1
    depart(self)
  end
  return true
end

--- Sends the remaining buckets.
function Queue:flush()
  for turn = self.next, #self.buckets do self.buckets[turn].missing = 0 end
  depart(self)
end

--- Called after each backward. @return after the first all parameters in rank 0's order, else nil
function Queue:learn()
  if self.expected then return end
  local params, order = {}, {}
  for _, bucket in ipairs(self.buckets) do
    for _, p in ipairs(bucket.params) do
      params[#params + 1], order[#order + 1] = p, #order + 1
    end
  end
  local function last(k) return self.last[params[k].id] or math.huge end
  table.sort(order, function(a, b)
    if last(a) ~= last(b) then return last(a) < last(b) end
    return a < b
  end)
  order = self.group:broadcast(core.tensor(order, {dtype = "i64"})):tolist()
  for at, k in ipairs(order) do order[at] = params[k] end
  self.expected = self.parts
  return order
end

return Queue
