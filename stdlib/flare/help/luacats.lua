--- The definition file for editors that know Lua by the LuaCATS annotations: rows as functions
-- and methods of tensors, the library's functions and classes with their comments. `flare help
-- --luacats` writes it; it is installed as share/flare/luacats/flare.lua.
local core = require "flare.core"
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
---@field generator? any

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
  out[#out + 1] = ("---@param %s %s"):format(last, last == "..." and "any" or options)
  for _ = 1, row.returns do out[#out + 1] = "---@return flare.tensor" end
  local arguments = table.concat(list, ", ")
  if skip and not reserved[name] then
    out[#out + 1] = ("function %s:%s(%s) end\n"):format(owner, name, arguments)
  else
    if skip then arguments = "self, " .. arguments end
    out[#out + 1] = ("%s = function(%s) end\n"):format(field(owner, name), arguments)
  end
end

-- A function in C, or a method.
local function emit_c(out, owner, mark, name, said, known)
  local list = {}
  if said then out[#out + 1] = ("---%s: %s"):format(said.call, said.text) end
  for i, p in ipairs(known and known.params or {{"...", "any"}}) do
    list[i] = p[1]:gsub("%?$", "")
    out[#out + 1] = ("---@param %s %s"):format(p[1], p[2])
  end
  for _, kind in ipairs(known and known.returns or {"any", "any"}) do
    out[#out + 1] = "---@return " .. kind
  end
  out[#out + 1] = ("function %s%s%s(%s) end\n"):format(owner, mark, name,
    table.concat(list, ", "))
end

local function emit_doc(out, doc, owner, mark, name)
  for _, line in ipairs(doc.text) do out[#out + 1] = "---" .. line end
  local about = {}
  for _, p in ipairs(doc.params) do about[p.name] = p.text end
  for arg in doc.args:gmatch "[%w_.]+" do
    local said = about[arg] or ""
    local kind, optional = types.of_argument(arg, said)
    out[#out + 1] = ("---@param %s%s %s %s"):format(arg, optional and "?" or "", kind, said)
  end
  for i, kind in ipairs(types.returns(doc.returns and doc.returns.text)) do
    out[#out + 1] = ("---@return %s%s"):format(kind,
      i == 1 and doc.returns and " # " .. doc.returns.text or "")
  end
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

-- @param but a class whose methods are left out, or nil
local function emit_methods(out, class, but)
  for _, name in ipairs(sorted(class)) do
    local f = rawget(class, name)
    if type(f) == "function" and name ~= "init" and not (but and rawget(but, name)) then
      local about = source.of(f)
      if about then
        emit_doc(out, about, "object", about.method and ":" or ".", name)
      else
        emit_c(out, "object", ":", name)
      end
    end
  end
end

local called = "---@overload fun(...: any): any"

-- What the objects of a class have: its methods, and the fields that its file names.
local function emit_object(out, class, path, paths)
  local call, parent = class, rawget(class, "parent")
  while call and not rawget(call, "__call") do call = rawget(call, "parent") end
  while parent and not paths[parent] do parent = rawget(parent, "parent") end
  parent = paths[parent]
  out[#out + 1] = "do"
  out[#out + 1] = ("---@class %s%s"):format(path, parent and ": " .. parent or "")
  for _, name in ipairs(source.fields(class)) do
    if class[name] == nil then out[#out + 1] = ("---@field %s any"):format(name) end
  end
  if path == "flare.nn.Module" then out[#out + 1] = "---@field [integer] any" end
  if call then out[#out + 1] = called end
  out[#out + 1] = "local object = {}"
  emit_methods(out, class)
  parent = rawget(class, "parent")
  while parent and not paths[parent] do -- one that has no name
    emit_methods(out, parent, class)
    parent = rawget(parent, "parent")
  end
  out[#out + 1] = "end\n"
end

-- A class is two: of its objects, and of the value that makes them and that others derive from.
local function emit_class(out, class, path, paths)
  local doc = class.init and source.of(class.init)
  local top, call = source.of_class(class)
  emit_object(out, class, path, paths)
  for _, lines in ipairs {top, call or rawget(class, "about")} do
    for _, line in ipairs(lines) do out[#out + 1] = "---" .. line end
  end
  local args, about = {}, {}
  for _, p in ipairs(doc and doc.params or {}) do about[p.name] = p.text end
  for name in (doc and doc.args or "..."):gmatch "[%w_.]+" do
    local said = about[name] or ""
    args[#args + 1] = name == "..." and "...: any"
      or ("%s?: %s"):format(name, (types.of_argument(name, said)))
  end
  out[#out + 1] = ("---@class %s.class: %s"):format(path, path)
  out[#out + 1] = ("---@overload fun(%s): %s"):format(table.concat(args, ", "), path)
  out[#out + 1] = path .. " = {}\n"
end

-- What is found by walking the library's tables: classes, functions, parts of parts.
local function collect(value, path, found, seen)
  if seen[value] then return end
  seen[value] = path
  for _, name in ipairs(sorted(value)) do
    local inner, at = value[name], path .. "." .. name
    if type(inner) == "function" then
      local doc = source.of(inner)
      if doc or path ~= "flare" then found[#found + 1] = {path = at, doc = doc} end
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
      if item.called then out[#out + 1] = called end
      out[#out + 1] = item.path .. " = {}\n"
    elseif item.class then
      emit_class(out, item.class, item.path, paths)
    else
      local owner, name = item.path:match "^(.*)%.([%w_]+)$"
      if item.doc then
        emit_doc(out, item.doc, owner, ".", name)
      else
        emit_c(out, owner, ".", name, words.paths[item.path:gsub("^flare%.", "")])
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
  for _, name in ipairs(sorted(methods)) do
    if not named[name] and not reserved[name] and methods[name] == "method" then
      local doc = not types.members[name] and source.of(example[name])
      if doc then
        doc.args = doc.args:gsub("^[^,]*,?%s*", "")
        emit_doc(out, doc, "Tensor", ":", name)
      else
        emit_c(out, "Tensor", ":", name, words.members[name], types.members[name])
      end
    end
  end
  for _, name in ipairs(sorted(core)) do
    if type(core[name]) == "function" and not named[name] and words.functions[name] then
      emit_c(out, "flare", ".", name, words.functions[name], types.functions[name])
    end
  end
  emit_library(out)
  out[#out + 1] = "return flare\n"
  return table.concat(out, "\n")
end

return M
