--- The keys and values of tokens that a model has seen, and what a forward pass over new tokens
-- needs to know about where they stand.
local class = require "flare.class"
local core = require "flare.core"
local fail = require "flare.fail"
local options = require "flare.options"

local Span = class("Span")

-- A run of new tokens: `past`, how many tokens every text has before it, or nil if that differs;
-- `length`, tokens of the longest text with the new ones; `positions` (1 or batch, time), from 0.
function Span:init(ids, cache, parts)
  self.batch, self.time, self.device = ids:size(1), ids:size(2) * (parts or 1), ids.device
  self.cache, self.past, self.length = cache, 0, self.time
  self._masks = {}
end

-- Whether a query at a position sees a key, for keys from 0 on: (batch or 1, 1, time, keys).
function Span:mask(keys, window)
  local name = keys .. ":" .. tostring(window)
  if not self._masks[name] then
    local key = core.arange(0, keys, {device = self.device})
    local query = self.positions:unsqueeze(2):unsqueeze(-1)
    local seen = key:le(query)
    if window then seen = seen:logical_and(key:gt(query - window)) end
    self._masks[name] = seen
  end
  return self._masks[name]
end

--- Causal attention of the new tokens to all tokens so far.
-- @param layer the module whose keys and values these are
-- @param q, k, v (batch, time, heads, size); k and v may have fewer heads
-- @param o {window = how many tokens a query sees, scale =, dropout =}
-- @return (batch, time, heads * size)
function Span:attend(layer, q, k, v, o)
  local window, mask = o and o.window or nil, nil
  if self.cache then k, v = self.cache:keep(layer, k, v, self) end
  local keys = k:size(2)
  local uniform = self.past and keys == self.past + self.time
  if not uniform or window and keys > window then
    mask = self:mask(keys, window)
  end
  local y = core.attention(q:transpose(2, 3), k:transpose(2, 3), v:transpose(2, 3), mask,
    {causal = not mask and self.time > 1, scale = o and o.scale, dropout = o and o.dropout or 0})
  return y:transpose(2, 3):reshape(self.batch, self.time, -1)
end

local Cache = class("Cache")

--- models.Cache(batch, length, {block = 1}): room for the keys and values of `batch` texts of up
-- to `length` tokens. Each layer takes its memory at its first call. A model that is called with a
-- cache continues the texts in it; `seen` has the number of tokens of each. Attention reads a
-- multiple of `block` keys, so that compiled functions meet few shapes.
function Cache:init(batch, length, opts)
  local o = options.check("models.Cache", opts, {block = 1})
  self.batch = options.count("models.Cache", "batch", batch)
  self.length = options.count("models.Cache", "length", length)
  self.block = options.count("models.Cache", "block", o.block)
  self.seen = {}
  for b = 1, self.batch do self.seen[b] = 0 end
  self._layers, self._once = {}, {}
end

-- The number of tokens that all texts have, or nil if it differs; and the largest.
function Cache:past()
  local most, same = 0, true
  for _, n in ipairs(self.seen) do
    same = same and n == self.seen[1]
    most = math.max(most, n)
  end
  return same and most or nil, most
end

--- Drops the tokens of each text behind the first n, or behind the first n[b].
function Cache:trim(n)
  for b = 1, self.batch do
    local keep = type(n) == "table" and n[b] or n
    if math.type(keep) ~= "integer" or keep < 0 or keep > self.seen[b] then
      fail("Cache:trim: text %d has %d tokens, cannot keep %s", b, self.seen[b], tostring(keep))
    end
    self.seen[b] = keep
  end
  self._counts = nil
  return self
end

--- Makes text b the one that was text index[b], as beams need.
-- @param index a list of positions that count from 1
function Cache:reorder(index)
  local seen = {}
  for b = 1, self.batch do seen[b] = self.seen[index[b]] end
  for _, kept in pairs(self._layers) do
    local at = core.tensor(index, {dtype = "i64", device = kept.k.device})
    kept.k, kept.v = kept.k:index_select(1, at), kept.v:index_select(1, at)
  end
  for _, kept in pairs(self._once) do
    local at = core.tensor(index, {dtype = "i64", device = kept[1].device})
    kept[1], kept[2] = kept[1]:index_select(1, at), kept[2]:index_select(1, at)
  end
  self.seen, self._counts = seen, nil
  return self
end

-- Room for new tokens; called once for each forward pass.
function Cache:extend(span)
  if span.batch ~= self.batch then
    fail("the cache has %d texts, the ids %d", self.batch, span.batch)
  end
  local past, most = self:past()
  span.length = most + span.time
  if span.length > self.length then
    fail("the cache has room for %d tokens, %d were seen and %d are new", self.length, most,
         span.time)
  end
  span.past = self.block == 1 and past or past == 0 and 0 or nil
  span.keys = past == 0 and span.time
    or math.min((span.length + self.block - 1) // self.block * self.block, self.length)
  if not self._counts then
    self._counts = core.tensor(self.seen, {dtype = "i64", device = span.device}):unsqueeze(2)
  end
  span.positions = self._counts + core.arange(0, span.time, {device = span.device})
  local texts = core.arange(0, self.batch, {device = span.device}):unsqueeze(2)
  span.rows = (texts * self.length + span.positions):reshape(-1)
  if span.past and past then span.positions = span.positions:narrow(1, 1, 1) end
  for b = 1, self.batch do self.seen[b] = self.seen[b] + span.time end
  self._counts = self._counts + span.time
end

-- Writes new keys and values of a layer; returns those of all tokens.
function Cache:keep(layer, k, v, span)
  local kept = self._layers[layer]
  if not kept then
    local function room(x)
      return core.zeros({self.batch, self.length, x:size(3), x:size(4)},
                        {dtype = x.dtype, device = x.device})
    end
    kept = {k = room(k), v = room(v)}
    self._layers[layer] = kept
  end
  for name, new in pairs{k = k, v = v} do
    local rows = kept[name]:view(self.batch * self.length, -1)
    rows:index_copy_(1, span.rows, new:reshape(span.batch * span.time, -1), {base = 0})
  end
  if span.past == 0 and span.keys == span.time then return k, v end
  return kept.k:narrow(2, 1, span.keys), kept.v:narrow(2, 1, span.keys)
end

--- The keys and values of a layer that do not depend on the texts so far, such as those of what an
-- encoder gave: computed once.
-- @param layer the module whose keys and values these are
-- @param compute a function that gives both
function Cache:once(layer, compute)
  local kept = self._once[layer]
  if not kept then
    kept = {compute()}
    self._once[layer] = kept
  end
  return kept[1], kept[2]
end

--- The span of `ids` (batch, time) behind what a cache has, or of whole texts without one.
-- @param parts of how many equal parts of the texts the ids are one, default 1
function Cache.span(ids, cache, parts)
  local span = Span(ids, cache, parts)
  if cache then
    cache:extend(span)
  else
    span.positions = core.arange(0, span.time, {device = span.device}):unsqueeze(1)
  end
  return span
end

return Cache
