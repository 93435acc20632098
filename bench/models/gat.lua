-- A graph attention network (arXiv:1710.10903) on a list of edges: gather, a softmax over the edges
-- of each node by scatter_add, in f32.
local flare = require "flare"
local common = ...
local nn, F = flare.nn, flare.nn.functional

local Layer = flare.class("Layer", nn.Module)

function Layer:init(inputs, heads, size)
  self.heads, self.size = heads, size
  self.linear = nn.Linear(inputs, heads * size, {bias = false})
  self.source = self:param(flare.zeros(1, heads, size))
  self.target = self:param(flare.zeros(1, heads, size))
  self.bias = self:param(flare.zeros(heads * size))
end

-- x (nodes, inputs); source, target (edges) -> (nodes, heads * size)
function Layer:forward(x, source, target)
  local nodes, edges, width = x:size(1), source:size(1), self.heads * self.size
  local h = self.linear(x)
  local parts = h:view(nodes, self.heads, self.size)
  local from, to = (parts * self.source):sum(3), (parts * self.target):sum(3)
  local by_head = target:unsqueeze(2):expand(edges, self.heads)
  local score = from:gather(1, source:unsqueeze(2):expand(edges, self.heads))
    + to:gather(1, by_head)
  score = flare.leaky_relu(score, 0.2)
  local weight = (score - score:amax():detach()):exp()
  local total = flare.zeros({nodes, self.heads}, {device = x.device})
    :scatter_add(1, by_head, weight)
  weight = weight / (total:gather(1, by_head) + 1e-16)
  local message = h:index_select(1, source):view(edges, self.heads, self.size)
    * weight:unsqueeze(3)
  local sum = flare.zeros({nodes, width}, {device = x.device}):scatter_add(
    1, target:unsqueeze(2):expand(edges, width), message:view(edges, width))
  return sum + self.bias
end

local GAT = flare.class("GAT", nn.Module)

function GAT:init(o)
  self.layer1 = Layer(o.inputs, o.heads, o.width)
  self.layer2 = Layer(o.heads * o.width, 1, o.classes)
  self.drop = nn.Dropout(o.dropout)
end

function GAT:forward(x, source, target)
  local h = F.elu(self.layer1(self.drop(x), source, target))
  return self.layer2(self.drop(h), source, target)
end

local function build(o)
  local model = common.prepare(o, GAT(o))
  local optimizer = flare.optim.Adam(model:parameters(), {lr = 5e-3, weight_decay = 5e-4})
  local x, y = common.numbers(o, {o.nodes, o.inputs}), common.ids(o, o.classes, {o.nodes})
  local source, target = common.ids(o, o.nodes, {o.edges}, 3), common.ids(o, o.nodes, {o.edges}, 4)
  local function forward() return F.cross_entropy(model(x, source, target), y) end
  return {model = model, items = o.edges, step = common.training(o, model, optimizer, forward)}
end

return {
  unit = "edges", build = build,
  sizes = {
    small = {nodes = 12, edges = 40, inputs = 6, heads = 2, width = 4, classes = 3, dropout = 0.2,
             amp = "none"},
    full = {nodes = 65536, edges = 1048576, inputs = 128, heads = 4, width = 64, classes = 40,
            dropout = 0.2, amp = "none"},
  },
}
