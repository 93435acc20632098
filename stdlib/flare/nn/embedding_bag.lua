--- A table of vectors that are put together by bags of positions: their sum, mean or largest
-- elements.
local class = require "flare.class"
local core = require "flare.core"
local fail = require "flare.fail"
local options = require "flare.options"
local Embedding = require "flare.nn.embedding"

local none = options.none
local modes = {sum = true, mean = true, max = true}

local function check_mode(where, mode)
  if not modes[mode] then
    fail("%s: mode is 'sum', 'mean' or 'max', got '%s'", where, tostring(mode))
  end
  return mode
end

-- The bag of each of n positions. What is on a device is not read back to be looked at.
local function bags(where, offsets, n, device)
  if type(offsets) == "table" then offsets = core.tensor(offsets, {dtype = "i64"}) end
  if not core.is_tensor(offsets) or offsets:dim() ~= 1 or not offsets.dtype:find "^[iu]" then
    fail("%s: offsets must be a list of integers or a tensor of them, of one dim, got %s", where,
         core.is_tensor(offsets) and offsets.dtype .. " " .. tostring(offsets.shape)
         or options.kind(offsets))
  end
  if offsets.device == "cpu" and #offsets > 0 then
    local last = offsets[-1]:item()
    if offsets[1]:item() ~= 1 or last > n + 1 or offsets:diff():lt(0):any():item() then
      fail("%s: offsets must begin with 1 and go up to %d at most, got %s", where, n + 1,
           table.concat(offsets:tolist(), ", ", 1, math.min(#offsets, 8)))
    end
  end
  offsets = offsets:to(device)
  return offsets:searchsorted(core.arange(1, n + 1, {device = device}), {right = true}) - 1,
         #offsets
end

local function check_index(where, index, weights, offsets, mode)
  if not core.is_tensor(index) or index:dim() ~= (offsets and 1 or 2) then
    fail("%s: index must be (bags, size), or (n) with offsets, got %s%s", where,
         core.is_tensor(index) and tostring(index.shape) or options.kind(index),
         offsets and " with offsets" or "")
  elseif weights and mode ~= "sum" then
    fail("%s: weights go with mode = 'sum', not '%s'", where, mode)
  elseif weights and tostring(options.tensor(where, "weights", weights).shape)
         ~= tostring(index.shape) then
    fail("%s: weights must have the shape of index, %s, got %s", where, tostring(index.shape),
         tostring(weights.shape))
  end
end

local M = {}

-- As nn.functional.embedding_bag; `where` is for errors.
function M.pool(where, index, weight, o)
  local mode, weights, offsets = check_mode(where, o.mode), o.weights, o.offsets
  check_index(where, index, weights, offsets, mode)
  local bag, n
  if offsets then bag, n = bags(where, offsets, index:numel(), index.device) end
  -- sums by bag of (positions..., width) or of (positions...)
  local function add(x)
    if not bag then return x:sum(2) end
    local shape = {table.unpack(x.shape)}
    shape[1] = n
    return core.zeros(shape, {dtype = x.dtype, device = x.device}):index_add(1, bag, x)
  end
  local out = o.padding and index:eq(o.padding)
  local rows = core.embedding(weight, index, o.padding)
  if mode == "max" and index:numel() > 0 then
    if out then rows = rows:masked_fill(out:unsqueeze(-1), -math.huge) end
    if bag then
      rows = core.zeros({n, rows:size(2)}, {dtype = rows.dtype, device = rows.device})
        :scatter_reduce(1, bag:unsqueeze(2):expand(rows.shape), rows,
                        {reduce = "amax", include_self = false})
    else
      rows = rows:amax{dims = {2}}
    end
    if not out then return rows end
    return rows:masked_fill(add(out:logical_not()):eq(0):unsqueeze(2), 0)
  end
  if weights then rows = rows * weights:unsqueeze(-1) end
  if out then rows = rows:masked_fill(out:unsqueeze(-1), 0) end
  local sums = add(rows)
  if mode ~= "mean" then return sums end
  local counted = out and out:logical_not() or core.ones_like(index)
  return sums / add(counted:to(sums.dtype)):clamp(1):unsqueeze(2)
end

local EmbeddingBag = class("EmbeddingBag", Embedding)
M.EmbeddingBag = EmbeddingBag

--- nn.EmbeddingBag(rows, width, {mode = "mean", padding = row that counts for nothing,
--   max_norm =, weight =})
-- `mode`: "sum", "mean" or "max"; weight is (rows, width), as nn.Embedding's.
function EmbeddingBag:init(rows, width, opts)
  local o = options.check("nn.EmbeddingBag", opts,
                          {mode = "mean", padding = none, max_norm = none, weight = none})
  self.mode = check_mode("nn.EmbeddingBag", o.mode)
  Embedding.init(self, rows, width, {padding = o.padding, max_norm = o.max_norm,
                                       weight = o.weight})
end

--- Positions (bags, size), or (n) with the place at which each bag begins -> (bags, width). A bag
-- without anything gives zeros.
-- @param offsets places in index, the first 1: a list or a tensor
-- @param weights factors of the rows, in index's shape, for mode "sum"
function EmbeddingBag:forward(index, offsets, weights)
  if self.max_norm then self:limit(index) end
  return M.pool("nn.EmbeddingBag", index, self.weight,
                {mode = self.mode, offsets = offsets, weights = weights, padding = self.padding})
end

function EmbeddingBag:describe()
  return ("%s, %s"):format(Embedding.describe(self), self.mode)
end

return M
