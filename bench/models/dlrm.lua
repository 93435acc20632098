-- DLRM (arXiv:1906.00091): bags of categories in 26 tables, a bottom network of 13 numbers, the
-- products of all pairs, and a top network.
local flare = require "flare"
local common = ...
local nn, F = flare.nn, flare.nn.functional

local function mlp(sizes)
  local net = nn.Sequential()
  for k = 2, #sizes do
    net:append(nn.Linear(sizes[k - 1], sizes[k]))
    if k < #sizes then net:append(nn.ReLU()) end
  end
  return net
end

local DLRM = flare.class("DLRM", nn.Module)

function DLRM:init(o)
  self.bottom = mlp {13, o.hidden, o.hidden // 2, o.width}
  self.embed = nn.ModuleList()
  for _ = 1, o.tables do self.embed:append(nn.EmbeddingBag(o.rows, o.width, {mode = "sum"})) end
  local n, pairs_of = o.tables + 1, {}
  for i = 1, n do
    for j = 1, i - 1 do pairs_of[#pairs_of + 1] = (i - 1) * n + j end
  end
  self.pairs = self:buffer(flare.tensor(pairs_of, {dtype = "i64"}))
  self.top = mlp {o.width + #pairs_of, o.hidden, o.hidden // 2, 1}
end

function DLRM:forward(numbers, categories)
  local dense = self.bottom(numbers):relu()
  local vectors = {dense}
  for k, bag in ipairs(self.embed) do vectors[k + 1] = bag(categories[k]) end
  local all = flare.stack(vectors, 2)
  local products = all:matmul(all:transpose(2, 3)):flatten(2, 3):index_select(2, self.pairs)
  return self.top(flare.cat({dense, products}, 2)):squeeze(2)
end

local function build(o)
  local model = common.prepare(o, DLRM(o))
  local optimizer = flare.optim.SGD(model:parameters(), {lr = 0.1})
  local numbers = common.numbers(o, {o.batch, 13})
  local categories = {}
  for k = 1, o.tables do categories[k] = common.ids(o, o.rows, {o.batch, o.bag}, 200 + k) end
  local clicks = (common.ids(o, 2, {o.batch}) - 1):to "f32"
  local function forward()
    return F.bce_with_logits(model(numbers, categories):to "f32", clicks)
  end
  return {model = model, items = o.batch, step = common.training(o, model, optimizer, forward)}
end

return {
  unit = "samples", build = build,
  sizes = {
    small = {batch = 8, tables = 3, rows = 20, bag = 2, width = 8, hidden = 16},
    full = {batch = 8192, tables = 26, rows = 100000, bag = 4, width = 64, hidden = 512},
  },
}
