--- flare.help: the arguments, results and description of an operator, a function or a class.
--
--     print(flare.help "softmax")
--     print(flare.help "nn.Linear")
--     print(flare.help(flare.vmap))
local core = require "flare.core"
local options = require "flare.options"
local rows = require "flare.help.rows"
local source = require "flare.help.source"
local words = require "flare.help.words"

local M = {}

local overview = [[
flare.help "softmax"    an operator, also ?softmax at the prompt and `flare help softmax`
flare.help "nn.Linear"  a class of the library, its arguments and methods
flare.help "vmap"       a function of the library; flare.help(flare.vmap) is the same
flare.help "x:view"     a method of tensors, also without x:
flare.help "optim.SGD:step"  a method of a class, with its arguments
flare.help "nn"         what is in a part: nn, optim, data, io, log, metrics, dist, cuda, onnx ...
flare.core.ops()        all operators; `flare help` lists them]]

local function is_class(value)
  return type(value) == "table" and rawget(value, "__name") ~= nil
         and rawget(value, "__index") ~= nil
end

-- The lines about a class's methods and its parents'. Methods of all layers are listed for
-- nn.Module only.
local function methods_of(class)
  local module = package.loaded["flare.nn.module"]
  local methods, seen, at = {}, {init = true}, class
  repeat
    for name, f in next, at do
      if type(name) == "string" and type(f) == "function" and not name:find "^_"
         and not seen[name] then
        local about = source.of(f) -- a method without a comment is described at the parent
        if about then
          seen[name] = true
          methods[#methods + 1] = ("  :%s(%s)"):format(name, about.args)
                                  .. source.paragraph(about.text)
        end
      end
    end
    at = rawget(at, "parent")
  until not at or at == module
  table.sort(methods)
  return methods
end

-- The lines about a layer that is one operator, or one function of nn.functional, and its options.
local function of_operator(class, path)
  local given = {}
  for key, value in pairs(class.defaults or {}) do
    local shown = math.type(value) and ("%g"):format(value)
      or type(value) == "string" and ("%q"):format(value) or tostring(value)
    given[#given + 1] = key .. " =" .. (value == options.none and "" or " " .. shown)
  end
  table.sort(given)
  local row = rows.find(class.operator)
  local doc = row or source.of(require("flare.nn.functional")[class.operator])
  return {("%s(%s)"):format(path:gsub("^flare%.", ""),
                            given[1] and ("{%s}"):format(table.concat(given, ", ")) or ""),
          row and row.doc or table.concat(doc.text, " "),
          ("See %s."):format(class.operator)}
end

-- A class: how objects are made, and the methods that have comments.
local function describe_class(class, path)
  local out = {path}
  local function add(lines)
    for _, line in ipairs(lines or {}) do out[#out + 1] = "  " .. line end
  end
  local top, call = source.of_class(class)
  local about = rawget(class, "about") or rawget(class, "operator") and of_operator(class, path)
  local doc = class.init and source.of(class.init)
  add(top)
  if top and top[1] and (call or doc) then out[#out + 1] = "" end
  for _, line in ipairs(about or {}) do out[#out + 1] = source.wrapped("  ", line) end
  add(call)
  if doc then
    -- a class that shares the comment of its parent or neighbour is shown under its own name
    local first = (doc.text[1] or ""):gsub("^%a+%.[%w_]+%f[({]", (path:gsub("^flare%.", "")))
    add{first, table.unpack(doc.text, 2)}
    source.add_arguments(out, doc)
  end
  local methods = methods_of(class)
  if #methods > 0 then out[#out + 1] = "" end
  table.move(methods, 1, #methods, #out + 1, out)
  return table.concat(out, "\n")
end

-- A part of the library: the names in it.
local function describe_part(part, path)
  local names = {}
  for name in pairs(part) do
    if type(name) == "string" and not name:find "^_" then names[#names + 1] = name end
  end
  table.sort(names)
  return source.wrapped(path .. " has: ", table.concat(names, ", "))
end

-- The row that a function, or a method of tensors, is made of.
local function row_of(value)
  local methods, x = core.methods(), core.zeros{}
  local function is(name) return methods[name] and x[name] == value end
  local own = require("flare.op").row_of(value)
  if own then return own end
  for _, row in ipairs(core.ops()) do
    for _, name in ipairs{row.name, table.unpack(row.aliases)} do
      if core[name] == value or core.ops[name] == value or is(name) or is(name .. "_") then
        return row
      end
    end
  end
end

-- The entry of words.lua about a member of a part, such as "nn.init.zeros_".
local function describe_member(path)
  local said = words.paths[path]
  return said and said.call .. "\n" .. source.wrapped("  ", said.text)
end

-- The path of a function that words.lua describes, found by the function itself.
local function member_of(value)
  local flare = require "flare"
  for path in pairs(words.paths) do
    local part, name = path:match "^(.*)%.([^.]+)$"
    local owner = flare
    for key in part:gmatch "[^.]+" do owner = owner[key] end
    if rawequal(owner[name], value) then return path end
  end
  for name in pairs(words.functions) do
    if rawequal(flare[name], value) then return name end
  end
end

-- A Lua function without a `---` comment: its arguments, its file and line, the comment above it.
local function describe_plain(f, name)
  f = core.unframed(f)
  local info = debug and debug.getinfo(f, "Su")
  if not info or info.what == "C" then return nil end
  local arguments = {}
  for i = 1, info.nparams do arguments[i] = debug.getlocal(f, i) end
  if info.isvararg then arguments[#arguments + 1] = "..." end
  local out = {("%s(%s)  %s:%d"):format(name or "function", table.concat(arguments, ", "),
                                       info.short_src, info.linedefined)}
  for _, line in ipairs(source.above(f)) do out[#out + 1] = "  " .. line end
  return table.concat(out, "\n")
end

local describe_words

local function describe_value(value, path)
  if type(value) == "function" then
    local row = row_of(value)
    if row then return rows.describe(row) end
    local doc = source.of(value)
    if not doc then
      local member = member_of(value)
      return member and (describe_member(member) or describe_words(member))
             or describe_plain(value, path)
    end
    local owner = path
      or not doc.name and "f" or doc.owner .. (doc.method and ":" or ".") .. doc.name
    return source.describe(doc, ("%s(%s)"):format(owner, doc.args))
  elseif is_class(value) then
    return describe_class(value, path or tostring(value))
  elseif type(value) == "table" then
    local part = describe_part(value, path or "it")
    local callee = (getmetatable(value) or {}).__call
    local doc = callee and not rawget(value, "open") and source.of(callee)
    local arguments = doc and doc.args:gsub("^_, ", "")
    local call = doc and source.describe(doc, ("%s(%s)"):format(path or "it", arguments))
      or callee and describe_value(rawget(value, "open"), path)
    local class = rawget(value, "class")
    if call and class and is_class(class) then -- what the call returns
      return call .. "\n" .. table.concat(methods_of(class), "\n")
    end
    return call and call .. "\n" .. part or part
  end
end

-- The entries of words.lua about a C function and a member of that name; only the member, if there
-- is one, where the question is about a method.
function describe_words(name, method)
  local out = {}
  for _, kind in ipairs {words.functions, words.members} do
    local said = kind[name]
    local other = method and kind == words.functions and words.members[name]
    if said and not other then
      out[#out + 1] = said.call .. "\n" .. source.wrapped("  ", said.text)
    end
  end
  return out[1] and table.concat(out, "\n")
end

-- The value at a path of names from `flare`; nil if there is none.
local function find(path)
  local value = require "flare"
  for name in path:gmatch "[^.]+" do
    if type(value) ~= "table" then return nil end
    local ok, inner = pcall(function() return value[name] end)
    if not ok then return nil end
    value = inner
  end
  return value
end

-- The parts of the library in which a name is looked up that `flare` does not have.
local parts = {"nn", "optim", "data", "io", "log", "metrics", "train", "distributions", "dist",
               "cuda", "onnx", "op", "memory", "nn.functional", "nn.init", "data.transforms",
               "models", "text"}

local function nearest(name)
  local names = {}
  for _, part in ipairs(parts) do
    for key in pairs(find(part)) do
      names[#names + 1] = part .. "." .. key
      names[#names + 1] = key
    end
  end
  for _, row in ipairs(core.ops()) do
    if not rows.is_inner(row) then names[#names + 1] = row.name end
  end
  for key in pairs(require "flare") do names[#names + 1] = key end
  return core.nearest(name, names)
end

--- The description of a name, function or class.
-- @param what "softmax", "x:softmax_", "nn.Linear", flare.vmap ...; nil: an overview
-- @return a text
function M.help(what)
  if what == nil then return overview end
  if type(what) ~= "string" then
    return describe_value(what) or "nothing is written about this " .. type(what)
  end
  if what == "flare" then return overview end
  local path = what:gsub("^flare%.", ""):gsub("^([%w_]+%.[%w_.]+):([%w_]+)$", "%1.%2")
  local method = path:match "^[%w_]*:([%w_]+)$"
  local name = method or path
  local row = rows.find(name) or require("flare.op").info(name)
  local both = row and not method and find(name)
  if type(both) == "table" then -- dist: a part of the library and a method
    return ("%s\n%s"):format(describe_value(both, "flare." .. name), rows.describe(row))
  end
  if row then return rows.describe(row) end
  local text = describe_member(name) or describe_words(name, method)
  if text then return text end
  local value = find(name)
  text = value ~= nil and describe_value(value, "flare." .. name)
  if text then return text end
  if value ~= nil then return ("nothing is written about flare.%s"):format(name) end
  for _, part in ipairs(parts) do
    if find(part .. "." .. name) ~= nil then return M.help(part .. "." .. name) end
  end
  local near = nearest(name)
  return ("there is no %s%s"):format(what, near and (": do you mean %s?"):format(near) or "")
end

return M
