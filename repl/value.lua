--- What the prompt says of one's own variables: ?x for a tensor, a model, a function, a table.
local look = require "flare.repl.look"
local core = require "flare.core"

local M = {}

local chunks = {} -- texts that were run, the latest last
local texts = setmetatable({}, {__mode = "k"}) -- a chunk's function: its text

--- Keeps the text of a chunk, for the functions that it defines.
-- @param run the chunk's function
function M.remember(text, run)
  texts[run] = text
  chunks[#chunks + 1] = text
  if #chunks > 200 then table.remove(chunks, 1) end
end

local function lines_of(text)
  local lines = {}
  for line in (text .. "\n"):gmatch "([^\n]*)\n" do lines[#lines + 1] = line end
  return lines
end

-- Whether a line defines a function with these parameters, of a method without self.
local function defines(line, f)
  if not line or not f then return line ~= nil and line:find("function", 1, true) end
  local info, list = debug.getinfo(f, "u"), {}
  for i = 1, info.nparams do list[i] = debug.getlocal(f, i) end
  if info.isvararg then list[#list + 1] = "..." end
  local all = table.concat(list, ",")
  for name, given in line:gmatch "function%s*([%w_.:]*)%s*%(([^()]*)%)" do
    given = given:gsub("%s", "")
    if name:find ":" then given = given == "" and "self" or "self," .. given end
    if given == all then return true end
  end
  return false
end

-- The lines of the text in which a function was written, and where.
local function source_of(info)
  local path = info.source:match "^@(.*)$"
  if path then
    local file <close> = io.open(path)
    return file and lines_of(file:read "a"), ("%s:%d"):format(path, info.linedefined)
  end
  for i = #chunks, 1, -1 do
    local lines = lines_of(chunks[i])
    local first = defines(lines[info.linedefined], info.func) and lines[info.linedefined]
    local before = chunks[i - 1]
    if before and not ("\n" .. before):gsub("\n%s*%-%-[^\n]*", ""):find "%S" then
      local comment = lines_of(before) -- typed on lines of its own
      local all = table.move(lines, 1, #lines, #comment + 1, comment)
      if first then
        return all, ("%s:%d"):format(info.short_src, info.linedefined), #comment - #lines
      end
    end
    if first and lines[info.lastlinedefined]
       and lines[info.lastlinedefined]:find("end", 1, true) then
      return lines, ("%s:%d"):format(info.short_src, info.linedefined)
    end
  end
  return nil, ("%s:%d"):format(info.short_src, info.linedefined)
end

--- The lines of the text that a frame's function is from, or nil.
-- @return lines, and what to add to the frame's line numbers
function M.lines_of_frame(frame)
  local inside = frame.source:match "^@<flare>/(.*)$"
  local text = inside and core.source("flare/" .. inside) or texts[frame.func]
  if text then return lines_of(text), 0 end
  if frame.defined == 0 and not frame:path() then return nil end
  local lines, _, shift = source_of {source = frame.source, short_src = frame.short,
                                     linedefined = frame.defined, lastlinedefined = frame.last,
                                     func = frame.func}
  return lines or nil, shift or 0
end

local failures = setmetatable({}, {__mode = "k"}) -- function: the last error that it was part of

--- Remembers the message of an error for the functions on the stack; called by its handler.
function M.failed(text, level)
  level = level + 1
  while true do
    local info = debug.getinfo(level, "fS")
    if not info then return end
    if info.what == "Lua" and not info.source:find "^@<flare>" then failures[info.func] = text end
    level = level + 1
  end
end

-- A function: its arguments, where it is, its comment and source, the last error in it.
local function describe_function(f, name)
  f = core.unframed(f)
  local info = debug.getinfo(f, "Suf")
  if info.what == "C" then return name .. "(...): a function written in C" end
  local arguments = {}
  for i = 1, info.nparams do arguments[i] = debug.getlocal(f, i) end
  if info.isvararg then arguments[#arguments + 1] = "..." end
  local lines, place, shift = source_of(info)
  shift = shift or 0
  local out = {("%s(%s)  %s"):format(name, table.concat(arguments, ", "), place)}
  if not lines then return out[1] end
  local start, stop = info.linedefined + shift, info.lastlinedefined + shift
  local first = start
  while first > 1 and lines[first - 1]:find "^%s*%-%-" do first = first - 1 end
  for i = first, start - 1 do
    out[#out + 1] = "  " .. lines[i]:gsub("^%s*%-%-+%s?", "")
  end
  local last = math.min(stop, start + 19)
  for i = start, last do out[#out + 1] = "    " .. (lines[i] or "") end
  if last < stop then out[#out + 1] = "    ..." end
  if failures[f] then
    out[#out + 1] = "  last error:"
    for _, line in ipairs(lines_of(failures[f])) do out[#out + 1] = "    " .. line end
  end
  return table.concat(out, "\n")
end

--- The text about a Lua function or a class of the script.
function M.describe_function(value, name)
  if type(value) == "table" then value = rawget(value, "init") end
  return type(value) == "function" and describe_function(value, name) or nil
end

local function describe_tensor(x, name)
  if x.closed then return name .. ": a tensor that was closed" end
  local words = {("%s: a tensor, %s %s on %s"):format(name, x.dtype, x.shape, x.device)}
  if x.requires_grad then words[#words + 1] = "requires_grad" end
  if x.grad_fn then words[#words + 1] = "grad_fn " .. tostring(x.grad_fn) end
  if x.grad then words[#words + 1] = "has a gradient" end
  return table.concat(words, ", ") .. (x.site and "\n  made at " .. tostring(x.site) or "")
end

local function describe_object(value, name, class)
  local out = {("%s: an object of the class %s"):format(name, class)}
  if type(value) == "table" and type(value.parameters) == "function" then
    local ok, count = pcall(function() return value:count() end)
    out[1] = ("%s: a module, %s%s"):format(name, class,
      ok and math.type(count) and (", %d parameters"):format(count) or "")
  end
  local ok, text = pcall(tostring, value)
  if ok and not text:find("0x", 1, true) then
    for _, line in ipairs(lines_of(text)) do out[#out + 1] = "  " .. line end
  end
  return table.concat(out, "\n")
end

local function describe_table(value, name)
  local count, fields = 0, {}
  for key, inner in next, value do
    count = count + 1
    if type(key) == "string" and #fields < 20 then
      fields[#fields + 1] = ("  %s  %s"):format(key, core.is_tensor(inner)
        and ("tensor %s %s"):format(inner.dtype, inner.shape) or type(inner))
    end
  end
  table.sort(fields)
  return table.concat({("%s: a table of %d %s"):format(name, count, count == 1 and "entry"
                       or "entries"), table.unpack(fields)}, "\n")
end

--- The source of the function or class at a path: ??name.
function M.source(env, name)
  local flare = require "flare"
  local value = look.find(env, name)
  if value == nil then value = look.find({flare = flare}, "flare." .. name) end
  local meta = type(value) == "table" and debug.getmetatable(value)
  local f = type(value) == "table" and rawget(value, "init") or meta and rawget(meta, "init")
            or value
  if value == nil then return "there is no " .. name end
  local info = type(f) == "function" and debug.getinfo(core.unframed(f), "Sf")
  if not info then
    local kind = require("flare.options").kind(value)
    return ("%s is %s, which has no source"):format(name, kind:find " " and kind or "a " .. kind)
  end
  if info.what == "C" then return name .. " is written in C; ?" .. name .. " describes it" end
  local inside = info.source:match "^@<flare>/(.*)$"
  local text = inside and core.source("flare/" .. inside)
  local lines, place, shift = text and lines_of(text), nil, 0
  if not lines then lines, place, shift = source_of(info) end
  place, shift = place or ("%s:%d"):format(info.short_src, info.linedefined), shift or 0
  if not lines then return place .. ": its source is not there any more" end
  local start, stop = info.linedefined + shift, info.lastlinedefined + shift
  while start > 1 and lines[start - 1]:find "^%s*%-%-" do start = start - 1 end
  return place .. "\n" .. table.concat(lines, "\n", start, math.min(stop, #lines))
end

local standard = {}
for name in ([[assert collectgarbage dofile error getmetatable ipairs load loadfile next pairs pcall
    print rawequal rawget rawlen rawset require select setmetatable tonumber tostring type warn
    xpcall _G _VERSION coroutine debug io math os package string table utf8 arg]]):gmatch "%S+" do
  standard[name] = true
end

-- A name of Lua's own that is none of an operator.
local function describe_standard(env, name, root)
  if not standard[root] or require("flare.help.rows").find(name) then return nil end
  local value = look.find(env, name)
  if type(value) == "table" then
    local names = {}
    for key in pairs(look.keys(value, {})) do names[#names + 1] = key end
    table.sort(names)
    return ("%s: a library of Lua: %s"):format(name, table.concat(names, ", "))
  elseif type(value) == "function" then
    return ("%s(...): a function of Lua; https://www.lua.org/manual/5.4/manual.html#pdf-%s")
           :format(name, name)
  end
end

--- What `name`, a path such as x or model.fc, is, if it begins with a variable of the person's.
-- @param env the environment of the prompt
-- @return a text, or nil
function M.describe(env, name)
  local root = name:match "^[%a_][%w_]*"
  local global = root and rawget(_G, root) ~= nil and not standard[root]
  if not root then return nil end
  if not (global or debug.getmetatable(env).has(root)) then
    return describe_standard(env, name, root)
  end
  local value = look.find(env, name)
  local known, same = pcall(look.find, {flare = require "flare"},
                            "flare." .. name:gsub("^flare%.", ""))
  if value == nil or known and rawequal(same, value) then
    return nil -- the library's own, by its own name
  end
  if core.is_tensor(value) then return describe_tensor(value, name) end
  local meta = debug.getmetatable(value)
  local class = type(meta) == "table" and rawget(meta, "__name")
  local library = type(value) == "function" or type(value) == "table" and rawget(value, "__index")
                  or type(class) == "string" and class:find "^flare"
  if library then
    local text = require("flare.help").help(value)
    local documented = not text:find "^nothing is written" and not text:find "^function%("
    if documented then return name .. ": " .. text end
  end
  if type(value) == "function" then return describe_function(value, name) end
  if class then return describe_object(value, name, class) end
  if type(value) == "table" then return describe_table(value, name) end
  return ("%s: a %s, %s"):format(name, type(value), type(value) == "string"
    and ("%q"):format(value) or tostring(value))
end

return M
