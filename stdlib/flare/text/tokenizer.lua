--- A tokenizer: text to token ids and back.
--
-- Ids count from 0, as they are published: they are data, not positions. `flare.nn.Embedding` takes
-- them with `base = 0`; functions that count positions from 1 take ids + 1. Offsets are positions
-- in the text, from 1, both ends included: `text:sub(first, last)` is what a token stands for.
local class = require "flare.class"
local core = require "flare.core"
local fail = require "flare.fail"
local options = require "flare.options"
local post = require "flare.text.post"
local Stream = require "flare.text.stream"

local Tokenizer = class("Tokenizer")

--- Made by `flare.text.load`, from a description: {model =, normalizers =, splitters =, added =}
-- for the core, and decode (a function), processor, truncation, padding, special (the names of the
-- special tokens), chat (the chat template).
function Tokenizer:init(o)
  self.core = core.text.new(o)
  self.description = o
  self.added, self.added_ids, self.special = {}, {}, {}
  for _, token in ipairs(o.added or {}) do
    self.added[token.id] = token.shown or token.content
    if not self.added_ids[token.content] then self.added_ids[token.content] = token.id end
    if token.special then self.special[token.id] = true end
  end
  self.processor = o.processor or post.default
end

--- The number of ids: one more than the greatest.
function Tokenizer:size()
  local n = self.core:size()
  for id in pairs(self.added) do n = math.max(n, id + 1) end
  return n
end
Tokenizer.__len = Tokenizer.size

function Tokenizer:__tostring()
  return ("Tokenizer: %s, %d tokens"):format(self.description.model.kind, self:size())
end

--- The id of a token, as it is written in the vocabulary; nil if there is none.
function Tokenizer:id(token)
  return self.added_ids[token] or self.core:find(token)
end

--- The token of an id, as it is written in the vocabulary; nil if there is none.
function Tokenizer:token(id)
  return self.added[id] or self.core:token(id)
end

local function check_text(where, text)
  if type(text) ~= "string" then
    fail("%s: a text is expected, got %s%s", where, options.kind(text),
      type(text) == "table" and ": encode_batch takes a list of texts" or "")
  end
  return text
end

-- What one id adds to a text: decoders treat the first and the last token otherwise, so the token
-- is decoded between two others.
local function bytes_between(self, id)
  local token = self:token(id)
  if not token then return "" end
  local decode, probe = self.description.decode, self.probe
  if not probe then
    local word = "a"
    for k = 0, self:size() - 1 do
      local other = not self.added[k] and self:token(k)
      if other and decode{other}:find "^%l+$" then
        word = other
        break
      end
    end
    local head = decode{word}
    probe = {word = word, head = head, tail = decode{word, word}:sub(#head + 1)}
    self.probe = probe
  end
  local text = decode{probe.word, token, probe.word}
  local from, to = #probe.head + 1, #text - #probe.tail
  local fits = text:sub(1, #probe.head) == probe.head and text:sub(to + 1) == probe.tail
  local inner = fits and text:sub(from, to) or decode{token}
  -- a decoder that knows the tokens of single bytes shows half a character as U+FFFD
  local byte = inner == "\u{fffd}" and token:match "^<0x(%x%x)>$"
  return byte and string.char(tonumber(byte, 16)) or inner
end

--- The bytes that an id adds to a text between other tokens: a part of a character with some
-- tokenizers, and with a space in front where the token begins a word.
-- @return a string; "" for an id that no token has
function Tokenizer:bytes(id)
  self.known = self.known or {}
  local text = self.known[id]
  if not text then
    text = bytes_between(self, id)
    self.known[id] = text
  end
  return text
end

--- The bytes of the ids from 0 to size - 1, for grammars; special tokens have none.
function Tokenizer:vocabulary(size)
  self.vocabularies = self.vocabularies or {}
  local known = self.vocabularies[size]
  if not known then
    local list = {}
    for id = 0, math.min(size, #self) - 1 do
      list[id + 1] = self.special[id] and "" or self:bytes(id)
    end
    known = core.text.vocabulary(list)
    self.vocabularies[size] = known
  end
  return known
end

local encode_options = {
  special = true, parse_special = true, offsets = false, pair = options.none,
  truncate = options.none, pad = options.none, tensor = false,
}

-- One text through the core.
local function encode_part(self, text, o)
  local ids, flat = self.core:encode(text, o.offsets, not o.parse_special)
  return {ids = ids, flat = flat, text = text}
end

-- Ids with all that belongs to them, before padding.
local function encode_one(self, where, text, pair, o, truncation)
  local a = encode_part(self, check_text(where, text), o)
  local b = pair and encode_part(self, check_text(where, pair), o)
  if truncation then
    post.truncate(a, b, truncation, o.special and self.processor:added(b ~= nil) or 0)
  end
  return self.processor:apply(self, a, b, o.special)
end

local function to_tensor(ids)
  if #ids == 0 then return core.zeros({0}, {dtype = "i64"}) end
  return core.tensor(ids, {dtype = "i64"})
end

--- The ids of a text. Bytes that are not UTF-8 count as U+FFFD.
-- @param text a string
-- @param o special: add the tokens that the model expects around a text (true); parse_special:
-- special tokens that are written in the text are tokens, not text (true); offsets (false); pair: a
-- second text; truncate: the greatest length, or {length, strategy, stride, side}, false for none;
-- pad: a length, or {length, multiple, side, id, type}, false for none; tensor: ids as a tensor
-- of i64 (false). What truncate and pad are without being given stands in the tokenizer's file.
-- @return ids: a list, from 0; and a table: types (0 or 1: of the text or of the pair), mask (1; 0
-- of padding), special (1 for tokens that were added), offsets, if asked for: a list of
-- {first, last}; more: what a truncation with a stride cut off, a list of {ids =, ...}
function Tokenizer:encode(text, o)
  o = options.check("encode", o, encode_options)
  local truncation = post.truncation(o.truncate, self.description.truncation)
  local padding = post.padding(o.pad, self.description.padding)
  local all = encode_one(self, "encode", text, o.pair, o, truncation)
  if padding then post.pad({all}, padding) end
  return o.tensor and to_tensor(all.ids) or all.ids, all
end

--- The ids of many texts.
-- @param texts a list of texts, or of {text, pair}
-- @param o as for encode; with tensor, rows are padded to the longest
-- @return a list of lists, or a tensor (texts, longest); and a list of the tables that encode
-- returns second or, with tensor, the mask, a tensor of the same shape
function Tokenizer:encode_batch(texts, o)
  o = options.check("encode_batch", o, encode_options)
  if type(texts) ~= "table" then
    fail("encode_batch: a list of texts is expected, got %s", options.kind(texts))
  end
  local truncation = post.truncation(o.truncate, self.description.truncation)
  local padding = post.padding(o.pad, self.description.padding)
  if o.tensor and not padding then padding = post.padding(true) end
  local all, ids = {}, {}
  for i, text in ipairs(texts) do
    local pair
    if type(text) == "table" then text, pair = text[1], text[2] end
    all[i] = encode_one(self, "encode_batch", text, pair, o, truncation)
  end
  if padding then post.pad(all, padding) end
  local masks = {}
  for i, one in ipairs(all) do
    ids[i], masks[i] = one.ids, o.tensor and one.mask
  end
  if not o.tensor then return ids, all end
  if #ids == 0 or #ids[1] == 0 then
    local none = core.zeros({#ids, 0}, {dtype = "i64"})
    return none, none
  end
  return core.tensor(ids, {dtype = "i64"}), core.tensor(masks, {dtype = "i64"})
end

-- A list of ids from a list, a tensor of 1 dim or one id.
local function list_of(where, ids)
  if core.is_tensor(ids) then ids = ids:tolist() end
  if math.type(ids) == "integer" then ids = {ids} end
  if type(ids) ~= "table" then
    fail("%s: a list or a tensor of ids is expected, got %s", where, options.kind(ids))
  end
  return ids
end

-- The tokens of ids, for the decoder. Ids that no token has are left out.
local function tokens_of(self, where, ids, skip)
  local tokens, n = {}, 0
  for i, id in ipairs(ids) do
    id = math.tointeger(id) or fail("%s: id %d is %s, not a whole number", where, i, tostring(id))
    local token = not (skip and self.special[id]) and self:token(id)
    if token then
      n = n + 1
      tokens[n] = token
    end
  end
  return tokens
end

-- Options, unless they are the second result of encode, as in decode(encode(text)).
local function decode_options(o)
  local result = core.is_tensor(o) or type(o) == "table" and (o.layout or o[1]) ~= nil
  return options.check("decode", not result and o or nil, {skip_special = true, bytes = false})
end

--- The text of ids.
-- @param ids a list, a tensor of 1 dim or one id
-- @param o skip_special: leave out special tokens (true); bytes: leave what is not UTF-8 as it is,
-- in place of U+FFFD (false)
function Tokenizer:decode(ids, o)
  o = decode_options(o)
  local tokens = tokens_of(self, "decode", list_of("decode", ids), o.skip_special)
  local text = self.description.decode(tokens)
  return o.bytes and text or (core.text.repair(text))
end

--- The texts of many lists of ids.
function Tokenizer:decode_batch(rows, o)
  if core.is_tensor(rows) then rows = rows:tolist() end
  local out = {}
  for i, ids in ipairs(rows) do out[i] = self:decode(ids, o) end
  return out
end

--- The tokens that a text consists of, as they are written in the vocabulary.
function Tokenizer:tokens(text, o)
  local out = {}
  for i, id in ipairs((self:encode(text, o))) do out[i] = self:token(id) end
  return out
end

--- Decodes ids as they come: `push(id)` returns the text that is certain by now, never a part of a
-- character; `finish()` returns the rest.
-- @param o skip_special: leave out special tokens (true)
function Tokenizer:stream(o)
  o = options.check("stream", o, {skip_special = true})
  return Stream(function(ids)
    return self.description.decode(tokens_of(self, "push", ids, o.skip_special))
  end)
end

--- Writes the tokenizer as a tokenizer.json, which Hugging Face's tokenizers reads.
-- @return true, or nil and a message
function Tokenizer:save(path)
  local file = self.description.file
  if not file then
    return nil, ("%s: only tokenizers that were trained, or read from a tokenizer.json, are saved")
      :format(path)
  end
  return core.file.write_atomic(path, core.json.encode(file))
end

--- Renders a conversation by the model's chat template.
-- @param messages a list of {role = "user", content = "..."}
-- @param o tools: a list of tools, documents: a list; generation_prompt: end with what begins an
-- answer (false); template: another template, or the name of one of several; variables: a table of
-- further variables of the template; ids: return ids in place of a text (false)
-- @return the text, or its ids; nil and a message if the tokenizer has no template
function Tokenizer:chat(messages, o)
  return require("flare.text.chat").render(self, messages, o)
end

return Tokenizer
