--- Custom operators: CUDA kernels from source or images, functions of shared libraries,
-- expressions. See docs/kernels.md and docs/add-a-kernel.md.
local compile = require "flare.cuda.compile"
local core = require "flare.core"
local fail = require "flare.fail"
local options = require "flare.options"
local signature = require "flare.cuda.signature"

local op = {}

-- Registered operators by name, and the same by the function that `register` returned.
local registered, rows = {}, setmetatable({}, {__mode = "k"})

local c_types = {f32 = "float", f64 = "double", f16 = "__half", bf16 = "__nv_bfloat16",
  i64 = "long long", i32 = "int", i16 = "short", i8 = "signed char", u8 = "unsigned char",
  bool = "bool"}

-- --- the parameters of a kernel ---

-- The parameters that a signature implies: a list of {name, pointer} or {name, dtype}.
local function promised(text)
  local left, right = text:gsub("%b()", ""):match "^(.-)%s*%->%s*(.*)$"
  local list = {}
  for part in ((left or "") .. ","):gmatch "%s*([^,]*)," do
    local name, kind = part:match "^([%w_]+)%s*:%s*(%w+)"
    if name then
      local is_tensor = (" any num float bool index "):find(" " .. kind .. " ", 1, true)
      list[#list + 1] = {name = name, pointer = is_tensor ~= nil,
        dtype = kind == "real" and "f64" or kind == "flag" and "bool" or "i64"}
    end
  end
  -- inputs come first, then results, then attributes
  local sorted = {}
  for _, p in ipairs(list) do if p.pointer then sorted[#sorted + 1] = p end end
  for name in ((right or "") .. ","):gmatch "%s*([%w_]+)%s*:?[^,;]*[,;]" do
    sorted[#sorted + 1] = {name = name, pointer = true}
  end
  for _, p in ipairs(list) do if not p.pointer then sorted[#sorted + 1] = p end end
  sorted[#sorted + 1] = {name = "the number of elements", dtype = "i64"}
  return sorted
end

-- Compares them with the kernel's parameters in the source, if those can be parsed.
local function check_parameters(o)
  local given = signature.read(o.source, o.symbol)
  if not given then return end
  local wanted = promised(o.signature)
  if #given ~= #wanted then
    local names = {}
    for i, p in ipairs(wanted) do names[i] = p.name end
    fail("op.register: %s has %d parameters, but its signature makes %d of them: %s", o.symbol,
         #given, #wanted, table.concat(names, ", "))
  end
  for i, p in ipairs(given) do
    local w = wanted[i]
    if p.pointer ~= (w.pointer or false) or not w.pointer and p.dtype and p.dtype ~= w.dtype then
      fail("op.register: parameter %d of %s (%s) is %s: it must be %s", i, o.symbol, w.name,
           p.text .. (p.pointer and " *" or ""), w.pointer and "a pointer" or c_types[w.dtype])
    end
  end
end

-- --- compiling ---

-- Kernels by dtype: `*` in the symbol stands for the type.
local function kernels(o)
  if o.source and o.image then fail "op.register: give source or image, not both" end
  if type(o.symbol) ~= "string" then
    fail("op.register: symbol must name the kernel, got %s", options.kind(o.symbol))
  end
  local made, dtypes = {}, o.dtypes or {"f32"}
  if #dtypes > 1 and not o.symbol:find("*", 1, true) then
    fail("op.register: %s is one kernel: for several dtypes its name has a * for the type",
         o.symbol)
  end
  if o.source then check_parameters(o) end
  for _, dtype in ipairs(dtypes) do
    local c = c_types[dtype] or fail("op.register: dtypes: there is no dtype '%s'", tostring(dtype))
    local name = o.symbol:gsub("%*", o.image and dtype or c)
    if o.image then
      local raw, message = core.raw_new(nil, name, nil, nil, o.image)
      made[dtype] = raw or fail("op.register: %s", message)
    else
      made[dtype] = compile("op.register", o.source, name, o.options or {}, o.arch)
    end
  end
  return made
end

-- Registers it under its name.
local function keep(f, fingerprint, info)
  registered[info.name], rows[f] = info, info
  core.ops[info.name] = f
  return f, fingerprint
end

local none = options.none
local known = {
  name = none, signature = none, backend = none, fingerprint = none, like = none, shape = none,
  init = none, launch = none, backward = none, gradient = none, expression = none,
  library = none, symbol = none, source = none, image = none, dtypes = none, options = none,
  arch = none,
}

-- Reads a definition and registers it.
local function define(where, given)
  local o = options.check(where, given, known)
  if type(o.signature) ~= "string" then
    fail("%s: signature must be a string, got %s", where, options.kind(o.signature))
  end
  if (o.source or o.image) and o.library then
    fail("%s: give a kernel or a library, not both", where)
  elseif o.source or o.image then
    o.kernels, o.symbol = kernels(o), nil
  elseif type(o.init) == "string" and not o.library then
    fail("%s: init must be a function, or the name of a function of the library", where)
  elseif o.launch then
    fail("%s: launch is for kernels of source or image", where)
  end
  return core.op_register(o)
end

local shadows = {} -- by the name of the operator

--- Registers an operator in this runtime, or a kernel of another backend for a registered operator.
-- Registering the same definition again has no effect; a different definition of the same name
-- replaces the old one for later calls, and recorded graphs keep the old one.
-- @param given name, signature; one or more of: source or image with symbol (a kernel in CUDA C++
-- or a cubin), library with symbol (a function of a shared library), expression ("y = a * x");
-- dtypes (of the kernel, {"f32"}), launch(names) -> blocks, threads, bytes; init(name,
-- fingerprint); like (input 1) or shape(names) -> sizes; backward (a registered operator) or
-- gradient ("gx = gy * a"); backend, fingerprint (to be compared), options, arch
-- @return the operator as a function, and its fingerprint
function op.register(given)
  local name = type(given) == "table" and given.name
  if shadows[name] then
    fail("op.register: %s has a shadow: end it by its :keep() or :back() first", name)
  end
  return keep(define("op.register", given))
end

--- The operator with a name: built in, registered by `register`, or registered in C by the host
-- program.
-- @return the operator as a function
function op.find(name)
  if type(name) ~= "string" then fail("op.find: expected a name, got %s", options.kind(name)) end
  return core.ops[name] or (keep(core.op_find(name)))
end

--- The facts about a registered operator: name, signature, params, results, differentiable.
-- @return a table, or nil
function op.info(name) return registered[name] end

--- The result of `info` for the function that `register` returned.
-- @return a table, or nil
function op.row_of(f) return rows[f] end

-- The name that the new implementation has while it is tried.
local function free_name(name)
  repeat name = name .. "_shadow" until not registered[name]
  return name
end

-- Turns the functions of a row that scripts hold to another function, or with nil back.
local function redirect(row, to)
  for f in pairs(rows) do core.op_redirect(f, row, to) end
end

-- What the new implementation is: a function, and a function that registers it for good or nil.
local function newcomer(name, new, wanted)
  if type(new) == "function" then return new end
  if type(new) ~= "table" then
    fail("op.shadow: the new implementation of %s must be a function or a table of options as for "
         .. "op.register, got %s", name, options.kind(new))
  end
  if new.name and new.name ~= name then
    fail("op.shadow: the new implementation has the name %s, the operator is %s", new.name, name)
  end
  local o = {signature = wanted}
  for key, value in pairs(new) do o[key] = value end
  o.name = free_name(name)
  local f = define("op.shadow", o)
  if o.signature:gsub("%s", "") ~= wanted:gsub("%s", "") then
    fail("op.shadow: the new %s has the signature '%s', the old one '%s'", name, o.signature,
         wanted)
  end
  o.name = name
  return f, function() return (keep(define("op.shadow", o))) end
end

--- Runs a new implementation of a registered operator beside the old one, in every call, and
-- compares results, gradients and times. Calls return what the old one gives. `print(shadow)` shows
-- the greatest errors and the times; shadow:keep() makes the new implementation the operator, also
-- for functions that scripts hold; shadow:back() drops it, as <close> does. The fields of the
-- shadow are calls, error, gradient_error, failures, problem, time.old and time.new.
-- @param name of the operator
-- @param new options as for `register`, without name and signature; or a function
-- @return the shadow
function op.shadow(name, new)
  if type(name) ~= "string" then
    fail("op.shadow: the name of a registered operator is expected, got %s%s", options.kind(name),
         rows[name] and (": '%s'"):format(rows[name].name) or "")
  elseif not pcall(op.find, name) then
    fail("op.shadow: there is no operator '%s'%s", name, options.hint(name, registered))
  elseif not registered[name] then
    fail("op.shadow: %s is an operator of flare's; `flare bench compare` compares others with it",
         name)
  elseif shadows[name] then
    fail("op.shadow: %s has a shadow already: end it by its :keep() or :back() first", name)
  end
  local row = core.op_find(name)
  local f, settle = newcomer(name, new, registered[name].signature)
  local _, before = core.op_redirect(core.ops[name], row, nil)
  local shadow
  local function call(...) return shadow:call(...) end
  shadow = require "flare.op.shadow"(name, before or row, f, function(kept)
    shadows[name] = nil
    redirect(row, kept and (settle and settle() or call) or before)
  end)
  redirect(row, call)
  shadows[name] = shadow
  return shadow
end

return require "flare.lazy"("flare.op", op, {})
