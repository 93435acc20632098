-- REINFORCE with a baseline and entropy on a corridor; the environment is plain Lua.
local flare = require "flare"
local nn, optim = flare.nn, flare.optim
local D = flare.distributions
flare.manual_seed(1)
math.randomseed(1)

local size = 7
local Corridor = flare.class "Corridor"
function Corridor:init() self:reset() end
function Corridor:reset()
  self.at, self.steps = math.random(2, size - 1), 0
  return self:observe()
end
function Corridor:observe()
  return flare.one_hot(flare.tensor(self.at, {dtype = "i64"}), size):float()
end
function Corridor:step(action) -- 1: left, 2: right
  self.at, self.steps = self.at + (action == 2 and 1 or -1), self.steps + 1
  local done = self.at == 1 or self.at == size or self.steps >= 30
  local reward = self.at == size and 1 or -0.05
  return self:observe(), reward, done
end

local ActorCritic = flare.class("ActorCritic", nn.Module)
function ActorCritic:init()
  self.body = nn.Linear(size, 32, {act = "tanh"})
  self.policy, self.value = nn.Linear(32, 2), nn.Linear(32, 1)
end
function ActorCritic:forward(x)
  local h = self.body(x)
  return D.Categorical{logits = self.policy(h)}, self.value(h):squeeze(-1)
end

local model, env = ActorCritic(), Corridor()
local optimizer = optim.Adam(model, {lr = 1e-2})
local gamma, average = 0.95, 0
for episode = 1, 250 do
  local states, actions, rewards = {}, {}, {}
  local state, done = env:reset(), false
  while not done do
    local action = flare.no_grad(function() return (model(state)):sample() end)
    local following, reward
    states[#states + 1], actions[#actions + 1] = state, action
    following, reward, done = env:step(action:item())
    rewards[#rewards + 1] = reward
    state = following
  end
  local returns, g = {}, 0
  for k = #rewards, 1, -1 do
    g = rewards[k] + gamma * g
    returns[k] = g
  end
  local total = flare.tensor(returns)
  local policy, value = model(flare.stack(states))
  local advantage = total - value:detach()
  local loss = -(policy:log_prob(flare.stack(actions)) * advantage):mean()
    + flare.mse_loss(value, total)
    - 0.01 * policy:entropy():mean()
  optimizer:zero_grad()
  loss:backward()
  optimizer:step()
  local sum = 0
  for _, r in ipairs(rewards) do sum = sum + r end
  average = 0.95 * average + 0.05 * sum
  if episode % 50 == 0 then print(episode, average) end
end
assert(average > 0.6, average)
local policy = flare.no_grad(function() return (model(flare.eye(size))) end)
print(policy.probs)
assert(policy.probs[{{2, size - 1}, 2}]:min():item() > 0.5)
