--- The base class of models that predict the next token: a body, which gives features, and a head.
local Cache = require "flare.models.cache"
local class = require "flare.class"
local core = require "flare.core"
local Model = require "flare.models.model"

local Causal = class("Causal", Model)

--- The logits of the next token at each position.
-- @param ids token ids (batch, time), which count from 0
-- @param cache a models.Cache with the tokens before, which takes these; or nil
-- @return (batch, time, vocabulary)
function Causal:forward(ids, cache)
  return self:logits(self:features(ids, cache))
end

--- The mean cross entropy of predicting each token from those before it.
-- @param ids (batch, time)
-- @param labels (batch, time), by default the ids themselves; -100 is left out
function Causal:loss(ids, labels)
  labels = labels or ids
  local time = ids:size(2)
  return self:criterion(self:features(ids):narrow(2, 1, time - 1), labels:narrow(2, 2, time - 1))
end

--- The mean cross entropy of the tokens that features predict.
-- @param features (batch, time, width)
-- @param targets (batch, time); -100 is left out
function Causal:criterion(features, targets)
  return (core.cross_entropy(self:logits(features):flatten(1, 2), targets:flatten(1, 2),
                             {base = 0}))
end

--- The model as a list of parts that follow each other, for pipelines: {names = of the modules in
-- it, run = function(x)}. The first takes ids, the last gives features, of which its `finish` makes
-- logits.
-- @param name of the body
function Causal:decoder(name)
  local body = self[name]
  local before, blocks, behind = body:layout()
  local function span_of(x)
    -- with split sequences each rank has a part of x
    local span = Cache.span(x, nil, self.sequence_parts)
    return body.prepare and body:prepare(span) or span
  end
  local parts = {{names = {}, run = function(ids) return body:embed(ids, Cache.span(ids)) end}}
  for k, module in ipairs(before) do parts[1].names[k] = name .. "." .. module end
  for k, block in ipairs(body[blocks]) do
    parts[k + 1] = {names = {("%s.%s.%d"):format(name, blocks, k)},
                    run = function(x) return block(x, span_of(x)) end}
  end
  parts[#parts + 1] = {names = {name .. "." .. behind, "lm_head"},
                       run = function(x) return body[behind](x) end,
                       finish = function(features) return self:logits(features) end}
  return parts
end

--- Room for the keys and values of texts of up to `length` tokens; see models.Cache.
function Causal:cache(batch, length, opts) -- luacheck: ignore self
  return Cache(batch, length, opts)
end

--- Continues texts, greedily or with random draws.
--
--     model:generate{ids = {1, 733, 16289}, max_tokens = 50, temperature = 0.7, top_p = 0.9}
--
-- @param o `ids`, a list of token ids, or a list of such lists, which may differ in length;
--   `max_tokens = 128`; `temperature`, 0 takes the likeliest token; `top_k`, `top_p`, `min_p`
--   leave out unlikely tokens; `repetition_penalty`, `presence_penalty`, `frequency_penalty`;
--   `stop`, a list of what ends a text besides the model's end tokens: ids, lists of ids and, with
--   a `tokenizer`, strings; `prompt`, texts in place of ids, and `on_text(piece, b)`, called with
--   whole characters, need the tokenizer, too, and the result has a `text` then; `grammar`, made
--   by flare.text.grammar, which texts are held to, needs it as well; `ignore_eos`; `seed`;
--   `logprobs`, true or how many likely alternatives to return as well; `on_token(id, b,
--   logprob)`, called with each token of text b, which ends the text if it returns false; `cache`,
--   a models.Cache or models.Pages, whose tokens are not computed again where texts begin with
--   them; `inputs`, what a model with an encoder listens to or reads, one for each text; `beams`,
--   how many continuations a beam search compares, and `length_penalty = 1`, the power of its
--   length that the score of a text is divided by: the result has a `score` then; `draft`, a
--   smaller model that proposes `draft_tokens = 4` at a time (speculative decoding). Without
--   options of sampling those of the folder's generation_config.json apply, or the likeliest token
--   is taken.
-- @return {ids =, reason = "stop", "length" or "cancelled", logprobs =, top =}, or a list of these
--   for a list of texts
function Causal:generate(o)
  return require("flare.models.generate").generate(self, o)
end

return Causal
