--- The prompt: reads chunks, runs them, shows results. What a person types is compiled as an
-- expression first and as statements otherwise; a top-level `local` stays visible on the next
-- lines; errors and Ctrl-C come back here.
local chunks = require "flare.repl.chunk"
local complete = require "flare.repl.complete"
local core = require "flare.core"
local history = require "flare.repl.history"
local line = require "flare.repl.line"
local names = require "flare.repl.names"
local value_help = require "flare.repl.value"

-- The prompt goes on whatever a chunk does to these globals.
local print, type, tostring, xpcall = print or io.write, type, tostring, xpcall
local rawget, rawset, pairs, getmetatable = rawget, rawset, pairs, getmetatable
local require, table, debug, math, os, io = require, table, debug, math, os, io
local _G = _G
local stderr, stdout = io.stderr, io.stdout

local M = {}

local greeting = [[
type a line of Lua; five to start with:
  x = flare.randn(3, 4)
  x:softmax(2)
  nn.Linear(4, 2)(x)
  ?softmax
  :help]]

local help = [[
  expression           its value is printed; a trailing ; keeps it quiet; _ is the last one
  local v = ...        stays visible on the next lines
  :method(...)         continues the expression or assignment of the line before
  ?name                what a function, class or method does, or what your own variable is
                       (name? and help "name", too)
  :time expression     seconds it takes
  :mem                 live tensors' memory and its biggest holders
  :close name          closes a local that was declared <close>; without a name all of them
  :!command            runs a command of the shell
  :help  :quit         Ctrl-D and exit quit, too; Ctrl-C stops what runs or drops what is typed]]

-- --- reading ---

local commands = {}
local ahead -- a line that was read before its turn

local function command_name(text)
  local name = text:match "^%s*:%s*([%a!]%w*)"
  if name and (name:sub(1, 1) == "!") then return "!" end
  return name and (commands[name] or name == "quit" or name == "q") and name
end

-- Whether a line is for the prompt: a command, or a question.
local function is_alone(text)
  return text:find "^%s*%?" or text:find "^%s*[%w_.:]+%?%s*$" or text:find "^%s*:%s*[%a!]"
         and (command_name(text) or not chunks.continues(text)) and true
end

-- A paste as one text: its first line was just read.
local function read_paste(text, rest, partial)
  stdout:write((rest:gsub("\n$", ""):gsub("[^\n]+", ">> %0")), "\n")
  text = text .. "\n" .. rest
  if partial then text = text .. (line.read ">> " or "") end
  return (text:gsub("\n$", ""))
end

-- Lines until they make a chunk, and whether they are a paste; nil at the end of the input. Ctrl-C
-- drops what was typed.
local function read_chunk(env, resume)
  local text = ahead or line.read "> "
  ahead = nil
  if text == nil then return nil end
  if line.pasted then
    local rest, partial = line.pasted()
    if rest then return read_paste(text, rest, partial), true end
  end
  text = text:gsub("^f?>>? ", "")
  if text:match "^%s*$" or text:match "^%s*[:?]" or text:match "^[%w_.]+%?%s*$" then return text end
  while true do
    local chunk, problem = chunks.compile(text, env)
    local more
    if chunk then -- a pasted chain of methods goes on at the next line
      if not (line.peek() or ""):find "[ \t:.]" then return text end
      more = line.read ">> "
      if not more or command_name(more) or not chunks.goes_on(text, more, env) then
        ahead = more
        return text
      end
    elseif not chunks.is_unfinished(problem) then
      return text
    else
      more = line.read ">> "
    end
    if more == nil then
      if not resume() then return text end
      print()
      return ""
    end
    text = text .. "\n" .. more:gsub("^>> ", "")
  end
end

-- --- results ---

-- A plain table by what is in it, the first of many entries and not too deep.
local function written(value, depth)
  depth = depth or 0
  if depth > 0 and type(value) == "string" then return ("%q"):format(value) end
  if depth > 0 and core.is_tensor(value) then
    return ("%s %s"):format(value.dtype, value.shape)
  end
  if type(value) ~= "table" or getmetatable(value) then return tostring(value) end
  local parts, keys = {}, {}
  for key in pairs(value) do
    if math.type(key) ~= "integer" or key < 1 or key > #value then keys[#keys + 1] = key end
  end
  table.sort(keys, function(a, b) return tostring(a) < tostring(b) end)
  for i = 1, #value + #keys do
    if i > 12 or depth > 2 then
      parts[#parts + 1] = "..."
      break
    end
    local key = keys[i - #value]
    local name = type(key) == "string" and key:find "^[%a_][%w_]*$" and key
                 or "[" .. written(key, 3) .. "]"
    parts[i] = key == nil and written(value[i], depth + 1)
               or name .. " = " .. written(value[key], depth + 1)
  end
  return "{" .. table.concat(parts, ", ") .. "}"
end

local running -- the chunk
local traced -- the handler of errors in what was typed

-- The message and the lines of the script, without those of the prompt and the library.
local function trace(problem)
  if running then names.close_failed(running, problem) end
  local text = core.hint(written(problem))
  local lines = {}
  for entry in debug.traceback("", 2):gmatch "\n\t([^\n]+)" do
    if entry:find("'xpcall'", 1, true) then break end
    local own = entry:find "^%[C%]" or entry:find "^%(%.%.%.tail" or entry:find "^<flare>/"
      or entry:find "^prompt%.lua:" or entry:find "^names%.lua:"
    if not own then lines[#lines + 1] = "  " .. entry end
  end
  if #lines > 1 then text = text .. "\n" .. table.concat(lines, "\n") end
  return text
end

local function show(results)
  for i = 1, results.n do
    print((written(results[i])))
    if i == 1 then rawset(_G, "_", results[i]) end
  end
end

local target -- what `:method()` on the next line goes on with: "_", a variable or nil

-- The variable that a text assigns to, "_" for an expression.
local function target_of(text, quiet)
  local name = text:match "^%s*local%s+([%a_][%w_]*)%s*=[^=]"
               or text:match "^%s*([%a_][%w_.]*)%s*=[^=]"
  return name or not quiet and "_" or nil
end

-- Runs a text and shows its results; false after an error.
local function run(text, env)
  local chunk, problem = chunks.compile(text, env)
  if not chunk then
    stderr:write(core.hint(problem), "\n")
    return false
  end
  value_help.remember(text)
  running, target = chunk, nil
  local results = table.pack(xpcall(chunk.run, traced))
  running = nil
  if not results[1] then
    local interrupted = tostring(results[2]):find "^[^\n]*interrupted!"
    if interrupted and line.is_terminal(2) then stderr:write "\n" end -- behind ^C or a progress bar
    stderr:write(tostring(results[2]), "\n")
    return false
  end
  target = target_of(text, chunk.quiet)
  if chunk.quiet then return true end
  table.remove(results, 1)
  results.n = results.n - 1
  local ok, trouble = xpcall(show, traced, results)
  if not ok then stderr:write(tostring(trouble), "\n") end
  return ok
end

-- `:method(...)` on a line of its own.
local function run_continued(text, env)
  if not target then
    stderr:write(text:match "^%s*(.-)%s*$", " continues the line before, which has no value\n")
    return false
  end
  return run(target == "_" and "_" .. text or ("%s = %s%s"):format(target, target, text), env)
end

-- --- commands ---

local function size(bytes)
  local units = {"bytes", "KB", "MB", "GB"} -- of 1000, as errors count them
  local i = 1
  while bytes >= 1000 and i < #units do bytes, i = bytes / 1000, i + 1 end
  return (i == 1 and "%d %s" or "%.1f %s"):format(bytes, units[i])
end

function commands.help() print(help) end

function commands.mem()
  local stats = core.memory.stats()
  print(("%d tensors, %s live, %s at most, %s reserved"):format(core.tensors(),
    size(stats.live), size(stats.peak), size(stats.reserved)))
  local holders = core.memory.holders()
  if holders and holders ~= "" then print(holders) end
end

function commands.time(text, env)
  local chunk, problem = chunks.compile(text, env)
  if text == "" then problem = "the expression is missing: :time expression" end
  if text == "" or not chunk then return stderr:write(core.hint(problem), "\n") end
  local start = core.clock()
  local ok, trouble = xpcall(chunk.run, traced)
  if not ok then return stderr:write(tostring(trouble), "\n") end
  print(("%.6f s"):format(core.clock() - start))
end

commands["!"] = function(text)
  stdout:flush()
  local ok, how, status = os.execute(text)
  if not ok then
    stderr:write(how == "signal" and "ended by signal " or "exit status ", tostring(status), "\n")
  end
end

function commands.close(name, _, kept)
  local found, problem = names.close(kept, name ~= "" and name or nil)
  if problem then stderr:write(problem, "\n") end
  if not found then
    stderr:write("no local ", name, name ~= "" and " " or "", "is declared <close>\n")
  end
end

-- Runs `:name rest`; "quit" if the prompt is to end.
local function command(text, env, kept)
  local name = command_name(text)
  local rest = name == "!" and text:match "!%s*(.*)$" or text:match "^%s*:%s*%w*%s*(.-)%s*$"
  if name == "quit" or name == "q" then return "quit" end
  if name == "help" and rest ~= "" then
    print((require("flare.help").help(rest)))
  elseif name then
    commands[name](rest, env, kept)
  elseif chunks.continues(text) then
    run_continued(text, env)
  else
    stderr:write("there is no command :", text:match "^%s*:%s*(%S*)", "; :help lists them\n")
  end
end

-- The name in a line that is nothing but one, or its call, unless it is a variable's.
local function lone(text)
  local name = text:match "^%s*(%a+)%s*%(?%s*%)?%s*$"
  return name and rawget(_G, name) == nil and name
end

local function tell(name, env, kept)
  print(value_help.describe(env, kept, name) or (require("flare.help").help(name)))
end

-- Runs one text; false after an error, "quit" to end.
local function run_text(text, env, kept)
  local asked = text:match "^%s*%?%s*([%w_.:]+)" or text:match "^%s*([%w_.:]+)%?%s*$"
  if asked then
    tell(asked, env, kept)
  elseif text:match "^%s*%?%s*$" or lone(text) == "help" then
    commands.help()
  elseif lone(text) == "quit" or lone(text) == "exit" then
    return "quit"
  elseif text:match "^%s*:" then
    return command(text, env, kept)
  elseif not text:match "^%s*$" then
    return run(text, env)
  end
end

-- A paste runs whole; what follows an error is left out.
local function run_paste(text, env, kept)
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

-- Reads and runs once; "quit" at the end.
local function step(env, kept, resume, remember)
  local ok, text, is_paste = xpcall(read_chunk, traced, env, resume)
  if not ok then -- Ctrl-C while typing drops what was typed
    stderr:write(tostring(text), "\n")
    return
  elseif text == nil then
    if not resume() then return "quit" end
    print()
    return
  end
  resume()
  if not text:match "^%s*$" then
    remember(text)
    history.append(text)
  end
  return (is_paste and run_paste or run_text)(text, env, kept)
end

--- Runs the prompt until the input ends. `resume` forgets a Ctrl-C and tells whether there was
-- one, `calm` makes error handlers; with `greet` the five lines to try are shown first.
function M.run(resume, calm, greet)
  local env, kept = names.environment()
  traced = calm(trace)
  if greet then print(greeting) end
  if not line.is_terminal(0) then line.unbuffer() end
  if line.set_completer then -- it begins anew: what is remembered before is lost
    line.set_completer(function(text, from, to) return complete.words(env, text, from, to) end)
  end
  local remember = line.remember or function() end
  history.load(remember)
  if core.interruptible then core.interruptible(true) end
  local failed = 0 -- in a row: what a chunk has broken may keep the prompt from reading
  repeat
    local ok, outcome = xpcall(step, traced, env, kept, resume, remember)
    failed = ok and 0 or failed + 1
    if not ok then stderr:write(tostring(outcome), "\n") end
    resume()
  until ok and outcome == "quit" or failed == 100
  names.close(kept)
  if line.is_terminal(0) then print() end
end

return M
