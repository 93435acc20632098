--- The memory and the time of a step by the figures of its blocks, without running it: what the
-- search in choose.lua compares. Which of the plans fits is found out by a dry run afterwards.
local M = {}

-- Bytes that a block keeps on the device between its forward and its backward.
local function held(f, how)
  if how.saved == "keep" then return f.keep end
  local rest = how.saved == "offload" and f.keep - f.away or f.recompute
  return how.input == "host" and rest - f.input or rest
end

-- Bytes of a block's values that go to the host.
local function away(f, how)
  local bytes = how.saved == "offload" and f.away or 0
  return how.saved ~= "keep" and how.input == "host" and bytes + f.input or bytes
end

--- Whether gradients are kept after a block's backward: until the next round, or until the norm of
-- all of them is known.
function M.sums(config) return config.rounds > 1 or config.clip end

local function if_host(where, bytes) return where == "host" and bytes or 0 end

--- @param figures {base, rest_gradients, rest_states, rest_largest, loss, loss_peak,
--   blocks = {{parameters, gradients,
--   states, keep, recompute, away, input, forward_peak, backward_peak, recompute_peak}, ...}}
-- @return bytes on the device, on the host, and where the most are: {name, bytes} each
function M.memory(figures, config)
  local n, sums, ahead = #figures.blocks, M.sums(config), config.ahead
  local live, host = figures.base + figures.rest_gradients, 0
  if config.rest.states == "host" then host = host + figures.rest_states
  else live = live + figures.rest_states end
  for k, f in ipairs(figures.blocks) do
    local how = config.blocks[k]
    if how.parameters == "host" then host = host + f.parameters
    else live = live + f.parameters end
    if how.states == "host" then host = host + f.states else live = live + f.states end
    if sums and how.gradients == "host" then host = host + f.gradients
    elseif sums then live = live + f.gradients end
    host = host + (k < n and away(f, how) or 0)
  end
  -- what blocks from..to have on the device for a while
  local function window(from, to, field)
    local sum = 0
    for k = math.max(from, 1), math.min(to, n) do
      local how = config.blocks[k]
      local where = how[field == "gradients" and not sums and "none" or field] or "host"
      sum = sum + if_host(where, figures.blocks[k][field])
    end
    return sum
  end
  local function values(from, to)
    local sum = 0
    for k = math.max(from, 1), math.min(to, n) do
      if k < n then sum = sum + away(figures.blocks[k], config.blocks[k]) end
    end
    return sum
  end
  local most, kept = live, 0
  for k, f in ipairs(figures.blocks) do
    most = math.max(most, live + kept + window(k - 1, k + ahead, "parameters")
      + values(k - 1, k - 1) + f.forward_peak)
    kept = kept + (k < n and held(f, config.blocks[k])
      or config.blocks[k].saved == "recompute" and f.recompute or f.keep)
  end
  most = math.max(most, live + kept + figures.loss_peak + window(n, n, "parameters")
    + values(n - 1, n - 1))
  for k = n, 1, -1 do
    local f, how = figures.blocks[k], config.blocks[k]
    local now = live + kept + window(k - ahead, k + 1, "parameters") + values(k - ahead, k)
      + window(k, k + 1, "gradients") + window(k, k + 1, "states")
      + (how.saved == "recompute" and f.recompute_peak or f.backward_peak)
      + (k == n and figures.loss or 0)
    most = math.max(most, now)
    if config.clip then
      now = live + window(k - ahead, k + 1, "parameters") + window(k - ahead, k + 1, "states")
        + window(k - ahead, k, "gradients")
      most = math.max(most, now)
    end
    kept = kept - (k < n and held(f, how) or how.saved == "recompute" and f.recompute or f.keep)
  end
  most = math.max(most, live + window(1, 1, "parameters") + window(1, 1, "states")
    + if_host(config.rest.states, figures.rest_largest))
  return most, host
end

--- Seconds of a step: of each phase the longest of computing and of both directions of the link.
-- @return the seconds, and {compute, in, out} of all phases together
function M.time(figures, config, link)
  local rounds, n, clip = config.rounds, #figures.blocks, config.clip
  local sums, backwards = M.sums(config), clip and rounds or rounds - 1
  -- of a round, of one after which gradients are kept, and of the updates with their backward
  local forward, backward, last = {0, 0, 0}, {0, 0, 0}, {0, 0, 0}
  for k, f in ipairs(figures.blocks) do
    local how = config.blocks[k]
    local p, g = if_host(how.parameters, f.parameters), if_host(how.gradients, f.gradients)
    local s, a = if_host(how.states, f.states), k < n and away(f, how) or 0
    local compute = f.backward_time + (how.saved == "recompute" and f.again_time or 0)
    forward[1] = forward[1] + f.forward_time
    forward[2], forward[3] = forward[2] + (k < n and p or 0), forward[3] + a
    local back = (k < n and p or 0) + a
    backward[1], backward[2] = backward[1] + compute, backward[2] + back
    last[1], last[2] = last[1] + f.update_time + (clip and 0 or compute),
      last[2] + s + (clip and p or back)
    last[3] = last[3] + p + s
    if sums then
      backward[2] = backward[2] + g * (backwards - 1) / backwards
      backward[3] = backward[3] + g
      last[2] = last[2] + g
    end
  end
  local rest = if_host(config.rest.states, figures.rest_states)
  local function of(phase) return math.max(phase[1], phase[2] / link, phase[3] / link) end
  local seconds = rounds * (of(forward) + figures.rest_time) + backwards * of(backward)
    + of(last) + math.max(figures.rest_update, rest / link)
  local all = {}
  for i = 1, 3 do
    all[i] = (rounds * forward[i] + backwards * backward[i] + last[i]) / (i > 1 and link or 1)
  end
  all[2], all[3] = all[2] + rest / link, all[3] + rest / link
  return seconds, all
end

return M
