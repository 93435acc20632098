--- Strings and literals of JSON as nodes of a grammar.
local core = require "flare.core"
local regex = require "flare.text.grammar.regex"
local values = require "flare.text.template.values"

local M = {}

local field = values.field

local function text(s) return {text = s} end
local function alt(list) return {alt = list} end

local day = "((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)"
  .. "|02-(0[1-9]|1[0-9]|2[0-8]))"
local time = "([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,9})?"
  .. "(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])"
local byte = "(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
--- Expressions of some formats of strings.
M.formats = {
  date = "[0-9]{4}-" .. day, time = time, ["date-time"] = "[0-9]{4}-" .. day .. "T" .. time,
  uuid = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}",
  ipv4 = byte .. "(\\." .. byte .. "){3}",
  email = "[A-Za-z0-9_+-]{1,30}(\\.[A-Za-z0-9_+-]{1,30})?"
    .. "@[A-Za-z0-9]{1,60}(\\.[A-Za-z0-9]{2,60}){1,3}",
}

--- A value as JSON without spaces.
function M.literal(value)
  if values.is_dict(value) then
    local parts = {}
    for k, key in ipairs(values.keys(value)) do
      parts[k] = core.json.encode(key) .. ":" .. M.literal(field(value, key))
    end
    return "{" .. table.concat(parts, ",") .. "}"
  elseif type(value) == "table" then
    local parts = {}
    for k, item in ipairs(value) do parts[k] = M.literal(item) end
    return "[" .. table.concat(parts, ",") .. "]"
  end
  return core.json.encode(value)
end

M.escapes = {[34] = '\\"', [92] = "\\\\", [10] = "\\n", [13] = "\\r", [9] = "\\t", [8] = "\\b",
  [12] = "\\f"}

-- The node of an expression with its characters as a string in JSON has them.
local function escaped(node)
  if node.chars then
    local list, kept = {}, {}
    for _, range in ipairs(node.chars) do
      for code, written in pairs(M.escapes) do
        if code >= range[1] and code <= range[2] then list[#list + 1] = text(written) end
      end
      local first = math.max(range[1], 32)
      for _, hole in ipairs{34, 92} do
        if hole >= first and hole <= range[2] then
          if first < hole then kept[#kept + 1] = {first, hole - 1} end
          first = hole + 1
        end
      end
      if first <= range[2] then kept[#kept + 1] = {first, range[2]} end
    end
    if #kept > 0 then list[#list + 1] = {chars = kept} end
    return #list == 1 and list[1] or alt(list)
  elseif node.rep then
    return {rep = escaped(node.rep), min = node.min, max = node.max}
  end
  local out = {}
  for k, part in ipairs(node.seq or node.alt) do out[k] = escaped(part) end
  return node.seq and {seq = out} or alt(out)
end

--- A string whose text matches an expression.
-- @param search whether a part of it may
function M.node(pattern, search)
  return {seq = {text '"', escaped(regex.node(pattern, search)), text '"'}}
end

return M
