--- The debugger at the prompt: looks at a script that has stopped, or at what an error has left,
-- and evaluates lines in one of its functions.
local commands = require "flare.repl.commands"
local core = require "flare.core"
local engine = require "flare.debugger"
local frames = require "flare.debugger.frames"
local signals = require "flare.repl.signals"
local terminal = require "flare.repl.terminal"
local text = require "flare.repl.debug.text"
local world = require "flare.debugger.world"

local print, stderr = print, io.stderr

local M = {}

local help = [[
  expression, name = value   in the chosen function: reads and assigns its variables
  :where               the functions that were called; * is the chosen one
  :up :down :frame N   chooses another one
  :locals              its variables and those of functions around it
  :list [LINE]         its source
  :tensors             the tensors of all functions: shape, device, the line that made them
  :continue [values]   goes on; the call that stopped returns the values, if there are any
  :step :next :finish  goes on to the next line, over calls, to the end of the function
  :break [PLACE]       stops at FILE:LINE [if CONDITION], nan, or a shape such as 3x*;
                       without a place lists them; :clear [PLACE] removes one or all
  :quit                ends the script
without a colon, too: c n s finish up down where locals]]

-- Why the script stopped, where that is worth a line.
local reasons = {breakpoint = "a breakpoint", step = nil, exception = "an error",
                 interrupt = "Ctrl-C", pause = "a pause"}

-- One look at a stopped script, or at a kept stack.
local Look = {}
Look.__index = Look

function Look:frame() return self.stack[self.chosen] end

function Look:show(more)
  local frame = self:frame()
  print(frame:place())
  local source = text.source(frame, nil, more or 2)
  if source then print(source) end
end

function Look:choose(n)
  if n < 1 or n > #self.stack then
    return stderr:write(n < 1 and "this is the innermost function\n"
                        or "this is the outermost function\n")
  end
  self.chosen = n
  self:show()
end

local own = {} -- the debugger's commands: name = function(look, rest of the line, env)

function own.where(look) print(text.stack(look.stack, look.chosen)) end
function own.up(look, rest) look:choose(look.chosen + (math.tointeger(rest) or 1)) end
function own.down(look, rest) look:choose(look.chosen - (math.tointeger(rest) or 1)) end
function own.frame(look, rest) look:choose(math.tointeger(rest) or look.chosen) end
function own.locals(look) print(text.variables(look:frame())) end
function own.tensors(look) print(text.tensors(look.stack)) end

function own.list(look, rest)
  print(text.source(look:frame(), math.tointeger(rest), 8) or "its source is not here")
end

own["break"] = function(look, rest)
  local breaks = require "flare.repl.debug.breaks"
  if rest == "" then
    local list = breaks.list()
    return print(list[1] and table.concat(list, "\n") or "nothing stops the script")
  end
  local place, problem = breaks.add(rest, look:frame():path())
  if place then print("stops at " .. place) else stderr:write(problem, "\n") end
end

function own.clear(look, rest)
  if not require("flare.repl.debug.breaks").remove(rest, look:frame():path()) then
    stderr:write("there is no break at ", rest, "\n")
  end
end

-- The ways to leave.
local function leave(action)
  return function(look, rest, env)
    if look.kept then
      return stderr:write("an error ended these functions; :quit leaves them\n")
    end
    local values
    if rest ~= "" then
      if not look.stop.replace then
        return stderr:write("no call waits for a value here\n")
      end
      local chunk, problem = load("return " .. rest, "=prompt", "t", env)
      local list = table.pack(xpcall(chunk or error, look.traced, not chunk and problem or nil))
      if not list[1] then return stderr:write(tostring(list[2]), "\n") end
      values = table.pack(table.unpack(list, 2, list.n))
    end
    look.action, look.values = action, values
    return "quit"
  end
end

own.continue, own.step, own.next = leave "continue", leave "step", leave "next"
own.finish, own.quit = leave "finish", function(look)
  look.action = "quit"
  return "quit"
end
own.help = function(_, rest) commands.help(rest, help) end

local short = {c = "continue", n = "next", s = "step", w = "where", bt = "where", u = "up",
               d = "down", l = "list", q = "quit", b = "break"}

-- What the prompt asks for while a look is open.
function Look:commands()
  local list = {}
  for name, f in pairs(own) do
    list[name] = function(rest, env) return f(self, rest, env) end
  end
  for name, long in pairs(short) do list[name] = list[long] end
  return list
end

-- A word alone on a line is a command, unless the function has a variable of that name.
function Look:bare(line)
  local name, rest = line:match "^%s*(%l+)%s*(%d*)%s*$"
  if not name or not (own[name] or short[name]) or self.has(name) then return nil end
  local global = rawget(_G, name) -- a script's counter `step`; next is Lua's
  if global ~= nil and type(global) ~= "function" then return nil end
  return (":%s %s"):format(name, rest)
end

--- Reads and runs lines until one leaves.
-- @param remote see prompt.loop, or nil for this terminal
function Look:run(remote)
  local prompt = require "flare.repl.prompt"
  local function refer() return self:frame() end
  local env, kept = prompt.environment(world.follow(refer))
  self.has = debug.getmetatable(env).has
  prompt.loop {env = env, kept = kept, mark = "debug> ", remote = remote,
               commands = self:commands(),
               bare = function(line) return self:bare(line) end,
               opened = function(traced) self.traced = traced end,
               rest = function()
                 local list = self:frame():varargs()
                 return table.unpack(list, 1, list.n)
               end}
end

local function hinted(problem)
  local operands = core.provenance(problem)
  return core.hint(type(problem) == "string" and problem or text.value(problem))
    .. (operands and "\n  " .. operands:gsub("\n", "\n  ") or "")
end

--- Shows why and where the script stopped.
function Look:announce()
  local stop = self.stop
  local point = stop.point and stop.point.condition
  local why = stop.text or reasons[stop.reason]
  if stop.reason == "exception" then
    print(hinted(stop.problem))
  elseif why then
    print("stopped at " .. why .. (point and (" if " .. point) or ""))
  end
  self:show()
  io.stdout:flush()
end

--- A look at a script that has stopped, in the coroutine of a front end.
function M.look(stop)
  debug.sethook(function() -- of this coroutine: what is evaluated can be stopped
    if core.interrupted() then error("interrupted!", 2) end
  end, "", 10000)
  local stack = frames.own(frames.stack(stop.thread, stop.level, stop.root()))
  return setmetatable({stack = stack, chosen = 1, stop = stop}, Look)
end

-- The front end of flare.debugger: shows where the script stopped, and reads what to do.
local function front(stop)
  local look = M.look(stop)
  look:announce()
  look:run()
  if look.action then return look.action, look.values end
  if not terminal.is_terminal(0) then -- the input has ended
    engine.off = true
    engine.clear()
  end
  return "continue"
end

--- Makes the prompt what opens when the script stops.
-- @param errors "uncaught": at errors that no pcall of the script catches, too
function M.attach(errors)
  engine.attach(front, signals.root, signals.resume)
  engine.errors = errors or engine.errors
  if errors then require("flare.debugger.guard").install() end
end

-- --- after an error ---

local most = 200 -- frames of a stack that are kept

--- Keeps the stack of an error, until the next one, until it was looked at, or until memory is
-- short. Called by the handler of the error.
-- @param level of the function that raised it, as for error()
function M.keep(problem, level)
  local thread = coroutine.running()
  local root = signals.root()
  local ok, stack = coroutine.resume(coroutine.create(function()
    return frames.own(frames.stack(thread, level + 1, root, most))
  end))
  core.spare(ok and stack[1] and {problem = problem, stack = stack} or nil)
end

--- Opens the debugger on the stack of the last error.
function M.after()
  local record = core.spared()
  if not record then
    return stderr:write "there is no error to look at\n"
  end
  local look = setmetatable({stack = record.stack, chosen = 1, kept = true}, Look)
  print(hinted(record.problem))
  look:show()
  look:run()
  core.spare(nil)
end

return M
