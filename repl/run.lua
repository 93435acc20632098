--- Runs what was typed: a chunk, its results, and its errors with the lines that are the user's.
local chunks = require "flare.repl.chunk"
local core = require "flare.core"
local names = require "flare.repl.names"
local pager = require "flare.repl.pager"
local signals = require "flare.repl.signals"
local syntax = require "flare.repl.syntax"
local terminal = require "flare.repl.terminal"
local value_help = require "flare.repl.value"

-- The prompt goes on whatever a chunk does to these globals.
local type, tostring, xpcall = type, tostring, xpcall
local rawset, rawequal, pairs, getmetatable = rawset, rawequal, pairs, getmetatable
local require, pcall = require, pcall
local table, debug, math, io = table, debug, math, io
local _G = _G
local stderr = io.stderr

local M = {}

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

M.written = written

-- What x:plot() returns is drawn as :plot x does.
local function drawn(value)
  local meta = debug.getmetatable(value)
  if type(meta) ~= "table" or rawget(meta, "__name") ~= "picture" then return nil end
  local columns, rows = terminal.size(1)
  return (require("flare.repl.picture")[value.kind](value.x, {columns = columns or 80,
    rows = rows or 24, pixels = not M.is_remote()}))
end

local function show(results)
  for i = 1, results.n do
    local picture = drawn(results[i])
    if picture then print(picture) else pager.print((written(results[i]))) end
    if i == 1 then rawset(_G, "_", results[i]) end
  end
end

-- --- errors ---

local running -- the chunk
local kept -- the locals of the prompt
local open -- what the prompt was opened with

-- The message and the lines of the script, without those of the prompt and the library. The
-- functions on the way remember them for ?f.
local function trace(problem)
  if running then names.leave_failed(kept, running, problem) end
  if running and open.keep then pcall(require("flare.repl.debug").keep, problem, 4) end
  local text, lines = core.hint(written(problem)), {}
  local operands = core.provenance(problem)
  for entry in debug.traceback("", 2):gmatch "\n\t([^\n]+)" do
    if entry:find("'xpcall'", 1, true) then break end
    local own = entry:find "^%[C%]" or entry:find "^%(%.%.%.tail" or entry:find "^<flare>/"
    if not own then lines[#lines + 1] = "  " .. entry end
  end
  if operands then text = text .. "\n  " .. operands:gsub("\n", "\n  ") end
  if #lines > 1 then text = text .. "\n" .. table.concat(lines, "\n") end
  value_help.failed(text, 2)
  return text
end

--- Makes the handler of errors, which a Ctrl-C does not stop, and keeps the prompt's locals.
-- @param o {keep = whether the stacks of errors are kept for :debug, rest = function() -> the
-- values of `...` in what is typed}
-- @return the handler, and a function that takes it back
function M.open(calm, locals, o)
  local before, traced, options = kept, M.traced, open
  M.traced, kept, open = calm(trace), locals, o
  return M.traced, function() kept, M.traced, open = before, traced, options end
end

-- The values of `...`.
local function rest()
  if open.rest then return open.rest() end
end

--- Replaces a value in all variables of the prompt that hold it.
function M.replace(old, new)
  for name, value in pairs(_G) do
    if rawequal(value, old) then rawset(_G, name, new) end
  end
  for _, entry in pairs(kept or {}) do
    if entry.access and rawequal(entry.access(), old) then entry.access(true, new)
    elseif rawequal(entry.value, old) and old ~= nil then entry.value = new end
  end
end

--- The names of the locals that are declared <close>.
function M.closable()
  local found = {}
  for name, entry in pairs(kept or {}) do
    if entry.close then found[name:match "^%S+"] = true end
  end
  return found
end

-- --- running ---

local target -- what `:method()` on the next line goes on with: "_", a variable or nil

-- The variable that a text assigns to, "_" for an expression.
local function target_of(text, quiet)
  local name = text:match "^%s*local%s+([%a_][%w_]*)%s*=[^=]"
               or text:match "^%s*([%a_][%w_.]*)%s*=[^=]"
  return name or not quiet and "_" or nil
end

-- Tensors are printed as wide as the terminal is.
local function fit_printing()
  local columns = terminal.size(1)
  if columns then require("flare.print").terminal = columns end
end

--- Runs a text and shows its results; false after an error.
function M.run(text, env)
  local chunk, problem = chunks.compile(text, env)
  if not chunk then
    stderr:write(syntax.hint(problem, text), "\n")
    return false
  end
  value_help.remember(text, chunk.run)
  fit_printing()
  local outer, root = running, signals.start(chunk.run)
  running, target = chunk, nil
  local results = table.pack(xpcall(chunk.run, M.traced, rest()))
  running = outer
  signals.start(root)
  -- what waited for input came back with an error of its own, or with what it had
  if results[1] and core.interrupted() then results = {false, "interrupted!"} end
  if not results[1] then
    local interrupted = tostring(results[2]):find "^[^\n]*interrupted!"
    if interrupted and terminal.is_terminal(2) then stderr:write "\n" end -- behind ^C or progress
    stderr:write(tostring(results[2]), "\n")
    return false
  end
  target = target_of(text, chunk.quiet)
  if chunk.quiet then return true end
  table.remove(results, 1)
  results.n = results.n - 1
  local ok, trouble = xpcall(show, M.traced, results)
  if not ok then stderr:write(tostring(trouble), "\n") end
  return ok
end

--- `:method(...)` on a line of its own.
function M.continue(text, env)
  if not target then
    stderr:write(text:match "^%s*(.-)%s*$", " continues the line before, which has no value\n")
    return false
  end
  return M.run(target == "_" and "_" .. text or ("%s = %s%s"):format(target, target, text), env)
end

--- Whether what is typed comes from another process.
function M.is_remote() return open ~= nil and open.remote ~= nil end

--- The values of an expression behind true; false after an error.
function M.value(text, env)
  local chunk, problem = chunks.compile(text, env)
  if not chunk then
    stderr:write(syntax.hint(problem, text), "\n")
    return false
  end
  local results = table.pack(xpcall(chunk.run, M.traced, rest()))
  if not results[1] then stderr:write(tostring(results[2]), "\n") end
  return table.unpack(results, 1, results.n)
end

--- Calls a chunk without showing anything; false after an error.
function M.call(chunk)
  local ok, trouble = xpcall(chunk.run, M.traced)
  if not ok then stderr:write(tostring(trouble), "\n") end
  return ok
end

return M
