--- The definition file for editors that know Lua by the LuaCATS annotations: rows as functions
-- and methods of tensors, the library's functions and classes with their comments. `flare help
-- --luacats` writes it; it is installed as share/flare/luacats/flare.lua.
local core = require "flare.core"
local declare = require "flare.help.declare"
local results = require "flare.help.results"
local rows = require "flare.help.rows"
local source = require "flare.help.source"
local types = require "flare.help.types"
local words = require "flare.help.words"

local M = {}

local head = [[
---@meta flare
-- Made by `flare help --luacats` from the operators' rows and the library's comments.

---@alias flare.dtype "f64"|"f32"|"f16"|"bf16"|"i64"|"i32"|"i16"|"i8"|"u8"|"bool"|"c64"|"c128"
---@alias flare.operand flare.tensor|number|boolean

---@class flare.making
---@field dtype? flare.dtype
---@field device? string
---@field requires_grad? boolean
---@field generator? flare.generator

---@class flare.generator
---@field seed integer
---@field offset integer
---@field manual_seed fun(self: flare.generator, seed: integer): flare.generator
---@field state fun(self: flare.generator): integer, integer
---@field set_state fun(self: flare.generator, seed: integer, offset: integer): flare.generator
---@field clone fun(self: flare.generator): flare.generator

---@class flare.tensor
---@field [integer] any
---@field [table] any
---@field [flare.tensor] any
---@field shape integer[]
---@field dtype flare.dtype
---@field device string
---@field ndim integer
---@field id integer
---@field grad flare.tensor
---@field grad_fn any
---@field requires_grad boolean
---@field is_leaf boolean
---@field closed boolean
---@field version integer
---@field made string?
---@field site string?
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
---@operator bxor(flare.operand): flare.tensor
---@operator shl(flare.operand): flare.tensor
---@operator shr(flare.operand): flare.tensor
---@operator concat(flare.operand): flare.tensor
---@operator bnot: flare.tensor
---@operator len: integer
---@overload fun(...: any): any
local Tensor = {}

---@class flare
---@field version string
---@field newaxis any
---@field core any
local flare = {}
]]

local kinds = {dim = "number", newdim = "number", pos = "number", int = "number",
               real = "number", flag = "boolean", dims = "number|number[]",
               ints = "number|number[]", shape = "number|number[]", dtype = "flare.dtype"}
-- Kinds whose numbers may be arguments of their own: x:reshape(2, 3).
local spreads = {dims = true, ints = true, shape = true}

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

-- The arguments of a row that may be in a last table, as a class. @return its name
local function emit_options(out, row)
  local class = "flare.op." .. row.name
  local made = true -- without a tensor: it takes a device, too
  for _, p in ipairs(row.params) do made = made and p.kind ~= "tensor" end
  out[#out + 1] = ("---@class %s%s"):format(class, made and ": flare.making" or "")
  for _, p in ipairs(rows.params(row)) do
    if not (made and p.name == "dtype") and (p.kind ~= "tensor" or p.optional) then
      out[#out + 1] = ("---@field %s? %s"):format(p.name, type_of(p))
      if p.name == "dims" then out[#out + 1] = "---@field dim? " .. type_of(p) end
    end
  end
  out[#out + 1] = ""
  return class
end

-- A row as a function, or without its first argument as a method.
local function emit_row(out, row, owner, name, options, skip)
  local list, place = {}, {}
  for i, n in ipairs(row.positional) do place[n] = i end
  out[#out + 1] = "---" .. (row.doc or row.name)
  local last = "options?"
  for _, p in ipairs(rows.params(row)) do
    if p.name ~= skip and place[p.name] and last ~= "..." then
      local kind = type_of(p)
      list[#list + 1] = reserved[p.name] and p.name .. "_" or p.name
      if p.kind ~= "tensor" or p.optional then kind = kind .. "|" .. options end
      out[#out + 1] = ("---@param %s%s %s"):format(list[#list], p.optional and "?" or "", kind)
      if spreads[p.kind] then last = "..." end
    end
  end
  list[#list + 1] = last == "..." and last or "options"
  out[#out + 1] = ("---@param %s %s"):format(last, (last == "..." and "number|" or "") .. options)
  for _ = 1, row.returns do out[#out + 1] = "---@return flare.tensor" end
  local arguments = table.concat(list, ", ")
  if skip and not reserved[name] then
    out[#out + 1] = ("function %s:%s(%s) end\n"):format(owner, name, arguments)
  else
    if skip then arguments = "self, " .. arguments end
    out[#out + 1] = ("%s = function(%s) end\n"):format(field(owner, name), arguments)
  end
end

-- What is found by walking the library's tables: classes, functions, parts of parts.
local function collect(value, path, found, seen)
  if seen[value] then return end
  seen[value] = path
  for _, name in ipairs(declare.sorted(value)) do
    local inner, at = value[name], path .. "." .. name
    if type(inner) == "function" then
      local doc = source.of(inner)
      if doc or path ~= "flare" then found[#found + 1] = {path = at, doc = doc, f = inner} end
    elseif type(inner) == "table" and inner ~= core then
      if rawget(inner, "__name") and rawget(inner, "__index") then
        found[#found + 1] = {path = at, class = inner}
      elseif seen[inner] then
        found[#found + 1] = {path = at, same = seen[inner]}
      elseif at:find "^flare%.[%w_]+%.?[%w_]*$" then
        local meta = getmetatable(inner)
        found[#found + 1] = {path = at, part = true, called = meta and meta.__call}
        collect(inner, at, found, seen)
      end
    end
  end
end

local function emit_library(out)
  local flare = require "flare"
  local found, paths = {}, {}
  collect(flare, "flare", found, {[core] = "", [package.loaded] = ""})
  declare.derive(found)
  for _, item in ipairs(found) do
    if item.class and not paths[item.class] then paths[item.class] = item.path end
  end
  for _, item in ipairs(found) do
    if item.same then
      if item.same:find "^flare" then out[#out + 1] = item.path .. " = " .. item.same .. "\n" end
    elseif item.part then
      local more = types.parents[item.path]
      out[#out + 1] = ("---@class %s%s"):format(item.path, more and ": " .. more or "")
      for _, name in ipairs(types.later[item.path] or {}) do
        out[#out + 1] = ("---@field %s any"):format(name)
      end
      if item.called then out[#out + 1] = declare.called end
      out[#out + 1] = item.path .. " = {}\n"
    elseif item.class then
      declare.class(out, item.class, item.path, paths)
    else
      local owner, name = item.path:match "^(.*)%.([%w_]+)$"
      local how = {f = item.f, returns = results.functions[item.path],
                   takes = results.takes[item.path],
                   said = words.paths[item.path:gsub("^flare%.", "")]}
      if item.doc then
        declare.doc(out, item.doc, owner, ".", name, how)
      else
        declare.c(out, owner, ".", name, how)
      end
    end
  end
end

local function emit_rows(out, named)
  local flare = require "flare"
  for _, row in ipairs(core.ops()) do
    named[row.name] = true
    if row.inplace then named[row.name .. "_"] = true end
    for _, alias in ipairs(row.aliases) do named[alias] = true end
    if not rows.is_inner(row) then
      local options = emit_options(out, row)
      for _, name in ipairs{row.name, table.unpack(row.aliases)} do
        if type(flare[name]) == "function" then emit_row(out, row, "flare", name, options) end
        if row.method then emit_row(out, row, "Tensor", name, options, row.positional[1]) end
      end
      if row.method and row.inplace then
        emit_row(out, row, "Tensor", row.name .. "_", options, row.positional[1])
      end
    end
  end
end

--- The file's text.
function M.text()
  require "flare" -- adds methods to the core's
  local out, named = {head}, {}
  emit_rows(out, named)
  local methods, example = core.methods(), core.zeros(1)
  for _, name in ipairs(declare.sorted(methods)) do
    if not named[name] and not reserved[name] and methods[name] == "method" then
      local doc = not types.members[name] and source.of(example[name])
      if doc then
        doc.args = doc.args:gsub("^[^,]*,?%s*", "")
        declare.doc(out, doc, "Tensor", ":", name,
                    {f = example[name], returns = results.tensor[name]})
      else
        declare.c(out, "Tensor", ":", name,
                  {said = words.members[name], known = types.members[name],
                   returns = results.tensor[name]})
      end
    end
  end
  for _, name in ipairs(declare.sorted(core)) do
    if type(core[name]) == "function" and not named[name] and words.functions[name] then
      declare.c(out, "flare", ".", name, {said = words.functions[name],
                                         known = types.functions[name]})
    end
  end
  emit_library(out)
  out[#out + 1] = "return flare\n"
  return table.concat(out, "\n")
end

return M
