--- The commands of the prompt: lines that begin with a colon.
local chunks = require "flare.repl.chunk"
local core = require "flare.core"
local names = require "flare.repl.names"
local reload = require "flare.repl.reload"
local run = require "flare.repl.run"
local syntax = require "flare.repl.syntax"
local terminal = require "flare.repl.terminal"

local print, tostring, os, io, require = print or io.write, tostring, os, io, require
local pairs, ipairs, xpcall, type = pairs, ipairs, xpcall, type
local stderr, stdout = io.stderr, io.stdout

local M = {}

local help = [[
  expression           its value is printed; a trailing ; keeps it quiet; _ is the last one
  local v = ...        stays visible on the next lines
  :method(...)         continues the expression or assignment of the line before
  ?name                what a function, class or method does, or what your own variable is
                       (name? and help "name", too); ??name shows the source
  :time expression     seconds it takes
  :mem                 live tensors' memory and its biggest holders
  :plot :hist :heat :image expression [file]
                       a tensor as curves, a histogram, colours or an image, here or in a file
                       whose name ends in .svg or .png
  :debug               the functions that the last error stopped, with their variables
  :reload name         reads a module again; objects that exist get its new methods
  :watch file          does so before the next line whenever the file has changed
  :mark :back :fork    marks what there is; goes back to the mark, or :back 3, :at step;
                       begins another branch; :marks lists them
  :close name          closes a local that was declared <close>; `end` closes all of them
  :!command            runs a command of the shell
  :help  :quit         Ctrl-D and exit quit, too; Ctrl-C stops what runs or drops what is typed
keys: Tab completes, Ctrl-R searches the history, Alt-Enter begins a new line, Ctrl-_ undoes]]

local commands = {} -- name = function(rest of the line, env, kept locals)
local more = {} -- those that come before them: the debugger's

--- Commands that come before the prompt's own; returns those that did until now.
function M.use(others)
  local before = more
  more = others or {}
  return before
end

--- The names that follow a colon, for completion.
function M.names()
  local all = {quit = true}
  for _, list in ipairs {commands, more} do
    for name in pairs(list) do all[name] = name ~= "!" and true or nil end
  end
  return all
end

--- The names of locals that :close can close.
function M.closable() return run.closable() end

--- The command that a line names, or nil.
function M.name(text)
  local name = text:match "^%s*:%s*([%a!]%w*)"
  if name and (name:sub(1, 1) == "!") then return "!" end
  return name and (more[name] or commands[name] or name == "quit" or name == "q") and name
end

local function size(bytes)
  local units = {"bytes", "KB", "MB", "GB"} -- of 1000, as errors count them
  local i = 1
  while bytes >= 1000 and i < #units do bytes, i = bytes / 1000, i + 1 end
  return (i == 1 and "%d %s" or "%.1f %s"):format(bytes, units[i])
end

--- Explains a name, or lists the commands.
function M.help(name, also)
  if name and name ~= "" then return print((require("flare.help").help(name))) end
  print(also or help)
end

commands.help = function(name) M.help(name) end

function commands.debug() require("flare.repl.debug").after() end

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
  if text == "" or not chunk then return stderr:write(syntax.hint(problem, text), "\n") end
  local start = core.clock()
  if run.call(chunk) then print(("%.6f s"):format(core.clock() - start)) end
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

-- The expression and the file's name of `x "a.png"`, `x, name`, `x a.png` or `x, a.png`; two values
-- are read by the expression itself.
local function picture_parts(text, kept)
  local expression, _, path = text:match "^(.-)%s*,?%s*([\"'])([^\"']+%.%a+)%2$"
  if expression and expression ~= "" then return expression, path end
  expression, path = text:match "^(.*%S)%s*,%s*([%w_./-]+%.[ps][nv]g)$"
  local name = path and path:match "^[%a_][%w_]*%f[.]"
  if path and not (name and (rawget(_G, name) ~= nil or kept and kept[name])) then
    return expression, path -- no field of a variable
  end
  if chunks.compile(text, {}) then return text end
  expression, path = text:match "^(.*%S)%s+(%S+%.%a+)$"
  if not expression then return text end
  return expression, path
end

-- M.shows: function(svg), set where there is more than a terminal, as in a notebook.

for _, kind in ipairs {"plot", "hist", "heat", "image"} do
  commands[kind] = function(text, env, kept)
    local expression, path = picture_parts(text, kept)
    if expression == "" then
      return stderr:write(("the tensor is missing: :%s expression\n"):format(kind))
    end
    local ok, value, named = run.value(expression, env)
    if not ok then return false end
    path = path or type(named) == "string" and named or nil
    local columns, rows = terminal.size(1)
    local room = {columns = columns or 80, rows = rows or 24, pixels = not run.is_remote()}
    local done, picture, problem
    if path or M.shows then
      done, picture, problem = xpcall(require("flare.plot").bytes, run.traced, kind, value,
                                      path or "shown.svg")
    else
      done, picture, problem = xpcall(require("flare.repl.picture")[kind], run.traced, value, room)
    end
    if not done or not picture then
      stderr:write(done and (":%s: %s"):format(kind, problem) or tostring(picture), "\n")
      return false
    end
    if not path then return (M.shows or print)(picture) end
    done, problem = core.file.write_atomic(path, picture)
    if not done then stderr:write(problem, "\n") return false end
    print("wrote " .. path)
  end
end

for _, name in ipairs {"mark", "back", "at", "fork", "marks"} do
  commands[name] = function(...) return require("flare.repl.marks")[name](...) end
end

local function read_again(name)
  local done, problem = reload.reload(name, run.traced, run.replace)
  if not done then
    stderr:write(tostring(problem), "\n")
    return false
  end
  print("reloaded " .. done)
end

function commands.reload(name)
  if name == "" then return stderr:write "the name is missing: :reload name\n" end
  return read_again(name)
end

function commands.watch(file)
  if file == "" then return stderr:write "the file is missing: :watch file\n" end
  local path, problem = reload.watch(file)
  if path then print("watching " .. path) else stderr:write(problem, "\n") end
end

--- Reads the modules again whose watched files have changed.
function M.follow()
  for _, name in ipairs(reload.changed()) do read_again(name) end
end

--- Runs `:name rest`; "quit" if the prompt is to end.
function M.run(text, env, kept)
  local name = M.name(text)
  local rest = name == "!" and text:match "!%s*(.*)$" or text:match "^%s*:%s*%w*%s*(.-)%s*$"
  if more[name] then return more[name](rest, env, kept) end
  if name == "quit" or name == "q" then return "quit" end
  if name then
    return commands[name](rest, env, kept)
  elseif chunks.continues(text) then
    return run.continue(text, env)
  else
    local given = text:match "^%s*:%s*(%S*)"
    local near = require("flare.options").nearest(given, M.names())
    stderr:write("there is no command :", given,
                 near and (" (did you mean :%s?)\n"):format(near) or "; :help lists them\n")
  end
end

return M
