--- BERT (arXiv:1810.04805): an encoder with learned positions, kinds of segments, and norms after
-- each part.
local flare = require "flare"
local Model = require "flare.models.model"
local activations = require "flare.models.activations"
local attend = require "flare.models.heads"
local nn = flare.nn
local null = flare.core.json.null

local defaults = {vocab_size = 30522, hidden_size = 768, num_hidden_layers = 12,
  num_attention_heads = 12, intermediate_size = 3072, hidden_act = "gelu",
  hidden_dropout_prob = 0.1, attention_probs_dropout_prob = 0.1, max_position_embeddings = 512,
  type_vocab_size = 2, layer_norm_eps = 1e-12, classifier_dropout = null}

local function norm(c) return nn.LayerNorm(c.hidden_size, {eps = c.layer_norm_eps}) end

local Embeddings = flare.class("BertEmbeddings", nn.Module)

function Embeddings:init(c)
  self.word_embeddings = nn.Embedding(c.vocab_size, c.hidden_size, {base = 0})
  self.position_embeddings = nn.Embedding(c.max_position_embeddings, c.hidden_size, {base = 0})
  self.token_type_embeddings = nn.Embedding(c.type_vocab_size, c.hidden_size, {base = 0})
  self.LayerNorm = norm(c)
  self.dropout = nn.Dropout(c.hidden_dropout_prob)
end

function Embeddings:forward(ids, segments)
  local positions = flare.arange(0, ids:size(2), {device = ids.device})
  segments = segments or flare.zeros_like(ids)
  local x = self.word_embeddings(ids) + self.token_type_embeddings(segments)
    + self.position_embeddings(positions)
  return self.dropout(self.LayerNorm(x))
end

local Self = flare.class("BertSelfAttention", nn.Module)

function Self:init(c)
  self.heads, self.drop = c.num_attention_heads, c.attention_probs_dropout_prob
  self.query = nn.Linear(c.hidden_size, c.hidden_size)
  self.key = nn.Linear(c.hidden_size, c.hidden_size)
  self.value = nn.Linear(c.hidden_size, c.hidden_size)
end

function Self:forward(x, mask)
  return attend(self.query(x), self.key(x), self.value(x), {
    heads = self.heads, mask = mask, dropout = self.training and self.drop or 0})
end

-- A linear layer whose result is added to what came before, and the norm of the sum.
local Output = flare.class("BertOutput", nn.Module)

function Output:init(c, from)
  self.dense = nn.Linear(from, c.hidden_size)
  self.LayerNorm = norm(c)
  self.dropout = nn.Dropout(c.hidden_dropout_prob)
end

function Output:forward(y, x) return self.LayerNorm(self.dropout(self.dense(y)) + x) end

local Attention = flare.class("BertAttention", nn.Module)

function Attention:init(c)
  self.self = Self(c)
  self.output = Output(c, c.hidden_size)
end

function Attention:forward(x, mask) return self.output(self.self(x, mask), x) end

local Intermediate = flare.class("BertIntermediate", nn.Module)

function Intermediate:init(c)
  self.dense = nn.Linear(c.hidden_size, c.intermediate_size,
                         {act = activations.fused(c.hidden_act)})
end

function Intermediate:forward(x) return self.dense(x) end

local Layer = flare.class("BertLayer", nn.Module)

function Layer:init(c)
  self.attention = Attention(c)
  self.intermediate = Intermediate(c)
  self.output = Output(c, c.intermediate_size)
end

function Layer:forward(x, mask)
  x = self.attention(x, mask)
  return self.output(self.intermediate(x), x)
end

local Encoder = flare.class("BertEncoder", nn.Module)

function Encoder:init(c)
  self.layer = nn.ModuleList()
  for _ = 1, c.num_hidden_layers do self.layer:append(Layer(c)) end
end

function Encoder:forward(x, mask)
  for _, layer in ipairs(self.layer) do x = layer(x, mask) end
  return x
end

local Pooler = flare.class("BertPooler", nn.Module)

function Pooler:init(c) self.dense = nn.Linear(c.hidden_size, c.hidden_size, {act = "tanh"}) end
function Pooler:forward(x) return self.dense(x:select(2, 1)) end

---------------------------------------------------------------- models

local Body = flare.class("BertModel", Model)

function Body:build(c, without_pooler)
  self.embeddings = Embeddings(c)
  self.encoder = Encoder(c)
  if not without_pooler then self.pooler = Pooler(c) end
end

--- The features of tokens (batch, time, hidden_size), and of whole texts (batch, hidden_size).
-- @param ids (batch, time), from 0
-- @param o `mask` (batch, time), true or 1 for tokens and false or 0 for padding; `segments`
--   (batch, time), 0 or 1
function Body:forward(ids, o)
  local none = flare.options.none
  o = flare.options.check("BertModel", o, {mask = none, segments = none})
  local mask = o.mask and o.mask:ne(0):unsqueeze(2):unsqueeze(2)
  local x = self.encoder(self.embeddings(ids, o.segments), mask)
  return x, self.pooler and self.pooler(x)
end

local Transform = flare.class("BertPredictionHeadTransform", nn.Module)

function Transform:init(c)
  self.dense = nn.Linear(c.hidden_size, c.hidden_size, {act = activations.fused(c.hidden_act)})
  self.LayerNorm = norm(c)
end

function Transform:forward(x) return self.LayerNorm(self.dense(x)) end

local Predictions = flare.class("BertLMPredictionHead", nn.Module)

function Predictions:init(c, words)
  self.transform = Transform(c)
  self.bias = self:param(flare.zeros(c.vocab_size))
  self.decoder = nn.Linear(c.hidden_size, c.vocab_size)
  self.decoder.bias = self.bias
  if c.tie_word_embeddings then self.decoder.weight = words end
end

function Predictions:forward(x) return self.decoder(self.transform(x)) end

local MaskedLM = flare.class("BertForMaskedLM", Model)

function MaskedLM:build(c)
  self.bert = Body(c, true)
  local words = self.bert.embeddings.word_embeddings.weight
  self.cls = nn.ModuleDict{predictions = Predictions(c, words)}
end

--- The logits of each token, (batch, time, vocabulary); arguments as for BertModel.
function MaskedLM:forward(ids, o) return self.cls.predictions((self.bert(ids, o))) end

--- The mean cross entropy of tokens; labels of -100 are left out.
function MaskedLM:loss(ids, labels, o)
  return (flare.cross_entropy(self(ids, o):flatten(1, 2), labels:flatten(1, 2), {base = 0}))
end

local Classifier = flare.class("BertForSequenceClassification", Model)

function Classifier:build(c)
  self.bert = Body(c)
  self.dropout = nn.Dropout(c.classifier_dropout or c.hidden_dropout_prob)
  self.classifier = nn.Linear(c.hidden_size, Model.labels(c))
end

--- The logits of texts, (batch, labels); arguments as for BertModel.
function Classifier:forward(ids, o)
  local _, whole = self.bert(ids, o)
  return self.classifier(self.dropout(whole))
end

for _, class in ipairs{Body, MaskedLM, Classifier} do
  Model.publish(class, {type = "bert", defaults = defaults, prefix = "bert",
    ignored = {"position_ids$", "cls%.seq_relationship"}})
end

return {BertModel = Body, BertForMaskedLM = MaskedLM, BertForSequenceClassification = Classifier}
