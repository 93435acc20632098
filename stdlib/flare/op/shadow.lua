--- Two implementations of an operator side by side: every call runs both and compares them.
local core = require "flare.core"
local fail = require "flare.fail"

local Shadow = {}
Shadow.__index = Shadow
Shadow.__name = "flare.op.shadow"

local huge = math.huge

-- --- comparing ---

-- The largest difference between two tensors, as a part of the largest value of the first.
local function difference(old, new)
  local _ <close> = core.no_grad()
  if old:numel() == 0 then return 0 end
  old, new = old:detach():to("cpu"), new:detach():to("cpu")
  if not old.dtype:find "^c" then old, new = old:to "f64", new:to "f64" end
  local same = old:eq(new):logical_or(old:isnan():logical_and(new:isnan()))
  local worst = core.where(same, 0.0, (new - old):abs()):max():item()
  if worst ~= worst then return huge end -- a number on one side only
  local known = old:isfinite()
  local scale = core.where(known, old:abs(), 0.0):max():item()
  return scale > 0 and worst / scale or worst
end

-- Compares lists of tensors; returns the largest difference, or nil and what does not fit.
local function compare(old, new)
  if new.n ~= old.n then
    return nil, ("the new one gives %d results, the old one %d"):format(new.n, old.n)
  end
  local worst = 0
  for i = 1, old.n do
    local a, b = old[i], new[i]
    if not core.is_tensor(a) or not core.is_tensor(b) then
      if core.is_tensor(a) ~= core.is_tensor(b) then
        return nil, ("result %d of the new one is %s"):format(i, type(b))
      end
    elseif a.dtype ~= b.dtype or a.shape ~= b.shape or a.device ~= b.device then
      return nil, ("result %d of the new one is %s %s on %s, of the old one %s %s on %s"):format(i,
        b.dtype, b.shape, b.device, a.dtype, a.shape, a.device)
    else
      worst = math.max(worst, difference(a, b))
    end
  end
  return worst
end

-- The gradients of all leaves, for weights of the results that are the same in every call.
local function gradients(f, args)
  local _ <close> = core.enable_grad()
  local given, leaves = {n = args.n}, {}
  for i = 1, args.n do
    local x = args[i]
    if core.is_tensor(x) and x.requires_grad then
      x = x:detach():requires_grad_(true)
      leaves[#leaves + 1] = x
    end
    given[i] = x
  end
  local total
  local results = table.pack(f(table.unpack(given, 1, given.n)))
  for i = 1, results.n do
    local y = results[i]
    if core.is_tensor(y) and y.requires_grad then
      -- they differ, as a softmax needs, and none is near 0
      local weights = (core.arange(y:numel(), {dtype = "f64"}):cos() + 1.5):to(y.dtype):to(y.device)
      local part = (y:reshape(y:numel()) * weights):sum()
      total = total and total + part or part
    end
  end
  if not total then return {n = 0} end
  local list = table.pack(core.grad(total, leaves, {allow_unused = true}))
  if type(list[1]) == "table" then list = list[1] end
  list.n = #leaves
  for i = 1, list.n do list[i] = list[i] or core.zeros_like(leaves[i]) end
  return list
end

-- The script's line that calls the operator.
local function place()
  local _, message = pcall(core.raise, "here")
  return tostring(message):match "^(.-): here" or "?"
end

-- What tells calls apart: the shapes, dtypes and devices of their arguments.
local function kind_of(args)
  local parts = {}
  for i = 1, args.n do
    local x = args[i]
    if core.is_tensor(x) then
      parts[#parts + 1] = ("%s %s %s"):format(x.dtype, x.shape, x.device)
    end
  end
  return table.concat(parts, ", ")
end

-- --- calls ---

local function timed(f, args)
  core.synchronize()
  local start = core.clock()
  local results = table.pack(f(table.unpack(args, 1, args.n)))
  core.synchronize()
  return results, core.clock() - start
end

-- As pcall, but a Ctrl-C goes on.
local function attempt(f, ...)
  local found = table.pack(pcall(f, ...))
  if not found[1] and tostring(found[2]):find("interrupted!", 1, true) then error(found[2], 0) end
  return table.unpack(found, 1, found.n)
end

-- Counts a call that failed, and keeps the first message.
function Shadow:failed(problem)
  if self.last ~= self.calls then self.failures = self.failures + 1 end
  self.last = self.calls
  self.problem = self.problem or tostring(problem)
end

-- Adds up the least time of each kind of call. The first call may compile a kernel: it is left out.
function Shadow:clocked(args, ...)
  local kind = kind_of(args)
  local least = self.least[kind]
  self.least[kind] = least or {}
  for i, way in ipairs {"old", "new"} do
    local t, known = select(i, ...), least and least[way]
    if least and t < (known or huge) then
      self.time[way], least[way] = self.time[way] + t - (known or 0), t
    end
  end
end

local function wants_gradients(args)
  if not core.grad_enabled() then return false end
  for i = 1, args.n do
    if core.is_tensor(args[i]) and args[i].requires_grad then return true end
  end
  return false
end

-- Keeps the greatest difference of a kind, and where it was.
function Shadow:saw(key, old, new, args)
  local worst, problem = compare(old, new)
  if not worst then return self:failed(place() .. ": " .. problem) end
  if not self[key] or worst > self[key] then
    self[key], self.places[key] = worst, ("%s, on %s"):format(place(), kind_of(args))
  end
end

--- A call of the operator: runs both, in turns the one and the other first, and returns what the
-- old one gives; a function that was kept runs alone.
function Shadow:call(...)
  if self.busy then return self.old(...) end -- the new one calls the operator
  local _ <close> = setmetatable({}, {__close = function() self.busy = false end})
  self.busy = true
  if self.ended then return self.new(...) end
  local ready, problem = attempt(core.synchronize)
  if not ready then -- in a pure function
    self:failed(problem)
    return self.old(...)
  end
  local args = table.pack(...)
  local generator = core.default_generator()
  local seed, offset = generator:state()
  local good, new, new_time
  local early = self.calls % 2 == 1
  if early then
    good, new, new_time = attempt(timed, self.new, args)
    generator:set_state(seed, offset)
  end
  local old, old_time = timed(self.old, args)
  local after, at = generator:state()
  if not early then
    generator:set_state(seed, offset)
    good, new, new_time = attempt(timed, self.new, args)
  end
  self.calls = self.calls + 1
  if not good then
    self:failed(new)
  else
    self:clocked(args, old_time, new_time)
    local compared
    compared, problem = attempt(self.saw, self, "error", old, new, args)
    if not compared then self:failed(problem) end
    if wants_gradients(args) then
      compared, problem = attempt(function()
        generator:set_state(seed, offset)
        local first = gradients(self.old, args)
        generator:set_state(seed, offset)
        self:saw("gradient_error", first, gradients(self.new, args), args)
      end)
      if not compared then self:failed(problem) end
    end
  end
  generator:set_state(after, at)
  return table.unpack(old, 1, old.n)
end

-- --- what it found ---

local function seconds(t)
  local unit, name = 1, "s"
  if t < 1e-3 then unit, name = 1e6, "us" elseif t < 1 then unit, name = 1e3, "ms" end
  return core.format("%.3g", t * unit) .. " " .. name
end

local function calls(n) return n == 1 and "1 call" or n .. " calls" end

--- What was found so far as text.
function Shadow:report()
  local lines = {("%s: %s ran both implementations%s"):format(self.name, calls(self.calls),
    self.ended and "; " .. self.ended or "")}
  local function add(...) lines[#lines + 1] = (...):format(select(2, ...)) end
  for _, key in ipairs {"error", "gradient_error"} do
    if self[key] then
      add("  %-10s at most %s of the largest %s (%s)", key == "error" and "results" or "gradients",
          core.format("%.2g", self[key]), key == "error" and "value" or "gradient",
          self.places[key])
    end
  end
  if self.time.new > 0 and self.time.old > 0 then
    local times = self.time.old / self.time.new
    add("  %-10s old %s, new %s: %s times as %s (the least of each shape, added)", "time",
        seconds(self.time.old), seconds(self.time.new),
        core.format("%.2f", math.max(times, 1 / times)), times >= 1 and "fast" or "slow")
  end
  if self.failures > 0 then
    add("  %-10s %s; the first: %s", "failed", calls(self.failures), self.problem)
  end
  if self.calls > 0 and self.failures == 0 and self.time.new == 0 then
    add("  %-10s counts from the second call of a shape on", "time")
  end
  if self.calls == 0 then add "  call the operator to compare them" end
  if not self.ended then add "  :keep() takes the new one, :back() the old one" end
  return table.concat(lines, "\n")
end

Shadow.__tostring = Shadow.report

local function finish(self, how, kept)
  if self.ended then fail("op.shadow: the shadow of %s has ended: %s", self.name, self.ended) end
  self.settle(kept)
  self.ended = how
  return self
end

--- Makes the new implementation the operator.
function Shadow:keep() return finish(self, "the new one was kept", true) end

--- Goes back to the old implementation.
function Shadow:back() return finish(self, "the old one was kept", false) end

function Shadow:__close()
  if not self.ended then self:back() end
end

return function(name, old, new, settle)
  return setmetatable({name = name, old = old, new = new, settle = settle, calls = 0, failures = 0,
                       time = {old = 0, new = 0}, least = {}, places = {}}, Shadow)
end
