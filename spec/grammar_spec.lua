-- Grammars: which texts they have, beside jsonschema and Python's re, and which tokens may come
-- next, beside a search through the vocabulary. spec/support/grammar_data.py wrote the texts.
local flare = require "flare"
local core, text = flare.core, flare.text
local base64 = require("flare.base64").decode

local data = assert(core.json.decode(assert(core.file.read "spec/data/grammar.json")))

-- Collects texts about which a grammar says otherwise.
local function compare(wrong, grammar, name, texts)
  local yes = 0
  for _, case in ipairs(texts) do
    if case[2] then yes = yes + 1 end
    if grammar:matches(case[1]) ~= case[2] then
      wrong[#wrong + 1] = ("%s: %q should be %s"):format(name, case[1], case[2])
    end
  end
  assert(yes > 0 and #texts > 0, name)
end

describe("text.grammar of a JSON schema", function()
  it("accepts what the schema accepts, in the order of its members", function()
    local wrong = {}
    for _, case in ipairs(data.schemas) do
      compare(wrong, text.grammar{json = case.schema}, case.schema, case.texts)
    end
    assert(#data.schemas > 20 and #wrong == 0, "\n  " .. table.concat(wrong, "\n  "))
  end)

  it("keeps the order of members of a text, and takes tables", function()
    local schema = '{"properties": {"z": {"type": "null"}, "a": {"type": "null"}}}'
    local ordered = text.grammar{json = schema}
    assert.truthy(ordered:matches '{"z": null, "a": null}')
    assert.falsy(ordered:matches '{"a": null, "z": null}')
    local sorted = text.grammar{json = core.json.decode(schema)}
    assert.truthy(sorted:matches '{"a": null, "z": null}')
    assert.truthy(text.grammar{json = true}:matches '{"a": [1, {"b": "\\u00e9"}]}')
    assert.falsy(text.grammar{json = true}:matches "[]")
    assert.falsy(text.grammar{json = "{}"}:matches '"\\ud83d"') -- half a surrogate pair
    assert.falsy(text.grammar{json = "{}"}:matches '"\xc3"')
  end)

  it("refuses by name what it cannot hold a text to", function()
    local function refused(pattern, schema)
      assert.error_matches(function() text.grammar{json = schema} end, pattern)
    end
    refused("schema, #/properties/a: 'not' is not supported",
            '{"properties": {"a": {"not": {}}}}')
    refused("schema, #: 'multipleOf' is not supported", '{"type": "number", "multipleOf": 3}')
    refused("schema, #: the type 'text' is unknown", '{"type": "text"}')
    refused("schema, #: %$ref '#/x' points to nothing", '{"$ref": "#/x"}')
    refused("%$ref 'http://a/b' is outside of the schema", '{"$ref": "http://a/b"}')
    refused("the rule '.*' begins with itself", '{"$ref": "#"}')
    refused("no number is from 3 to 1", '{"type": "integer", "minimum": 3, "maximum": 1}')
    refused("%(%?= is not supported", '{"type": "string", "pattern": "(?=a)"}')
    refused("schema: not JSON: byte 2", "{")
    refused("minItems is above maxItems", '{"type": "array", "minItems": 3, "maxItems": 2}')
  end)
end)

describe("text.grammar of a regular expression", function()
  it("has the texts that match as a whole", function()
    local wrong = {}
    for _, case in ipairs(data.patterns) do
      compare(wrong, text.grammar{regex = case.pattern}, case.pattern, case.texts)
    end
    assert(#data.patterns > 10 and #wrong == 0, "\n  " .. table.concat(wrong, "\n  "))
  end)

  it("knows the characters between any two", function()
    math.randomseed(4)
    local edges = {0x20, 0x7e, 0x7f, 0x80, 0x7ff, 0x800, 0xfff, 0x1000, 0xd7ff, 0xe000, 0xffff,
      0x10000, 0x3ffff, 0x40000, 0x10ffff}
    for _ = 1, 60 do
      local a, b = edges[math.random(#edges)], edges[math.random(#edges)]
      if math.random() < 0.5 then a = math.random(0xe000, 0x10ffff) end
      if a > b then a, b = b, a end
      local grammar = text.grammar{regex = ("[\\u{%x}-\\u{%x}]"):format(a, b)}
      for _, around in ipairs{a, b, edges[math.random(#edges)], math.random(0x20, 0xd7ff)} do
        for c = math.max(around - 1, 0), math.min(around + 1, 0x10ffff) do
          if c < 0xd800 or c > 0xdfff then
            assert.equal(c >= a and c <= b, grammar:matches(utf8.char(c)))
          end
        end
      end
    end
  end)

  it("refuses what describes no set of texts", function()
    for pattern, why in pairs{["(?!a)b"] = "%(%?! is not supported", ["a\\b"] = "\\b is not",
      ["(a)\\1"] = "\\1 is not supported", ["a**"] = "nothing to repeat", ["("] = "'%)' is missing",
      ["a)"] = "a '%)' too many", ["[b-a]"] = "range of a class", ["a{3,1}"] = "ends before",
      ["a{99999999999999999999}"] = "too large", ["a{1,99999999999999999999}"] = "too large"} do
      assert.error_matches(function() text.grammar{regex = pattern} end, why)
    end
  end)
end)

describe("text.grammar in GBNF", function()
  it("derives texts as the rules say", function()
    local grammar = text.grammar{gbnf = [[
      # a list of words, or of sums
      root ::= "[" (word ("," ws word)*)? "]" | sum
      word ::= [a-zé]{2,4} | "\"" [^"\\\n]+ "\""
      sum  ::=
        number ("+" sum)?
      number ::= [0-9]+ ("." [0-9]{2})?
      ws ::= [ \t]?
    ]]}
    for _, yes in ipairs{"[]", "[ab,cdef, éé]", '["x y"]', "1+2.50+33", "7"} do
      assert(grammar:matches(yes), yes)
    end
    for _, no in ipairs{"", "[", "[a]", "[ab,]", "[abcde]", '["a\n"]', "1+", "1.5", "1 + 2",
                        '[""]'} do
      assert(not grammar:matches(no), no)
    end
    assert.truthy(grammar:begins "[ab,")
    assert.falsy(grammar:begins "[ab;")
  end)

  it("counts brackets of any depth", function()
    local grammar = text.grammar{gbnf = 'root ::= "(" root* ")"'}
    local deep = ("("):rep(3000)
    assert.truthy(grammar:begins(deep))
    assert.truthy(grammar:matches(deep .. (")"):rep(3000)))
    assert.falsy(grammar:begins(deep .. (")"):rep(3001)))
    assert.falsy(grammar:matches(deep .. (")"):rep(2999)))
  end)

  it("says where a grammar is wrong", function()
    for source, why in pairs{
      ['root ::= "a"\nb ::= rot'] = "line 2: there is no rule 'rot' %(did you mean 'root'%?%)",
      ['root ::= root "a" | "b"'] = "the rule 'root' begins with itself",
      ['root ::= x "a"\nx ::= "c"? root'] = "begins with itself",
      ['a ::= "b"'] = "there is no rule 'root'",
      ['root ::= ("a"'] = "line 1: a '%)' is missing",
      ['root ::= "a'] = "a string does not end",
      ['root ::= "a"\n\nroot ::= "b"'] = "line 3: the rule 'root' is there twice",
      ['root ::= "a" }'] = "a rule is expected"} do
      assert.error_matches(function() text.grammar{gbnf = source} end, why)
    end
    assert.error_matches(function() text.grammar{} end, "one of json, gbnf and regex")
    assert.error_matches(function() text.grammar{regex = 3} end, "regex must be a text")
  end)
end)

describe("The tokens that may come next", function()
  local cases = core.json.decode(assert(core.gunzip "spec/data/tokenizers/cases.json.gz"))
  local function load(name)
    local path = os.tmpname() .. name:match "%.%w+$"
    assert(core.file.write_atomic(path, base64(cases.files[name])))
    local tokenizer = assert(text.load(path))
    os.remove(path)
    return tokenizer
  end

  it("are those whose bytes the grammar takes, with tokenizers of each kind", function()
    local grammar = text.grammar{json = data.schemas[1].schema}
    for _, name in ipairs{"gpt2.json", "llama2.json", "sp_unigram_bytes.model"} do
      local tokenizer = load(name)
      local size = #tokenizer + 3 -- models may have more ids than their tokenizers
      local vocabulary, some = tokenizer:vocabulary(size), 0
      for _, before in ipairs{"", "{", '{"name', '{"name": "', '{"name": "x\xc3', '{"name": "\\u0',
                              '{"name": "a", "age": -'} do
        local state = assert(grammar.core:advance(grammar.begin, before))
        local mask, allowed = grammar.core:mask(state, vocabulary, size)
        local count = 0
        for id = 0, size - 1 do
          local bytes = id < #tokenizer and not tokenizer.special[id] and tokenizer:bytes(id) or ""
          local fits = bytes ~= "" and grammar.core:advance(state, bytes) ~= nil
          assert.equal(fits and 0 or 1, mask:byte(id + 1))
          if fits then count = count + 1 end
        end
        assert.equal(count, allowed)
        some = some + count
      end
      assert.truthy(some > 100)
    end
  end)

  it("are the same after the automaton was emptied", function()
    local grammar = text.grammar{gbnf = 'root ::= "(" root* ")" | [a-z]{0,40000}'}
    local state = grammar.begin
    for _ = 1, 36000 do
      state = assert(grammar.core:advance(state, "q"))
    end
    assert.truthy(grammar.core:advance(state, ("q"):rep(4000)))
    assert.is_nil(grammar.core:advance(state, ("q"):rep(4001)))
    assert.error_matches(function() grammar.core:advance("no state", "a") end, "no state of this")
  end)

  it("end the text where the grammar ends", function()
    local tokenizer = load "gpt2.json"
    local model = flare.models.GPT2LMHeadModel {vocab_size = #tokenizer, n_embd = 16, n_layer = 1,
      n_head = 2, n_positions = 400, initializer_range = 0.5}
    model:eval()
    local grammar = text.grammar{json = [[{"type": "object", "required": ["id", "ok"],
      "properties": {"id": {"type": "integer", "minimum": 0, "maximum": 99},
      "ok": {"type": "boolean"}}}]]}
    local texts = {}
    local function check(out)
      assert.equal("stop", out.reason)
      local value = assert(core.json.decode(out.text))
      assert.truthy(value.id >= 0 and value.id <= 99 and type(value.ok) == "boolean")
      texts[out.text] = true
    end
    for seed = 1, 5 do
      for _, out in ipairs(model:generate{ids = {{5}, {6, 7}}, tokenizer = tokenizer, seed = seed,
        grammar = grammar, temperature = 1, max_tokens = 200}) do check(out) end
    end
    local engine = flare.models.Engine(model, {tokenizer = tokenizer})
    local requests = {}
    for k = 1, 6 do
      requests[k] = engine:submit{ids = {5, k}, seed = k, grammar = k % 2 == 0 and grammar or nil,
                                  temperature = 1, max_tokens = 200}
    end
    while engine:step() do end
    for k = 2, 6, 2 do check(requests[k].answers[1]) end
    local count = 0
    for _ in pairs(texts) do count = count + 1 end
    assert.truthy(count > 5)
    assert.error_matches(function() model:generate{ids = {1}, grammar = grammar} end,
                         "grammar needs the option tokenizer")
    assert.error_matches(function()
      model:generate{ids = {1}, grammar = {}, tokenizer = tokenizer}
    end, "grammar is made by flare.text.grammar, got table")
  end)

  it("are not looked for where too many ways to read a text are open", function()
    local grammar = text.grammar{gbnf = 'root ::= "a" root "b" | "a" root "c" | "d"'}
    assert.truthy(grammar:matches "aadbc")
    assert.error_matches(function() grammar:begins(("a"):rep(40)) end,
                         "more than 16384 ways to read a text at once")
  end)

  it("are none where the vocabulary lacks them, which ends the text", function()
    local tokenizer = text.Tokenizer {model = {kind = "wordlevel", vocab = {a = 0, b = 1}},
                                      decode = table.concat}
    local model = flare.models.GPT2LMHeadModel {vocab_size = 2, n_embd = 8, n_layer = 1, n_head = 1,
      n_positions = 40}
    local engine = flare.models.Engine(model, {tokenizer = tokenizer})
    local request = engine:submit{ids = {0}, grammar = text.grammar{regex = "abz"},
                                  temperature = 0, max_tokens = 9}
    while engine:step() do end
    assert.equal("ab", request.answers[1].text)
    assert.equal("stop", request.answers[1].reason)
  end)
end)
