--- Group relative policy optimization (arXiv:2402.03300): answers are drawn from the model itself,
-- and an answer is learnt by how much better its reward is than those of its group.
local core = require "flare.core"
local fail = require "flare.fail"
local options = require "flare.options"
local sequences = require "flare.train.sequences"

local M = {}

-- Log-probabilities of the answers' tokens, and the answer of each.
local function score(model, rollouts)
  local device = model:parameters()[1].device
  local ids, targets, lengths = sequences.join("train.grpo_loss", rollouts)
  return sequences.log_probs(model, ids:to(device), targets:to(device), lengths,
                             rollouts.temperature)
end

--- Draws answers from the model as it is now, and their rewards.
-- @param model a published model that predicts the next token
-- @param prompts a list of lists of token ids
-- @param reward a function of an answer's ids, the number of its prompt and the result of
--   model:generate, which returns a number
-- @param opts `group = 8`, answers for each prompt; `scale = true`: advantages are divided by the
--   deviation of the group (false: arXiv:2503.20783); the others, such as max_tokens,
--   temperature = 1, seed, stop, tokenizer, are those of model:generate
-- @return a list of {ids =, labels =, reward =, advantage =, group =, text = if there is a
--   tokenizer}, whose field `logp` has the log-probabilities of all their tokens; the mean reward
function M.rollout(model, prompts, reward, opts)
  local how = {temperature = 1, group = 8, scale = true}
  for key, value in pairs(opts or {}) do how[key] = value end
  local group, scale = options.count("train.rollout", "group", how.group, 2), how.scale
  if type(how.temperature) ~= "number" or how.temperature <= 0 then
    fail("train.rollout: temperature must be above 0, got %s", tostring(how.temperature))
  elseif type(prompts) ~= "table" or type(prompts[1]) ~= "table" then
    fail("train.rollout: a list of lists of token ids is expected")
  elseif type(reward) ~= "function" then
    fail("train.rollout: reward must be a function, got %s", options.kind(reward))
  end
  how.group, how.scale, how.ids = nil, nil, {}
  for _, prompt in ipairs(prompts) do
    for _ = 1, group do how.ids[#how.ids + 1] = prompt end
  end
  local rollouts, sum = {temperature = how.temperature}, 0
  for k, answer in ipairs(model:generate(how)) do
    local place = (k - 1) // group + 1
    local prompt, ids = prompts[place], answer.ids
    local all = table.move(ids, 1, #ids, #prompt + 1, table.move(prompt, 1, #prompt, 1, {}))
    local labels = table.move(all, 1, #all, 1, {})
    for i = 1, #prompt do labels[i] = -100 end
    local value = reward(ids, place, answer)
    if type(value) ~= "number" or value ~= value then
      fail("train.rollout: the reward must be a number, got %s", tostring(value))
    end
    rollouts[k] = {ids = all, labels = labels, reward = value, group = place, text = answer.text}
    sum = sum + value
  end
  for first = 1, #rollouts, group do
    local mean, square = 0, 0
    for k = first, first + group - 1 do mean = mean + rollouts[k].reward / group end
    for k = first, first + group - 1 do square = square + (rollouts[k].reward - mean) ^ 2 end
    local deviation = scale and (square / (group - 1)) ^ 0.5 + 1e-4 or 1
    for k = first, first + group - 1 do
      rollouts[k].advantage = (rollouts[k].reward - mean) / deviation
    end
  end
  local _ <close> = core.no_grad()
  local was = model.training
  model:eval()
  rollouts.logp = score(model, rollouts)
  if was then model:train() end
  return rollouts, sum / #rollouts
end

--- The loss of group relative policy optimization on rollouts. It may be used for several steps of
-- the optimizer: ratios of probabilities now and then are clipped, as in PPO.
-- @param model a published model that predicts the next token
-- @param rollouts what train.rollout gave
-- @param opts `clip = 0.2`, or {low, high}, how far a ratio counts; `beta = 0`, the weight of the
--   divergence from `reference`, a model, or adapters of models.lora: the model without them;
--   `mean`: over all "tokens", or of each answer and then over "answers"
-- @return the loss; {ratio = the mean ratio, clipped = the fraction of tokens whose ratio is
--   clipped, kl = the divergence, if there is a reference}, tensors
function M.grpo_loss(model, rollouts, opts)
  local o = options.check("train.grpo_loss", opts, {clip = options.none, beta = 0,
                                                    reference = options.none, mean = "tokens"})
  if type(rollouts) ~= "table" or not core.is_tensor(rollouts.logp) then
    fail("train.grpo_loss: what train.rollout gave is expected, got %s", options.kind(rollouts))
  elseif o.mean ~= "tokens" and o.mean ~= "answers" then
    fail("train.grpo_loss: mean is 'tokens' or 'answers', got '%s'", o.mean)
  end
  local low, high = table.unpack(type(o.clip) == "table" and o.clip or {o.clip or 0.2})
  high = high or low
  local logp, owner = score(model, rollouts)
  local advantages = {}
  for k, one in ipairs(rollouts) do advantages[k] = one.advantage end
  advantages = core.tensor(advantages, {dtype = "f32", device = logp.device})
    :index_select(1, owner)
  local ratio = (logp - rollouts.logp):exp()
  local held = ratio:clamp{min = 1 - low, max = 1 + high}
  local each = -(ratio * advantages):minimum(held * advantages)
  local figures = {ratio = ratio:detach():mean(),
                   clipped = (held * advantages):lt(ratio * advantages):to("f32"):mean()}
  if o.reference then
    local far = sequences.reference(model, o.reference, score, rollouts) - logp
    local kl = far:exp() - far - 1 -- never negative, and without bias (Schulman, 2020)
    each, figures.kl = each + kl * o.beta, kl:detach():mean()
  end
  if o.mean == "tokens" then return each:mean(), figures end
  local zeros = core.zeros({#rollouts}, {device = logp.device})
  local counts = zeros:index_add(1, owner, core.ones_like(each:detach()))
  return (zeros:index_add(1, owner, each) / counts:clamp(1)):mean(), figures
end

return M
