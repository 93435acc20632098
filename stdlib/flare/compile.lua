--- Compiled functions: their launches wait until the function ends, and run fused.
local core = require "flare.core"
local fail = require "flare.fail"
local options = require "flare.options"

local M = {}

-- FLARE_COMPILE is a list of words. off: functions stay as they are. all: the whole program is one
-- compiled function, and plans are made at first sight, to test plans. exact: every function is.
-- check: each plan runs beside its operators one by one, and results are compared. wait: calls wait
-- for the kernels of their plan.
local mode = {on = false, off = false, all = false, exact = false, check = false, wait = false}
local setting = os and os.getenv "FLARE_COMPILE" or "" -- a host may leave os out
for word in setting:gmatch "[^,]+" do
  if mode[word] == nil then
    fail("FLARE_COMPILE is %q: %q is none of off, on, all, exact, check and wait%s", setting, word,
      options.hint(word, mode))
  end
  mode[word] = true
end
if mode.off and (mode.all or mode.exact or mode.check or mode.wait) then
  fail("FLARE_COMPILE is %q: with off there is nothing to be all, exact or check, or to wait for",
    setting)
end

local objects = setmetatable({}, {__mode = "k"}) -- compiled function -> the core's object
local origins = setmetatable({}, {__mode = "k"}) -- compiled function -> what it was made of

--- A function that computes what `f` computes, faster: the kernels of a call wait until `f` returns
-- or a value is read, and then run by a plan, with elementwise operators fused into one kernel. A
-- plan is made when the same operators run for the second time, on shapes, strides and dtypes as
-- before; numbers may change. `f` itself runs each time, with any Lua in it: branches, loops,
-- prints, changes of tables.
-- Errors that a kernel finds in values (a position outside a tensor) are raised where the values
-- are read, or at the end of `f`.
-- @param f a function, or a module: then the result has the module's fields, too
-- @param opts `exact`: elementwise results are bit for bit those of `f`, also of 16-bit tensors;
-- false by default: what stays inside a kernel is not rounded to 16 bits, and reductions may add in
-- another order. `graphs`: short kernels of a plan are launched together, as a CUDA graph; true by
-- default. `chunk`: launches around a large intermediate value, such as logits that go into
-- cross_entropy, run chunk by chunk, so that only so many bytes of it are in memory; by default
-- 256 MiB (64 MiB on the CPU), false: such values are made as a whole; bytes, or text: "64MiB".
-- `memory`: a call raises an error instead of having more than so many bytes in tensors of its
-- device, together with what is there before it; first it computes values again instead of keeping
-- them, and makes chunks smaller, as far as that takes; bytes, or text: "20GiB".
-- `pure`: once a call has launched what the call before has, f no longer runs for arguments like
-- theirs, only its launches and the steps of optimizers; false by default.
-- `wait`: a plan is used from the first time on, and that call waits for its kernels; false by
-- default: while threads compile them, on a GPU, calls run without the plan.
-- `device`, `host`: bytes; then f describes a training step as a table, and the result is what
-- `flare.plan` makes of it; an error says why there is none.
-- @return the compiled function; a table that can be called for a module
function M.compile(f, opts)
  if type(opts) == "table" and (opts.device or opts.host) then
    local plan = require("flare.plan").plan(f, opts)
    return plan.fits and plan or fail("compile: %s", tostring(plan))
  end
  options.callable("compile", f)
  local o = options.check("compile", opts, {exact = false, graphs = true, chunk = options.none,
    memory = options.none, wait = false, pure = false})
  local chunk = o.chunk == nil and 0 or o.chunk == false and -1
    or options.bytes("compile", "chunk", o.chunk, "or false")
  local memory = o.memory and options.bytes("compile", "memory", o.memory) or 0
  local exact = o.exact or mode.exact
  local code, pure = f
  if o.pure then code, pure = require "flare.compile.pure".wrap(f) end
  local run, object = core.compiled(code, exact, mode.all, mode.check, o.graphs, chunk, memory,
    o.wait or mode.wait, o.pure, f)
  if pure then pure.object = object end
  if mode.off then run = function(...) return f(...) end end
  objects[run], origins[run] = object, {f = f, exact = exact, chunk = chunk}
  if type(f) == "function" then return run end
  local compiled = setmetatable({}, {
    __call = function(_, ...) return run(...) end,
    __index = f,
    __newindex = function(_, key, value) f[key] = value end,
  })
  objects[compiled], origins[compiled] = object, origins[run]
  return compiled
end

--- What compile was given: the function and whether it is exact; nil for another function.
-- @param f what compile may have returned
function M.compile_origin(f)
  local origin = objects[f] and origins[f]
  if origin then return origin.f, origin.exact, origin.chunk end
end

if mode.all then
  local _, program = core.compiled(function() end, mode.exact, true, mode.check, true)
  M.program = program -- as long as the module
  core.compiled_begin(program)
end

--- What a compiled function has done: `windows`, runs of waiting kernels; `planned`, those that a
-- plan ran; `traced`, calls of a pure function without its code; `replayed`, those that a graph of
-- launches ran; `unready`, those that ran without their plan, as its kernels were being compiled;
-- `failure`, why one could not be compiled, so that its plan is not used; `plans`, and `traces` of
-- a pure function, that are kept; `graphs`, and `graph_bytes`, memory of their temporaries;
-- `launches` and `kernels` of the plan last used, before and after fusion; `chunks` of its
-- launches that run chunk by chunk; `repeats`, launches that run a second time; `memory`, bytes of
-- its results and temporaries, at most at a time, without what kernels need while they run; `off`,
-- true if calls kept having new shapes or operators, or took longer with plans on the CPU, so that
-- they are no longer compiled; `with` and `without`, the least seconds of such a call with plans
-- and without, if calls were timed.
-- @param f what compile returned @return a table
function M.compile_stats(f)
  local object = objects[f]
  if not object then
    fail("compile_stats: expected a compiled function, got %s", options.kind(f))
  end
  return core.compiled_stats(object)
end

return M
