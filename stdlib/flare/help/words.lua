--- Help for functions, methods and fields that are written in C and are not operators: names, the
-- call with %s for the name, and a description. A call begins with `flare.` (a function) or `x` (a
-- member of tensors).
local M = {functions = {}, members = {}} -- name -> {call =, text =}

local words = {
  -- tensors are made
  {"tensor", "flare.%s(numbers, {dtype, device, requires_grad})",
   "Numbers in nested tables as a tensor: f32, or bool for booleans, unless a dtype is given."},
  {"zeros ones empty", "flare.%s(2, 3, {dtype, device, requires_grad})",
   "A tensor of zeros, of ones, or uninitialised; the sizes may be one table."},
  {"zeros_like ones_like empty_like rand_like randn_like", "flare.%s(x, {dtype, device})",
   "A new tensor with the shape, dtype and device of x."},
  {"full_like", "flare.%s(x, value, {dtype, device})",
   "A tensor with the shape, dtype and device of x in which every element is value."},
  {"range", "flare.%s(start, stop, step = 1)", "start, start + step, ... up to stop, included."},
  {"from_bytes", "flare.%s(string, dtype, shape)",
   "A tensor from the bytes of a string, row-major, in the machine's byte order; see x:bytes()."},
  {"from_dlpack", "flare.%s(capsule)",
   "A tensor that shares the memory of another library's tensor."},
  {"is_tensor", "flare.%s(value)", "Whether a value is a tensor."},

  -- gradients
  {"grad", "flare.%s(y, {x, ...}, {gradient, retain_graph, create_graph, allow_unused})",
   "Returns the gradients of y with respect to each x, and leaves x.grad alone."},
  {"backward", "flare.%s({y, ...}, {gradient, retain_graph, create_graph})",
   "Adds the gradients of several tensors into .grad of the leaves that they depend on."},
  {"no_grad enable_grad", "flare.%s(f, ...)",
   "no_grad calls f without recording for gradients, enable_grad with it, also inside no_grad. "
   .. "Without f, for the rest of a block: local _ <close> = flare.no_grad()."},
  {"grad_enabled", "flare.%s()", "Whether operations are recorded for gradients."},
  {"func", "flare.%s{name, forward, backward}",
   "A function with a custom gradient: forward(ctx, ...) returns results, backward(ctx, dy, "
   .. "...) returns a gradient for each argument."},
  {"anomaly", "flare.%s(true)",
   "Makes the first NaN an error with its operator and line; with a function, during its call."},
  {"autocast", 'flare.%s("bf16", f, ...)',
   "Calls f with products in bf16 or f16, and sums, norms and losses in f32."},
  {"meta", "flare.%s(f, ...)",
   "Calls f with tensors that have shapes and dtypes, but no values."},

  -- memory, devices, streams
  {"scope", "flare.%s(f, ...)", "Calls f and frees the tensors it made but did not return."},
  {"device set_default_device", "flare.%s(name)",
   "Sets the default device of new tensors; with a function as second argument, during its "
   .. "call. flare.device() returns the default device."},
  {"devices", "flare.%s()", "The names of the devices."},
  {"threads", "flare.%s(n)",
   "The number of threads of the CPU's kernels, by default one for each allowed core; n sets it."},
  {"synchronize", "flare.%s(device)", "Waits until the device has finished all its work."},
  {"stream", "flare.%s(device)", "A new stream: s:run(f), s:wait(other), s:synchronize()."},
  {"current_stream default_stream", "flare.%s(device)",
   "The current stream of a device, or its default stream."},
  {"event", "flare.%s(device)",
   "A marker in a stream: e:record(s), e:wait(s), e:elapsed(later)."},

  {"debug_streams", "flare.%s(true)",
   "Raises an error when two streams use a tensor without an order between them."},
  {"load_backend", "flare.%s(path)",
   "Adds a backend from a shared library; true, or nil and why."},
  {"spawn", "flare.%s(source, ...)",
   "Runs Lua source on a new thread, in a Lua state of its own, with copies of the arguments as "
   .. "`...`. The thread's join() waits and gives true and what the source returns, or nil and its "
   .. "error; join(seconds) may give nil and \"timeout\". stop() ends it, alive() says whether it "
   .. "runs."},

  {"provenance", "flare.%s(message)",
   "Where the operands of the call that failed with this message were made, a line for each: "
   .. "after local ok, message = pcall(f). nil if it was not the last error."},
  {"clock", "flare.%s()", "A monotonic clock: seconds, with a resolution of nanoseconds."},
  {"version", "flare.%s", "The version of flare, a string."},
  {"newaxis", "x[{{}, flare.%s}]", "Inserts a dim of size 1 in x[{...}]."},

  -- random numbers, kernels
  {"manual_seed", "flare.%s(seed)", "Seeds the default generator of random numbers."},
  {"generator", "flare.%s(seed)", "A generator of random numbers, for {generator = ...}."},
  {"default_generator", "flare.%s()", "The generator that is used if none is given."},
  {"elementwise", "flare.%s(inputs, outputs, body)",
   'A kernel from a string: flare.elementwise("T x, T b", "T z", "z = x * sigmoid(b * x)").'},
  {"reduce", "flare.%s(inputs, output, body, how)",
   'A kernel that reduces the values of its body by "sum", "prod", "max" or "min".'},
  {"breakpoint", "flare.%s(...)",
   "Stops the script and opens the debugger; returns its arguments."},
  {"kernel", "flare.%s(f)", "Traces a Lua function and makes one kernel of its operations."},
  {"max min", "flare.%s(x), (x, dim) or (x, y)",
   "The extreme of all elements; along dim, with positions; or element by element."},
  {"nanmax nanmin", "flare.%s(x, dims, keepdim = false)",
   "The largest or smallest element over dims that is not NaN."},

  -- of tensors: what they are
  {"shape", "x.%s", "The sizes: x.shape[1], #x.shape."},
  {"dtype", "x.%s", '"f32", "i64", "bool" and so on; x:to("f64") converts.'},
  {"device", "x.%s", '"cpu", "cuda:0" and so on; x:to("cuda") moves.'},
  {"grad", "x.%s",
   "The sum of the gradients that backward added; nil before. x.grad = nil clears it."},
  {"grad_fn", "x.%s", "The operator that made x, if the call was recorded."},
  {"made", "x.%s", "The line that made x, or nil if it is not known."},
  {"requires_grad", "x.%s", "Whether x requires a gradient; can be assigned."},
  {"is_leaf", "x.%s", "Whether x is not the result of a recorded call."},
  {"T", "x.%s", "A view with the last two dims swapped; a vector itself."},
  {"ndim dim", "x.%s, x:dim()", "The number of dims."},
  {"id", "x.%s", "A number that is unique to the tensor."},
  {"closed", "x.%s", "Whether x:close() has freed it."},
  {"size stride", "x:%s(dim)", "The size (stride) of a dim, or a table with those of all dims."},
  {"plot hist", 'x:%s "x.svg"',
   "Writes the curves of a vector or of a matrix's rows, or a histogram, as SVG or PNG."},
  {"heat image", 'x:%s "x.png"',
   "Writes a matrix by colours, or an image of 1 or 3 channels, as PNG or SVG."},
  {"numel nelement", "x:%s()", "The number of elements."},
  {"nbytes element_size", "x:%s()", "The bytes of all elements, or of one."},
  {"storage_offset", "x:%s()", "The offset of the first element in the storage, in elements."},
  {"is_contiguous", 'x:%s(), x:is_contiguous("channels_last")',
   "Whether the elements are in row-major order, or in the order N, H, W, C, without gaps."},
  {"is_floating_point", "x:%s()", "Whether the dtype is a floating-point type."},
  {"is_pinned", "x:%s()", "Whether x is in pinned memory."},
  {"pin_memory", "x:%s()", "A copy in pinned memory, from which devices copy without the host."},
  {"shares", "x:%s(y)", "Whether x and y share memory."},
  {"version", "x.%s", "The number of in-place writes to the storage."},
  {"site", "x.%s", "The line of the script that made x."},
  {"protect", "x:%s()", "Makes the memory of x and its views read-only, and returns x."},
  {"data_ptr", "x:%s()", "The address of the first element, for C modules."},
  {"is", 'x:%s("b t d", names)',
   "Returns x if its shape matches; otherwise an error with the actual and expected shape."},

  -- and what they do
  {"item", "x:%s()", "The number in a tensor of one element."},
  {"totable tolist", "x:%s()", "Nested tables of numbers."},
  {"bytes", "x:%s()", "The elements as a string of bytes, in row-major order."},
  {"to", 'x:%s("f64"), x:to("cuda"), x:to{dtype, device, layout}',
   "x in another dtype, on another device, in another layout; x itself if nothing changes."},
  {"type", "x:%s(dtype)", "x in that dtype; without an argument the name of x's dtype."},
  {"f64 f32 f16 bf16 i64 i32 i16 i8 u8 bool c64 c128", "x:%s()", "x in that dtype."},
  {"float double half bfloat16 long int short char byte", "x:%s()",
   "x in f32, f64, f16, bf16, i64, i32, i16, i8, u8."},
  {"cpu", "x:%s()", "x in host memory."},
  {"detach", "x:%s()", "A tensor with the same memory and no history."},
  {"backward", "x:%s({gradient, retain_graph, create_graph})",
   "Adds the gradients of x, a loss, into .grad of the leaves that it depends on."},
  {"requires_grad_", "x:%s(on = true)", "Sets whether x requires a gradient, and returns x."},
  {"graph", "x:%s(most), x:graph{as, path, most, model}",
   'The graph of x: a line for each operator, with what it saves; or as "dot" or "svg".'},
  {"retain_grad", "x:%s()", "Makes backward keep x.grad of a tensor that is not a leaf."},
  {"register_hook", "x:%s(f)", "Calls f(gradient) in backward; f may return another gradient."},
  {"zero_grad", "x:%s()", "Sets x.grad to nil."},
  {"close", "x:%s()", "Frees the memory at once; later uses of x are errors."},
  {"to_dlpack", "x:%s()", "A DLPack capsule, with which another library shares the memory."},
  {"t", "x:%s()", "The transpose of a matrix, as a view."},
  {"view_as reshape_as expand_as", "x:%s(y)", "x in the shape of y."},
  {"split", "x:%s(size, dim = 1)", "Views of that size along dim, or of the sizes in a table."},
  {"chunk", "x:%s(n, dim = 1)", "Views of n parts along dim."},
  {"unbind", "x:%s(dim = 1)", "Views of all positions along dim."},
  {"rearrange", 'x:%s("b (h d) t -> b h t d", {h = 4})',
   "Splits, joins, moves and repeats dims by name."},
  {"reduce", 'x:%s("b (c p) t -> b c t", "max", {p = 2})',
   "As rearrange; reduces the dims that are missing on the right, by a name or a function."},
  {"zero_", "x:%s()", "Writes zeros."},
  {"uniform_", "x:%s(low = 0, high = 1, {generator})", "Writes random numbers."},
  {"normal_ log_normal_", "x:%s(mean, std, {generator})", "Writes random numbers."},
  {"cauchy_", "x:%s(median = 0, sigma = 1, {generator})", "Writes random numbers."},
  {"exponential_", "x:%s(rate = 1, {generator})", "Writes random numbers."},
  {"geometric_", "x:%s(p, {generator})", "Writes random numbers of the geometric distribution."},
  {"random_", "x:%s(low, high, {generator})", "Writes random integers from low to high - 1."},
}

-- Names of the library's parts whose functions are made in loops or are written in C.
local parts = {
  memory = {
    {"stats", "flare.memory.%s(device)",
     "A table of bytes: live, peak, reserved from the system; and the number of requests to it."},
    {"limit", "flare.memory.%s(bytes, device)",
     "Sets a limit for tensors; a call that exceeds it fails and names the biggest holders."},
    {"flush", "flare.memory.%s(device)", "Returns cached blocks to the system."},
    {"reset_peak", "flare.memory.%s(device)", "Sets the peak to what is live now."},
    {"holders", "flare.memory.%s(device)",
     "The lines of the script whose tensors hold the most memory, as text."},
  },
  ["io.pt"] = {
    {"None", "io.pt.%s", "What Python's None becomes in the tables that io.pt.load returns."},
  },
  ["nn.init"] = {
    {"zeros ones", "nn.init.%s_(x)", "Writes zeros, or ones, into x."},
    {"constant", "nn.init.%s_(x, {value = 0})", "Writes one value."},
    {"uniform", "nn.init.%s_(x, {low = 0, high = 1, generator =})",
     "Writes uniform random numbers between low and high."},
    {"normal", "nn.init.%s_(x, {mean = 0, std = 1, generator =})",
     "Writes normal random numbers."},
    {"truncated_normal", "nn.init.%s_(x, {mean = 0, std = 1, bound = 2, low =, high =})",
     "Writes normal random numbers within `bound` standard deviations, or between low and high."},
    {"xavier", "nn.init.%s_(x, {gain = 1, normal = false, generator =})",
     "Glorot's initialisation: keeps the variance forward and backward; uniform, or normal."},
    {"kaiming", 'nn.init.%s_(x, {act = "leaky_relu", slope = 0, mode = "in", normal = false})',
     'He\'s initialisation: keeps the variance through the activation after the layer; mode "in" '
     .. 'counts inputs, "out" outputs.'},
    {"eye", "nn.init.%s_(x)", "Writes the identity matrix."},
    {"dirac", "nn.init.%s_(x, {groups = 1})",
     "Writes a convolution weight that passes channels through unchanged."},
    {"sparse", "nn.init.%s_(x, {sparsity = 0.1, std = 0.01, generator =})",
     "Writes normal random numbers; sets a fraction `sparsity` of each column to 0."},
    {"orthogonal", "nn.init.%s_(x, {gain = 1, generator =})",
     "Writes orthonormal rows (or columns if there are fewer), times gain."},
  },
}

M.paths = {} -- "nn.init.zeros_" -> {call =, text =}

for _, entry in ipairs(words) do
  local into = entry[2]:find "flare" and M.functions or M.members
  for name in entry[1]:gmatch "%S+" do
    into[name] = {call = entry[2]:gsub("%%s", name), text = entry[3]}
  end
end

for part, entries in pairs(parts) do
  for _, entry in ipairs(entries) do
    for name in entry[1]:gmatch "%S+" do
      if part == "nn.init" then
        local call = entry[2]:gsub("%%s", name)
        M.paths["nn.init." .. name .. "_"] = {call = call, text = entry[3]}
        M.paths["nn.init." .. name] = {call = call:gsub("_%(x", "(shape"),
          text = "A new tensor of that shape. " .. entry[3]}
      else
        M.paths[part .. "." .. name] = {call = entry[2]:gsub("%%s", name), text = entry[3]}
      end
    end
  end
end

return M
