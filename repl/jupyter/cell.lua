--- Runs cells: their code as at the prompt, with what they write, read and give passed on.
local chunks, commands, names, run, value_help -- loaded when the streams are in place
local core = require "flare.core"
local display = require "flare.repl.jupyter.display"
local signals = require "flare.repl.signals"
local syntax = require "flare.repl.syntax"

local M = {}

-- A file object that passes on what is written to it.
local function stream(name, emit, read)
  local file = {}
  local meta = {__name = "FILE*", __index = file}
  function meta.__tostring() return "file (" .. name .. " of the notebook)" end
  function file:write(...)
    local parts = table.pack(...)
    for k = 1, parts.n do parts[k] = tostring(parts[k]) end
    if parts.n > 0 then emit(name, table.concat(parts)) end
    return self
  end
  function file:flush() return self end
  function file:close() return nil, "the notebook's stream stays open" end
  function file:seek() return nil, "a stream has no position" end -- luacheck: ignore self
  function file:setvbuf() return true end -- luacheck: ignore self
  function file:read(what) return read(what or "l") end -- luacheck: ignore self
  function file:lines() return function() return read "l" end end -- luacheck: ignore self
  return setmetatable(file, meta)
end

local function is_alone(line)
  return line:find "^%s*%?" or commands.name(line) ~= nil or line:find "^%s*[%w_.:]+%?%s*$"
end

--- Makes the streams and the prompt's environment.
-- @param o {emit = function(stream name, text), read = function() -> a line, or nil,
--   show = function(bundle, transient) for values, publish = function(kind, bundle, id)}
-- @return {execute =, env =, close =}
function M.open(o)
  local function read(what)
    local line = o.read()
    if what == "n" or what == "*n" then return tonumber(line) end
    return line and (what == "L" or what == "*L") and line .. "\n" or line
  end
  local out, err = stream("stdout", o.emit, read), stream("stderr", o.emit, read)
  local format = tostring
  io.stdout, io.stderr, io.stdin = out, err, out -- luacheck: ignore
  function io.write(...) return out:write(...) end -- luacheck: ignore
  function io.read(what) return read(what or "l") end -- luacheck: ignore
  local function show_line(...)
    local parts = table.pack(...)
    for k = 1, parts.n do parts[k] = format(parts[k]) end
    o.emit("stdout", table.concat(parts, "\t") .. "\n")
  end
  print = show_line -- luacheck: ignore (of the library's files, which have globals of their own)
  rawset(_G, "print", show_line)
  -- what a command of the shell writes is shown as well
  function os.execute(command) -- luacheck: ignore
    if command == nil then return true end
    local pipe = assert(io.popen("exec 2>&1\n" .. command))
    for text in function() return pipe:read(4096) end do o.emit("stdout", text) end
    return pipe:close()
  end
  chunks, commands = require "flare.repl.chunk", require "flare.repl.commands"
  names, run = require "flare.repl.names", require "flare.repl.run"
  value_help = require "flare.repl.value"

  local env, kept = names.environment()
  local self = {env = env, kept = kept}
  local close
  self.traced, close = run.open(signals.calm, kept, {keep = true})
  function self.close()
    names.close(kept)
    close()
  end
  local count = 0

  local Handle = {__name = "display"}
  Handle.__index = Handle
  -- display(value) shows a value at once; what it returns has update(value).
  local function show(value)
    count = count + 1
    local handle = setmetatable({id = "flare-" .. count}, Handle)
    o.publish("display_data", display.bundle(value, run.written(value)), handle.id)
    return handle
  end
  function Handle.update(handle, value)
    o.publish("update_display_data", display.bundle(value, run.written(value)), handle.id)
    return handle
  end
  local functions = {}
  for name, f in pairs(display.kinds) do functions[name] = f end
  setmetatable(functions, {__call = function(_, value) return show(value) end})
  rawset(_G, "display", functions)
  commands.shows = function(svg) show(svg) end
  return setmetatable(self, {__index = M})
end

-- Values as one bundle: the first, or all of them in plain text.
local function bundle_of(results)
  if results.n == 1 then return display.bundle(results[1], run.written(results[1])) end
  local parts = {}
  for k = 1, results.n do parts[k] = run.written(results[k]) end
  return {["text/plain"] = table.concat(parts, "\t")}
end

-- Runs one unit. @return true and its bundle, if it has values; or false and the error's text
local function run_unit(self, text)
  local chunk, problem = chunks.compile(text, self.env)
  if not chunk then return false, syntax.hint(problem, text) end
  value_help.remember(text, chunk.run)
  local root = signals.start(chunk.run)
  local results = table.pack(xpcall(chunk.run, self.traced))
  signals.start(root)
  -- a command or a wait that an interrupt ended came back with what it had
  if core.interrupted() and results[1] then results = {false, "interrupted!"} end
  if not results[1] then return false, tostring(results[2]) end
  if chunk.quiet or results.n < 2 then return true end
  rawset(_G, "_", results[2])
  local meta = debug.getmetatable(results[2])
  if results.n == 2 and type(meta) == "table" and rawget(meta, "__name") == "display" then
    return true -- it has been shown
  end
  results = table.pack(table.unpack(results, 2, results.n))
  local ok, bundle = xpcall(bundle_of, self.traced, results)
  return ok, ok and bundle or tostring(bundle)
end

-- ?name, commands, and the `end` of the block that all cells are. @return as run_unit
local function run_line(self, text)
  if chunks.is_end(text) then
    local problem = names.end_block(self.kept)
    return not problem, problem
  end
  local source = text:match "^%s*%?%?%s*([%w_.:]+)%s*$"
  local asked = text:match "^%s*%?%s*([%w_.:]+)" or text:match "^%s*([%w_.:]+)%?%s*$"
  local out
  if source then
    out = value_help.source(self.env, source)
  elseif asked then
    out = value_help.describe(self.env, asked) or require("flare.help").help(asked)
  end
  if out then
    print(out)
    return true
  end
  local ok, problem = xpcall(commands.run, self.traced, text, self.env, self.kept)
  if ok and core.interrupted() then ok, problem = false, "interrupted!" end
  return ok, not ok and tostring(problem) or nil
end

--- Runs a cell.
-- @param show called with the bundle of each value but the last
-- @return true and the bundle of its last value, or nil; or false and the error's text
function M:execute(text, show)
  local last
  for _, unit in ipairs(chunks.units(text, self.env, is_alone)) do
    if last then show(last) end
    local one = not unit:find "\n" and is_alone(unit) or chunks.is_end(unit)
    local ok, result = (one and run_line or run_unit)(self, unit)
    if not ok then return false, result end
    last = result
  end
  return true, last
end

--- Whether a text is "complete", "incomplete" or "invalid".
function M:state(text)
  if chunks.is_whole(text, self.env, is_alone) then
    for _, unit in ipairs(chunks.units(text, self.env, is_alone)) do
      local chunk = is_alone(unit) or chunks.is_end(unit) or chunks.compile(unit, self.env)
      if not chunk then return "invalid" end
    end
    return "complete"
  end
  return "incomplete"
end

--- The first value of an expression as a bundle, or nil and the error's text.
function M:value(text)
  local ok, result = run_unit(self, text)
  if not ok then return nil, result end
  return result or {["text/plain"] = "nil"}
end

--- Completions at a byte of a text: where the word begins (bytes before it), and the candidates.
function M:complete(text, at)
  local ok, from, list = pcall(require("flare.repl.complete").at, self.env, text, at)
  if not ok then return at, {} end
  return from, list
end

--- What a name in a text is, or nil.
function M:inspect(path, level)
  if level > 0 then return value_help.source(self.env, path) end
  local text = value_help.describe(self.env, path) or require("flare.help").help(path)
  return not text:find "^there is no" and text or nil
end

return M
