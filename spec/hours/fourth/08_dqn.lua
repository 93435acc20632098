-- Q-learning with a replay buffer, a target network and exploration that falls, on a small grid.
local flare = require "flare"
local nn, optim = flare.nn, flare.optim
flare.manual_seed(8)
math.randomseed(8)

local size = 4
local moves = {{1, 0}, {-1, 0}, {0, 1}, {0, -1}}
local function observe(s) return flare.tensor{s.row / size, s.column / size, s.goal} end
local function reset() return {row = 1, column = 1, goal = 1, steps = 0} end
local function act(s, a)
  local n = {row = math.min(math.max(s.row + moves[a][1], 1), size),
    column = math.min(math.max(s.column + moves[a][2], 1), size), goal = 1, steps = s.steps + 1}
  local done = n.row == size and n.column == size
  return n, done and 1 or -0.02, done or n.steps > 40, done
end

local q = nn.Sequential(nn.Linear(3, 64, {act = "relu"}), nn.Linear(64, 64, {act = "relu"}),
  nn.Linear(64, 4))
local target = q:clone()
target:freeze()
local optimizer = optim.Adam(q, {lr = 1e-3})
local room, count = 2000, 0
local buffer = {state = flare.zeros(room, 3), following = flare.zeros(room, 3),
  action = flare.ones(room, {dtype = "i64"}), reward = flare.zeros(room), over = flare.zeros(room)}

local function learn()
  local at = flare.randint(1, math.min(count, room) + 1, {64})
  local value = q(buffer.state[at]):gather(2, buffer.action[at]:unsqueeze(2)):squeeze(2)
  local goal = flare.no_grad(function()
    local choice = q(buffer.following[at]):argmax{dim = 2, keepdim = true} -- double Q-learning
    local next_value = target(buffer.following[at]):gather(2, choice):squeeze(2)
    return buffer.reward[at] + 0.95 * (1 - buffer.over[at]) * next_value
  end)
  local loss = flare.smooth_l1_loss(value, goal)
  optimizer:zero_grad()
  loss:backward()
  optim.clip_grad_norm_(q, 10)
  optimizer:step()
  flare.no_grad(function()                            -- the target follows slowly
    local slow, new = target:parameters(), q:parameters()
    for k, p in ipairs(slow) do p:lerp_(new[k], 0.02) end
  end)
end

for episode = 1, 120 do
  local s, done = reset(), false
  local epsilon = math.max(0.05, 1 - episode / 60)
  while not done do
    local x = observe(s)
    local a = math.random() < epsilon and math.random(4)
      or flare.no_grad(function() return q(x):argmax():item() end)
    local n, reward, ended, over = act(s, a)
    local place = count % room + 1
    count = count + 1
    buffer.state[place], buffer.following[place] = x, observe(n)
    buffer.action[place], buffer.reward[place] = a, reward
    buffer.over[place] = over and 1 or 0
    s, done = n, ended
    if count > 100 then learn() end
  end
end
local s, steps, arrived = reset(), 0
repeat
  local n, _, _, over = act(s, flare.no_grad(function() return q(observe(s)):argmax():item() end))
  s, steps, arrived = n, steps + 1, over
until arrived or steps > 20
print("steps to the goal", steps, "of", 2 * (size - 1), "transitions", count)
assert(steps == 2 * (size - 1))
