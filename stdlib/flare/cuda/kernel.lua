--- flare.cuda.kernel: makes a function of tensors and numbers from a kernel in CUDA C++.
local compile = require "flare.cuda.compile"
local core = require "flare.core"
local fail = require "flare.fail"
local options = require "flare.options"
local signature = require "flare.cuda.signature"

local kernel = {}
kernel.__index = kernel
kernel.__name = "flare.cuda.kernel"

-- --- making one ---

local defaults = {
  source = options.none, name = options.none, args = options.none, out = options.none,
  grid = options.none, block = options.none, shared = options.none, options = {},
  arch = options.none, backward = options.none,
}

-- An output's shape: a function of the arguments by name, or the name of one that it is like.
local function outputs(o, by_name)
  local list = {}
  for key, value in pairs(o.out or {}) do
    local name = type(key) == "number" and value or key
    local p = by_name[name]
    if not p or not p.pointer or p.const then
      fail("cuda.kernel: out: %s has no parameter %s to write to", o.name, tostring(name))
    end
    p.out = type(key) == "number" or value
    if p.out ~= true and type(p.out) ~= "function" and not by_name[p.out] then
      fail("cuda.kernel: out: %s has the shape of %s, which is not a parameter", name,
           tostring(p.out))
    end
  end
  for _, p in ipairs(o.params) do
    if p.out then list[#list + 1] = p end
  end
  return list
end

local function parameters(o)
  local params, why = signature.read(o.source, o.name)
  if o.args then
    local read = params
    params, why = signature.declared(o.args)
    if params and read and #read ~= #params then
      fail("cuda.kernel: args has %d parameters, %s in the source has %d", #params, o.name, #read)
    end
  end
  if not params then fail("cuda.kernel: %s", why) end
  for _, p in ipairs(params) do
    if not p.dtype then
      fail("cuda.kernel: %s: the type of parameter %s is not known (%s): declare all by args = "
           .. "{\"x:f32*\", \"n:i32\", ...}", o.name, p.name, p.text)
    end
  end
  return params
end

local function attach(k)
  local names = {}
  for i, p in ipairs(k.given) do names[i] = p.name end
  k.op = core.func {
    name = k.name,
    forward = function(ctx, ...)
      local args, results = k:launch(...)
      local tensors = {}
      for _, p in ipairs(k.params) do
        if p.pointer then tensors[#tensors + 1] = args[p.name] end
      end
      ctx:save(table.unpack(tensors))
      ctx.args = args
      return table.unpack(results, 1, #k.outs)
    end,
    backward = type(k.backward) == "function" and k.backward or function(ctx, ...)
      local args, grads, given = {}, {}, {...}
      for name, value in pairs(ctx.args) do args[name] = value end
      for i, p in ipairs(k.outs) do
        args["g" .. p.name] = given[i] and given[i]:contiguous()
          or core.zeros_like(ctx.args[p.name])
      end
      local values = {}
      for i, p in ipairs(k.backward.given) do
        if args[p.name] == nil then
          fail("%s: its gradient %s uses %s, which is neither a parameter nor g<output>", k.name,
               k.backward.name, p.name)
        end
        values[i] = args[p.name]
      end
      local made = k.backward:launch(table.unpack(values, 1, #values))
      for i, name in ipairs(names) do grads[i] = made["g" .. name] or nil end
      return table.unpack(grads, 1, #names)
    end,
  }
end

-- Three sizes that are numbers, or nil.
local function fixed(value)
  local list = type(value) == "table" and value or {value}
  for i = 1, 3 do
    if list[i] ~= nil and not (math.type(list[i]) == "integer" and list[i] > 0) then return end
  end
  return list[1] or 1, list[2] or 1, list[3] or 1
end

-- The arguments of core.raw_call, if they are the same at each call; otherwise nil.
local function plan_of(o)
  local list, at, tensor = {}, {}, nil
  for i, p in ipairs(o.params) do
    at[p.name] = i
    tensor = tensor or p.pointer and not p.out and i
  end
  for _, p in ipairs(o.params) do
    local like = p.out == true and tensor or at[p.out] or 1
    if type(p.out) == "function" or p.out and (not tensor or not o.params[like].pointer
                                               or o.params[like].out) then return end
    list[#list + 1] = p.dtype
    list[#list + 1] = (p.pointer and 1 or 0) | (p.pointer and not p.const and 2 or 0)
      | (p.out and 4 or 0)
    list[#list + 1] = like - 1
  end
  local bx, by, bz = fixed(o.block or 256)
  local gx, gy, gz = fixed(o.grid)
  local shared = o.shared or 0
  if not tensor or not bx or not gx or math.type(shared) ~= "integer" or shared < 0
     or bx > 1024 or by > 1024 or bz > 64 or bx * by * bz > 1024
     or gx > 0x7fffffff or gy > 65535 or gz > 65535 then return end
  return core.raw_plan(o.raw, o.name, o.grid and gx or 0, gy, gz, bx, by, bz, shared, list)
end

--- A kernel from CUDA source: a table with __call, see docs/kernels.md.
local function new(given)
  local o = options.check("cuda.kernel", given, defaults)
  for _, key in ipairs {"source", "name"} do
    if type(o[key]) ~= "string" then
      fail("cuda.kernel: %s must be a string, got %s", key, options.kind(o[key]))
    end
  end
  o.params = parameters(o)
  local by_name = {}
  for _, p in ipairs(o.params) do by_name[p.name] = p end
  o.outs = outputs(o, by_name)
  o.given, o.writes = {}, 0
  for i, p in ipairs(o.params) do
    if not p.out then o.given[#o.given + 1] = p end
    if p.pointer and not p.const then o.writes = o.writes | 1 << (i - 1) end
  end
  o.raw = compile("cuda.kernel", o.source, o.name, o.options, o.arch)
  o.plan = plan_of(o)
  local k = setmetatable(o, kernel)
  if o.backward then
    if type(o.backward) ~= "function" and getmetatable(o.backward) ~= kernel then
      fail("cuda.kernel: backward must be a function or a kernel, got %s", options.kind(o.backward))
    end
    if #o.outs == 0 then fail("cuda.kernel: backward needs out = {...}: results to be of") end
    attach(k)
  end
  return k
end

-- --- launching ---

local function check_tensor(k, p, x)
  if not core.is_tensor(x) then
    fail("%s: %s: expected a tensor of %s, got %s", k.name, p.name, p.dtype,
         type(x) == "userdata" and "a closed one" or type(x))
  end
  if x.dtype ~= p.dtype then
    fail("%s: %s: expected %s, got %s", k.name, p.name, p.dtype, x.dtype)
  end
  if not x:is_contiguous() then
    fail("%s: %s: expected contiguous memory: x:contiguous() makes it so", k.name, p.name)
  end
end

-- The one device that all tensors are on.
local function device_of(k, args)
  local device
  for _, p in ipairs(k.given) do
    local x = p.pointer and args[p.name]
    if x and not x.device:find "^cuda" then
      local there, why = core.backend_query("cuda", "available")
      fail("%s: %s: expected a tensor on a GPU, got one on %s%s", k.name, p.name, x.device,
           there and ": x:to \"cuda\" moves it" or "; " .. why)
    end
    if x and device and x.device ~= device then
      fail("%s: %s is on %s, but another argument on %s", k.name, p.name, x.device, device)
    end
    device = device or x and x.device
  end
  return device or fail("%s: no tensor among the arguments", k.name)
end

local function three(k, what, value, args, most)
  if type(value) == "function" then value = {value(args)} end
  if type(value) ~= "table" then value = {value} end
  local sizes = {}
  for i = 1, 3 do
    local n = value[i] == nil and 1 or math.tointeger(value[i])
    if not n or n < 1 or n > most[i] then
      fail("%s: %s[%d] must be an integer from 1 to %d, got %s", k.name, what, i, most[i],
           tostring(value[i]))
    end
    sizes[i] = n
  end
  return sizes
end

-- The number of elements that a 1-D grid covers: of the first output, or of the first tensor that
-- the kernel writes.
local function elements(k, args)
  local first
  for _, p in ipairs(k.params) do
    if p.pointer then
      if p.out or not p.const then return args[p.name]:numel() end
      first = first or args[p.name]
    end
  end
  return first and first:numel() or 0
end

local function make_outputs(k, args, device)
  local results, like = {}, nil
  for _, p in ipairs(k.given) do
    if p.pointer then like = like or args[p.name] end
  end
  for i, p in ipairs(k.outs) do
    local shape
    if type(p.out) == "function" then
      shape = p.out(args)
    else
      local x = p.out == true and like or args[p.out]
      if not x then fail("%s: out: nothing to take the shape of %s from", k.name, p.name) end
      shape = x.shape
    end
    results[i] = core.empty(shape, {dtype = p.dtype, device = device})
    args[p.name] = results[i]
  end
  return results
end

-- The arguments by name, and the bytes of numbers by name.
local function read_arguments(self, ...)
  local args, packed = {}, {}
  local n = select("#", ...)
  if n ~= #self.given then
    fail("%s: expected %d arguments, got %d: %s", self.name, #self.given, n, tostring(self))
  end
  for i, p in ipairs(self.given) do
    local value = select(i, ...)
    args[p.name] = value
    if p.pointer then
      check_tensor(self, p, value)
    else
      local bytes, wanted = signature.bytes(p, value)
      if not bytes then
        fail("%s: %s: expected %s (%s), got %s", self.name, p.name, wanted, p.dtype,
             type(value) == "number" and tostring(value) or type(value))
      end
      packed[p.name] = bytes
    end
  end
  return args, packed
end

-- Bytes of shared memory, as given or computed.
local function shared_bytes(k, args)
  local bytes = k.shared or 0
  if type(bytes) == "function" then bytes = bytes(args) end
  bytes = math.tointeger(bytes)
  if not bytes or bytes < 0 then
    fail("%s: shared must be a number of bytes, got %s", k.name, tostring(k.shared))
  end
  return bytes
end

--- Checks the arguments, makes the outputs and launches.
-- @return the arguments and outputs by name, and a list of the outputs
function kernel:launch(...)
  local args, packed = read_arguments(self, ...)
  local block = three(self, "block", self.block or 256, args, {1024, 1024, 64})
  local threads = block[1] * block[2] * block[3]
  if threads > 1024 then
    fail("%s: a block of %d threads is too large: at most 1024", self.name, threads)
  end
  local most = {0x7fffffff, 65535, 65535}
  local grid = self.grid and three(self, "grid", self.grid, args, most)
  local shared = shared_bytes(self, args)
  local device = device_of(self, args)
  local results = make_outputs(self, args, device)
  if not grid then
    local count = elements(self, args)
    if count == 0 then return args, results end
    grid = three(self, "grid", (count + threads - 1) // threads, args, most)
  end
  local values = {}
  for i, p in ipairs(self.params) do values[i] = packed[p.name] or args[p.name] end
  core.raw_run(self.raw, self.name, grid[1], grid[2], grid[3], block[1], block[2], block[3],
               shared, self.writes, table.unpack(values, 1, #values))
  return args, results
end

local function call(self, ...)
  if core.grad_enabled() then
    for i = 1, select("#", ...) do
      local x = select(i, ...)
      if core.is_tensor(x) and x.requires_grad then
        fail("%s: %s requires a gradient, but the kernel has none: give it backward = ..., or "
             .. "call it in flare.no_grad", self.name,
             self.given[i] and self.given[i].name or "an argument")
      end
    end
  end
  local _, results = self:launch(...)
  return table.unpack(results, 1, #self.outs)
end

function kernel:__call(...)
  if self.op then return self.op(...) end
  if self.plan then return core.raw_call(self.plan, call, self, ...) end
  return call(self, ...)
end

function kernel:__tostring()
  local list = {}
  for i, p in ipairs(self.params) do
    list[i] = ("%s%s %s%s"):format(p.const and "const " or "", p.dtype, p.pointer and "*" or "",
                                   p.name)
  end
  return ("flare.cuda.kernel %s(%s)"):format(self.name, table.concat(list, ", "))
end

--- Registers of a thread, bytes of shared memory of a block and of local memory of a thread, the
-- most threads of a block (nil without a GPU) and the architecture it was compiled for.
-- @param device "cuda:0" if left out; without a GPU what the compiler says
function kernel:attributes(device)
  local index = device and tonumber(device:match ":(%d+)$") or 0
  if not core.backend_query("cuda", "available") then index = -1 end
  local registers, shared, memory, threads, arch = core.raw_about(self.raw, index)
  return {registers = registers, shared = shared, ["local"] = memory, threads = threads,
          arch = arch}
end

--- The compiled kernel, for flare.op.register{image = ...} or a file; nil where nothing was
-- compiled, because there is no NVRTC.
-- @return the bytes of a cubin, and its entry's name
function kernel:image()
  local _, _, _, _, _, bytes, entry = core.raw_about(self.raw, -1)
  return bytes, entry
end

return new
