--- What stops the script, as it is written after :break and --break=.
local core = require "flare.core"
local engine = require "flare.debugger"
local lex = require "flare.repl.lex"

local M = {}

-- The lines of a text that have more than a comment on them.
local function lines_with_code(text)
  local found, line, at = {}, 1, 1
  for _, token in ipairs(lex.tokens(text)) do
    local _, breaks = text:sub(at, token.from - 1):gsub("\n", "")
    line, at = line + breaks, token.from
    if token.kind ~= "comment" then found[line] = true end
  end
  return found, line
end

--- The first line from `line` on where a file has code; `line` itself if the file cannot be read,
-- nil if there is none.
function M.line_with_code(path, line)
  local text = core.file.read(path)
  if not text then return line end
  local found, last = lines_with_code((text:gsub("^#[^\n]*", "")))
  for at = line, last do
    if found[at] then return at end
  end
end

--- The sizes of "3x4" or "(3, *)", in which * is any size; nil for other texts.
function M.shape(text)
  local inside = text:match "^%s*%(?%s*([%d%*][%d%*%s,x]*)%)?%s*$"
  if not inside then return nil end
  local shape = {}
  for size in inside:gmatch "[%d%*]+" do
    if size ~= "*" and not math.tointeger(tonumber(size)) then return nil end
    shape[#shape + 1] = math.tointeger(tonumber(size)) or "*"
  end
  return shape
end

--- Adds what a text says: FILE:LINE, FILE:LINE if CONDITION, nan, a shape.
-- @param file the one that a line alone is of
-- @return what is said about it, or nil and what is wrong
function M.add(text, file)
  local place, condition = text:match "^(.-)%s+if%s+(.+)$"
  place = place or text
  local shape = M.shape(place:match "^%s*shape%s+(.*)$" or (place:find "[x%*(,]" and place) or "")
  if place == "nan" then
    engine.values.nan = true
    require("flare.debugger.guard").install()
    return "an operator that gives NaN"
  elseif shape then
    table.insert(engine.values.shapes, shape)
    require("flare.debugger.guard").install()
    return ("a result of shape (%s)"):format(table.concat(shape, ", "))
  end
  local path, line = place:match "^(.*):(%d+)$"
  if not path then path, line = file, place:match "^%d+$" end
  line = math.tointeger(tonumber(line))
  if not path or not line then
    return nil, ("a break is FILE:LINE, nan or a shape such as 3x4, not %s"):format(text)
  end
  if condition then
    local _, problem = load("return " .. condition)
    if problem then return nil, "the condition: " .. problem:gsub("^%[.-%]:1: ", "") end
  end
  local at = M.line_with_code(path, line)
  if not at then return nil, ("%s has no line %d with code"):format(path, line) end
  engine.add {path = path, line = at, condition = condition}
  return ("%s:%d%s"):format(path, at, condition and " if " .. condition or "")
end

--- All of them as lines of text.
function M.list()
  local out = {}
  for line, points in pairs(engine.lines) do
    for _, point in ipairs(points) do
      out[#out + 1] = ("%s:%d%s"):format(point.path, line,
        point.condition and " if " .. point.condition or "")
    end
  end
  table.sort(out)
  if engine.values.nan then out[#out + 1] = "nan" end
  for _, shape in ipairs(engine.values.shapes) do
    out[#out + 1] = ("shape (%s)"):format(table.concat(shape, ", "))
  end
  return out
end

--- Removes what a text says, or all; whether there was such a thing.
function M.remove(text, file)
  if text == "" then
    engine.clear_breaks()
    return true
  elseif text == "nan" then
    local was = engine.values.nan
    engine.values.nan = false
    return was
  end
  local path, line = text:match "^(.*):(%d+)$"
  if not path then path, line = file, text:match "^%d+$" end
  for _, point in ipairs(engine.lines[math.tointeger(tonumber(line))] or {}) do
    if engine.same_file(point.path, path) then
      engine.remove(point)
      return true
    end
  end
  local shape = M.shape(text:gsub("^shape%s+", ""))
  for i, known in ipairs(shape and engine.values.shapes or {}) do
    if table.concat(known, ",") == table.concat(shape, ",") then
      table.remove(engine.values.shapes, i)
      return true
    end
  end
  return false
end

return M
