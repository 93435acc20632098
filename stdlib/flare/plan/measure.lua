--- What the blocks of a step need: bytes, FLOPs and times, from runs of the step on the device
-- "dry", which allocates and computes nothing.
local core = require "flare.core"
local Executor = require "flare.plan.executor"

local M = {}

local DEVICE = "dry"
local MOST = 3 -- rounds of a run
local EDGE = 3 -- neighbours that the figures of a block may depend on

--- Calls f(...), which may use the device "dry"; random numbers are as before afterwards.
-- @return what pcall returns
function M.dry(limit, f, ...)
  core.backend_control(DEVICE, "open", 1)
  local generator = core.default_generator()
  local seed, offset = generator:state()
  collectgarbage()
  core.memory.flush(DEVICE)
  core.memory.limit(limit and math.ceil(limit) or 0, DEVICE)
  local result = table.pack(pcall(core.device, DEVICE, f, ...))
  core.memory.limit(0, DEVICE)
  generator:set_state(seed, offset)
  return table.unpack(result, 1, result.n)
end

-- Inputs of so many rows without values.
local function inputs_of(step, rows)
  local list = {n = step.inputs.n}
  for k = 1, list.n do
    local x = step.inputs[k]
    local shape = table.move(x.shape, 1, #x.shape, 1, {})
    shape[1] = rows
    list[k] = core.empty(shape, {dtype = x.dtype, device = "cpu"}) -- never touched
  end
  return list
end

local products = {"matmul", "linear", "bmm", "einsum", "^lstm", "^gru"}

local function kind_of(name)
  if name:find "attention" then return "attention" end
  if name:find "conv" then return "convolution" end
  for _, pattern in ipairs(products) do
    if name:find(pattern) then return "product" end
  end
  return "elementwise"
end

-- Seconds of launches by what they belong to: {["forward 3"] = , ["backward 3"] = , ...}.
local function times_of(machine, rows, count)
  local times = setmetatable({}, {__index = function() return 0 end})
  local flops = 0
  for i = 1, count do
    local op, _, module, device, dtype, backward, transfer, _, _, _, _, f, bytes =
      core.profile_row(rows, i)
    if device:find "^dry" and not transfer then
      local kind = kind_of(op)
      if not machine.peak[dtype] then dtype = machine.peak.f32 and "f32" or next(machine.peak) end
      local key = module:find "^update" and module
        or (backward and "backward " or "forward ") .. module
      times[key] = times[key] + machine:seconds {flops = f, bytes = bytes, kind = kind,
                                                  dtype = dtype}
      flops = flops + f
    end
  end
  return times, flops
end

--- Makes the device "dry" take and move memory as another one does.
function M.like(device)
  local cuda = device:find "^cuda"
  core.backend_control(DEVICE, "page", cuda and 2 << 20 or 0)
  core.backend_control(DEVICE, "part", cuda and 8 << 20 or 0)
end

--- Runs a step once or twice on the device "dry".
-- @param config of Executor
-- @param o {rows = of the batch, steps = 1, watch = what Executor calls, profile = a machine}
-- @return {peak, reserved, host, flushes, times, flops}; raises the step's errors
function M.run(step, found, config, o)
  local executor = Executor(step, found, config, DEVICE, true)
  local out = {}
  local ok, message = pcall(function()
    executor:open()
    local inputs = inputs_of(step, o.rows // config.rounds * math.min(config.rounds, MOST))
    executor.watch = o.watch
    executor.known = o.known
    local rounds = config.rounds
    if rounds > MOST then -- those between the first and the last are alike
      executor.config = setmetatable({rounds = MOST}, {__index = config})
    end
    for k = 1, o.steps or 1 do
      if k == (o.steps or 1) and o.profile then core.profile_start() end
      core.memory.reset_peak(DEVICE)
      local before = core.memory.stats(DEVICE).flushes
      executor:train(table.unpack(inputs, 1, inputs.n))
      local s = core.memory.stats(DEVICE)
      out.peak, out.reserved = math.max(out.peak or 0, s.peak), s.peak_reserved
      out.flushes = s.flushes - before
    end
    if o.profile then
      local rows, count = core.profile_stop()
      out.times, out.flops = times_of(o.profile, rows, count)
    end
  end)
  if not ok and o.profile then pcall(core.profile_stop) end
  if ok and o.watch then out.bytes, out.rest, out.base = executor:count() end
  out.host, out.order = executor.traffic.host, executor.order
  executor:close()
  if not ok then
    out.message = message
    return nil, out
  end
  return out
end

-- Whether garbage is collected at the ends of a block's passes. A full collection takes time in
-- proportion to all blocks, so of a run of blocks that are alike the inner ones do without.
local function exact(block)
  return block.index <= block.first + EDGE or block.index >= block.last - EDGE
end

-- Gives the inner blocks of a run the figures of its third block, which has such neighbours as they
-- have. Peaks of forward depend on when garbage was collected before, so all later blocks get its.
local function spread(list, blocks)
  local out = setmetatable({}, {__index = list})
  for k, block in ipairs(blocks) do
    local from = list[math.min(block.first + EDGE - 1, k)]
    out[k] = list[k]
    if k >= block.first + EDGE and k <= block.last - EDGE then out[k] = from
    elseif k >= block.first + EDGE then
      out[k] = setmetatable({forward_peak = from.forward_peak}, {__index = list[k]})
    end
  end
  return out
end

-- Whether blocks of equal fields compute the same, as far as their times tell; those that do not
-- stand for themselves from now on.
local function check_alike(blocks, times)
  local same = true
  for k, block in ipairs(blocks) do
    for _, pass in ipairs {"forward ", "backward "} do
      local a, b = times[pass .. k], times[pass .. math.max(block.last - 1, block.first)]
      local edge = k == block.first or k == block.last -- its input or result may need less
      if not edge and math.abs(a - b) > 1e-6 * math.max(a, b) then same = false end
    end
  end
  for k, block in ipairs(same and {} or blocks) do block.first, block.last = k, k end
  return same
end

-- Bytes at the ends of passes through blocks.
local function watcher(list)
  local last
  return function(what, block, input)
    if not block or exact(block) then collectgarbage() else collectgarbage "step" end
    local s = core.memory.stats(DEVICE)
    if block then
      local entry = list[block.index] or {}
      list[block.index] = entry
      entry[what] = s.live - last
      entry.input = input or entry.input
      entry[what .. "_peak"] = s.peak - math.max(last, 0)
      if what == "forward" then
        local away = 0
        for _, swap in ipairs(block.away or {}) do away = away + swap.bytes end
        entry.away = away
      end
    elseif what == "loss" then
      list.loss, list.loss_peak = s.live - (last or 0), s.peak - (last or 0)
    else
      list.rest_peak = s.peak - (last or 0)
    end
    if what == "start" then list.start = s.live end
    last = s.live
    core.memory.reset_peak(DEVICE)
  end
end

--- A config in which all blocks are alike.
function M.uniform(found, how, rounds, ahead)
  local blocks = {}
  for k = 1, #found.blocks do
    blocks[k] = {parameters = how.parameters, gradients = how.gradients, states = how.states,
                 saved = how.saved, input = how.input}
  end
  return {blocks = blocks, rest = {states = how.states}, rounds = rounds, ahead = ahead or 1,
          garbage = found.garbage, clip = found.clip}
end

--- Figures of the blocks for a way to save, for so many rows: {forward = bytes that stay after
-- forward, forward_peak, backward_peak, away}, with the times of all passes if a machine is given.
function M.blocks(step, found, saved, rows, machine)
  local how = {parameters = "device", gradients = "device", states = "device", saved = saved,
               input = "device"}
  local list = {}
  local ok, out, failed = M.dry(nil, M.run, step, found, M.uniform(found, how, 1),
    {rows = rows, watch = watcher(list), profile = machine})
  if not ok then error(out, 0) end
  if not out then error(failed.message, 0) end
  if out.times and saved == "keep" and not check_alike(found.blocks, out.times) then
    return M.blocks(step, found, saved, rows, machine)
  end
  return spread(list, found.blocks), out
end

return M
