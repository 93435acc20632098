--- The definition file for editors that know Lua by the LuaCATS annotations: rows as functions
-- and methods of tensors, the library's functions and classes with their comments. `flare help
-- --luacats` writes it; it is installed as share/flare/luacats/flare.lua.
local core = require "flare.core"
local rows = require "flare.help.rows"
local source = require "flare.help.source"
local words = require "flare.help.words"

local M = {}

local head = [[
---@meta flare
-- Made by `flare help --luacats` from the operators' rows and the library's comments.

---@alias flare.dtype "f64"|"f32"|"f16"|"bf16"|"i64"|"i32"|"i16"|"i8"|"u8"|"bool"|"c64"|"c128"
---@alias flare.operand flare.tensor|number|boolean

---@class flare.tensor
---@field shape integer[]
---@field dtype flare.dtype
---@field device string
---@field ndim integer
---@field id integer
---@field grad flare.tensor?
---@field requires_grad boolean
---@field is_leaf boolean
---@field T flare.tensor
---@operator add(flare.operand): flare.tensor
---@operator sub(flare.operand): flare.tensor
---@operator mul(flare.operand): flare.tensor
---@operator div(flare.operand): flare.tensor
---@operator mod(flare.operand): flare.tensor
---@operator pow(flare.operand): flare.tensor
---@operator idiv(flare.operand): flare.tensor
---@operator unm: flare.tensor
---@operator band(flare.operand): flare.tensor
---@operator bor(flare.operand): flare.tensor
---@operator bnot: flare.tensor
---@operator len: integer
---@operator call: any
local Tensor = {}

---@class flare
local flare = {}
]]

local kinds = {dim = "integer", newdim = "integer", pos = "integer", int = "integer",
               real = "number", flag = "boolean", dims = "integer|integer[]", ints = "integer[]",
               shape = "integer[]", dtype = "flare.dtype"}

local reserved = {}
for word in ("and break do else elseif end false for function goto if in local nil not or repeat "
             .. "return then true until while"):gmatch "%a+" do reserved[word] = true end

local function type_of(p)
  if p.kind == "tensor" then return p.variadic and "flare.tensor[]" or "flare.operand" end
  if p.kind == "enum" then return '"' .. p.choices:gsub("|", '"|"') .. '"' end
  return kinds[p.kind] or "any"
end

local function field(owner, name)
  return reserved[name] and ('%s["%s"]'):format(owner, name) or owner .. "." .. name
end

-- A row as a function, or without its first argument as a method.
local function emit_row(out, row, owner, name, skip)
  local list, rest, place = {}, {}, {}
  for i, n in ipairs(row.positional) do place[n] = i end
  out[#out + 1] = "---" .. (row.doc or row.name)
  for _, p in ipairs(row.params) do
    if p.kind ~= "rng" and p.name ~= skip then
      if place[p.name] then
        list[#list + 1] = reserved[p.name] and p.name .. "_" or p.name
        out[#out + 1] = ("---@param %s%s %s"):format(list[#list], p.optional and "?" or "",
                                                   type_of(p))
      else
        rest[#rest + 1] = ("%s%s: %s"):format(p.name, p.optional and "?" or "", type_of(p))
      end
    end
  end
  if #rest > 0 then
    list[#list + 1] = "options"
    out[#out + 1] = ("---@param options? {%s}"):format(table.concat(rest, ", "))
  end
  for _ = 1, row.returns do out[#out + 1] = "---@return flare.tensor" end
  local arguments = table.concat(list, ", ")
  if skip and not reserved[name] then
    out[#out + 1] = ("function %s:%s(%s) end\n"):format(owner, name, arguments)
  else
    if skip then arguments = "self" .. (arguments ~= "" and ", " or "") .. arguments end
    out[#out + 1] = ("%s = function(%s) end\n"):format(field(owner, name), arguments)
  end
end

local function emit_words(out, said)
  if said then out[#out + 1] = ("---%s: %s"):format(said.call, said.text) end
end

local function emit_doc(out, doc, path, mark)
  for _, line in ipairs(doc.text) do out[#out + 1] = "---" .. line end
  local about = {}
  for _, p in ipairs(doc.params) do about[p.name] = p.text end
  for name in doc.args:gmatch "[%w_.]+" do
    if about[name] or name == "..." then
      out[#out + 1] = ("---@param %s any %s"):format(name, about[name] or "")
    end
  end
  if doc.returns then out[#out + 1] = "---@return any # " .. doc.returns.text end
  local owner, name = path:match "^(.*)[.:]([%w_]+)$"
  out[#out + 1] = ("function %s%s%s(%s) end\n"):format(owner, mark, name, doc.args)
end

local function sorted(t)
  local names = {}
  for name in pairs(t) do
    if type(name) == "string" and name:find "^%a[%w_]*$" then names[#names + 1] = name end
  end
  table.sort(names)
  return names
end

local function emit_class(out, class, path, paths)
  local doc = class.init and source.of(class.init)
  local top, call = source.of_class(class)
  for _, lines in ipairs {top, call or rawget(class, "about")} do
    for _, line in ipairs(lines) do out[#out + 1] = "---" .. line end
  end
  local parent = rawget(class, "parent")
  out[#out + 1] = ("---@class %s%s"):format(path, paths[parent] and ": " .. paths[parent] or "")
  local args = {}
  for name in (doc and doc.args or "..."):gmatch "[%w_.]+" do
    args[#args + 1] = name == "..." and "...: any" or name .. "?: any"
  end
  out[#out + 1] = ("---@overload fun(%s): %s"):format(table.concat(args, ", "), path)
  out[#out + 1] = path .. " = {}\n"
  for _, name in ipairs(sorted(class)) do
    local f = rawget(class, name)
    local about = type(f) == "function" and name ~= "init" and source.of(f)
    if about then emit_doc(out, about, path .. ":" .. name, about.method and ":" or ".") end
  end
end

-- What is found by walking the library's tables: classes, functions, parts of parts.
local function collect(value, path, found, seen)
  if seen[value] then return end
  seen[value] = true
  for _, name in ipairs(sorted(value)) do
    local inner, at = value[name], path .. "." .. name
    if type(inner) == "function" then
      local doc = source.of(inner)
      if doc then found[#found + 1] = {path = at, doc = doc} end
    elseif type(inner) == "table" and inner ~= core then
      if rawget(inner, "__name") and rawget(inner, "__index") then
        found[#found + 1] = {path = at, class = inner}
      elseif not seen[inner] and at:find "^flare%.[%w_]+%.?[%w_]*$" then
        found[#found + 1] = {path = at, part = true}
        collect(inner, at, found, seen)
      end
    end
  end
end

local function emit_library(out)
  local flare = require "flare"
  local found, paths = {}, {}
  collect(flare, "flare", found, {[core] = true, [package.loaded] = true})
  for _, item in ipairs(found) do
    if item.class and not paths[item.class] then paths[item.class] = item.path end
  end
  for _, item in ipairs(found) do
    if item.part then
      out[#out + 1] = ("---@class %s\n%s = {}\n"):format(item.path, item.path)
    elseif item.class then
      emit_class(out, item.class, item.path, paths)
    else
      emit_doc(out, item.doc, item.path, ".")
    end
  end
end

--- The file's text.
function M.text()
  require "flare" -- adds methods to the core's
  local out, named = {head}, {}
  for _, row in ipairs(core.ops()) do
    named[row.name] = true
    if row.inplace then named[row.name .. "_"] = true end
    for _, alias in ipairs(row.aliases) do named[alias] = true end
    if not rows.is_inner(row) then
      for _, name in ipairs{row.name, table.unpack(row.aliases)} do
        emit_row(out, row, "flare", name)
        if row.method then emit_row(out, row, "Tensor", name, row.positional[1]) end
      end
      if row.method then
        if row.inplace then emit_row(out, row, "Tensor", row.name .. "_", row.positional[1]) end
      end
    end
  end
  for _, name in ipairs(sorted(core.methods())) do
    if not named[name] and not reserved[name] then
      emit_words(out, words.members[name])
      out[#out + 1] = ("function Tensor:%s(...) end"):format(name)
    end
  end
  out[#out + 1] = ""
  for _, name in ipairs(sorted(core)) do
    if type(core[name]) == "function" and not named[name] and not reserved[name] then
      emit_words(out, words.functions[name])
      out[#out + 1] = ("function flare.%s(...) end"):format(name)
    end
  end
  out[#out + 1] = ""
  emit_library(out)
  out[#out + 1] = "return flare\n"
  return table.concat(out, "\n")
end

return M
