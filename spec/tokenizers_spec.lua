-- Tokenizers of every kind beside the libraries that their files come from: ids, offsets and
-- decoded text of phrases in thirty scripts and of random strings. spec/data/tokenizers/make.py
-- wrote what is expected; FLARE_TOKENIZERS names a folder of a longer campaign.
local flare = require "flare"
local core, text = flare.core, flare.text
local base64 = require("flare.base64").decode

local folder = os.getenv "FLARE_TOKENIZERS"
local function read_cases()
  if folder then return core.json.decode(assert(core.file.read(folder .. "/cases"))) end
  return core.json.decode(assert(core.gunzip "spec/data/tokenizers/cases.json.gz"))
end

local cases, names, loaded = nil, {}, {}
local function load(name)
  if loaded[name] then return loaded[name] end
  local path = os.tmpname() .. name:match "%.%w+$"
  assert(core.file.write_atomic(path, base64(cases.files[name])))
  local tokenizer, message = text.load(path)
  os.remove(path)
  loaded[name] = assert(tokenizer, message)
  return tokenizer
end

describe("a tokenizer", function()
  lazy_setup(function()
    cases = assert(read_cases())
    for name in pairs(cases.files) do names[#names + 1] = name end
    table.sort(names)
  end)

  -- Calls check(tokenizer, text, expected) and collects where it gives a message.
  local function each(check)
    local wrong = {}
    for _, name in ipairs(names) do
      local tokenizer = load(name)
      for i, string in ipairs(cases.texts) do
        local said = check(tokenizer, string, cases.expected[name][i], name)
        if said and #wrong < 20 then
          wrong[#wrong + 1] = ("%s: %q: %s"):format(name, string, said)
        end
      end
    end
    assert(#names >= 18, #names)
    assert(#wrong == 0, "\n  " .. table.concat(wrong, "\n  "))
  end

  it("encodes as its library does", function()
    each(function(tokenizer, string, want)
      local ids = table.concat((tokenizer:encode(string)), " ")
      return ids ~= want[1] and ("ids %s, expected %s"):format(ids, want[1])
    end)
  end)

  it("gives the offsets that its library gives", function()
    each(function(tokenizer, string, want, name)
      if name:find "%.model$" then return end
      local ids, more = tokenizer:encode(string, {offsets = true})
      local flat = {}
      for i, span in ipairs(more.offsets) do flat[i] = span[1] .. " " .. span[2] end
      local got = table.concat(flat, " ")
      if table.concat(ids, " ") ~= want[1] then return "other ids with offsets" end
      return got ~= want[2] and ("offsets %s, expected %s"):format(got, want[2])
    end)
  end)

  it("decodes as its library does, at once and as ids come", function()
    each(function(tokenizer, _, want)
      local ids, parts = {}, {}
      for id in want[1]:gmatch "%d+" do ids[#ids + 1] = math.tointeger(id) end
      local got, full = tokenizer:decode(ids), tokenizer:decode(ids, {skip_special = false})
      if got ~= want[3] then return ("%q, expected %q"):format(got, want[3]) end
      if full ~= (want[4] or want[3]) then return ("%q with special tokens"):format(full) end
      local stream = tokenizer:stream()
      for i, id in ipairs(ids) do
        parts[i] = stream:push(id)
        if not utf8.len(parts[i]) then return "half a character in a stream" end
      end
      parts[#parts + 1] = stream:finish()
      got = table.concat(parts)
      return got ~= want[3] and ("%q in a stream, expected %q"):format(got, want[3])
    end)
  end)

  it("says which bytes an id adds to a text", function()
    local compared = 0
    each(function(tokenizer, _, want, name)
      -- WordPiece's decoder tidies up across tokens and shows what the first one continues
      if name:find "^bert" or name == "prefix.json" then return end
      local ids, parts = {}, {}
      for id in want[1]:gmatch "%d+" do ids[#ids + 1] = math.tointeger(id) end
      for i, id in ipairs(ids) do parts[i] = tokenizer.special[id] and "" or tokenizer:bytes(id) end
      local got = core.text.repair(table.concat(parts))
      compared = compared + 1
      -- decoders may drop spaces before the first token and behind the last one
      if got:match "^ *(.-) *$" ~= want[3]:match "^ *(.-) *$" then
        return ("%q, expected %q"):format(got, want[3])
      end
    end)
    assert(compared > 1000, compared)
  end)

  it("learns the merges that Hugging Face's trainer learns, and is saved and read", function()
    local want, i = assert(core.file.read "spec/data/tokenizers/merges.txt"), 0
    if folder then return pending "a campaign has other texts" end
    local tokenizer = text.train_bpe(function()
      i = i + 1
      return cases.texts[i]
    end, {vocab = 600, special = {"<end>"}})
    local got = {}
    for k, pair in ipairs(tokenizer.description.file.model.merges) do
      got[k] = table.concat(pair, " ") .. "\n"
    end
    assert.equal(want, table.concat(got))
    local path = os.tmpname() .. ".json"
    finally(function() os.remove(path) end)
    assert(tokenizer:save(path))
    local back = assert(text.load(path))
    for _, string in ipairs(cases.texts) do
      assert.same((tokenizer:encode(string)), (back:encode(string)))
      assert.equal(string, back:decode(back:encode(string), {skip_special = false}))
    end
    assert.error_matches(function() text.train_bpe("x", {vocab = 10}) end, "256 tokens are")
  end)

  it("refuses files that are wrong, by what is wrong", function()
    local path = os.tmpname() .. ".json"
    finally(function() os.remove(path) end)
    for file, said in pairs {
      ["[]"] = "neither a tokenizer.json nor", ["{"] = "JSON",
      ['{"model": 3, "added_tokens": []}'] = "there is no model",
      ['{"model": {"type": "BPE", "vocab": {"a": -1}, "merges": []}}'] = "an id of the vocabulary",
      ['{"model": {"type": "BPE", "vocab": {"a": 0}, "merges": ["a b"]}}'] =
        '"b" is not in the vocabulary',
      ['{"model": {"type": "BPE", "vocab": {"a": 0}, "merges": ["a"]}}'] =
        "two tokens are expected",
      ['{"model": {"type": "Bpe", "vocab": {}}}'] = "did you mean 'BPE'",
      ['{"model": {"type": "BPE", "vocab": {"a": 99999999}, "merges": []}}'] =
        "an id of the vocabulary",
      ['{"model": {"type": "Unigram", "unk_id": 5, "vocab": [["a", 0]]}}'] = "unk_id 5 is not in",
      ['{"model": {"type": "WordLevel", "vocab": {}}, "truncation": {"max_length": "x"}}'] =
        "truncation: max_length is x, not a whole number",
      ['{"model": {"type": "WordLevel", "vocab": {}}, "normalizer": {"type": "NFX"}}'] =
        "the normalizer 'NFX' is unknown",
      ['{"model": {"type": "WordLevel", "vocab": {}}, "pre_tokenizer": {"type": "Split", '
        .. '"pattern": {"Regex": "(a"}, "behavior": "Isolated"}}'] = "a pattern is wrong at byte 3",
      ['{"model": {"type": "WordLevel", "vocab": {}}, "normalizer": {"type": "Precompiled", '
        .. '"precompiled_charsmap": "AAAA"}}'] = false,
    } do
      assert(core.file.write_atomic(path, file))
      local tokenizer, message = text.load(path)
      if said then
        assert.is_nil(tokenizer)
        assert(message:find(said, 1, true), message)
      else
        assert(tokenizer, message)
      end
    end
    assert.match("no tokenizer in this folder", select(2, text.load "spec/data/numpy"))
  end)
end)
