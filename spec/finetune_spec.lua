-- Tuning of published models: packed rows beside sequences one by one, conversations, and the
-- losses of preferences and rewards beside their formulas, written out.
local flare = require "flare"
local message = require "spec.support.expect".message
local support = require "spec.support.models"
local train, models = flare.train, flare.models

local texts = {{5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17}, {20, 21, 22}, {30}, {31, 2, 3, 31}}

-- log p of each next token of a list of ids, by the model without packing, in f64.
local function alone(model, ids)
  local logits = model(flare.tensor({ids}, {dtype = "i64"})):squeeze(1):to "f64"
  local all = logits:log_softmax(2)
  local out = {}
  for k = 2, #ids do out[k - 1] = all[{k - 1, ids[k] + 1}] end
  return out
end

local function small(seed)
  flare.manual_seed(seed)
  return models.LlamaForCausalLM {vocab_size = 12, hidden_size = 32, intermediate_size = 48,
    num_hidden_layers = 1, num_attention_heads = 2, num_key_value_heads = 1,
    max_position_embeddings = 64, eos_token_id = 0}
end

describe("packed sequences", function()
  for _, name in ipairs {"llama", "mistral", "gpt2", "qwen3_moe"} do
    it("have the log-probabilities and gradients that they have alone: " .. name, function()
      local model = support.load(name)
      local examples = {}
      for k, ids in ipairs(texts) do examples[k] = {ids = ids} end
      examples[1].labels = {-100, -100, 7, 8, 9, -100, 11, 12, 13, 14, 15, 16, 17}
      local ids, targets, lengths = require "flare.train.sequences".join("here", examples)
      local logp, owner = train.log_probs(model, ids, targets, lengths)
      local want, owners, sum = {}, {}, 0
      for b, text in ipairs(texts) do
        for k, value in ipairs(alone(model, text)) do
          if not examples[b].labels or examples[b].labels[k + 1] ~= -100 then
            want[#want + 1], owners[#owners + 1] = value:item(), b
            sum = sum - value
          end
        end
      end
      assert.same(owners, owner:tolist())
      local off = (logp:detach():to "f64" - flare.tensor(want, {dtype = "f64"})):abs():amax()
      assert.is_true(off:item() < 2e-5)
      local function gradient(loss)
        for _, p in ipairs(model:parameters()) do p.grad = nil end
        loss:backward()
        local list = {}
        for k, p in ipairs(model:parameters()) do
          list[k] = p.grad and p.grad:reshape(-1) or flare.zeros(p:numel())
        end
        return flare.cat(list, 1)
      end
      local a = gradient(train.loss(model, ids, targets, lengths))
      local b = gradient(sum / #want)
      assert.is_true((a - b):norm():item() < 1e-4 * b:norm():item())
    end)
  end

  for _, name in ipairs {"llama", "gpt2"} do
    it("have the loss of padded texts in f64: " .. name, function()
      local model = support.load(name):to "f64"
      local examples, padded, most = {}, {}, 0
      for k, ids in ipairs(texts) do examples[k], most = {ids = ids}, math.max(most, #ids) end
      for k, ids in ipairs(texts) do
        padded[k] = table.move(ids, 1, #ids, 1, {})
        while #padded[k] < most do table.insert(padded[k], 1) end
      end
      local logp = model(flare.tensor(padded, {dtype = "i64"})):log_softmax(3)
      local sum, count = 0, 0
      for b, ids in ipairs(texts) do
        for k = 2, #ids do sum, count = sum - logp[{b, k - 1, ids[k] + 1}]:item(), count + 1 end
      end
      local ids, targets, lengths = require "flare.train.sequences".join("here", examples)
      -- flare.train computes log-probabilities in f32
      assert.near(sum / count, train.loss(model, ids, targets, lengths):item(), 2e-6)
    end)
  end

  it("fill rows with whole examples", function()
    flare.manual_seed(3)
    local examples, total = {}, 0
    for k, n in ipairs(flare.randint(1, 70, {300}):tolist()) do
      local ids = {}
      for i = 1, n do ids[i] = k end
      examples[k], total = {ids = ids}, total + math.min(n, 64)
    end
    local set = train.Packed(examples, {length = 64})
    local seen = {}
    for ids, targets, lengths in flare.data.Loader(set, {batch = 2, shuffle = true}):epoch() do
      assert.is_true(ids:size(2) <= 128)
      local first = 1
      for _, n in ipairs(lengths:tolist()) do
        local id = ids[{1, first}]:item()
        assert.is_nil(seen[id])
        seen[id] = n
        assert.equal(math.min(#examples[id].ids, 64), n)
        local own = targets:narrow(2, first, n):reshape(-1):tolist()
        for k = 1, n - 1 do assert.equal(id, own[k]) end
        assert.equal(-100, own[n])
        first = first + n
      end
    end
    assert.equal(300, #seen)
    assert.is_true(total / (#set * 64) > 0.95)
    assert.match("example 2 has no ids", message(train.Packed, {{ids = {1}}, {}}))
  end)

  it("train a model by the trainer", function()
    local model = small(1)
    local examples = {}
    for k = 1, 40 do examples[k] = {ids = {1, 2, 3, 4, 5, k % 5 + 6}} end
    local trainer = train.Trainer{model = model, optimizer = flare.optim.AdamW(model, {lr = 1e-2}),
      epochs = 4, step = train.loss, progress = false,
      train = flare.data.Loader(train.Packed(examples, {length = 30}), {batch = 2})}
    local history = trainer:fit()
    assert.is_true(history[4].loss < 0.7 * history[1].loss)
  end)
end)

describe("train.chat", function()
  local vocab = {}
  for byte = 0, 255 do vocab[string.char(byte)] = byte end
  vocab["<|end|>"] = 256
  local function tokenizer(template)
    local made = flare.text.Tokenizer {model = {kind = "bpe", vocab = vocab, bytes = "raw"},
      added = {{content = "<|end|>", id = 256, special = true}}, decode = table.concat}
    made.description.templates = {default = template}
    return made
  end
  local template = "{% for m in messages %}<{{ m.role }}>{{ m.content }}<|end|>{% endfor %}"
    .. "{% if add_generation_prompt %}<assistant>{% endif %}"
  local messages = {{role = "system", content = "Be brief."}, {role = "user", content = "1+1?"},
    {role = "assistant", content = "2 é"}, {role = "user", content = "why"},
    {role = "assistant", content = "so"}}

  local function counted(made, example)
    local list = {}
    for k, label in ipairs(example.labels) do
      assert.is_true(label == -100 or label == example.ids[k])
      if label ~= -100 then list[#list + 1] = label end
    end
    return made:decode(list, {skip_special = false})
  end

  it("counts what the assistant writes, with the end of each message", function()
    local made = tokenizer(template)
    local example = train.chat(made, messages)
    assert.equal(made:chat(messages), made:decode(example.ids, {skip_special = false}))
    assert.equal("2 é<|end|>so<|end|>", counted(made, example))
    assert.equal("so<|end|>", counted(made, train.chat(made, messages, {last = true})))
    assert.equal("1+1?<|end|>why<|end|>", counted(tokenizer(template:gsub("<assistant>", "<user>")),
      train.chat(tokenizer(template:gsub("<assistant>", "<user>")), messages, {role = "user"})))
  end)

  it("refuses templates that write earlier messages otherwise", function()
    local made = tokenizer("{% for m in messages %}{% if loop.last or m.role == 'user' %}"
      .. "{{ m.content }}{% endif %}{% endfor %}")
    assert.match("message 3 is its last", message(train.chat, made, messages))
    assert.match("no message is of the tool", message(train.chat, tokenizer(template), messages,
                                                      {role = "tool"}))
  end)
end)

describe("train.dpo_loss", function()
  local function pair(a, b)
    return {chosen = {ids = a, labels = {-100, -100, table.unpack(a, 3)}},
            rejected = {ids = b, labels = {-100, -100, table.unpack(b, 3)}}}
  end
  local batch = {pair({1, 2, 3, 4}, {1, 2, 5}), pair({3, 2, 6, 7, 8}, {3, 2, 7, 6, 9})}

  -- The sum of log p of the tokens from the third on.
  local function answer(model, ids)
    local sum = 0
    for k, value in ipairs(alone(model, ids)) do
      if k >= 2 then sum = sum + value:item() end
    end
    return sum
  end

  it("is the formula of its paper", function()
    local model, reference = small(1), small(2)
    local sum, smooth, simple = 0, 0, 0
    for _, one in ipairs(batch) do
      local a, b = one.chosen.ids, one.rejected.ids
      local pa, pb = answer(model, a), answer(model, b)
      local h = 0.3 * (pa - answer(reference, a) - pb + answer(reference, b))
      sum = sum + math.log(1 + math.exp(-h)) / 2
      smooth = smooth + (0.9 * math.log(1 + math.exp(-h)) + 0.1 * math.log(1 + math.exp(h))) / 2
      h = 0.3 * (pa / (#a - 2) - pb / (#b - 2)) - 0.5
      simple = simple + math.log(1 + math.exp(-h)) / 2
    end
    assert.near(sum, train.dpo_loss(model, reference, batch, {beta = 0.3}):item(), 1e-6)
    assert.near(smooth, train.dpo_loss(model, reference, batch,
                                       {beta = 0.3, smoothing = 0.1}):item(), 1e-6)
    assert.near(simple, train.dpo_loss(model, nil, batch, {beta = 0.3, margin = 0.5}):item(), 1e-6)
    local loss, figures = train.dpo_loss(model, model, batch)
    assert.near(math.log(2), loss:item(), 1e-6)
    assert.equal(0, figures.margin:item())
  end)

  it("makes a model prefer what was chosen, also by adapters beside their model", function()
    for _, lora in ipairs {false, true} do
      local model, reference = small(1), small(1)
      local adapter = lora and models.lora(model, {rank = 4, targets = {"q_proj", "up_proj"}})
      local optimizer = flare.optim.AdamW((adapter or model):parameters(), {lr = 1e-2})
      for _ = 1, 15 do
        local loss, figures = train.dpo_loss(model, adapter or reference, batch)
        local same = train.dpo_loss(model, reference, batch)
        assert.near(same:item(), loss:item(), 1e-6)
        assert.is_true(figures.margin:item() == figures.margin:item())
        optimizer:zero_grad()
        loss:backward()
        optimizer:step()
      end
      local _, after = train.dpo_loss(model, reference, batch)
      assert.equal(1, after.accuracy:item())
      assert.is_true(after.margin:item() > 0.05, after.margin:item()) -- from 0
    end
  end)
end)

describe("train.grpo_loss", function()
  local prompts = {{1, 2}, {3, 4, 5}}

  local function rollouts(model, reward, o)
    local how = {group = 4, max_tokens = 6, seed = 5}
    for key, value in pairs(o or {}) do how[key] = value end
    return train.rollout(model, prompts, reward, how)
  end

  it("has rollouts with advantages within their groups", function()
    local model = small(1)
    local list, mean = rollouts(model, function(ids) return #ids + ids[1] end)
    assert.equal(8, #list)
    local sum, tokens = 0, 0
    for group = 1, 2 do
      local own = {}
      for k = 1, 4 do
        local one = list[(group - 1) * 4 + k]
        assert.equal(group, one.group)
        assert.equal(prompts[group][1], one.ids[1])
        assert.equal(-100, one.labels[#prompts[group]])
        assert.equal(one.ids[#one.ids], one.labels[#one.ids])
        own[k], sum = one.reward, sum + one.reward
        tokens = tokens + #one.ids - #prompts[group]
      end
      local x = flare.tensor(own, {dtype = "f64"})
      local want = ((x - x:mean()) / (x:std() + 1e-4)):tolist()
      for k = 1, 4 do assert.near(want[k], list[(group - 1) * 4 + k].advantage, 1e-12) end
    end
    assert.near(sum / 8, mean, 1e-12)
    assert.equal(tokens, #list.logp)
    local again = rollouts(model, function(ids) return #ids + ids[1] end)
    for k = 1, 8 do assert.same(list[k].ids, again[k].ids) end
  end)

  it("is the formula of its paper", function()
    local old, now, reference = small(1), small(2), small(3)
    local list = rollouts(old, function(ids) return ids[1] end, {temperature = 1.5})
    local sum, tokens, answers, held = 0, 0, 0, 0
    local function logp(model, one)
      local logits = model(flare.tensor({one.ids}, {dtype = "i64"})):squeeze(1):to "f64" / 1.5
      local all, out = logits:log_softmax(2), {}
      for k = #prompts[one.group] + 1, #one.ids do
        out[#out + 1] = all[{k - 1, one.ids[k] + 1}]:item()
      end
      return out
    end
    for _, one in ipairs(list) do
      local a, b, c = logp(old, one), logp(now, one), logp(reference, one)
      local own = 0
      for k = 1, #a do
        local ratio = math.exp(b[k] - a[k])
        local clipped = math.min(math.max(ratio, 0.9), 1.2)
        local value = math.min(ratio * one.advantage, clipped * one.advantage)
        if clipped * one.advantage < ratio * one.advantage then held = held + 1 end
        own = own - value + 0.05 * (math.exp(c[k] - b[k]) - (c[k] - b[k]) - 1)
      end
      sum, tokens, answers = sum + own, tokens + #a, answers + own / #a / #list
    end
    local o = {clip = {0.1, 0.2}, beta = 0.05, reference = reference}
    local loss, figures = train.grpo_loss(now, list, o)
    assert.near(sum / tokens, loss:item(), 1e-5)
    assert.near(held / tokens, figures.clipped:item(), 1e-6)
    o.mean = "answers"
    assert.near(answers, train.grpo_loss(now, list, o):item(), 1e-5)
  end)

  it("raises the reward of what the model writes", function()
    local model = small(1)
    local optimizer = flare.optim.AdamW(model, {lr = 3e-3, weight_decay = 0})
    local function reward(ids) -- how much of the answer is token 7
      local n = 0
      for _, id in ipairs(ids) do n = n + (id == 7 and 1 or 0) end
      return n / 6
    end
    local means = {}
    for step = 1, 25 do
      local list, mean = rollouts(model, reward, {group = 8, seed = step})
      means[step] = mean
      for _ = 1, 2 do
        local loss = train.grpo_loss(model, list)
        optimizer:zero_grad()
        loss:backward()
        flare.optim.clip_grad_norm_(model, 1)
        optimizer:step()
      end
    end
    assert.is_true(means[1] < 0.3, means[1])
    assert.is_true(means[24] + means[25] > 1.4, means[25])
  end)

  it("says what is wrong", function()
    local model = small(1)
    assert.match("the reward must be a number, got nil",
      message(rollouts, model, function() end))
    assert.match("group must be an integer of at least 2", message(train.rollout, model, prompts,
      function() return 1 end, {group = 1}))
    assert.match("what train.rollout gave is expected", message(train.grpo_loss, model, {}))
    assert.match("a model that predicts the next token is expected, got a tensor",
      message(train.log_probs, flare.zeros(1), flare.zeros(1), flare.zeros(1), {1}))
  end)
end)
