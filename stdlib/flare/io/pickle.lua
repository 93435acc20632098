--- The part of Python's pickle format that files of tensors need: values and tensors. Nothing is
-- executed: a pickle that names any other function or class is refused by that name.
local core = require "flare.core"

local M = {}

--- What None becomes.
M.None = core.json.null

local MARK = setmetatable({}, {__name = "mark"})
local LIMIT = 1000000 -- values on the stack

-- A global that a pickle named, and what REDUCE makes of it and its arguments.
local Global = {}
Global.__index = Global

local storages = {Float = "f32", Double = "f64", Half = "f16", BFloat16 = "bf16", Long = "i64",
  Int = "i32", Short = "i16", Char = "i8", Byte = "u8", Bool = "bool", ComplexFloat = "c64",
  ComplexDouble = "c128"}
local dtypes = {float32 = "f32", float64 = "f64", float16 = "f16", bfloat16 = "bf16", int64 = "i64",
  int32 = "i32", int16 = "i16", int8 = "i8", uint8 = "u8", bool = "bool", complex64 = "c64",
  complex128 = "c128"}

local function is_list(value) return type(value) == "table" and getmetatable(value) == nil end

-- An entry of a dictionary.
local function put(c, t, key, value)
  local kind = type(key)
  if kind ~= "string" and kind ~= "boolean" and (kind ~= "number" or key ~= key) then
    c:fail("a key of a dictionary is a %s; strings, numbers and booleans are read",
           kind == "table" and "tuple or object" or kind)
  end
  t[key] = value
end

local function integers(c, list, what)
  if not is_list(list) then c:fail("%s of a tensor is no tuple", what) end
  for _, n in ipairs(list) do
    if math.type(n) ~= "integer" or n < 0 then
      c:fail("%s of a tensor has %s", what, tostring(n))
    end
  end
  return list
end

-- A tensor that is made later, when its storage is read: {storage =, offset =, shape =, stride =}.
local Pending = {}
Pending.__index = Pending
M.Pending = Pending

local function rebuild(c, args, storage)
  local offset, shape, stride = args[2], integers(c, args[3], "the size"),
    integers(c, args[4], "the stride")
  if getmetatable(storage) ~= M.Storage then c:fail "a tensor without a storage" end
  if math.type(offset) ~= "integer" or offset < 0 then
    c:fail("a tensor begins at %s", tostring(offset))
  end
  if #shape ~= #stride then c:fail("a tensor of %d dims has %d strides", #shape, #stride) end
  if #shape > 8 then c:fail("a tensor of %d dims, at most 8 are supported", #shape) end
  local last, empty, text = offset, false, table.concat(shape, ", ")
  for _, n in ipairs(shape) do empty = empty or n == 0 end
  for k, n in ipairs(empty and {} or shape) do
    if n > 1 and stride[k] > (storage.count - 1 - last) // (n - 1) then last = storage.count end
    if last >= storage.count then break end
    last = last + (n - 1) * stride[k]
  end
  if not empty and last >= storage.count then
    c:fail("a tensor of (%s) from %d on reaches beyond its storage of %d elements", text, offset,
           storage.count)
  end
  return setmetatable({storage = storage, offset = offset, shape = shape, stride = stride,
                       learns = args[5] == true}, Pending)
end

--- A storage that a pickle refers to: {key =, dtype =, count =}.
M.Storage = {}

-- What may be called: name of the global -> function(cursor, arguments).
local calls = {
  ["collections OrderedDict"] = function(c, args)
    local out = {}
    for _, pair in ipairs(is_list(args[1]) and args[1] or {}) do
      if not is_list(pair) or #pair ~= 2 then c:fail "an entry of an OrderedDict is no pair" end
      put(c, out, pair[1], pair[2])
    end
    return out
  end,
  ["torch._utils _rebuild_tensor_v2"] = function(c, args) return rebuild(c, args, args[1]) end,
  ["torch._utils _rebuild_tensor"] = function(c, args) return rebuild(c, args, args[1]) end,
  ["torch._utils _rebuild_parameter"] = function(c, args)
    if getmetatable(args[1]) ~= Pending then c:fail "a parameter without a tensor" end
    args[1].learns = args[2] == true
    return args[1]
  end,
  ["torch Size"] = function(_, args) return args[1] end,
  ["torch device"] = function(c, args)
    if type(args[1]) ~= "string" then c:fail "a device without a name" end
    return args[1] .. (math.type(args[2]) == "integer" and ":" .. args[2] or "")
  end,
}

local function global(c, module, name)
  local full = module .. " " .. name
  local storage = module == "torch" and storages[name:match "^(%a+%d*)Storage$" or ""]
  if storage then return setmetatable({storage = storage}, Global) end
  if full == "torch.storage UntypedStorage" or full == "torch UntypedStorage" then
    return setmetatable({storage = "u8"}, Global)
  end
  if module == "torch" and dtypes[name] then return dtypes[name] end
  if calls[full] then return setmetatable({call = calls[full], name = full}, Global) end
  c:fail("the pickle names %s.%s, which could run code; flare reads tensors, numbers, strings, "
    .. "lists and dictionaries only", module:gsub("[^%g]", "?"):sub(1, 60),
    name:gsub("[^%g]", "?"):sub(1, 60))
end

local Machine = {}
Machine.__index = Machine

function Machine:push(value)
  if value == nil then value = M.None end
  self.top = self.top + 1
  if self.top > LIMIT then self.c:fail "the pickle's stack is too deep" end
  self.stack[self.top] = value
end

function Machine:pop()
  local value = self.stack[self.top]
  if value == nil or value == MARK then self.c:fail "the pickle takes more than its stack has" end
  self.stack[self.top] = nil
  self.top = self.top - 1
  return value
end

-- The values above the last mark, as a list.
function Machine:above()
  local first = self.top
  while first > 0 and self.stack[first] ~= MARK do first = first - 1 end
  if first == 0 then self.c:fail "the pickle has no mark" end
  local list = table.move(self.stack, first + 1, self.top, 1, {})
  for k = first, self.top do self.stack[k] = nil end
  self.top = first - 1
  return list
end

function Machine:remember(key) self.memo[key] = self.stack[self.top] end

function Machine:recall(key)
  if self.memo[key] == nil then self.c:fail("the pickle recalls %d, which it never kept", key) end
  self:push(self.memo[key])
end

-- The dictionary or list on the stack, below what goes into it.
function Machine:target(kind)
  local t = self.stack[self.top]
  if not is_list(t) then self.c:fail("the pickle puts %s into what is none", kind) end
  return t
end

local function long(c, n)
  if n > 8 then c:fail("an integer of %d bytes does not fit 64 bits", n) end
  return n == 0 and 0 or (string.unpack("<i" .. n, c:take(n)))
end

local function text(format)
  return function(m)
    local n = m.c:count(format, 1, "the length of a string")
    m:push(m.c:take(n, "a string"))
  end
end

local function number(format)
  return function(m) m:push(m.c:unpack(format)) end
end

local function tuple(n)
  return function(m)
    local list = {}
    for k = n, 1, -1 do list[k] = m:pop() end
    m:push(list)
  end
end

local function line(m)
  local out = {}
  repeat
    local byte = m.c:take(1, "a name")
    out[#out + 1] = byte
  until byte == "\n" or #out > 1000
  return table.concat(out, "", 1, #out - 1)
end

local function call(m)
  local args, f = m:pop(), m:pop()
  if getmetatable(f) ~= Global or not f.call then
    m.c:fail "the pickle calls what is no function"
  end
  if not is_list(args) then m.c:fail "the pickle calls a function without arguments" end
  m:push(f.call(m.c, args))
end

local ops = {
  ["\x80"] = function(m)
    local version = m.c:unpack "B"
    if version > 5 then m.c:fail("pickle protocol %d, flare reads 2 to 5", version) end
  end,
  ["\x95"] = function(m) m.c:take(8) end, -- a frame: only a hint
  ["("] = function(m) m:push(MARK) end,
  ["0"] = function(m) m:pop() end,
  ["1"] = function(m) m:above() end,
  ["2"] = function(m) m:push(m.stack[m.top]) end,
  ["N"] = function(m) m:push(M.None) end,
  ["\x88"] = function(m) m:push(true) end,
  ["\x89"] = function(m) m:push(false) end,
  ["J"] = number "<i4", ["K"] = number "B", ["M"] = number "<I2", ["G"] = number ">d",
  ["\x8a"] = function(m) m:push(long(m.c, m.c:unpack "B")) end,
  ["\x8b"] = function(m) m:push(long(m.c, m.c:count("<i4", 1, "the length of an integer"))) end,
  ["X"] = text "<I4", ["\x8c"] = text "B", ["\x8d"] = text "<i8", ["T"] = text "<i4",
  ["U"] = text "B", ["B"] = text "<I4", ["C"] = text "B", ["\x8e"] = text "<i8",
  ["]"] = function(m) m:push{} end,
  ["}"] = function(m) m:push{} end,
  [")"] = function(m) m:push{} end,
  ["t"] = function(m) m:push(m:above()) end,
  ["l"] = function(m) m:push(m:above()) end,
  ["\x85"] = tuple(1), ["\x86"] = tuple(2), ["\x87"] = tuple(3),
  ["a"] = function(m)
    local value = m:pop()
    table.insert(m:target "an element", value)
  end,
  ["e"] = function(m)
    local list = m:above()
    local t = m:target "elements"
    table.move(list, 1, #list, #t + 1, t)
  end,
  ["s"] = function(m)
    local value, key = m:pop(), m:pop()
    put(m.c, m:target "an entry", key, value)
  end,
  ["u"] = function(m)
    local list = m:above()
    local t = m:target "entries"
    if #list % 2 == 1 then m.c:fail "a dictionary has a key without a value" end
    for k = 1, #list, 2 do put(m.c, t, list[k], list[k + 1]) end
  end,
  ["q"] = function(m) m:remember(m.c:unpack "B") end,
  ["r"] = function(m) m:remember(m.c:unpack "<I4") end,
  ["\x94"] = function(m)
    m:remember(m.kept)
    m.kept = m.kept + 1
  end,
  ["h"] = function(m) m:recall(m.c:unpack "B") end,
  ["j"] = function(m) m:recall(m.c:unpack "<I4") end,
  ["c"] = function(m)
    local module = line(m)
    m:push(global(m.c, module, line(m)))
  end,
  ["\x93"] = function(m)
    local name, module = m:pop(), m:pop()
    m:push(global(m.c, tostring(module), tostring(name)))
  end,
  ["R"] = call,
  ["\x81"] = call,
  ["b"] = function(m) m:pop() end, -- attributes of an OrderedDict, such as _metadata
  ["Q"] = function(m) m:push(m.find(m.c, m:pop())) end,
}

-- A persistent id: the tuple ("storage", class, key, location, count).
local function storage(c, id)
  local class = is_list(id) and id[1] == "storage" and id[2]
  if getmetatable(class) ~= Global or not class.storage or type(id[3]) ~= "string"
     or math.type(id[5]) ~= "integer" or id[5] < 0 then
    c:fail "the pickle refers to something that is no storage"
  end
  return setmetatable({key = id[3], dtype = class.storage, count = id[5]}, M.Storage)
end

--- Reads one pickle from a cursor, whose failures are those of Cursor.guard.
-- @return the value; dictionaries, lists and tuples are tables, None is M.None, and tensors are
--   objects of M.Pending, for M.resolve
function M.read(c)
  local m = setmetatable({c = c, stack = {}, top = 0, memo = {}, kept = 0, find = storage}, Machine)
  while true do
    local op = c:take(1, "an instruction of the pickle")
    if op == "." then return m:pop() end
    local f = ops[op]
    if not f then c:fail("instruction 0x%02x of the pickle is not read", op:byte()) end
    f(m)
  end
end

--- Replaces all pending tensors in a value by what make(pending) gives; tables may refer to each
-- other in any way.
function M.resolve(value, make)
  local made, seen, queue = {}, {}, {}
  local function of(x)
    if type(x) ~= "table" then return x end
    local meta = getmetatable(x)
    if meta == Pending then
      made[x] = made[x] or make(x)
      return made[x]
    elseif meta == nil and not seen[x] then
      seen[x] = true
      queue[#queue + 1] = x
    end
    return x
  end
  value = of(value)
  while #queue > 0 do
    local t = table.remove(queue)
    for key, inner in next, t do t[key] = of(inner) end
  end
  return value
end

return M
