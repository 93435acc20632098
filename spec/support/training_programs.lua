-- Random training: a network of layers drawn from a seed, with a loss, an optimizer and what
-- programs do around a step (clipping, accumulation, schedules, averages, autocast, loss scaling,
-- checkpoints, custom functions, hooks, penalties on gradients, control flow on values, batches of
-- other sizes, evaluation in between). Five steps at once and as a compiled function.
local flare = require "flare"
local nn, optim = flare.nn, flare.optim
local layers = require "spec.support.training_layers"

local M = {}

local draws = {}
draws.__index = draws
function draws:draw(n)
  self.seed = self.seed * 6364136223846793005 + 1442695040888963407
  return (self.seed >> 33) % n + 1
end
function draws:one(list) return list[self:draw(#list)] end
function draws:chance(n) return self:draw(n) == 1 end

-- Steps of a class that take the sign of a gradient, or scale it by its own size, are only for
-- runs that must have the same bits.
local smooth = {
  {"SGD", {lr = 0.05}}, {"SGD", {lr = 0.05, momentum = 0.9}},
  {"SGD", {lr = 0.02, momentum = 0.8, nesterov = true, weight_decay = 1e-3}},
  {"Adam", {lr = 1e-3, eps = 1e-3}}, {"AdamW", {lr = 2e-3, eps = 1e-3, weight_decay = 0.1}},
  {"Adam", {lr = 1e-3, eps = 1e-3, amsgrad = true}}, {"RMSprop", {lr = 1e-3, eps = 1e-3}},
  {"Adadelta", {lr = 0.5, eps = 1e-3}}, {"Adagrad", {lr = 0.01, eps = 1e-2}},
}
local any = {
  {"Lion", {lr = 1e-3}}, {"Rprop", {}}, {"Adamax", {}}, {"NAdam", {}}, {"RAdam", {}},
  {"Adafactor", {}}, {"ASGD", {}}, {"Adam8bit", {min_size = 64}}, {"Adagrad", {}},
  {"Adam", {}}, {"AdamW", {amsgrad = true}},
}
table.move(smooth, 1, #smooth, #any + 1, any)

local schedules = {
  function(o) return optim.ExponentialLR(o, {gamma = 0.7}) end,
  function(o) return optim.StepLR(o, {every = 1, gamma = 0.5}) end,
  function(o) return optim.CosineLR(o, {total = 4}) end,
  function(o) return optim.LambdaLR(o, {f = function(t) return 1 / (1 + t) end}) end,
}

local losses = {
  function(y, t) return (y - t):square():mean() end,
  function(y, t) return nn.functional.huber_loss(y, t) end,
  function(y, t) return nn.functional.bce_with_logits(y, t:sigmoid()) end,
  function(y, t) return -(y:log_softmax(-1) * t:softmax(-1)):sum(-1):mean() end,
  function(y, t)
    local n = y.shape[#y.shape]
    return nn.functional.cross_entropy(y:reshape(-1, n), t:reshape(-1, n):argmax(-1))
  end,
  function(y, t) return (y - t):logsumexp(-1):mean() + y:var():log1p() end,
}

local clip = flare.func{
  name = "clip_gradient",
  forward = function(ctx, x) ctx:save(x) return x * 1.5 end,
  backward = function(ctx, dy) return dy:clamp(-0.1, 0.1) * 1.5 + ctx.saved[1] * 1e-4 end,
}

-- What a seed gives: the network and its step, a function of a batch and targets.
local function make(seed, device, dtype, bits)
  flare.manual_seed(seed)
  local p = setmetatable({seed = seed * 2 + 1, device = device, dtype = dtype, bits = bits,
    notes = {}, kept = {}}, draws)
  p.clip = clip
  local net, make_batch = layers.network(p)
  net:to(device, dtype)
  local class = p:one(bits and any or smooth)
  local params = net:parameters()
  local groups = params
  if p:chance(4) and #params > 2 then
    local first, rest = {params[1]}, {table.unpack(params, 2)}
    groups = {{params = first, lr = 1e-3}, {params = rest}}
  end
  if p:chance(6) and #params > 1 then params[1]:requires_grad_(false) end
  local opt = optim[class[1]](groups, class[2])
  local schedule = p:chance(2) and p:one(schedules)(opt)
  local average = p:chance(3) and optim.EMA(net, {decay = 0.9})
  local scaler = p:chance(5) and optim.GradScaler{scale = 128, interval = 2}
  local cast = bits and dtype == "f32" and p:chance(4) and p:one {"bf16", "f16"}
  local parts, limit, cap = p:chance(3) and 2 or 1, p:chance(3) and 0.5, p:chance(6) and 0.05
  local loss_of, branch, penalty = p:one(losses), p:chance(3), p:chance(8) and not cast
  local look, evaluate, hooked = p:chance(3), p:chance(4), p:chance(4)

  local function forward(x, t)
    local y = net(x)
    if branch then -- the path depends on a value
      local size = y:detach():abs():mean():item()
      y = size > 0.4 and y * 0.5 or y + 0.1
    end
    return loss_of(y, t), y
  end

  local function step(x, t)
    opt:zero_grad()
    local total = 0
    for k = 1, parts do
      local n = x.shape[1] // parts
      local bx = parts == 1 and x or x:narrow(1, (k - 1) * n + 1, n)
      local bt = parts == 1 and t or t:narrow(1, (k - 1) * n + 1, n)
      local loss, y
      if cast then loss, y = flare.autocast(cast, forward, bx, bt)
      else loss, y = forward(bx, bt) end
      if hooked then y:register_hook(function(g) return g * 0.9 end) end
      if penalty and y.requires_grad then
        local ok, g = pcall(flare.grad, y:square():mean(), {net:parameters()[#net:parameters()]},
          {create_graph = true, allow_unused = true})
        p.notes[#p.notes + 1] = ok
        if ok and g then loss = loss + g:square():sum() * 0.01 end
      end
      loss = loss / parts;
      (scaler and scaler:scale(loss) or loss):backward()
      total = total + loss:detach()
      p.kept[k] = y
    end
    if scaler then scaler:unscale_(opt) end
    if limit then p.norm = optim.clip_grad_norm_(params, limit) end
    if cap then optim.clip_grad_value_(params, cap) end
    if scaler then scaler:step(opt) scaler:update() else opt:step() end
    if schedule then schedule:step() end
    if average then average:update() end
    if look then p.notes[#p.notes + 1] = total:item() end
    if evaluate then
      net:eval()
      p.seen = flare.no_grad(net.forward, net, x)
      net:train()
    end
    return total
  end
  return step, p, net, make_batch, average
end

local function near(a, b, exact)
  if a.shape ~= b.shape or a.dtype ~= b.dtype then return false end
  if a:numel() == 0 then return true end
  local bits = a:eq(b):logical_or(a:ne(a):logical_and(b:ne(b)))
  if exact or not a.dtype:match "^b?f%d" then return bits:all():item() end
  local off, most = (a - b):abs(), a:abs():max():item()
  return bits:logical_or(off:le(1e-6 * (1 + most))):all():item()
end

local function compare(what, a, b, exact)
  local equal = a == b or a ~= a and b ~= b
  if flare.is_tensor(a) then
    equal = flare.is_tensor(b) and near(a, b, exact)
  elseif type(a) == "number" and not exact then
    equal = equal or math.abs(a - b) <= 1e-6 * (1 + math.abs(a))
  end
  if not equal then error(("%s: %s and %s"):format(what, tostring(a), tostring(b))) end
end

--- Raises where five compiled steps leave something else than the steps. With `exact` all must
-- have the same bits; else the network is f64, whose rounding cannot be mistaken for an error.
-- @return what kind of network it was
function M.check(seed, device, exact)
  local dtype = exact and seed % 4 > 0 and "f32" or "f64"
  local side = {}
  for k = 1, 2 do
    local step, p, net, make_batch, average = make(seed, device, dtype, exact)
    if k == 2 then step = flare.compile(step, {exact = exact}) end
    side[k] = {step = step, p = p, net = net, batch = make_batch, average = average}
  end
  for turn = 1, 5 do
    flare.manual_seed(seed + turn)
    local x, t = side[1].batch(turn == 4 and 6 or 4)
    local what = ("network %d (%s), step %d"):format(seed, side[1].p.kind, turn)
    local got = {}
    for k, s in ipairs(side) do
      flare.manual_seed(seed + 100 * turn)
      local ok, loss = pcall(s.step, x, t)
      got[k] = {ok = ok, loss = loss, draw = flare.rand(1):item()}
    end
    local a, b = got[1], got[2]
    assert(a.ok == b.ok, ("%s: %s and %s"):format(what, tostring(a.loss), tostring(b.loss)))
    if not a.ok then
      assert(tostring(a.loss) == tostring(b.loss), ("%s: %s and %s"):format(what, a.loss, b.loss))
      return side[1].p.kind .. ": " .. tostring(a.loss)
    end
    compare(what .. ", loss", a.loss, b.loss, exact)
    compare(what .. ", random numbers", a.draw, b.draw, true)
    local with = side[2].net:state_dict()
    for name, v in pairs(side[1].net:state_dict()) do
      compare(what .. ", " .. name, v, with[name], exact)
    end
    local p, q = side[1].p, side[2].p
    for k, v in ipairs(p.notes) do compare(what .. ", note", v, q.notes[k], exact) end
    for _, name in ipairs {"norm", "seen"} do
      if p[name] then compare(what .. ", " .. name, p[name], q[name], exact) end
    end
    for k, v in ipairs(side[1].average and side[1].average.averages or {}) do
      compare(what .. ", average", v, side[2].average.averages[k], exact)
    end
    for k, v in ipairs(p.kept) do compare(what .. ", output", v, q.kept[k], exact) end
  end
  return side[1].p.kind
end

return M
