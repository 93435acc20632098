--- The prompt: reads chunks, runs them, shows results. What a person types is compiled as an
-- expression first and as statements otherwise; a top-level `local` stays visible on the next
-- lines; errors and Ctrl-C come back here.
local core = require "flare.core"
local line = require "flare.repl.line"
local complete = require "flare.repl.complete"
local history = require "flare.repl.history"

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
  ?name                what a function, class or method does (name? or help "name", too)
  :time expression     seconds it takes
  :mem                 live tensors' memory and its biggest holders
  :help  :quit         Ctrl-D and exit quit, too; Ctrl-C stops what runs or drops what is typed]]

-- --- names ---

-- The environment of all chunks: kept locals, then the globals, then flare's own names.
local function environment()
  local flare = require "flare"
  local kept, own = {}, {flare = flare, help = flare.help}
  local lazy = {nn = true, optim = true, data = true}
  local env = setmetatable({}, {
    __index = function(_, name)
      if kept[name] ~= nil then return kept[name].value end
      local value = rawget(_G, name)
      if value ~= nil then return value end
      if lazy[name] then own[name] = flare[name] end
      return own[name]
    end,
    __newindex = function(_, name, value)
      if kept[name] then kept[name].value = value else rawset(_G, name, value) end
    end,
    __pairs = function()
      local all = {}
      for name in pairs(_G) do all[name] = true end
      for name in pairs(kept) do all[name] = true end
      for name in pairs(lazy) do all[name] = true end
      all.flare = true
      return next, all, nil
    end,
  })
  return env, kept
end

-- Called as the last statement of a chunk: its locals become names of the environment.
local function keeper(kept)
  return function()
    local i = 1
    while true do
      local name, value = debug.getlocal(2, i)
      if not name then return end
      if name:match "^[%a_]" then kept[name] = {value = value} end
      i = i + 1
    end
  end
end

-- --- chunks ---

local function unfinished(problem)
  return problem:find("<eof>['\"]?$") ~= nil
end

-- text -> function, or nil and the problem; quiet tells that results are not wanted.
local function compile(text, env)
  local quiet = text:find(";%s*$") ~= nil
  local body = text:gsub(";%s*$", "")
  local expression, open = load("return " .. body, "=prompt", "t", env)
  if expression then -- a call around it keeps its line on the stack, for errors
    local call = "return __all(" .. body .. (body:find("--", 1, true) and "\n)" or ")")
    return load(call, "=prompt", "t", env), nil, quiet
  end
  local chunk, problem = load(text .. "\n;__keep()", "=prompt", "t", env)
  if not chunk then chunk = load(text, "=prompt", "t", env) end
  if chunk then return chunk, nil, true end
  local _, plain = load(text, "=prompt", "t", env)
  return nil, unfinished(open) and open or plain or problem
end

-- Lines until they make a chunk; nil at the end of the input. Ctrl-C drops what was typed.
local function read_chunk(env, resume)
  local text = line.read "> "
  if text == nil then return nil end
  text = text:gsub("^f?>>? ", "")
  if text:match "^%s*$" or text:match "^%s*[:?]" or text:match "^[%w_.]+%?%s*$" then return text end
  while true do
    local chunk, problem = compile(text, env)
    if chunk or not unfinished(problem) then return text end
    local more = line.read ">> "
    if more == nil then
      if not resume() then return text end
      print()
      return ""
    end
    text = text .. "\n" .. more:gsub("^>> ", "")
  end
end

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

local traced -- the handler of errors in what was typed

-- The message and the lines of the script, without those of the prompt and the library.
local function trace(problem)
  local text = core.hint(written(problem))
  local lines = {}
  for entry in debug.traceback("", 2):gmatch "\n\t([^\n]+)" do
    if entry:find("'xpcall'", 1, true) then break end
    local own = entry:find "^%[C%]" or entry:find "^%(%.%.%.tail"
      or entry:find "^prompt%.lua:" or entry:find "^<flare>/"
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

local function run(text, env)
  local chunk, problem, quiet = compile(text, env)
  if not chunk then
    io.stderr:write(core.hint(problem), "\n")
    return
  end
  local results = table.pack(xpcall(chunk, traced))
  if not results[1] then
    io.stderr:write(tostring(results[2]), "\n")
    return
  end
  if quiet then return end
  table.remove(results, 1)
  results.n = results.n - 1
  local ok, trouble = xpcall(show, traced, results)
  if not ok then io.stderr:write(tostring(trouble), "\n") end
end

-- --- commands ---

local function size(bytes)
  local units = {"bytes", "KB", "MB", "GB"} -- of 1000, as errors count them
  local i = 1
  while bytes >= 1000 and i < #units do bytes, i = bytes / 1000, i + 1 end
  return (i == 1 and "%d %s" or "%.1f %s"):format(bytes, units[i])
end

local commands = {}

function commands.help() print(help) end

function commands.mem()
  local stats = core.memory.stats()
  print(("%d tensors, %s live, %s at most, %s reserved"):format(core.tensors(),
    size(stats.live), size(stats.peak), size(stats.reserved)))
  local holders = core.memory.holders()
  if holders and holders ~= "" then print(holders) end
end

function commands.time(text, env)
  local chunk, problem = compile(text, env)
  if text == "" then problem = "what is to be timed is missing: :time expression" end
  if text == "" or not chunk then return io.stderr:write(core.hint(problem), "\n") end
  local start = core.clock()
  local ok, trouble = xpcall(chunk, traced)
  if not ok then return io.stderr:write(tostring(trouble), "\n") end
  print(("%.6f s"):format(core.clock() - start))
end

local function command(text, env)
  local name, rest = text:match "^%s*:(%w+)%s*(.*)$"
  if name == "quit" or name == "q" then return "quit" end
  if commands[name] then
    commands[name](rest, env)
  else
    io.stderr:write("there is no command :", tostring(name), "; :help lists them\n")
  end
end

-- The name in a line that is nothing but one, or its call, unless it is a variable's.
local function lone(text)
  local name = text:match "^%s*(%a+)%s*%(?%s*%)?%s*$"
  return name and rawget(_G, name) == nil and name
end

--- Runs the prompt until the input ends. `resume` forgets a Ctrl-C and tells whether there was
-- one, `calm` makes error handlers; with `greet` the five lines to try are shown first.
function M.run(resume, calm, greet)
  local env, kept = environment()
  traced = calm(trace)
  rawset(env, "__keep", keeper(kept))
  rawset(env, "__all", function(...) return ... end)
  if greet then print(greeting) end
  if line.set_completer then -- it begins anew: what is remembered before is lost
    line.set_completer(function(text, from, to) return complete.words(env, text, from, to) end)
  end
  local remember = line.remember or function() end
  history.load(remember)
  if core.interruptible then core.interruptible(true) end
  while true do
    local ok, text = xpcall(read_chunk, calm(tostring), env, resume)
    if not ok then -- Ctrl-C while typing drops what was typed
      io.stderr:write(text, "\n")
    elseif text == nil then
      if not resume() then break end
      print()
    else
      resume()
      if not text:match "^%s*$" then
        remember(text)
        history.append(text)
      end
      local asked = text:match "^%s*%?%s*([%w_.:]+)" or text:match "^([%w_.:]+)%?%s*$"
      if asked then
        print((require("flare.help").help(asked)))
      elseif text:match "^%s*%?%s*$" or lone(text) == "help" then
        commands.help()
      elseif lone(text) == "quit" or lone(text) == "exit" then
        break
      elseif text:match "^%s*:" then
        local done, outcome = xpcall(command, traced, text, env)
        if outcome == "quit" then break end
        if not done then io.stderr:write(tostring(outcome), "\n") end
      elseif not text:match "^%s*$" then
        run(text, env)
      end
      resume()
    end
  end
  if line.is_terminal(0) then print() end
end

return M
