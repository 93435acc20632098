-- Perplexity and choices, beside log-probabilities of whole texts; files in the formats of
-- HellaSwag and MMLU, whose prompts are those of lm-evaluation-harness.
local flare = require "flare"
local core, models = flare.core, flare.models
local support = require "spec.support.models"

-- The log-probability of the last of some ids by those before.
local function last_of(model, ids)
  local before = table.move(ids, 1, #ids - 1, 1, {})
  return flare.no_grad(function()
    return model(flare.tensor({before}, {dtype = "i64"}))[{1, -1}]:log_softmax(-1)
      [ids[#ids] + 1]:item()
  end)
end

local function slice(list, from, to) return table.move(list, from, to, 1, {}) end

describe("models.perplexity", function()
  it("is exp of the loss where the text is one window", function()
    for _, name in ipairs{"llama", "gpt2"} do
      local model, ids = support.load(name), support.ids(97)
      local r = models.perplexity(model, ids[1]:totable())
      local want = model:loss(ids:narrow(1, 1, 1)):item()
      assert.near(want, r.loss, 1e-5)
      assert.near(math.exp(want), r.perplexity, 1e-3)
      assert.equal(39, r.tokens)
    end
  end)

  it("scores each token once, by as many tokens before as the windows have", function()
    local model, ids = support.load "llama", support.ids(97)[1]:totable()
    for _, o in ipairs{{length = 16}, {length = 16, stride = 5}, {length = 7, stride = 1},
                       {length = 1}} do
      local sum, stop = 0, 1
      while stop < #ids do
        local first = stop + 1
        stop = math.min(stop + (first == 2 and o.length or o.stride or o.length), #ids)
        for k = first, stop do
          sum = sum - last_of(model, slice(ids, math.max(1, stop - o.length), k))
        end
      end
      local r = models.perplexity(model, ids, o)
      assert.near(sum / (#ids - 1), r.loss, 1e-5)
      assert.equal(#ids - 1, r.tokens)
    end
  end)

  it("refuses what it cannot score", function()
    local model = support.load "llama"
    local function refused(pattern, ...)
      local arguments = table.pack(...)
      assert.error_matches(function()
        models.perplexity(table.unpack(arguments, 1, arguments.n))
      end, pattern)
    end
    refused("at least two ids", model, {3})
    refused("stride is above length, 4", model, {3, 4}, {length = 4, stride = 5})
    refused("a model that predicts the next token is expected, got number", 3, {3, 4})
  end)
end)

describe("models.choices", function()
  local vocab = {}
  for k = 0, 94 do vocab[string.char(32 + k)] = k + 1 end
  vocab["ab"] = 0
  local tokenizer = flare.text.Tokenizer {decode = table.concat,
    model = {kind = "bpe", vocab = vocab, merges = {{"a", "b"}}}}

  it("sums log-probabilities of what follows the context", function()
    local model = support.load "llama"
    local items = {
      {context = "Once upon ", choices = {"a time", "no", "ab"}, answer = 1},
      {context = "a", choices = {"bc", "x", "yy", "zzz"}, answer = 2}}
    for _, batch in ipairs{1, 3, 8} do
      local r = models.choices(model, tokenizer, items, {batch = batch})
      local right, normal = 0, 0
      for n, item in ipairs(items) do
        local best, shorter = -math.huge, -math.huge
        local b, s
        for k, choice in ipairs(item.choices) do
          local context = item.context:match "^(.-)%s*$"
          local before = #tokenizer:encode(context)
          local whole = tokenizer:encode(item.context .. choice)
          local sum = 0
          for i = math.min(before, #whole - 1) + 1, #whole do
            sum = sum + last_of(model, slice(whole, 1, i))
          end
          assert.near(sum, r.scores[n][k], 1e-4)
          if sum > best then best, b = sum, k end
          if sum / #choice > shorter then shorter, s = sum / #choice, k end
        end
        if b == item.answer then right = right + 1 end
        if s == item.answer then normal = normal + 1 end
      end
      assert.equal(right / 2, r.accuracy)
      assert.equal(normal / 2, r.normalised)
      assert.near(math.sqrt(r.accuracy * (1 - r.accuracy)), r.error, 1e-12)
    end
  end)

  it("drops the oldest tokens of a context that is too long", function()
    local model = support.load "gpt2" -- of 128 positions
    local context = ("q"):rep(200)
    local r = models.choices(model, tokenizer, {{context = context, choices = {"xy"}, answer = 1}})
    local ids = tokenizer:encode(context .. "xy")
    ids = slice(ids, #ids - 128, #ids)
    local want = 0
    local logp = flare.no_grad(function()
      return model(flare.tensor({slice(ids, 1, 128)}, {dtype = "i64"}))[1]:log_softmax(-1)
    end)
    for k = 127, 128 do want = want + logp[{k, ids[k + 1] + 1}]:item() end
    assert.near(want, r.scores[1][1], 1e-4)
  end)

  it("reads questions as HellaSwag and MMLU have them", function()
    local path = os.tmpname()
    local function read(...)
      assert(core.file.write_atomic(path, table.concat({...}, "\n")))
      return models.read_choices(path)
    end
    local items = assert(read(
      '{"activity_label": "Roof shingle removal", "ctx_a": "A man is sitting on a roof.", '
      .. '"ctx_b": "he", "ctx": "x", "endings": ["is using [step] wrap.", "is ripping  tiles '
      .. '[title] off."], "label": "1"}',
      '{"question": " What is 2 + 2? ", "choices": ["3", "4"], "answer": 1}',
      '{"question": "Q", "choices": ["3", "4"], "answer": "B", "subject": "algebra"}',
      '{"context": "C", "choices": [" a", " b", " c"], "answer": 2}'))
    assert.same({context = "Roof shingle removal: A man is sitting on a roof. He", answer = 2,
      choices = {" is using wrap.", " is ripping tiles. off."}}, items[1])
    assert.same({context = "What is 2 + 2?\nA. 3\nB. 4\nAnswer:", choices = {" A", " B"},
                 answer = 2}, items[2])
    assert.equal(2, items[3].answer)
    assert.same({context = "C", choices = {" a", " b", " c"}, answer = 3}, items[4])
    local function refused(pattern, ...)
      local none, message = read(...)
      assert.is_nil(none)
      assert.matches(pattern, message)
    end
    refused("line 1: no JSON object", "[1")
    refused("line 2: it has no choices with question", '{"context": "a", "choices": ["b"], '
      .. '"answer": 0}', '{"text": "a"}')
    refused("line 1: the answer is none", '{"question": "a", "choices": ["b"], "answer": 1}')
    refused("it has no questions", "")
    os.remove(path)
    refused = models.read_choices(path)
    assert.is_nil(refused)
  end)
end)

describe("flare eval", function()
  local tree = require "spec.support.tree"

  it("prints figures of a folder", function()
    local folder = os.tmpname()
    os.remove(folder)
    flare.manual_seed(2)
    local model = models.LlamaForCausalLM {vocab_size = 260, hidden_size = 16,
      num_hidden_layers = 1, intermediate_size = 24, num_attention_heads = 2,
      initializer_range = 0.3}
    assert(model:save(folder))
    local i = 0
    local tokenizer = flare.text.train_bpe(function()
      i = i + 1
      return ({"low lower"})[i]
    end, {vocab = 260})
    assert(tokenizer:save(folder .. "/tokenizer.json"))
    local function says(arguments)
      return tree.output(("'%s/flare' eval %s 2>&1; echo status=$?"):format(tree.build, arguments))
    end
    local file = folder .. "/text"
    assert(core.file.write_atomic(file, "lower and lower, Zoë"))
    local ids = tokenizer:encode "lower and lower, Zoë"
    local r = models.perplexity(model, ids)
    assert.equal(("tokens      %d\nloss        %.4f nats\nbits/byte   %.4f\nperplexity  %.4f\n"
      .. "status=0\n"):format(#ids - 1, r.loss, r.loss * (#ids - 1) / math.log(2) / 21,
      r.perplexity), says(("'%s' --text '%s'"):format(folder, file)))
    assert(core.file.write_atomic(file,
                                  '{"context": "low", "choices": ["er", "x"], "answer": 0}\n'))
    r = models.choices(model, tokenizer, assert(models.read_choices(file)))
    assert.equal(("questions   1\nacc         %.4f +- 0.0000\nacc_norm    %.4f\nstatus=0\n")
      :format(r.accuracy, r.normalised), says(("'%s' --choices '%s'"):format(folder, file)))
    support.remove(folder)
    assert.matches("^usage: flare eval FOLDER .*status=0\n$", says "--help")
    assert.matches("one of %-%-text and %-%-choices is needed\n.*status=1\n$", says "x")
    assert.matches("unknown option %-%-txt %(did you mean %-%-text%?%)", says "x --txt y")
    assert.matches("^flare eval: /nowhere/config.json.*status=1\n$", says "/nowhere --text y")
  end)
end)
