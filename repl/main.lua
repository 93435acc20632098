--- The program's start: reads the options of `lua`, runs what they say, and opens the
-- prompt when nothing else is asked for.

local signals = require "flare.repl.signals"

local usage = [=[
usage: flare [options] [script [arguments]]
       flare command [arguments]
options, as those of lua:
  -e text   run text
  -l name   require library name into a global
  -l g=name the same into global g
  -i        open the prompt after the script
  -d        stop at an error and open the debugger
  --break=PLACE  stop at FILE:LINE, at a result that has NaN (nan), or at one of a shape (3x*)
  -v        show the version
  -E        ignore environment variables
  -W        turn warnings on
  --profile[=FILE]  tell where the script's time went; a trace in FILE (.json or .json.gz)
  --report FILE  a page about the run in FILE.html: curves, samples, time, memory, energy
  --        stop reading options
  -         run the standard input
commands:
  attach    a prompt inside of a script that runs
  dap       the Debug Adapter Protocol, for editors
  help NAME what an operator, a function or a class does; without a name all operators
  doctor    which devices and libraries are here
  launch    a script in several processes
  kernels   CUDA kernels compiled ahead
  serve     a published model behind HTTP
  eval      how well a published model predicts texts
  jupyter   a kernel for notebooks
  simulate  a training step on a described machine
  record    a script's operators, for simulate
  top       what the machine and a run do, live
  demo      what a part of flare does, in figures
  bench     figures beside others, in flare's source folder
without any: the prompt, or the standard input if it is not a terminal]=]

-- Names of the files in repl/command; each returns a function(arguments) -> exit status.
local commands = {"attach", "bench", "dap", "demo", "doctor", "eval", "help", "jupyter", "kernels",
  "launch", "record", "serve", "simulate", "top"}

local function is_command(name)
  for _, command in ipairs(commands) do
    if command == name then return true end
  end
end

-- Whether there is a script of that name; a folder is none.
local function is_file(path)
  local file <close> = io.open(path)
  if not file then return false end
  local _, problem = file:read(0)
  return not problem
end

-- The message with a hint, if it is one of Lua's own that newcomers meet.
local function hinted(text)
  return require("flare.core").hint(text)
end

local function complain(text)
  io.stderr:write("flare: ", text, "\n")
end

-- Lines about the operands of the call that failed.
local function operands(text)
  local lines = require("flare.core").provenance(text)
  return lines and "\noperands:\n\t" .. lines:gsub("\n", "\n\t") or ""
end

-- The handler of errors: text and the Lua lines that led there. It is called through calm.
local calm
local keeps = false -- the prompt opens afterwards, where :debug shows the stack
local function traced(problem)
  local debugger = package.loaded["flare.debugger"]
  if debugger then debugger.failed(problem, 3) end
  if keeps then pcall(require("flare.repl.debug").keep, problem, 4) end
  local text = problem
  if type(problem) == "number" then
    text = tostring(problem)
  elseif type(problem) ~= "string" then
    local meta = getmetatable(problem)
    if type(meta) == "table" and meta.__tostring then return tostring(problem) end
    text = ("(error object is a %s value)"):format(type(problem))
  end
  -- without the lines of this file, which are below all others
  local lines = debug.traceback(hinted(text) .. operands(text), 3)
    :gsub("\n\t%[C%]: in [^\n]*\n\t<flare>/debugger/guard%.lua:[^\n]*", "")
    :gsub("^(.*)\n\t%[C%]: in function 'xpcall'\n\t<flare>/repl/main%.lua:.*$", "%1\n\t[C]: in ?")
  return lines .. require("flare.repl.slips").joined(lines)
end

-- In a job of several ranks: the others hear of it, and the launcher finds the text.
local function tell(text)
  local core = package.loaded["flare.core"]
  if core then core.comm.fail(text:match "^[^\n]*") end
  local path = os.getenv "FLARE_ERROR_FILE"
  local file <close> = path and io.open(path, "w") or nil
  if file then file:write(text, "\n") end
end

-- Runs f(...); false and its error, after having shown it.
local function guarded(f, ...)
  signals.start(f)
  local ok, problem = xpcall(f, calm(traced), ...)
  if not ok then
    complain(problem)
    tell(problem)
  end
  return ok, problem
end

local function run_text(text, name, ...)
  local chunk, problem = load(text, name, "t")
  if not chunk then
    complain(require("flare.repl.syntax").hint(problem, text))
    return false
  end
  return guarded(chunk, ...)
end

-- What is no file may be a slip of a command's name.
local function meant(path)
  if not path or path:find "[./]" or is_file(path) then return "" end
  local near = require("flare.core").nearest(path, commands)
  return near and (" (did you mean the command %s?)"):format(near) or ""
end

-- A file's text, or that of the standard input.
local function run_file(path, ...)
  local chunk, problem = loadfile(path, "t")
  if not chunk then
    complain(require("flare.repl.syntax").hint(problem, nil, path) .. meant(path)
             .. require("flare.repl.slips").ended(problem, path))
    return false, problem
  end
  return guarded(chunk, ...)
end

local function run_library(word)
  local global, name = word:match("^([^=]+)=(.*)$")
  name = name or word
  global = global or name:match "^[^-]*"
  return guarded(function()
    local ok, library = pcall(require, name)
    if not ok then error(library, 0) end
    rawset(_G, global, library)
  end)
end

-- Python's words for true and false are errors as long as they have no value: they would be nil.
local function watch_words()
  setmetatable(_G, {__index = function(_, name)
    if name ~= "True" and name ~= "False" then return end
    error(require("flare.strict").problem(name), 2)
  end})
end

local function run_init()
  for _, name in ipairs {"LUA_INIT_5_4", "LUA_INIT"} do
    local text = os.getenv(name)
    if text then
      if text:sub(1, 1) == "@" then return run_file(text:sub(2)) end
      return run_text(text, "=" .. name)
    end
  end
  return true
end

-- The options before the script: {actions}, flags, and where the script stands.
local function read_options(args)
  local actions, flags, i = {}, {}, 1
  while args[i] and args[i]:sub(1, 1) == "-" and args[i] ~= "-" do
    local option, rest = args[i]:sub(2, 2), args[i]:sub(3)
    if args[i] == "--" then
      i = i + 1
      break
    elseif (option == "e" or option == "l") then
      if rest == "" then
        i = i + 1
        rest = args[i]
      end
      if not rest then return nil, ("'-%s' needs an argument"):format(option) end
      actions[#actions + 1] = {option, rest}
    elseif args[i] == "--help" or args[i] == "-h" then
      flags.help = true
    elseif args[i] == "--version" or args[i] == "-v" then
      flags.version = true
    elseif args[i]:find "^%-%-profile" then
      flags.profile = args[i] == "--profile" and "" or args[i]:match "^%-%-profile=(.+)$"
      if not flags.profile then return nil, ("unrecognized option '%s'"):format(args[i]) end
    elseif args[i]:find "^%-%-report" then
      flags.report = args[i]:match "^%-%-report=(.+)$"
      if args[i] == "--report" then
        i = i + 1
        flags.report = args[i]
      end
      if not flags.report then return nil, "--report needs the name of a file" end
    elseif args[i]:find "^%-%-dap=%d+$" then -- of flare dap
      flags.dap = math.tointeger(tonumber(args[i]:match "%d+"))
    elseif args[i]:find "^%-%-break=." then
      flags.breaks = flags.breaks or {}
      flags.breaks[#flags.breaks + 1] = args[i]:match "=(.+)$"
    elseif rest == "" and (option == "i" or option == "d" or option == "E" or option == "W") then
      flags[option] = true
    else
      local near = args[i]:find "^%-%-." and require("flare.options").nearest(
        args[i]:match "^[^=]*",
        {["--help"] = true, ["--profile"] = true, ["--report"] = true, ["--break"] = true})
      return nil, ("unrecognized option '%s'%s"):format(args[i],
        near and (" (did you mean '%s'?)"):format(near) or "")
    end
    i = i + 1
  end
  return actions, flags, i
end

local function version()
  local core = require "flare.core"
  print(("flare %s  (%s)"):format(core.version or "", _VERSION))
end

-- arg[0] is the script, the program and its options have negative numbers.
local function set_arg(args, script)
  local arg = {}
  for i = 0, #args do arg[i - script] = args[i] end
  _G.arg = arg
  return arg
end

local function run_script(args, i)
  local arg = set_arg(args, i)
  local path = args[i]
  if path == "-" and args[i - 1] ~= "--" then path = nil end
  return run_file(path, table.unpack(arg))
end

-- Ends a profile and tells on stderr where the time went; false if that failed.
local function tell_profile(stop, path)
  local ok, report = pcall(stop)
  if not ok then
    complain(report)
    return false
  end
  io.stderr:write(report:text(), "\n\n", report:text {by = "line", most = 10, floor = false}, "\n")
  local written, problem = true, nil
  if path ~= "" then written, problem = report:trace(path) end
  if not written then complain(problem) end
  return written
end

-- Runs the script under the profiler; the report is printed after an error and at os.exit, too.
local function profile_script(args, i, path)
  local started, stop = pcall(require("flare.profile").start)
  if not started then
    complain(stop)
    return false
  end
  local exit = os.exit
  function os.exit(...) -- luacheck: ignore
    tell_profile(stop, path)
    exit(...)
  end
  local good = run_script(args, i)
  os.exit = exit -- luacheck: ignore
  return tell_profile(stop, path) and good
end

-- Options -d and --break: what stops the script. Nil and a message if that is nowhere.
local function debug_script(flags)
  if flags.dap then require("flare.repl.dap.server").start(flags.dap) end
  if not flags.d and not flags.breaks then return true end
  local breaks = require "flare.repl.debug.breaks"
  require("flare.repl.debug").attach(flags.d and "uncaught")
  for _, place in ipairs(flags.breaks or {}) do
    local point, problem = breaks.add(place)
    if not point then return nil, problem end
  end
  return true
end

-- A searcher of modules: files of the library that the folder FLARE_PATH does not have.
local function search_library(name)
  local stem = name:gsub("%.", "/")
  for _, file in ipairs {stem .. ".lua", stem .. "/init.lua"} do
    local text = require("flare.core").source(file)
    if text then return assert(load(text, "@<flare>/" .. file:gsub("^flare/", ""), "t")), file end
  end
  return ("no embedded module '%s'"):format(name)
end

--- resume() forgets a Ctrl-C and tells whether there was one; calm(f) makes an error handler of
-- f that a Ctrl-C does not stop; ignore() makes Ctrl-C do nothing until resume().
return function(args, resume, calm_, ignore)
  calm = calm_
  signals.resume, signals.calm, signals.ignore = resume, calm, ignore
  local terminal = require "flare.repl.terminal"
  if os.getenv "FLARE_PATH" then table.insert(package.searchers, search_library) end
  local actions, flags, i = read_options(args)
  if not actions then
    complain(flags)
    io.stderr:write(usage, "\n")
    return 1
  end
  if flags.help then
    print(usage)
    return 0
  end
  watch_words()
  if not run_init() then return 1 end
  if os.getenv "FLARE_ERROR_FILE" then io.stdout:setvbuf "line" end -- of a launcher
  if flags.W then warn("@on") end
  if flags.version then version() end
  set_arg(args, args[i] and i or 0)
  for _, action in ipairs(actions) do
    local run = action[1] == "e" and run_text or run_library
    if not run(action[2], "=(command line)") then return 1 end
  end
  local script = args[i]
  if script and is_command(script) and not is_file(script) then
    local command = require("flare.repl.command." .. script)
    return command(table.move(args, i + 1, #args, 1, {})) or 0
  end
  if (flags.profile or flags.report) and not script then
    complain((flags.profile and "--profile" or "--report") .. " wants a script")
    return 1
  end
  local watched, problem = debug_script(flags)
  if not watched then
    complain(problem)
    return 1
  end
  local good = true
  keeps = flags.i
  if script and not flags.dap then require("flare.repl.attach").open() end
  if flags.report then
    good = require("flare.repl.report")(flags.report, args, i, flags.profile ~= nil, run_script)
  elseif flags.profile then
    good = profile_script(args, i, flags.profile)
  elseif script then
    good = run_script(args, i)
  end
  if flags.i then -- after an error, too: its globals can be looked at
    resume()
    require("flare.repl.prompt").run()
  elseif not script and #actions == 0 and not flags.version then
    if terminal.is_terminal(0) then
      version()
      require("flare.repl.prompt").run(true)
    elseif not run_file(nil) then
      return 1
    end
  end
  return good and 0 or 1
end
