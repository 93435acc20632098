--- tokenizer.model, SentencePiece's file, as the description of a Tokenizer: BPE or unigram, with
-- SentencePiece's own normalization.
local core = require "flare.core"
local fail = require "flare.fail"
local post = require "flare.text.post"

local M = {}

-- Numbers of fields are those of sentencepiece_model.proto.
local Piece = {[1] = {"piece", "text"}, [2] = {"score", "float"}, [3] = {"type", "int"}}
local Trainer = {
  [3] = {"model_type", "int"}, [24] = {"suffix", "int"}, [35] = {"byte_fallback", "int"},
  [40] = {"unk_id", "int"}, [41] = {"bos_id", "int"}, [42] = {"eos_id", "int"},
  [43] = {"pad_id", "int"}, [44] = {"unk_surface", "text"},
}
local Normalizer = {
  [2] = {"charsmap", "text"}, [3] = {"dummy", "int"}, [4] = {"extra", "int"},
  [5] = {"escape", "int"},
}
local Model = {
  [1] = {"pieces", Piece, many = true}, [2] = {"trainer", Trainer},
  [3] = {"normalizer", Normalizer},
}

local UNKNOWN, CONTROL, USER, UNUSED, BYTE = 2, 3, 4, 5, 6
local kinds = {[1] = "unigram", [2] = "bpe", [3] = "word", [4] = "char"}

local function flag(value, default)
  if value == nil then return default end
  return value ~= 0
end

-- Ranks of the pieces that merge: equal scores have one rank. By id from 1, false: no merge.
local function ranks_of(pieces)
  local scores, rank, out = {}, {}, {}
  for _, piece in ipairs(pieces) do
    local score = piece.score or 0
    if not rank[score] then
      rank[score] = true
      scores[#scores + 1] = score
    end
  end
  table.sort(scores, function(a, b) return a > b end)
  for i, score in ipairs(scores) do rank[score] = i end
  for i, piece in ipairs(pieces) do
    local kind = piece.type or 1
    out[i] = (kind == 1 or kind == USER or kind == UNUSED) and rank[piece.score or 0] or -1
  end
  return out
end

-- Scores for the search by id from 1; false: the text cannot match the piece.
local function scores_of(pieces)
  local out, least, most = {}, math.huge, -math.huge
  for _, piece in ipairs(pieces) do
    if (piece.type or 1) == 1 then
      least, most = math.min(least, piece.score or 0), math.max(most, piece.score or 0)
    end
  end
  for i, piece in ipairs(pieces) do
    local kind = piece.type or 1
    if kind == USER then
      out[i] = #piece.piece * most - 0.1
    else
      out[i] = kind == 1 and (piece.score or 0)
    end
  end
  return out, least
end

-- Text for tokens: the leading space that was added goes, bytes become characters.
local function decoder(special, o)
  local byte = {}
  for i = 0, 255 do byte[("<0x%02X>"):format(i)] = string.char(i) end
  return function(tokens)
    local out, bytes, start = {}, {}, o.dummy or o.extra
    local function add(text)
      if text == "" then return end
      out[#out + 1] = text
      start = false
    end
    local function flush()
      if #bytes > 0 then add(core.text.repair(table.concat(bytes), true)) end
      bytes = {}
    end
    for _, token in ipairs(tokens) do
      local b = o.bytes[token] and byte[token]
      if b then
        bytes[#bytes + 1] = b
      else
        flush()
        if special[token] then
          add(special[token])
        else
          local stripped, n = token, 0
          if start then stripped, n = token:gsub("^\u{2581}", "", 1) end
          add((stripped:gsub("\u{2581}", " ")))
          if n > 0 and not o.extra then start = false end
        end
      end
    end
    flush()
    return table.concat(out)
  end
end

local function describe(model)
  local pieces, trainer = model.pieces, model.trainer or {}
  local normalizer = model.normalizer or {}
  local kind = kinds[trainer.model_type or 1]
  if kind ~= "unigram" and kind ~= "bpe" then
    fail("the model type '%s' is not supported", tostring(kind))
  end
  local vocab, added, kept, special, bytes = {}, {}, {}, {}, {}
  local unk
  for i, piece in ipairs(pieces) do
    local kind_of = piece.type or 1
    vocab[i] = piece.piece or ""
    if kind_of == CONTROL or kind_of == UNKNOWN then
      special[vocab[i]] = kind_of == UNKNOWN and (trainer.unk_surface or " \u{2047} ") or ""
      if kind_of == UNKNOWN then unk = i - 1 end
    elseif kind_of == USER then
      kept[#kept + 1] = vocab[i]
      if kind == "bpe" then -- the search of a unigram model chooses it by its score
        added[#added + 1] = {content = vocab[i], id = i - 1, kept = true}
      end
    elseif kind_of == BYTE then
      bytes[vocab[i]] = true
    end
  end
  if not unk then fail "there is no unknown piece" end
  local dummy, extra = flag(normalizer.dummy, true), flag(normalizer.extra, true)
  local m = {kind = kind, vocab = vocab, unk = unk, sentencepiece = true, fuse_unk = true,
    byte_fallback = flag(trainer.byte_fallback, false)}
  if kind == "bpe" then m.ranks = ranks_of(pieces) else m.scores, m.least = scores_of(pieces) end
  return {
    model = m, added = added, kept = kept, normalizers = {{kind = "sentencepiece",
      text = normalizer.charsmap or "", dummy = dummy, extra = extra,
      escape = flag(normalizer.escape, true), suffix = flag(trainer.suffix, false)}},
    decode = decoder(special, {dummy = dummy, extra = extra, bytes = bytes}),
    processor = post.default,
    control = {bos = trainer.bos_id or 1, eos = trainer.eos_id or 2, pad = trainer.pad_id or -1},
  }
end

--- The description of a Tokenizer; nil and a message if the file cannot be read. Raises for what
-- is wrong in it.
function M.read(path)
  local model, message = core.protobuf(path, Model)
  if not model then return nil, message end
  if not model.pieces then fail "there are no pieces: not a SentencePiece model" end
  return describe(model)
end

return M
