--- The side of the Debug Adapter Protocol that is in the script's process: answers what is asked of
-- a stopped script, and hears what comes while it runs. Its peer is adapter.lua.
local alert = require "flare.repl.alert"
local chunks = require "flare.repl.chunk"
local core = require "flare.core"
local engine = require "flare.debugger"
local frames = require "flare.debugger.frames"
local signals = require "flare.repl.signals"
local Variables = require "flare.repl.dap.variables"
local Wire = require "flare.repl.dap.wire"
local syntax = require "flare.repl.syntax"
local world = require "flare.debugger.world"

local array = core.json.array

local M = {}

local wire -- to the adapter
local view -- of a stopped script: {stack =, stop =, variables =}

-- --- sending ---

local function event(name, body) wire:send {type = "event", event = name, body = body} end

local function answer(request, body, message)
  if message then body = {error = {id = 2, format = message, showUser = true}} end
  wire:send {type = "response", request_seq = request.number, command = request.command,
             success = message == nil, body = body, message = message}
end

-- --- where the script stops ---

-- What a log point prints: its text with the values of {expressions}.
local function logger(text)
  return function(frame)
    local line = text:gsub("{(.-)}", function(expression)
      local ok, value = pcall(world.value, frame, expression)
      if ok then return tostring(value) end
      return ("{%s}"):format(tostring(value):gsub("^.-:1: ", ""))
    end)
    io.stdout:flush()
    event("output", {category = "console", output = line .. "\n", line = frame.line,
                     source = {name = frame.short:match "[^/]*$", path = frame:path()}})
  end
end

-- "5", "> 5", "% 5" as a function of how often a line was reached.
local function counter(text)
  local sign, number = (text or ""):match "^%s*([<>=%%]*)%s*(%d+)%s*$"
  number = math.tointeger(tonumber(number))
  if not number then return nil end
  return function(hits)
    if sign == ">" then return hits > number
    elseif sign == "<" then return hits < number
    elseif sign == "<=" then return hits <= number
    elseif sign == "%" then return number > 0 and hits % number == 0
    elseif sign == "=" or sign == "==" then return hits == number end
    return hits >= number
  end
end

local function set_points(path, list)
  engine.remove(path)
  for _, one in ipairs(list) do
    engine.add {path = path, line = one.line, condition = one.condition, id = one.id,
                counts = counter(one.hits), log = one.log and logger(one.log)}
  end
end

local function set_filters(list)
  local on = {}
  for _, name in ipairs(list) do on[name] = true end
  engine.errors = on.all and "all" or on.uncaught and "uncaught" or false
  engine.values.nan = on.nan or false
  if engine.errors or on.nan then require("flare.debugger.guard").install() end
end

-- --- requests ---

local requests = {} -- command = function(arguments, request) -> body, or nil and a message

local function frame_of(id) return view.stack[id or 1] end

local function source_of(frame)
  local path = frame:path()
  if not path or frame.library then
    return {name = frame.short, presentationHint = "deemphasize"}
  end
  return {name = path:match "[^/]*$", path = core.file.real(path) or path}
end

function requests.stackTrace(o, request)
  local list, from = array {}, o.startFrame or 0
  local last = (o.levels or 0) > 0 and from + o.levels or #view.stack
  for i = from + 1, math.min(last, #view.stack) do
    local frame = view.stack[i]
    list[#list + 1] = {id = i, name = frame.name, source = source_of(frame),
                       line = math.max(frame.line, 1) - 1 + request.from, column = request.from}
  end
  return {stackFrames = list, totalFrames = #view.stack}
end

function requests.scopes(o)
  local frame = frame_of(o.frameId)
  if not frame then return nil, "there is no such frame" end
  local v = view.variables
  local function set(name, value) return frame:set(name, value) end
  local function locals()
    local list = frame:locals()
    local rest = frame:varargs()
    if rest.n > 0 then
      rest.n = nil
      list = table.move(list, 1, #list, 1, {})
      list[#list + 1] = {name = "...", value = rest}
    end
    return list
  end
  local scopes = array {{name = "Locals", presentationHint = "locals", expensive = false,
                         variablesReference = v:refer_list(locals, set)}}
  if frame:upvalues()[1] then
    scopes[2] = {name = "Upvalues", expensive = false,
                 variablesReference = v:refer_list(function() return frame:upvalues() end, set)}
  end
  scopes[#scopes + 1] = {name = "Globals", expensive = true, presentationHint = "globals",
                         variablesReference = v:refer(frame:globals())}
  return {scopes = scopes}
end

function requests.variables(o)
  local list = view.variables:children(o)
  if not list then return nil, "the variable is from before the script went on" end
  return {variables = list}
end

-- The values of a text in a frame, as at the prompt: an expression or statements.
local function evaluate(frame, text)
  local env = world.follow(function() return frame end)
  rawset(env, "__all", function(...) return ... end)
  rawset(env, "__keep", function() end)
  local chunk, problem = chunks.compile(text, env)
  if not chunk then return false, syntax.hint(problem, text) end
  local rest = frame:varargs()
  return xpcall(chunk.run, function(e) return core.hint(tostring(e)) end,
                table.unpack(rest, 1, rest.n))
end

function requests.evaluate(o)
  local frame = frame_of(o.frameId)
  if not frame then return nil, "there is no such frame" end
  local results = table.pack(evaluate(frame, o.expression))
  if not results[1] then return nil, tostring(results[2]) end
  local value = results[2]
  local shown = view.variables:describe("", value)
  local whole = {}
  for i = 2, results.n do whole[i - 1] = tostring(results[i]) end
  if o.context == "repl" or o.context == "clipboard" then
    shown.value = type(value) == "table" and not debug.getmetatable(value) and shown.value
                  or table.concat(whole, "\t")
  end
  return {result = shown.value, type = shown.type, variablesReference = shown.variablesReference,
          indexedVariables = shown.indexedVariables, namedVariables = shown.namedVariables}
end

function requests.setVariable(o)
  local results = table.pack(evaluate(frame_of(view.chosen), o.value))
  if not results[1] then return nil, tostring(results[2]) end
  if not view.variables:assign(o.variablesReference, o.name, results[2]) then
    return nil, o.name .. " cannot be assigned"
  end
  local shown = view.variables:describe(o.name, results[2])
  return {value = shown.value, type = shown.type, variablesReference = shown.variablesReference}
end

function requests.exceptionInfo()
  local problem = view.stop.problem
  if view.stop.reason ~= "exception" then return nil, "the script did not stop at an error" end
  local lines = {}
  for i, frame in ipairs(view.stack) do lines[i] = frame:place() end
  local text, operands = core.hint(tostring(problem)), core.provenance(problem)
  if operands then text = text .. "\n" .. operands end
  return {exceptionId = "error", description = text,
          breakMode = engine.errors == "all" and "always" or "unhandled",
          details = {message = text, stackTrace = table.concat(lines, "\n")}}
end

function requests.completions(o, request)
  local frame = frame_of(o.frameId)
  local env = world.follow(function() return frame end)
  local text, at = o.text, o.column - request.from
  local ok, from, list = pcall(require("flare.repl.complete").at, env, text, at)
  local targets = array {}
  for i, name in ipairs(ok and list or {}) do
    if i > 200 then break end
    targets[i] = {label = name, start = from, length = at - from}
  end
  return {targets = targets}
end

-- --- going on ---

local going = {continue = "continue", next = "next", stepIn = "step", stepOut = "finish"}

-- Does what a message says. While the script is stopped, the action with which it goes on.
local function handle(message)
  if message.type == "breakpoints" then
    set_points(message.path, message.list)
  elseif message.type == "filters" then
    set_filters(message.filters)
  elseif message.command == "pause" then
    answer(message)
    if not view then engine.pause "pause" end
  elseif not view then
    answer(message, nil, "the script runs")
  elseif going[message.command] then
    answer(message, message.command == "continue" and {allThreadsContinued = true} or nil)
    return going[message.command]
  else
    local f = requests[message.command]
    local o = message.arguments or {}
    view.chosen = o.frameId or view.chosen
    local ok, body, problem = pcall(f, o, message)
    if ok then answer(message, body, problem) else answer(message, nil, tostring(body)) end
  end
end

-- What came while the script ran.
local function hear()
  if engine.stopped() then return true end
  while true do
    local message, ended = wire:receive()
    if ended then os.exit(1) end -- nothing is left that could go on
    if not message then return end
    handle(message)
  end
end

local named = {breakpoint = "breakpoint", exception = "exception", pause = "pause", step = "step",
               entry = "entry", value = "exception", interrupt = "pause"}

local function front(stop)
  local stack = frames.own(frames.stack(stop.thread, stop.level, stop.root()))
  view = {stack = stack, stop = stop, variables = Variables.new()}
  io.stdout:flush()
  local text = stop.text or stop.problem ~= nil and core.hint(tostring(stop.problem)) or nil
  event("stopped", {reason = named[stop.reason] or stop.reason, threadId = 1, text = text,
    allThreadsStopped = true, description = stop.text and "A result" or nil,
    hitBreakpointIds = stop.point and stop.point.id and array {stop.point.id} or nil})
  local action
  repeat
    local message = wire:wait()
    if not message then os.exit(1) end
    action = handle(message)
  until action
  view = nil
  return action
end

--- Waits for what the adapter says about breakpoints, and lets it stop the script from then on.
-- @param file the number of the connection
function M.start(file)
  wire = Wire.new(file)
  io.stdout:setvbuf "line"
  local first = wire:wait()
  if not first or first.noDebug then return end
  engine.attach(front, signals.root, signals.resume)
  engine.poll(function()
    if alert.due() then hear() end
  end)
  for path, list in pairs(first.breakpoints) do set_points(path, list) end
  set_filters(first.filters)
  alert.on(hear)
  alert.watch(file)
  hear()
  if first.stopOnEntry then engine.pause "entry" end
end


return M
