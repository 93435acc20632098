--- Lets the debugger see calls of operators: an error before it is raised, so that the call can
-- return another value, and results that have NaN or a certain shape. The operators are replaced in
-- the tables that scripts and the library call them by.
local core = require "flare.core"
local engine = require "flare.debugger"

local M = {}

local plain = {} -- the operators themselves
local pcall, xpcall, error, assert = pcall, xpcall, error, assert
local is_float = {f32 = true, f64 = true, f16 = true, bf16 = true}

-- --- errors ---

local guarded

-- Whether a pcall of the script's is around the function at a level of the caller's.
local function is_caught(level)
  local root = engine.root()
  while true do
    local info = debug.getinfo(level, "f")
    if not info or info.func == root then return false end
    if info.func == pcall or info.func == xpcall then
      local outer = debug.getinfo(level + 1, "f")
      if not outer or outer.func ~= guarded then return true end
    end
    level = level + 1
  end
end

-- What the debugger gives in place of an error: a list of values, or nil.
local function instead(problem, level)
  if not engine.attached() or not engine.errors then return nil end
  if engine.errors == "uncaught" and is_caught(level + 1) then return nil end
  local values = engine.raised(problem, level)
  return values
end

local replaced = setmetatable({}, {__mode = "k"})

local function handler(problem)
  if engine.is_quit(problem) then return problem end
  local values = instead(problem, 3)
  if values == nil then return problem end
  replaced[values] = true
  return values
end

-- --- results ---

local function has_nan(x)
  local ok, found = pcall(core.no_grad, function()
    return plain.any(plain.isnan(x)):item()
  end)
  return ok and (found == true or found == 1)
end

local function is_open_float(x)
  return core.is_tensor(x) and not x.closed and is_float[x.dtype]
end

local function any_nan(list)
  for i = 1, list.n do
    local x = list[i]
    if is_open_float(x) and has_nan(x) then return true end
    if type(x) == "table" and not getmetatable(x) then
      for _, inner in ipairs(x) do
        if is_open_float(inner) and has_nan(inner) then return true end
      end
    end
  end
  return false
end

-- Whether sizes are those of a pattern, in which "*" is any size.
local function fits(shape, pattern)
  if #shape ~= #pattern then return false end
  for d, size in ipairs(pattern) do
    if size ~= "*" and shape[d] ~= size then return false end
  end
  return true
end

-- Why to stop at these results of an operator, or nil.
local function remarkable(name, results, arguments)
  for i = 1, results.n do
    local x = results[i]
    if core.is_tensor(x) and not x.closed then
      if engine.values.nan and is_open_float(x) and has_nan(x) and not any_nan(arguments) then
        return ("%s gave NaN in %s %s"):format(name, x.dtype, x.shape)
      end
      for _, pattern in ipairs(engine.values.shapes) do
        if fits(x.shape, pattern) then return ("%s gave %s %s"):format(name, x.dtype, x.shape) end
      end
    end
  end
end

-- --- calls ---

function guarded(name, f, ...)
  local results = table.pack(xpcall(f, handler, ...))
  if not results[1] then
    local values = results[2]
    if not replaced[values] then error(values, 0) end
    return table.unpack(values, 1, values.n)
  end
  results = table.pack(table.unpack(results, 2, results.n))
  if engine.values.nan or engine.values.shapes[1] then
    local text = remarkable(name, results, table.pack(...))
    local values = text and engine.result(text, 2)
    if values then return table.unpack(values, 1, values.n) end
  end
  return table.unpack(results, 1, results.n)
end

local function wrap(name, f)
  return core.framed(function(...)
    if not engine.attached() then return f(...) end
    return guarded(name, f, ...)
  end)
end

local metamethods = [[__add __sub __mul __div __mod __pow __idiv __unm __concat __band __bor __bxor
  __bnot __shl __shr]]

local function raise(problem, level)
  level = math.tointeger(level) or 1
  if type(problem) == "string" and level > 0 then
    local info = debug.getinfo(level + 2, "Sl") -- behind the frame of C
    if info and info.currentline > 0 then
      problem = ("%s:%d: %s"):format(info.short_src, info.currentline, problem)
    end
  end
  local values = instead(problem, 4)
  if values then return table.unpack(values, 1, values.n) end
  error(problem, 0)
end

local function check(...)
  local value, problem = ...
  if value or select("#", ...) == 0 then return assert(...) end
  if select("#", ...) == 1 then problem = "assertion failed!" end
  local values = instead(problem, 4)
  if values then return table.unpack(values, 1, values.n) end
  error(problem, 0)
end

--- Puts itself around the operators, once.
function M.install()
  if plain.isnan then return end
  local flare = require "flare"
  local x = core.zeros(1)
  local meta = debug.getmetatable(x)
  local _, methods = debug.getupvalue(meta.__index, 3)
  for name in next, core.ops do
    plain[name] = core[name]
    local wrapper = wrap(name, core[name])
    core[name] = wrapper
    rawset(flare, name, wrapper)
  end
  for name, kind in next, core.methods() do
    if kind == "method" and type(methods[name]) == "function" then
      methods[name] = wrap(name, methods[name])
    end
  end
  for name in metamethods:gmatch "%S+" do
    if meta[name] then meta[name] = wrap(name:sub(3), meta[name]) end
  end
  _G.error, _G.assert = core.framed(raise), core.framed(check) -- luacheck: ignore
end

return M
