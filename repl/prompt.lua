--- The prompt: reads chunks, runs them, shows results. What a person types is compiled as an
-- expression first and as statements otherwise; a top-level `local` stays visible on the next
-- lines; errors and Ctrl-C come back here.
local chunks = require "flare.repl.chunk"
local commands = require "flare.repl.commands"
local core = require "flare.core"
local history = require "flare.repl.history"
local names = require "flare.repl.names"
local pager = require "flare.repl.pager"
local run = require "flare.repl.run"
local signals = require "flare.repl.signals"
local terminal = require "flare.repl.terminal"
local value_help = require "flare.repl.value"

-- The prompt goes on whatever a chunk does to these globals.
local print, tostring, xpcall = print or io.write, tostring, xpcall
local rawget, require, ipairs, pcall = rawget, require, ipairs, pcall
local _G = _G
local stderr = io.stderr

local M = {}

local greeting = [[
type a line of Lua; five to start with:
  x = flare.randn(3, 4)
  x:softmax(2)
  nn.Linear(4, 2)(x)
  ?softmax
  :help]]

-- --- reading ---

local ahead -- a line that was read before its turn

-- Whether a line is for the prompt: a command, or a question.
local function is_alone(text)
  return text:find "^%s*%?" or text:find "^%s*[%w_.:]+%?%s*$" or text:find "^%s*:%s*[%a!]"
         and (commands.name(text) or not chunks.continues(text)) and true
end

-- Plain lines until they make a chunk; nil at the end of the input, "" and true after a Ctrl-C.
local function read_plain(env, mark)
  local text = ahead or terminal.read(mark)
  ahead = nil
  if text == nil then return nil end
  text = text:gsub("^f?>>? ", ""):gsub("^debug> ", "")
  if text:match "^%s*$" or text:match "^%s*[:?]" or text:match "^[%w_.]+%?%s*$" then return text end
  while true do
    local chunk, problem = chunks.compile(text, env)
    local more
    if chunk then -- a pasted chain of methods goes on at the next line
      if not (terminal.peek() or ""):find "[ \t:.]" then return text end
      more = terminal.read ">> "
      if not more or commands.name(more) or not chunks.goes_on(text, more, env) then
        ahead = more
        return text
      end
    elseif not chunks.is_unfinished(problem) then
      return text
    else
      more = terminal.read ">> "
    end
    if more == nil then
      if not signals.resume() then return text end
      return "", true
    end
    text = text .. "\n" .. more:gsub("^>> ", "")
  end
end

--- Candidates for what stands before a position: where they begin, a list, and a function that
-- describes one in lines.
function M.complete(env, text, at)
  local ok, from, list, about, said = pcall(require("flare.repl.complete").at, env, text, at)
  if not ok then return at, {} end -- no completion is better than an error in a line
  return from, list, function(candidate)
    local good, lines = pcall(about, candidate)
    return good and lines or {}
  end, said
end

-- The editor, where there is a terminal for it.
local function open_editor(env, complete)
  if not require("flare.repl.editor").usable() then return nil end
  return require("flare.repl.editor").new {
    complete = complete or function(text, at) return M.complete(env, text, at) end,
    whole = function(text) return chunks.is_whole(text, env, is_alone) end,
    goes_on = function(text, more)
      return not commands.name(more) and chunks.goes_on(text, more, env)
    end,
    history = history.load(),
  }
end

-- --- running ---

-- The name in a line that is nothing but one, or its call, unless it is a variable's.
local function lone(text)
  local name = text:match "^%s*(%a+)%s*%(?%s*%)?%s*$"
  return name and rawget(_G, name) == nil and name
end

-- @return false after an error
local function end_block(kept)
  local problem = names.end_block(kept)
  if not problem then return end
  stderr:write(problem, "\n")
  return false
end

-- Runs one text; false after an error, "quit" to end.
local function run_text(text, env, kept)
  local source = text:match "^%s*%?%?%s*([%w_.:]+)%s*$"
  local asked = text:match "^%s*%?%s*([%w_.:]+)" or text:match "^%s*([%w_.:]+)%?%s*$"
  if source then
    pager.print(value_help.source(env, source))
  elseif asked then
    pager.print(value_help.describe(env, asked) or (require("flare.help").help(asked)))
  elseif text:match "^%s*%?%s*$" or lone(text) == "help" then
    commands.run(":help", env, kept)
  elseif chunks.is_end(text) then
    return end_block(kept)
  elseif lone(text) == "quit" or lone(text) == "exit" then
    return "quit"
  elseif text:match "^%s*:" then
    return commands.run(text, env, kept)
  elseif not text:match "^%s*$" then
    return run.run(text, env)
  end
end

-- Texts of several lines run one after another; what follows an error is left out.
local function run_units(text, env, kept)
  local units = chunks.units(text, env, is_alone)
  for i, unit in ipairs(units) do
    local outcome = run_text(unit, env, kept)
    if outcome == "quit" then return outcome end
    if outcome == false then
      if units[i + 1] then stderr:write "the rest of the paste was not run\n" end
      return
    end
  end
end

-- Runs what was read, which may have many lines.
local function run_texts(text, env, kept)
  if text:find "\n" then return run_units(text, env, kept) end
  return run_text(text, env, kept)
end

-- Reads from another process, to which what is printed goes, and runs once.
local function step_remote(env, kept, o)
  local text = o.remote.read(o.mark, env)
  if not text then return "quit" end
  text = o.bare and o.bare(text) or text
  local outcome
  o.remote.around(function() outcome = run_texts(text, env, kept) end)
  return outcome
end

-- Reads and runs once; "quit" at the end.
local function step(env, kept, editor, o)
  if o.remote then return step_remote(env, kept, o) end
  local ok, text, dropped
  if editor then
    ok, text, dropped = xpcall(editor.read, run.traced, editor, o.mark, (o.mark:gsub("> $", ">> ")))
  else
    ok, text, dropped = xpcall(read_plain, run.traced, env, o.mark)
  end
  if not ok then -- Ctrl-C while typing drops what was typed
    terminal.raw(false)
    stderr:write(tostring(text), "\n")
    return
  elseif text == nil then
    if not signals.resume() then return "quit" end
    print()
    return
  end
  local stopped = signals.resume()
  if dropped then
    if not editor then print() end
    return
  end
  if not text:match "^%s*$" then
    if editor then editor:remember(text) end
    history.append(text)
  end
  if stopped and editor then -- keys are no signals: it came after Enter, and means this text
    stderr:write "interrupted!\n"
    return
  end
  if o.forward then return o.forward(text) end
  commands.follow()
  text = o.bare and o.bare(text) or text
  if editor then return run_texts(text, env, kept) end
  return run_text(text, env, kept)
end

local unbuffered = false

--- Reads and runs until the input ends or a command says "quit".
-- @param o {env =, kept = its locals, mark = what is shown before a line, commands = further ones,
-- bare = function(line) -> the command that a line without a colon is, or nil,
-- opened = function(handler of errors), and what run.open takes; remote = {read = function(mark,
-- env), around = function(f)}: the texts are from another process; forward = function(text) runs
-- them in another process, complete = function(text, at)}
function M.loop(o)
  local traced, close = run.open(signals.calm, o.kept, o)
  local before = commands.use(o.commands)
  if o.opened then o.opened(traced) end
  local editor = not o.remote and open_editor(o.env, o.complete) or nil
  if not o.remote and not terminal.is_terminal(0) and not unbuffered then terminal.unbuffer() end
  unbuffered = unbuffered or not o.remote
  local failed = 0 -- in a row: what a chunk has broken may keep the prompt from reading
  repeat
    local ok, outcome = xpcall(step, traced, o.env, o.kept, editor, o)
    failed = ok and 0 or failed + 1
    if not ok then stderr:write(tostring(outcome), "\n") end
    signals.resume()
  until ok and outcome == "quit" or failed == 100
  names.close(o.kept)
  commands.use(before)
  close()
  if terminal.is_terminal(0) and not editor and not o.remote then print() end
end

--- Runs the prompt until the input ends; with `greet` the five lines to try are shown first.
function M.run(greet)
  local env, kept = names.environment()
  if greet then print(greeting) end
  if core.interruptible then core.interruptible(true) end
  if terminal.is_terminal(1) then terminal.keep_going() end
  M.loop {env = env, kept = kept, mark = "> ", keep = true}
end

M.environment = names.environment

return M
