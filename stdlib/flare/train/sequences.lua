--- Losses of sequences that lie one behind the other in a row, without padding. Attention goes over
-- each sequence by itself, and positions count from its beginning.
local class = require "flare.class"
local core = require "flare.core"
local fail = require "flare.fail"
local options = require "flare.options"

local M = {}

-- What takes the place of a cache in a forward pass over a row (1, time): it gives positions within
-- the sequences, and attention that does not cross their ends.
local Row = class("Row")

--- @param lengths of the sequences, a list
function Row:init(lengths, device)
  local positions, owners, sums = {}, {}, {0}
  self.lengths, self.most, self.time = lengths, 0, 0
  for k, n in ipairs(lengths) do
    positions[k] = core.arange(0, n, {device = device})
    owners[k] = core.full({n}, k, {dtype = "i64", device = device})
    self.most, self.time = math.max(self.most, n), self.time + n
    sums[k + 1] = self.time
  end
  self.sums = core.tensor(sums, {dtype = "i32", device = device})
  self.positions, self.owners = core.cat(positions, 1):unsqueeze(1), core.cat(owners, 1)
end

-- Which keys a query of a sequence of n tokens sees, with a window.
local function band(n, window, device)
  local at = core.arange(0, n, {device = device})
  local apart = at:unsqueeze(2) - at
  return apart:ge(0):logical_and(apart:lt(window))
end

-- Sequence by sequence: with a window, and on devices without a kernel for all at once, where
-- attention_varlen would compute the scores of every query with every key of the row.
local function one_by_one(row, q, k, v, o)
  local parts, first = {}, 1
  for s, n in ipairs(row.lengths) do
    local function part(x) return x:narrow(2, first, n):transpose(2, 3) end
    local mask = o.window and n > o.window and band(n, o.window, q.device) or nil
    local y = core.attention(part(q), part(k), part(v), mask,
      {causal = not mask and n > 1, scale = o.scale, dropout = o.dropout or 0})
    parts[s] = y:transpose(2, 3):reshape(1, n, -1)
    first = first + n
  end
  return core.cat(parts, 2)
end

local function attend(span, _, q, k, v, o)
  local row = span.cache
  o = o or {}
  if q.device ~= "cpu" or o.window and row.most > o.window then
    return one_by_one(row, q, k, v, o)
  end
  local y = core.attention_varlen(q:squeeze(1), k:squeeze(1), v:squeeze(1), row.sums,
    {causal = true, scale = o.scale, dropout = o.dropout or 0})
  return y:reshape(1, row.time, -1)
end

function Row:extend(span)
  if span.batch ~= 1 or span.time ~= self.time then
    fail("train.loss: ids (1, %d) are expected for lengths of %d tokens, got (%d, %d)", self.time,
         self.time, span.batch, span.time)
  end
  span.positions, span.length, span.attend = self.positions, self.most, attend
end

local function check_model(where, model)
  if type(model) ~= "table" or not model.features or not model.logits or model.encode then
    fail("%s: a model that predicts the next token is expected, got %s", where,
         options.kind(model))
  end
end

--- The log-probabilities of the tokens that count, in f32.
-- @param model a published model that predicts the next token
-- @param ids (1, time): sequences, one behind the other
-- @param targets (1, time): the token after each, or -100 where it does not count
-- @param lengths of the sequences, a list or a tensor
-- @param temperature that logits are divided by; 1 if left out
-- @return a tensor of one dim; the sequence of each of its elements, from 1
function M.log_probs(model, ids, targets, lengths, temperature)
  check_model("train.log_probs", model)
  options.tensors("train.log_probs", "ids", ids, "targets", targets)
  if core.is_tensor(lengths) then lengths = lengths:tolist() end
  local row = Row(lengths, ids.device)
  targets = targets:reshape(-1)
  local at = targets:ne(-100):nonzero():reshape(-1)
  local x = model:features(ids, row):squeeze(1):index_select(1, at)
  local owner = row.owners:index_select(1, at)
  targets = targets:index_select(1, at)
  if #at == 0 then return x:sum{dims = {2}}:to "f32", owner end
  local logits = model:logits(x):to "f32"
  if temperature and temperature ~= 1 then logits = logits / temperature end
  return logits:log_softmax(2):gather(2, targets:unsqueeze(2), {base = 0}):squeeze(2), owner
end

--- The mean cross entropy of the targets that count, of sequences one behind the other: what
-- train.Packed gives.
-- @param model a published model that predicts the next token
-- @param ids (1, time): sequences, one behind the other
-- @param targets (1, time): the token after each, or -100 where it does not count
-- @param lengths of the sequences, a list or a tensor
-- @return a tensor without dims
function M.loss(model, ids, targets, lengths)
  local logp = M.log_probs(model, ids, targets, lengths)
  if #logp == 0 then return logp:sum() end
  return -logp:mean()
end

--- f(reference, ...) without gradients. Of adapters the reference is their model without them.
function M.reference(model, reference, f, ...)
  local _ <close> = core.no_grad()
  if not reference.entries then return f(reference, ...) end
  for _, entry in ipairs(reference.entries) do entry.holder[entry.key] = entry.layer end
  local results = table.pack(pcall(f, model, ...))
  reference:unmerge()
  if not results[1] then error(results[2], 0) end
  return table.unpack(results, 2, results.n)
end

--- Examples one behind the other.
-- @param examples a list of {ids = list, labels = list or nil}; a label is the id at its place, or
--   -100 where it does not count
-- @param most tokens of an example, the others are cut off; nil: all
-- @return ids (1, time), targets (1, time), lengths (examples), all i64
function M.join(where, examples, most)
  local ids, targets, lengths = {}, {}, {}
  for k, example in ipairs(examples) do
    if type(example) ~= "table" or type(example.ids) ~= "table" or #example.ids == 0 then
      fail("%s: example %d has no ids: {ids = {...}, labels = {...}} is expected", where, k)
    end
    local labels = example.labels or example.ids
    if #labels ~= #example.ids then
      fail("%s: example %d has %d ids and %d labels", where, k, #example.ids, #labels)
    end
    local n = math.min(#example.ids, most or math.huge)
    table.move(example.ids, 1, n, #ids + 1, ids)
    table.move(labels, 2, n, #targets + 1, targets)
    targets[#ids], lengths[k] = -100, n
  end
  local function row(list) return core.tensor({list}, {dtype = "i64"}) end
  return row(ids), row(targets), core.tensor(lengths, {dtype = "i64"})
end

return M
