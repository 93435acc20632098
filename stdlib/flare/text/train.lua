--- Trains byte-level BPE: the pair of neighbours that is most frequent becomes a token, again and
-- again. Of pairs of equal count the one of lower ids comes first, so the result is that of Hugging
-- Face's trainer.
local core = require "flare.core"
local fail = require "flare.fail"
local options = require "flare.options"
local pattern = require "flare.text.pattern"

local M = {}

-- A function that returns the texts one after the other.
local function texts_of(source)
  if type(source) == "function" then return source end
  if type(source) == "string" then source = {source} end
  if type(source) ~= "table" then
    fail("text.train_bpe: a path, a list of paths or a function is expected, got %s",
      options.kind(source))
  end
  local i = 0
  return function()
    i = i + 1
    if not source[i] then return nil end
    local text, message = core.file.read(source[i])
    return text or fail("text.train_bpe: %s", message)
  end
end

-- How often each piece occurs: {piece = count}.
local function count_pieces(source, split)
  local cutter = core.text.new {model = {kind = "wordlevel", vocab = {["?"] = 0}, unk = 0},
    splitters = {{kind = "split", regex = true, text = pattern.translate(split, "oniguruma")}}}
  local counts = {}
  for text in texts_of(source) do
    if type(text) ~= "string" then
      fail("text.train_bpe: the function must return texts, got %s", options.kind(text))
    end
    text = core.text.repair(text)
    local _, spans = cutter:encode(text, true)
    for i = 1, #spans, 2 do
      local piece = text:sub(spans[i], spans[i + 1])
      counts[piece] = (counts[piece] or 0) + 1
    end
  end
  return counts
end

-- GPT-2's characters of the 256 bytes, by byte, and all of them in their order.
local function alphabet()
  local of_byte, sorted = {}, {}
  local following = 256
  for byte = 0, 255 do
    local printable = byte >= 33 and byte <= 126 or byte >= 161 and byte ~= 173
    of_byte[byte] = printable and byte or following
    if not printable then following = following + 1 end
    sorted[byte + 1] = of_byte[byte]
  end
  table.sort(sorted)
  for byte = 0, 255 do of_byte[byte] = utf8.char(of_byte[byte]) end
  for i, code in ipairs(sorted) do sorted[i] = utf8.char(code) end
  return of_byte, sorted
end

-- A heap of {count, key}: the greatest count first, then the least key.
local Heap = require "flare.heap" (function(a, b)
  return a[1] > b[1] or a[1] == b[1] and a[2] < b[2]
end)

local Trainer = {}
Trainer.__index = Trainer

-- Adds n times the count of a word to that of a pair.
function Trainer:change(left, right, word, n)
  local key = left << 32 | right
  self.counts[key] = (self.counts[key] or 0) + n * word.count
  if n > 0 then
    local where = self.where[key]
    if not where then
      where = {}
      self.where[key] = where
    end
    where[word] = true
    self.changed[key] = true
  end
end

-- Joins a pair in one word.
function Trainer:join(word, left, right, id)
  local i = 1
  while i < #word do
    if word[i] == left and word[i + 1] == right then
      if i > 1 then
        self:change(word[i - 1], left, word, -1)
        self:change(word[i - 1], id, word, 1)
      end
      if i + 1 < #word then
        self:change(right, word[i + 2], word, -1)
        self:change(id, word[i + 2], word, 1)
      end
      word[i] = id
      table.remove(word, i + 1)
    end
    i = i + 1
  end
end

function Trainer:queue()
  for key in pairs(self.changed) do
    if self.counts[key] > 0 then self.heap:push {self.counts[key], key} end
  end
  self.changed = {}
end

-- Merges until the vocabulary is full or no pair is frequent enough.
function Trainer:run(tokens, ids, size, least)
  local merges = {}
  self:queue()
  while #tokens < size and #self.heap > 0 do
    local count, key = table.unpack(self.heap:pop())
    local now = self.counts[key]
    if count ~= now then
      if now > 0 then self.heap:push {now, key} end
    else
      if count < least then break end
      local left, right = key >> 32, key & 0xffffffff
      local text = tokens[left + 1] .. tokens[right + 1]
      local id = ids[text]
      if not id then
        id = #tokens
        tokens[id + 1], ids[text] = text, id
      end
      merges[#merges + 1] = {tokens[left + 1], tokens[right + 1]}
      for word in pairs(self.where[key]) do self:join(word, left, right, id) end
      self.where[key] = nil
      self:queue()
    end
  end
  return merges
end

local function file_of(ids, merges, special, split)
  local null, array = core.json.null, core.json.array
  local added = array {}
  for i, content in ipairs(special) do
    added[i] = {id = i - 1, content = content, single_word = false, lstrip = false,
                rstrip = false, normalized = false, special = true}
  end
  local bytes = {type = "ByteLevel", add_prefix_space = false, trim_offsets = true,
                 use_regex = split == nil}
  local splitter = split and {type = "Sequence", pretokenizers = {
    {type = "Split", pattern = {Regex = split}, behavior = "Isolated", invert = false}, bytes}}
  return {
    version = "1.0", truncation = null, padding = null, added_tokens = added, normalizer = null,
    pre_tokenizer = splitter or bytes, post_processor = null,
    decoder = {type = "ByteLevel", add_prefix_space = true, trim_offsets = true, use_regex = true},
    model = {type = "BPE", dropout = null, unk_token = null, continuing_subword_prefix = null,
      end_of_word_suffix = null, fuse_unk = false, byte_fallback = false, ignore_merges = false,
      vocab = ids, merges = #merges > 0 and merges or array {}},
  }
end

--- Trains a byte-level BPE tokenizer, which `save` writes as a tokenizer.json.
-- @param source a path, a list of paths, or a function that returns a text at each call, then nil
-- @param o vocab: how many tokens (required, 256 or more); special: a list of special tokens, which
-- get the first ids; pattern: what texts are split by, in Oniguruma's syntax (GPT-2's); min_count:
-- how often a pair occurs at least (0)
-- @return a Tokenizer
function M.train_bpe(source, o)
  o = options.check("text.train_bpe", o, {vocab = options.none, special = {},
    pattern = options.none, min_count = 0})
  options.count("text.train_bpe", "vocab", o.vocab)
  local tokens, ids = {}, {}
  local of_byte, letters = alphabet()
  for _, list in ipairs {o.special, letters} do
    for _, token in ipairs(list) do
      if not ids[token] then
        tokens[#tokens + 1] = token
        ids[token] = #tokens - 1
      end
    end
  end
  if o.vocab < #tokens then
    fail("text.train_bpe: vocab: %d tokens are the least: the bytes and the special tokens",
      #tokens)
  end
  local trainer = setmetatable({counts = {}, where = {}, changed = {},
                                heap = setmetatable({}, Heap)}, Trainer)
  for piece, count in pairs(count_pieces(source, o.pattern or pattern.gpt2)) do
    local word = {count = count}
    for i = 1, #piece do word[i] = ids[of_byte[piece:byte(i)]] end
    for i = 2, #word do trainer:change(word[i - 1], word[i], word, 1) end
  end
  local merges = trainer:run(tokens, ids, o.vocab, math.max(o.min_count, 1))
  local file = file_of(ids, merges, o.special, o.pattern)
  return require "flare.text.tokenizer"(require("flare.text.json").read(file))
end

return M
