--- Mixture of experts (arXiv:1701.06538, arXiv:2101.03961): a router sends each token to a few of
-- many feed-forward layers. Tokens are sorted by expert and multiplied in groups, so nothing is as
-- large as tokens times experts but the router's numbers.
local class = require "flare.class"
local core = require "flare.core"
local fail = require "flare.fail"
local init = require "flare.nn.initialize"
local Module = require "flare.nn.module"
local options = require "flare.options"
local walk = require "flare.nn.walk"

local none = options.none
local acts = {
  none = function(x) return x end, relu = core.relu, gelu = core.gelu, silu = core.silu,
  gelu_tanh = function(x) return core.gelu(x, "tanh") end, tanh = core.tanh,
  sigmoid = core.sigmoid,
}
local scores = {
  softmax = function(logits) return logits:softmax(-1) end,
  sigmoid = function(logits) return logits:sigmoid() end,
}

-- Both ways between tokens and rows in the order of their experts are permutations of copies, so
-- each reads at positions where the rows' own gradients would add up at them. `token` has the token
-- of each row, `place` (tokens, top_k) the rows of each token, `order` the number of each row's
-- choice, in columns of place.
local dispatch = core.func{
  name = "moe_dispatch",
  forward = function(ctx, x, token, place)
    ctx:save(place)
    return x:index_select(1, token)
  end,
  backward = function(ctx, dy)
    return (core.embedding_bag(dy, ctx.saved[1], nil, nil, "sum")), nil, nil
  end,
}

local combine = core.func{
  name = "moe_combine",
  forward = function(ctx, y, share, token, place, order)
    ctx:save(y, share, token, place, order)
    return (core.embedding_bag(y, place, nil, share, "sum"))
  end,
  backward = function(ctx, dy)
    local y, share, token, place, order = table.unpack(ctx.saved)
    local rows = dy:index_select(1, token)
    local factor = share:t():reshape(-1):index_select(1, order):to(y.dtype)
    local dots = (rows * y):sum(-1):index_select(1, place:reshape(-1)):view(place.shape)
    return rows * factor:unsqueeze(2), dots:to(share.dtype), nil, nil, nil
  end,
}

local MoE = class("MoE", Module)

-- What the last forward of each layer found out. Beside the layers, so that it is neither saved
-- nor copied with them.
local last = setmetatable({}, {__mode = "k"})

local function choice(name, value, list)
  if list[value] then return value end
  fail("nn.MoE: unknown %s '%s'%s", name, tostring(value), options.hint(tostring(value), list))
end

--- nn.MoE(width, {experts = 8, top_k = 2, hidden = 4 * width, act = "silu", gated = true,
--   scores = "softmax", normalise = true, scale = 1, noise = 0, capacity =, balance = 0.01,
--   z_loss = 0, bias_balance = 0})
-- An expert is down(act(gate(x)) * up(x)), or without `gated` down(act(up(x))), with weights
-- (experts, outputs, inputs). The router works in f32: each token's `top_k` best `scores` (softmax
-- or sigmoid of its logits) choose the experts and are the factors of their results; with
-- `normalise` the factors add up to `scale`.
--
-- `noise` is the deviation of normal numbers added to the logits in training. An expert takes at
-- most `capacity` times the average number of tokens, first choices first; the rest gets no result
-- of it. `balance` and `z_loss` are the factors of the losses that `nn.moe_loss` adds up: experts
-- times the sum of each one's share of tokens and mean probability (arXiv:2101.03961), and the mean
-- of the squared log of the sum of exponentials (arXiv:2202.08906). With `bias_balance` a bias for
-- each expert, which moves by this much in each training step, takes part in the choice
-- (arXiv:2408.15664).
function MoE:init(width, opts)
  local o = options.check("nn.MoE", opts, {
    experts = 8, top_k = 2, hidden = none, act = "silu", gated = true, scores = "softmax",
    normalise = true, scale = 1, noise = 0, capacity = none, balance = 0.01, z_loss = 0,
    bias_balance = 0})
  self.width = options.count("nn.MoE", "width", width)
  self.experts = options.count("nn.MoE", "experts", o.experts)
  self.top_k = options.count("nn.MoE", "top_k", o.top_k)
  self.hidden = options.count("nn.MoE", "hidden", o.hidden or 4 * width)
  if self.top_k > self.experts then
    fail("nn.MoE: top_k is %d, but there are %d experts", self.top_k, self.experts)
  end
  self.act, self.scores = choice("act", o.act, acts), choice("scores", o.scores, scores)
  self.normalise, self.scale, self.noise = o.normalise, o.scale, o.noise
  self.capacity, self.balance, self.z_loss = o.capacity, o.balance, o.z_loss
  self.bias_balance = o.bias_balance
  local function weight(...)
    local bound = 1 / math.sqrt((select(-1, ...)))
    return self:param(init.uniform({...}, {low = -bound, high = bound}))
  end
  self.router = weight(self.experts, width)
  if o.gated then self.gate_proj = weight(self.experts, self.hidden, width) end
  self.up_proj = weight(self.experts, self.hidden, width)
  self.down_proj = weight(self.experts, width, self.hidden)
  if o.bias_balance ~= 0 then self.bias = self:buffer(core.zeros(self.experts)) end
end

-- The experts of each token and the factors of their results, both (tokens, top_k); the scores
-- and logits, (tokens, experts).
function MoE:route(x)
  local wide = x.dtype == "f64" and "f64" or "f32"
  local logits = core.autocast(false, core.linear, x:to(wide), self.router:to(wide))
  if self.training and self.noise > 0 then
    logits = logits + core.randn_like(logits) * self.noise
  end
  local p = scores[self.scores](logits)
  local share, chosen
  if self.bias then
    chosen = select(2, (p:detach() + self.bias:to(wide)):topk(self.top_k))
    share = p:gather(2, chosen)
  else
    share, chosen = p:topk(self.top_k)
  end
  if self.normalise then share = share / share:sum{dims = -1, keepdim = true} end
  if self.scale ~= 1 then share = share * self.scale end
  return chosen, share, p, logits
end

-- Choices in the order of their experts, first choices first; where the group of each expert
-- ends, without those above the capacity, which stand behind the last group; how many there are
-- of each.
function MoE:sort(chosen)
  local flat = chosen:t():reshape(-1)
  local n = flat:numel()
  local sorted, order = flat:sort()
  local load = core.zeros({self.experts}, {dtype = "i64", device = flat.device})
    :scatter_add(1, flat, core.ones_like(flat))
  local ends = load:cumsum(1)
  if self.capacity then
    local most = math.ceil(self.capacity * n / self.experts)
    local rank = core.arange(1, n + 1, {device = flat.device})
      - (ends - load):index_select(1, sorted)
    local places = core.where(rank:gt(most), self.experts + 1, sorted):argsort()
    order = order:index_select(1, places)
    ends = load:clamp(0, most):cumsum(1)
  end
  return order, ends, load
end

-- Rows in the order of their experts -> the results of these.
function MoE:run_experts(x, ends)
  local function product(rows, weight)
    return core.grouped_mm(rows, weight:transpose(2, 3), ends)
  end
  local h = acts[self.act](product(x, self.gate_proj or self.up_proj))
  if self.gate_proj then h = h * product(x, self.up_proj) end
  return product(h, self.down_proj)
end

-- Notes the load and the losses; moves the bias once for each forward that is recorded, and so
-- not in the first of a checkpoint.
function MoE:note(load, p, logits)
  local found = {load = load}
  last[self] = found
  if not self.training then return end
  if self.balance > 0 then
    local share = load:to(p.dtype) / math.max(1, logits:size(1) * self.top_k)
    if self.scores ~= "softmax" then p = p / p:sum{dims = -1, keepdim = true} end
    found.balance = (share * p:mean(1)):sum() * self.experts
  end
  if self.z_loss > 0 then found.z = logits:logsumexp(-1):square():mean() end
  if self.bias and logits.requires_grad then
    local count = load:to(self.bias.dtype)
    core.no_grad(self.bias.add_, self.bias, (count:mean() - count):sign() * self.bias_balance)
  end
end

--- (..., width) -> the same shape
function MoE:forward(x)
  options.input(self, x)
  if x:dim() == 0 or x:size(-1) ~= self.width then
    fail("MoE: the input must be (..., %d), got (%s)", self.width, table.concat(x.shape, ", "))
  end
  local flat = x:reshape(-1, self.width)
  local chosen, share, p, logits = self:route(flat)
  local order, ends, load = self:sort(chosen)
  self:note(load, p, logits)
  local tokens, n = flat:size(1), order:numel()
  local token = (order - 1):remainder(math.max(tokens, 1)) + 1
  local place = core.zeros_like(order)
    :scatter(1, order, core.arange(1, n + 1, {device = order.device}))
    :view(self.top_k, tokens):t()
  local y = self:run_experts(dispatch(flat, token, place), ends)
  return combine(y, share, token, place, order):view(x.shape)
end

--- How many tokens chose each expert in the last forward, i64 (experts); nil before the first.
function MoE:load() return last[self] and last[self].load end

--- The losses of the last forward in training, without their factors.
-- @return {balance =, z =}, each nil if its factor is 0
function MoE:losses()
  local found = last[self] or {}
  return {balance = found.balance, z = found.z}
end

function MoE:describe()
  return ("%d -> %d -> %d, experts=%d, top_k=%d"):format(self.width, self.hidden, self.width,
                                                        self.experts, self.top_k)
end

--- The losses of all mixtures of experts in a model, of their last forward and times their
-- factors: loss = loss + nn.moe_loss(model). Within flare.checkpoint, whose forward records
-- nothing, they have no gradient: use `bias_balance` there.
-- @return a tensor, or 0 if there is none
local function moe_loss(model)
  if not walk.is_module(model) then
    fail("nn.moe_loss: a module is expected, got %s", options.kind(model))
  end
  local sum = 0
  for _, layer in ipairs(model:modules()) do
    local found = class.is(layer, MoE) and last[layer]
    if found and found.balance then sum = sum + found.balance * layer.balance end
    if found and found.z then sum = sum + found.z * layer.z_loss end
  end
  return sum
end

return {MoE = MoE, moe_loss = moe_loss}
