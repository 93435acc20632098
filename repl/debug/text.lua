--- What the debugger prints of a stack: places, variables, source, tensors.
local core = require "flare.core"
local look = require "flare.repl.look"
local value_help = require "flare.repl.value"

local M = {}

--- A value in a few words.
function M.value(value)
  if type(value) == "table" and not debug.getmetatable(value) then
    local ok, text = pcall(require("flare.repl.run").written, value)
    text = ok and text:gsub("\n", " ") or "table"
    return #text > 70 and text:sub(1, 67) .. "..." or text
  end
  return look.kind(value)
end

--- The frames as lines, the chosen one with a mark.
function M.stack(stack, chosen)
  local out = {}
  for i, frame in ipairs(stack) do
    out[i] = ("%s %d  %s"):format(i == chosen and "*" or " ", i, frame:place())
  end
  return table.concat(out, "\n")
end

--- The source around a frame's line, or around another one; nil if there is no source.
-- @param more how many lines before and after it
function M.source(frame, line, more)
  local lines, shift = value_help.lines_of_frame(frame)
  line = line or frame.line
  if not lines or line < 1 then return nil end
  local out, at = {}, line + (shift or 0)
  local first, last = math.max(1, at - more), math.min(#lines, at + more)
  if not lines[at] then return nil end
  for i = first, last do
    local number = i - (shift or 0)
    local mark = number == frame.line and "->" or "  "
    out[#out + 1] = (("%s %4d  %s"):format(mark, number, lines[i]):gsub("%s+$", ""))
  end
  return table.concat(out, "\n")
end

local function add_variables(out, list)
  local width = 0
  for _, one in ipairs(list) do width = math.max(width, math.min(#one.name, 16)) end
  for _, one in ipairs(list) do
    out[#out + 1] = ("  %-" .. width .. "s  %s"):format(one.name, M.value(one.value))
  end
end

--- The variables of a frame: its locals, `...`, and those of functions around it.
function M.variables(frame)
  local out = {}
  add_variables(out, frame:locals())
  local rest = frame:varargs()
  if rest.n > 0 then
    local parts = {}
    for i = 1, rest.n do parts[i] = M.value(rest[i]) end
    out[#out + 1] = "  ...  " .. table.concat(parts, ", ")
  end
  local outer = frame:upvalues()
  if outer[1] then
    out[#out + 1] = "of functions around it:"
    add_variables(out, outer)
  end
  return out[1] and table.concat(out, "\n") or "  no variables"
end

-- The tensors of a frame as {name, tensor}: variables and what lies in those that are tables.
local function tensors_of(frame)
  local list = {}
  local function add(name, value)
    if core.is_tensor(value) and not value.closed then list[#list + 1] = {name, value} end
  end
  for _, variables in ipairs {frame:locals(), frame:upvalues()} do
    for _, one in ipairs(variables) do
      add(one.name, one.value)
      local meta = type(one.value) == "table" and debug.getmetatable(one.value)
      if type(one.value) == "table" and not (meta and rawget(meta, "__pairs")) then
        for key, inner in next, one.value do
          add(type(key) == "string" and one.name .. "." .. key
              or ("%s[%s]"):format(one.name, tostring(key)), inner)
        end
      end
    end
  end
  return list
end

--- The tensors of all frames: name, dtype, shape, device, and the line that made them.
function M.tensors(stack)
  local out, seen = {}, {}
  for i, frame in ipairs(stack) do
    local list = tensors_of(frame)
    table.sort(list, function(a, b) return a[1] < b[1] end)
    for _, one in ipairs(list) do
      local x = one[2]
      if not seen[x.id] then
        seen[x.id] = true
        local words = {("%-2d %-14s %s %s %s"):format(i, one[1], x.dtype, x.shape, x.device)}
        if x.made then words[#words + 1] = "made at " .. x.made end
        if x.requires_grad then words[#words + 1] = "requires_grad" end
        if x.grad_fn then words[#words + 1] = "by " .. x.grad_fn end
        out[#out + 1] = table.concat(words, ", ")
      end
    end
  end
  return out[1] and table.concat(out, "\n") or "no tensors"
end

return M
