--- The paged key/value cache (arXiv:2309.06180): memory for keys and values in blocks of a few
-- tokens, which texts take as they grow. Texts that begin alike share blocks, and a shared block is
-- copied before a text writes to it. Blocks of ended texts stay known by their tokens until others
-- need the memory.
local class = require "flare.class"
local core = require "flare.core"
local fail = require "flare.fail"
local options = require "flare.options"
local Cache = require "flare.models.cache"

local WHERE = "models.Pages"

local Pages = class("Pages")

--- models.Pages{tokens = 4096, block = 16}: room for the keys and values of `tokens` tokens, in
-- blocks of `block`. Each layer takes its memory at its first call.
function Pages:init(opts)
  local o = options.check(WHERE, opts, {tokens = 4096, block = 16})
  self.block = options.count(WHERE, "block", o.block)
  self.count = (options.count(WHERE, "tokens", o.tokens) + o.block - 1) // o.block
  self._free, self._refs, self._layers = {}, {}, {}
  for k = self.count, 1, -1 do
    self._free[#self._free + 1], self._refs[k] = k, 0
  end
  -- Full blocks by the serial number of the block before and their tokens. A block that takes other
  -- contents takes another number, so what followed the old contents is not found any more.
  self._known, self._names, self._serials, self._next = {}, {}, {}, 1
  -- blocks without a text that are known, the least recently used first, and when each came here
  self._queue, self._first, self._last, self._idle, self._idles = {}, 1, 0, {}, 0
end

--- How many blocks are free, or known but of no text.
function Pages:room() return #self._free + self._idles end

--- How much memory all layers have taken.
function Pages:bytes()
  local n = 0
  for _, kept in pairs(self._layers) do n = n + kept.k:nbytes() + kept.v:nbytes() end
  return n
end

--- How many blocks so many tokens take.
function Pages:blocks(tokens) return (tokens + self.block - 1) // self.block end

local function forget(self, block)
  self._known[self._names[block]] = nil
  self._names[block], self._serials[block] = nil, nil
end

-- A block for one text; nil if all are in use.
local function take(self)
  local block = table.remove(self._free)
  while not block and self._first <= self._last do
    local entry = self._queue[self._first]
    self._queue[self._first] = nil
    self._first = self._first + 1
    if self._idle[entry[1]] == entry then
      block = entry[1]
      self._idle[block], self._idles = nil, self._idles - 1
      forget(self, block)
    end
  end
  if block then self._refs[block] = 1 end
  return block
end

local function retain(self, block)
  if self._idle[block] then self._idle[block], self._idles = nil, self._idles - 1 end
  self._refs[block] = self._refs[block] + 1
end

local function release(self, block)
  self._refs[block] = self._refs[block] - 1
  if self._refs[block] > 0 then return end
  if not self._names[block] then
    self._free[#self._free + 1] = block
    return
  end
  local entry = {block}
  self._last = self._last + 1
  self._queue[self._last], self._idle[block], self._idles = entry, entry, self._idles + 1
end

-- The name of the block with tokens first + 1 .. first + self.block behind the block `serial`.
local function name_of(self, serial, tokens, first)
  return serial .. ":" .. table.concat(tokens, " ", first + 1, first + self.block)
end

---------------------------------------------------------------- texts

local Text = class("PagedText")

--- A text whose first tokens may be in the cache already: `seen` says how many.
-- @param tokens a list of ids; the last one is never taken from the cache, for its logits are
--   needed
-- @param afresh take nothing from the cache
function Pages:open(tokens, afresh)
  local text = Text()
  text.pages, text.blocks, text.seen, text.named = self, {}, 0, 0
  local serial = 0
  while not afresh and text.seen + self.block < #tokens do
    local block = self._known[name_of(self, serial, tokens, text.seen)]
    if not block then break end
    retain(self, block)
    text.blocks[#text.blocks + 1] = block
    text.seen, text.named = text.seen + self.block, text.named + 1
    serial = self._serials[block]
  end
  return text
end

--- Another text with the same tokens, in the same blocks.
function Text:fork()
  local text = Text()
  text.pages, text.seen, text.named = self.pages, self.seen, self.named
  text.blocks = table.move(self.blocks, 1, #self.blocks, 1, {})
  for _, block in ipairs(text.blocks) do retain(self.pages, block) end
  return text
end

--- Drops the tokens behind the first n.
function Text:trim(n)
  local keep = self.pages:blocks(n)
  for k = #self.blocks, keep + 1, -1 do -- the last first: they are the first to be reused
    release(self.pages, self.blocks[k])
    self.blocks[k] = nil
  end
  self.seen = n
  -- a block that will be written again is no longer the one that is known
  self.named = math.min(self.named, n // self.pages.block)
end

--- Makes the full blocks of the text known by their tokens.
-- @param tokens the ids of the text; those in the cache are used
function Text:commit(tokens)
  local pages = self.pages
  while (self.named + 1) * pages.block <= math.min(self.seen, #tokens) do
    local k = self.named + 1
    local block = self.blocks[k]
    local serial = k > 1 and pages._serials[self.blocks[k - 1]] or 0
    local name = name_of(pages, serial, tokens, self.named * pages.block)
    local same = pages._known[name]
    if same and same ~= block then -- computed twice: the text takes the block that is known
      retain(pages, same)
      release(pages, block)
      self.blocks[k] = same
    elseif not same then
      pages._known[name], pages._names[block] = block, name
      pages._serials[block], pages._next = pages._next, pages._next + 1
    end
    self.named = k
  end
end

--- Frees the text's blocks; known ones can be found until they are reused.
function Text:close() self:trim(0) end

-- Blocks for `more` tokens behind those there are; false if there are too few. Blocks that others
-- have, too, and that will be written, are noted in `copies` with their copy.
local function grow(text, more, copies)
  local pages = text.pages
  local shared = text.seen % pages.block > 0 and text.blocks[text.seen // pages.block + 1]
  if shared and more > 0 and (pages._refs[shared] > 1 or pages._names[shared]) then
    local own = take(pages)
    if not own then return false end
    copies[#copies + 1] = {shared, own}
    text.blocks[text.seen // pages.block + 1] = own
    release(pages, shared)
  end
  for _ = #text.blocks + 1, pages:blocks(text.seen + more) do
    local block = take(pages)
    if not block then return false end
    text.blocks[#text.blocks + 1] = block
  end
  return true
end

-- How many blocks `more` tokens of a text need that it does not have.
function Text:need(more)
  local pages, own = self.pages, 0
  local last = self.seen % pages.block > 0 and self.blocks[self.seen // pages.block + 1]
  if last and more > 0 and (pages._refs[last] > 1 or pages._names[last]) then own = 1 end
  return own + math.max(0, pages:blocks(self.seen + more) - #self.blocks)
end

---------------------------------------------------------------- batches

local Batch = class("PagedBatch", Cache)

--- A cache for a forward pass over these texts, of which text b is row b of the ids.
-- @param texts a list of what `open` or `fork` returned
-- @param fresh how many new tokens each text has, if rows are padded; by default all of a row
function Pages:batch(texts, fresh)
  local batch = Batch()
  batch.pages, batch.texts, batch.fresh = self, texts, fresh
  batch.batch, batch.length, batch._once = #texts, self.count * self.block, {}
  batch.seen = {}
  for b, text in ipairs(texts) do batch.seen[b] = text.seen end
  return batch
end

--- A cache for these texts, which begin with what is known of them, for model:generate.
-- @param lists the ids of each text
-- @param copies how many rows each text has, for beams
function Pages:texts(lists, copies)
  local texts, tokens = {}, {}
  for b, list in ipairs(lists) do
    local text = self:open(list)
    for k = 1, copies do
      texts[(b - 1) * copies + k] = k == 1 and text or text:fork()
      tokens[(b - 1) * copies + k] = list
    end
  end
  local batch = self:batch(texts)
  batch.tokens = tokens
  return batch
end

function Batch:init() end

--- Makes the blocks of the texts known by their tokens.
function Batch:commit(tokens)
  for b, list in ipairs(tokens) do self.texts[b]:commit(list) end
end

--- Frees the blocks of the texts.
function Batch:close()
  for _, text in ipairs(self.texts) do text:close() end
end

function Batch:trim(n)
  Cache.trim(self, n)
  for b, text in ipairs(self.texts) do text:trim(self.seen[b]) end
  return self
end

function Batch:reorder(index)
  local old = self.texts
  self.texts = {}
  for b = 1, self.batch do self.texts[b] = old[index[b]]:fork() end
  for _, text in ipairs(old) do text:close() end
  for b, text in ipairs(self.texts) do self.seen[b] = text.seen end
  return self
end

-- Copies blocks of all layers.
local function copy(pages, copies)
  if #copies == 0 then return end
  local from, to = {}, {}
  for k, pair in ipairs(copies) do from[k], to[k] = pair[1], pair[2] end
  for _, kept in pairs(pages._layers) do
    local f = core.tensor(from, {dtype = "i64", device = kept.k.device})
    local t = core.tensor(to, {dtype = "i64", device = kept.k.device})
    for _, pool in pairs(kept) do
      pool:index_copy_(1, t, pool:index_select(1, f, {base = 0}), {base = 0})
    end
  end
end

-- The blocks of all texts, a row for each; block 0 belongs to no text and takes padding.
local function table_of(texts, width, device)
  local rows = {}
  for b, text in ipairs(texts) do
    local row = table.move(text.blocks, 1, math.min(#text.blocks, width), 1, {})
    for k = #row + 1, width do row[k] = 0 end
    rows[b] = row
  end
  return core.tensor(rows, {dtype = "i64", device = device})
end

function Batch:extend(span)
  local pages, copies, most = self.pages, {}, 0
  if span.batch ~= self.batch then
    fail("the cache has %d texts, the ids %d", self.batch, span.batch)
  end
  local past = self:past()
  for b, text in ipairs(self.texts) do
    local more = self.fresh and self.fresh[b] or span.time
    most = math.max(most, text.seen + more)
    if not grow(text, more, copies) then
      copy(pages, copies)
      fail("models.Pages: all %d blocks of %d tokens are in use", pages.count, pages.block)
    end
  end
  copy(pages, copies)
  local width = pages:blocks(most)
  span.length, span.past = most, past == 0 and 0 or nil
  if self.batch == 1 and most == self.seen[1] + span.time then span.past = past end
  span.keys = span.past and span.past + span.time or width * pages.block
  local seen = core.tensor(self.seen, {dtype = "i64", device = span.device}):unsqueeze(2)
  span.positions = seen + core.arange(0, span.time, {device = span.device})
  span.blocks = table_of(self.texts, width, span.device)
  -- padding may stand behind the last block; it goes to block 0
  local place = span.positions // pages.block
  local beyond = place:ge(width)
  local block = span.blocks:gather(2, place:clamp(0, width - 1), {base = 0})
    :masked_fill(beyond, 0)
  span.rows = (block * pages.block + span.positions % pages.block):reshape(-1)
  for b, text in ipairs(self.texts) do
    text.seen = text.seen + (self.fresh and self.fresh[b] or span.time)
    self.seen[b] = text.seen
  end
end

function Batch:keep(layer, k, v, span)
  local pages = self.pages
  local kept = pages._layers[layer]
  if not kept then
    local function room(x)
      return core.zeros({pages.count + 1, pages.block, x:size(3), x:size(4)},
                        {dtype = x.dtype, device = x.device})
    end
    kept = {k = room(k), v = room(v)}
    pages._layers[layer] = kept
  end
  for name, new in pairs{k = k, v = v} do
    local rows = kept[name]:view((pages.count + 1) * pages.block, -1)
    rows:index_copy_(1, span.rows, new:reshape(span.batch * span.time, -1), {base = 0})
  end
  if span.past == 0 then return k, v end
  local function all(pool)
    local rows = pool:index_select(1, span.blocks:reshape(-1), {base = 0})
    return rows:view(self.batch, -1, pool:size(3), pool:size(4)):narrow(2, 1, span.keys)
  end
  return all(kept.k), all(kept.v)
end

return Pages
