--- tokenizer.json, the file of Hugging Face's tokenizers, as the description of a Tokenizer.
local decoders = require "flare.text.decoders"
local fail = require "flare.fail"
local options = require "flare.options"
local post = require "flare.text.post"
local stages = require "flare.text.stages"

local M = {}

local function absent(value) return value == nil or type(value) == "userdata" end
local function value_or(value, default) if absent(value) then return default end return value end

local models = {}

function models.BPE(m)
  local dropout = value_or(m.dropout, 0)
  if dropout ~= 0 then fail("BPE: dropout %s: only 0 is supported", tostring(dropout)) end
  return {kind = "bpe", vocab = m.vocab, merges = value_or(m.merges, {}),
    fuse_unk = value_or(m.fuse_unk, false), byte_fallback = value_or(m.byte_fallback, false),
    ignore_merges = value_or(m.ignore_merges, false), unk = value_or(m.unk_token, nil),
    prefix = value_or(m.continuing_subword_prefix, nil),
    suffix = value_or(m.end_of_word_suffix, nil)}
end

function models.Unigram(m)
  local vocab, scores = {}, {}
  for i, pair in ipairs(m.vocab) do
    if type(pair) ~= "table" or type(pair[1]) ~= "string" or type(pair[2]) ~= "number" then
      fail("Unigram: token %d is not a pair of a text and a score", i - 1)
    end
    vocab[i], scores[i] = pair[1], pair[2]
  end
  local unk = value_or(m.unk_id, nil)
  if unk and (math.type(unk) ~= "integer" or unk < 0 or unk >= #vocab) then
    fail("Unigram: unk_id %s is not in the vocabulary of %d", tostring(unk), #vocab)
  end
  return {kind = "unigram", vocab = vocab, scores = scores, unk = unk,
    byte_fallback = value_or(m.byte_fallback, false)}
end

function models.WordPiece(m)
  return {kind = "wordpiece", vocab = m.vocab, unk = value_or(m.unk_token, "[UNK]"),
    prefix = value_or(m.continuing_subword_prefix, "##"),
    max_chars = value_or(m.max_input_chars_per_word, 100)}
end

function models.WordLevel(m)
  return {kind = "wordlevel", vocab = m.vocab, unk = value_or(m.unk_token, "<unk>")}
end

-- Files before the models had a type.
local function guess(m)
  if m.unk_id ~= nil or type(m.vocab) == "table" and m.vocab[1] then return "Unigram" end
  if m.merges then return "BPE" end
  return m.continuing_subword_prefix and "WordPiece" or "WordLevel"
end

local function read_model(m)
  if type(m) ~= "table" then fail "there is no model" end
  local kind = value_or(m.type, nil) or guess(m)
  if not models[kind] then
    fail("the model '%s' is unknown%s", tostring(kind), options.hint(tostring(kind), models))
  end
  if type(m.vocab) ~= "table" then fail("%s: there is no vocab", kind) end
  local model = models[kind](m)
  if type(model.unk) == "string" then model.unk = model.vocab[model.unk] end
  return model
end

-- The ids of a model's tokens, and how many there are.
local function ids_of(model)
  local ids, n = model.vocab, 0
  if model.kind == "unigram" then
    ids = {}
    for i, token in ipairs(model.vocab) do ids[token] = i - 1 end
  end
  for _ in pairs(ids) do n = n + 1 end
  return ids, n
end

-- An added token has its id in the model or, whatever the file says, the next one after it.
local function read_added(list, model)
  local added, known = {}, {}
  local ids, following = ids_of(model)
  for i, token in ipairs(value_or(list, {})) do
    if type(token) ~= "table" or type(token.content) ~= "string" then
      fail("added token %d has no content", i)
    end
    local id = ids[token.content] or known[token.content]
    if token.content ~= "" and not id then id, following = following, following + 1 end
    if id and token.content ~= "" then
      known[token.content] = id
      added[#added + 1] = {content = token.content, id = id,
        single_word = value_or(token.single_word, false), lstrip = value_or(token.lstrip, false),
        rstrip = value_or(token.rstrip, false), normalized = value_or(token.normalized, true),
        special = value_or(token.special, false)}
    end
  end
  return added
end

-- A template: pieces that are special tokens or a text.
local function read_template(pieces, tokens)
  local out = {}
  for i, piece in ipairs(value_or(pieces, {})) do
    local text, token = piece.Sequence, piece.SpecialToken
    if text then
      out[i] = {part = text.id == "B" and 2 or 1, type = value_or(text.type_id, 0)}
    elseif token and type(tokens[token.id]) == "table" then
      out[i] = {ids = tokens[token.id].ids, type = value_or(token.type_id, 0)}
    else
      fail("TemplateProcessing: piece %d is neither a text nor a known special token", i)
    end
  end
  return out
end

local processors = {}

function processors.TemplateProcessing(p, o)
  local tokens = value_or(p.special_tokens, {})
  o.single, o.double = read_template(p.single, tokens), read_template(p.pair, tokens)
end

local function around(cls, sep, second, type_b)
  local c, s = {ids = {cls}, type = 0}, {ids = {sep}, type = 0}
  local a, b = {part = 1, type = 0}, {part = 2, type = type_b}
  local last = {ids = {sep}, type = type_b}
  return {c, a, s}, second and {c, a, s, s, b, last} or {c, a, s, b, last}
end

function processors.BertProcessing(p, o)
  o.single, o.double = around(p.cls[2], p.sep[2], false, 1)
  o.plain = {0, 1}
end

function processors.RobertaProcessing(p, o)
  o.single, o.double = around(p.cls[2], p.sep[2], true, 0)
  o.plain = {0, 0}
  o.trim, o.prefix = value_or(p.trim_offsets, true), value_or(p.add_prefix_space, true)
end

function processors.ByteLevel(p, o)
  o.trim, o.prefix = value_or(p.trim_offsets, true), value_or(p.add_prefix_space, true)
end

local function read_processor(p, o)
  if absent(p) then return o end
  if type(p) ~= "table" or type(p.type) ~= "string" then
    fail "the post-processor is not an object with a type"
  elseif p.type == "Sequence" then
    for _, part in ipairs(value_or(p.processors, {})) do read_processor(part, o) end
  elseif not processors[p.type] then
    fail("the post-processor '%s' is unknown%s", p.type, options.hint(p.type, processors))
  else
    processors[p.type](p, o)
  end
  return o
end

-- A whole number from `least` on among the settings of a part of the file.
local function count_of(where, settings, name, default, least)
  local value = value_or(settings[name], default)
  if math.type(value) ~= "integer" or value < least then
    fail("%s: %s is %s, not a whole number from %d on", where, name, tostring(value), least)
  end
  return value
end

local function word_of(settings, name, default)
  local value = value_or(settings[name], default)
  if type(value) ~= "string" then fail("%s is not a text", name) end
  return (value:gsub("(%l)(%u)", "%1_%2"):lower())
end

local function read_truncation(t)
  if absent(t) then return nil end
  if type(t) ~= "table" then fail "truncation is not an object" end
  return {length = count_of("truncation", t, "max_length", nil, 0),
    stride = count_of("truncation", t, "stride", 0, 0), side = word_of(t, "direction", "Right"),
    strategy = word_of(t, "strategy", "LongestFirst")}
end

local function read_padding(p)
  if absent(p) then return nil end
  if type(p) ~= "table" then fail "padding is not an object" end
  local fixed = type(p.strategy) == "table" and p.strategy or {}
  return {length = count_of("padding", fixed, "Fixed", 0, 0),
    side = word_of(p, "direction", "Right"),
    multiple = count_of("padding", p, "pad_to_multiple_of", 1, 1),
    id = count_of("padding", p, "pad_id", 0, 0), type = count_of("padding", p, "pad_type_id", 0, 0)}
end

--- The description of a Tokenizer; raises for what is wrong or unknown.
-- @param file the decoded JSON
function M.read(file)
  if type(file) ~= "table" then fail "the file is not a JSON object" end
  local model = read_model(file.model)
  local splitters = stages.splitters(file.pre_tokenizer)
  local levels = 0
  for _, stage in ipairs(splitters) do levels = levels + (stage.kind == "bytelevel" and 1 or 0) end
  if levels == 1 and splitters[#splitters].kind == "bytelevel" and model.kind == "bpe" then
    model.bytes = "mapped"
  end
  local o = read_processor(file.post_processor, {})
  o.single, o.double = o.single or post.default.single, o.double or post.default.double
  return {
    model = model, normalizers = stages.normalizers(file.normalizer), splitters = splitters,
    added = read_added(file.added_tokens, model), decode = decoders.make(file.decoder),
    processor = post.Processor(o), truncation = read_truncation(file.truncation),
    padding = read_padding(file.padding), file = file,
  }
end

return M
