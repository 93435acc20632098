--- Chooses where parameters, gradients, states and values of each block are. The search starts with
-- everything on the host and values computed again, and keeps on the device what saves most time
-- for its bytes, as long as the cap allows it.
local Model = require "flare.plan.model"

local M = {}

-- What can be changed for a block: a field, from one value to another.
local changes = {
  {"saved", "recompute", "keep"}, {"saved", "recompute", "offload"}, {"saved", "offload", "keep"},
  {"input", "host", "device"}, {"parameters", "host", "device"},
  {"gradients", "host", "device"}, {"states", "host", "device"},
}
local TIE = 0.05 -- what seconds that are hidden behind others count

local function copy(config)
  local out = {rounds = config.rounds, ahead = config.ahead, clip = config.clip,
               garbage = config.garbage, rest = {states = config.rest.states},
               blocks = {}}
  for k, how in ipairs(config.blocks) do
    out.blocks[k] = {parameters = how.parameters, gradients = how.gradients, states = how.states,
                     saved = how.saved, input = how.input}
  end
  return out
end
M.copy = copy

-- Seconds, with a little for what is hidden.
local function cost(figures, config, link)
  local seconds, sums = Model.time(figures, config, link)
  return seconds + TIE * (sums[1] + sums[2] + sums[3]), seconds
end

-- Blocks that a change can be made for, by their figures: those alike are one entry.
local function candidates(figures, config, change)
  local groups, list = {}, {}
  for k, how in ipairs(config.blocks) do
    if how[change[1]] == change[2] then
      local key = figures.blocks[k].alike
      if not groups[key] then
        groups[key] = {}
        list[#list + 1] = groups[key]
      end
      table.insert(groups[key], k)
    end
  end
  return list
end

-- Makes a change for the first `count` blocks of a group, or undoes it.
local function make(config, group, count, field, value)
  for i = 1, count do config.blocks[group[i]][field] = value end
end

-- What `count` changes save for their bytes, and whether they fit; nil: nothing.
local function value_of(figures, config, o, change, group, count, now)
  make(config, group, count, change[1], change[3])
  local after, memory, host = cost(figures, config, o.link), Model.memory(figures, config)
  make(config, group, count, change[1], change[2])
  if memory > o.target or host > o.host and host >= now.host then return nil end
  local saves = now.cost - after
  if now.host > o.host then saves = saves + (now.host - host) end -- first what the host cannot hold
  return saves > 0 and saves / math.max(memory - now.memory, 1) or nil
end

-- For how many blocks of a group a change is worth most, and what. What blocks that offload need on
-- the device for a while, all of them share: many may be worth more for its bytes than one.
local function most_of(figures, config, o, change, group, now)
  local best, score, count = nil, nil, change[3] == "offload" and #group or 1
  while count >= 1 do
    local this = value_of(figures, config, o, change, group, count, now)
    if this and (not score or this > score) then best, score = count, this end
    count = count // 2
  end
  return best, score
end

local function best_change(figures, config, o)
  local now = {cost = cost(figures, config, o.link)}
  now.memory, now.host = Model.memory(figures, config)
  local best, score
  for _, change in ipairs(changes) do
    local allowed = not (change[3] == "offload" and o.no_offload)
      and not (change[1] == "gradients" and not Model.sums(config))
    for _, group in ipairs(allowed and candidates(figures, config, change) or {}) do
      local count, this = most_of(figures, config, o, change, group, now)
      if this and (not score or this > score) then best, score = {change, group, count}, this end
    end
  end
  if not best then return false end
  local change, group, least = best[1], best[2], best[3]
  local count = #group -- as many at once as are worth as much
  while count > least do
    local this = value_of(figures, config, o, change, group, count, now)
    if this and this > 0.8 * score then break end
    count = math.max(count // 2, least)
  end
  make(config, group, count, change[1], change[3])
  return true
end

--- @param o {target = bytes of the device, host = bytes, link = bytes a second, no_offload}
-- @return a config, its seconds, its bytes on the device and on the host
function M.search(figures, start, o)
  local config = copy(start)
  config.rest.states = "device"
  if Model.memory(figures, config) > o.target then config.rest.states = "host" end
  while best_change(figures, config, o) do end
  local memory, host = Model.memory(figures, config)
  return config, select(2, cost(figures, config, o.link)), memory, host
end

return M
