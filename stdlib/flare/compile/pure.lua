--- Functions compiled with {pure = true}: their code runs until a call has been like the one
-- before; then calls with like arguments run its launches alone (runtime/compile/pure.c).
local core = require "flare.core"
local fail = require "flare.fail"

local M = {}

local MOST = 64 -- tensors among arguments and results; lua/compile.c has it, too
local TRACES = 16 -- that are kept, those used last; runtime/compile/pure.h has it, too
local TRIES = 3 -- calls that might have been traced, but for a reason, before it is an error

-- While the code of a pure function runs: what notes code that has to run in every call.
local recorder

--- For code that changes state outside of tensors, as the step of an optimizer: it runs in every
-- call of a pure function that it is part of.
-- @param run called with self @return what run returns, unless a pure function runs
function M.live(run, self, ...)
  if recorder then return recorder(run, self, ...) end
  return run(self, ...)
end

-- Puts the tensors of a result into `list`; returns how to make it of a later call's.
local function shape_of(value, list, where)
  if core.is_tensor(value) then
    list[#list + 1] = value
    return {at = #list}
  elseif type(value) ~= "table" then
    return {value = value}
  elseif getmetatable(value) ~= nil then
    fail("compile: {pure = true}: %s is an object; return tensors, numbers, strings, booleans and"
      .. " plain tables of them", where)
  end
  local fields = {}
  for k, v in pairs(value) do fields[k] = shape_of(v, list, where) end
  return {fields = fields}
end

local function made(shape, list)
  if shape.at then return list[shape.at] end
  if not shape.fields then return shape.value end
  local out = {}
  for k, v in pairs(shape.fields) do out[k] = made(v, list) end
  return out
end

-- Arguments besides tensors, and `training` of a module, which a trace is for.
local function fits(trace, training, n, ...)
  if trace.n ~= n or trace.training ~= training then return false end
  local values = trace.values
  for i = 1, n do
    local x = select(i, ...)
    local tensor = values[i] == M and core.is_tensor(x)
    if not tensor and not rawequal(x, values[i]) then return false end
  end
  return true
end

local function alike(a, b)
  if not a or a.n ~= b.n or a.training ~= b.training or #a.lives ~= #b.lives then return false end
  for i = 1, a.n do
    if not rawequal(a.values[i], b.values[i]) then return false end
  end
  for i = 1, #a.lives do
    if a.lives[i] ~= b.lives[i] then return false end
  end
  return true
end

local Pure = {}
Pure.__index = Pure

-- Runs the code, and notes what it has got and returned.
function Pure:record(training, n, ...)
  local object, inputs = self.object, {}
  if core.pure_position(object) < 0 then return self.f(...) end -- another function's window
  local call = {n = n, training = training, values = {...}, lives = {}, code = {}}
  for i = 1, n do
    if core.is_tensor(call.values[i]) then
      inputs[#inputs + 1] = call.values[i]
      call.values[i] = M
    end
  end
  local outer, depth = recorder, 0
  local _ <close> = setmetatable({}, {__close = function() recorder = outer end})
  recorder = function(run, owner, ...)
    if depth > 0 then return run(owner, ...) end
    depth = depth + 1
    local lives, n_args, args = call.lives, select("#", ...), {...}
    lives[#lives + 1] = core.pure_position(object)
    local results = table.pack(run(owner, ...))
    lives[#lives + 1] = core.pure_position(object)
    call.code[#call.code + 1] = {run = run, owner = owner, n = n_args, args = args}
    depth = depth - 1
    return table.unpack(results, 1, results.n)
  end
  local results = table.pack(self.f(...))
  recorder = outer
  local list = {}
  call.shapes = {}
  for i = 1, results.n do call.shapes[i] = shape_of(results[i], list, "result " .. i) end
  call.n_results, call.plain = results.n, #list == results.n
  for i = 1, results.n do call.plain = call.plain and call.shapes[i].at == i end
  if #inputs >= MOST or #list >= MOST or #call.lives >= MOST then
    fail("compile: {pure = true}: at most %d tensors are arguments, and results", MOST - 1)
  end
  local repeats = alike(self.last, call)
  if repeats then collectgarbage() end -- what nothing refers to is no result
  core.pure_note(object, inputs, list, call.lives, repeats)
  self.last = call
  return table.unpack(results, 1, results.n)
end

-- The launches of a trace, and code that runs in every call.
function Pure:replay(trace)
  local _ <close> = setmetatable({}, {__close = function(_, why)
    if why == nil then return end
    for i, t in ipairs(self.traces) do
      if t == trace then table.remove(self.traces, i) end
    end
  end})
  local object, at = self.object, 0
  for i, code in ipairs(trace.code) do
    core.pure_feed(object, at, trace.lives[2 * i - 1])
    code.run(code.owner, table.unpack(code.args, 1, code.n))
    at = trace.lives[2 * i]
  end
  core.pure_feed(object, at, -1)
  if trace.plain then return core.pure_results(object) end
  local list, results = {core.pure_results(object)}, {}
  for i = 1, trace.n_results do results[i] = made(trace.shapes[i], list) end
  return table.unpack(results, 1, trace.n_results)
end

-- What became of the call before.
function Pure:settle()
  local id, why = core.pure_traced(self.object)
  if id then
    self.last.id = id
    table.insert(self.traces, 1, self.last)
    self.traces[TRACES + 1] = nil
    self.tries = 0
  elseif why then
    self.tries = self.tries + 1
    if self.tries >= TRIES then fail("compile: {pure = true}: %s", why) end
  end
end

function Pure:call(...)
  if self.last and not self.last.settled then
    self.last.settled = true
    self:settle()
  end
  local n, training = select("#", ...), self.module and self.module.training
  for i, trace in ipairs(self.traces) do
    if fits(trace, training, n, ...) and core.pure_enter(self.object, trace.id, ...) then
      if i > 1 then table.move(self.traces, 1, i - 1, 2) end
      self.traces[1] = trace
      return self:replay(trace)
    end
  end
  return self:record(training, n, ...)
end

--- A function for core.compiled in place of f. `object`, core's, is to be set in the second result.
function M.wrap(f)
  local module = type(f) == "table" and f
  local self = setmetatable({f = f, module = module, traces = {}, tries = 0}, Pure)
  return function(...) return self:call(...) end, self
end

return M
