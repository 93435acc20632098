-- The text of generated tokens: pieces of whole characters, and strings that end it.
local flare = require "flare"
local support = require "spec.support.models"
local Writer = require "flare.models.writer"

-- A tokenizer of all bytes and of some longer pieces.
local function tokenizer_of(pieces)
  local vocab = {}
  for byte = 0, 255 do vocab[string.char(byte)] = byte end
  for k, piece in ipairs(pieces) do vocab[piece] = 255 + k end
  return flare.text.Tokenizer {model = {kind = "bpe", vocab = vocab, bytes = "raw"},
    decode = table.concat, added = {{id = 256 + #pieces, content = "<end>", special = true}}}
end

-- All pieces of a text that is given byte by byte, or by the tokens that a list names.
local function pieces_of(tokenizer, tokens, stops)
  local writer, out = Writer(tokenizer, stops), {}
  for k, token in ipairs(tokens) do
    local piece, stopped = writer:push(assert(tokenizer:id(token)))
    out[k] = piece
    assert.truthy(utf8.len(piece))
    if stopped then return out, true end
  end
  out[#out + 1] = writer:finish()
  return out, false
end

local function bytes_of(text)
  local out = {}
  for k = 1, #text do out[k] = text:sub(k, k) end
  return out
end

describe("The text of tokens", function()
  local tokenizer = tokenizer_of{"END", "xE", "ND", "aa", "\xe2\x82", " the"}

  it("comes in whole characters, at the first token that completes them", function()
    assert.same({"n", "", "é", "", "", "", "😀", ""},
                (pieces_of(tokenizer, bytes_of "né😀")))
    assert.same({"", "€", " the", ""}, (pieces_of(tokenizer, {"\xe2\x82", "\xac", " the"})))
    assert.same({"", "\u{fffd}a", "", "\u{fffd}"},
                (pieces_of(tokenizer, {"\xe2\x82", "a", "\xf0"})))
  end)

  it("leaves special tokens out", function()
    assert.same({"a", "", "b", ""}, (pieces_of(tokenizer, {"a", "<end>", "b"})))
  end)

  it("ends at the first of the stops, across the borders of tokens", function()
    local out, stopped = pieces_of(tokenizer, {"a", "xE", "ND", "b"}, {"END"})
    assert.same({"a", "x", ""}, out)
    assert.truthy(stopped)
    out = pieces_of(tokenizer, {"a", "xE", "b", "END"}, {"D", "END"})
    assert.same({"a", "x", "Eb", ""}, out)
    -- what looked like a stop is given back when it turns out to be none
    assert.same({"", "", "", "aaab", ""}, (pieces_of(tokenizer, bytes_of "aaab", {"aaac"})))
    out, stopped = pieces_of(tokenizer, {"aa", "a", "a", "b", "x"}, {"aab"})
    assert.same({"", "a", "a", ""}, out) -- the search goes on within what was held back
    assert.truthy(stopped)
    out, stopped = pieces_of(tokenizer, bytes_of "né", {"é"})
    assert.same({"n", "", ""}, out)
    assert.truthy(stopped)
  end)

  it("is that of model:generate with a tokenizer", function()
    local letters = {}
    for k = 1, 97 - 3 do letters[utf8.char(0x3b0 + k)] = k + 2 end -- two bytes each
    for k, name in ipairs{"<s>", "</s>", "<p>"} do letters[name] = k - 1 end
    local greek = flare.text.Tokenizer {model = {kind = "wordlevel", vocab = letters},
                                        decode = table.concat}
    local model = support.load "llama"
    local function run(o)
      o.ids, o.max_tokens, o.ignore_eos, o.tokenizer = {5, 6, 7}, 12, true, greek
      return model:generate(o)
    end
    local parts = {}
    local out = run{on_text = function(piece) parts[#parts + 1] = piece end}
    assert.equal(greek:decode(out.ids), out.text)
    assert.same(out.text, table.concat(parts))
    local at = utf8.offset(out.text, 6)
    local stop = out.text:sub(at, utf8.offset(out.text, 8) - 1)
    local first = out.text:find(stop, 1, true)
    local short = run{stop = {stop, "nowhere"}}
    assert.equal(out.text:sub(1, first - 1), short.text)
    assert.equal("stop", short.reason)
    assert.equal("cancelled", run{on_text = function() return false end}.reason)
    assert.error_matches(function() model:generate{ids = {1}, stop = {"a"}} end,
                         "stop has the string 'a', which needs the option tokenizer")
    assert.error_matches(function() model:generate{prompt = "a"} end,
                         "prompt needs the option tokenizer")
  end)
end)
