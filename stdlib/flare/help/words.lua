--- What is said of functions, methods and fields that are written in C and are no rows: their
-- names, the call with %s for the name, and what they do. `flare.` or `x` at the head of a call
-- tells what it is.
local M = {functions = {}, members = {}} -- name -> {call =, text =}

local words = {
  -- tensors are made
  {"tensor", "flare.%s(numbers, {dtype, device, requires_grad})",
   "Numbers in nested tables as a tensor: f32, or bool for booleans, unless a dtype is given."},
  {"zeros ones empty", "flare.%s(2, 3, {dtype, device, requires_grad})",
   "A tensor of zeros, of ones, or of whatever the memory had; the sizes may be one table."},
  {"zeros_like ones_like empty_like rand_like randn_like", "flare.%s(x, {dtype, device})",
   "A new tensor with the shape, dtype and device of x."},
  {"full_like", "flare.%s(x, value, {dtype, device})",
   "A tensor of one value with the shape, dtype and device of x."},
  {"range", "flare.%s(start, stop, step = 1)", "start, start + step, ... up to stop, included."},
  {"from_bytes", "flare.%s(string, dtype, shape)",
   "A tensor of the bytes of a string, row by row, in the machine's order; x:bytes() gives them."},
  {"from_dlpack", "flare.%s(capsule)", "Another library's tensor, whose memory is shared."},
  {"is_tensor", "flare.%s(value)", "Whether a value is a tensor."},

  -- gradients
  {"grad", "flare.%s(y, {x, ...}, {gradient, retain_graph, create_graph, allow_unused})",
   "The gradients of y for each x, which are returned and not put into x.grad."},
  {"backward", "flare.%s({y, ...}, {gradient, retain_graph, create_graph})",
   "Adds the gradients of several tensors into .grad of the leaves that they depend on."},
  {"no_grad enable_grad", "flare.%s(f, ...)",
   "Calls f and does not record, or does, what gradients need. Without f a guard until the end "
   .. "of the block: local _ <close> = flare.no_grad()."},
  {"grad_enabled", "flare.%s()", "Whether operations are recorded for gradients."},
  {"func", "flare.%s{name, forward, backward}",
   "A function with a gradient of its own: forward(ctx, ...) gives results, backward(ctx, dy, "
   .. "...) a gradient for each argument."},
  {"anomaly", "flare.%s(true)",
   "Names the operator and the line of the first NaN; with a function, within its call."},
  {"autocast", 'flare.%s("bf16", f, ...)',
   "Calls f with products in bf16 or f16, and sums, norms and losses in f32."},
  {"meta", "flare.%s(f, ...)", "Calls f with tensors that have shapes, but no values."},

  -- memory, devices, streams
  {"scope", "flare.%s(f, ...)", "Calls f and frees the tensors it made but did not return."},
  {"device set_default_device", "flare.%s(name)",
   "Makes new tensors on that device from now on, with a function behind it within its call; "
   .. "flare.device() tells which it is."},
  {"devices", "flare.%s()", "The names of the devices there are."},
  {"threads", "flare.%s(n)",
   "How many threads the CPU's kernels use, at first one for each core allowed; n sets it."},
  {"synchronize", "flare.%s(device)", "Waits until the device has done what it was given."},
  {"stream", "flare.%s(device)", "A queue of its own: s:run(f), s:wait(other), s:synchronize()."},
  {"current_stream default_stream", "flare.%s(device)",
   "The stream that is in use, or the first one, of a device."},
  {"event", "flare.%s(device)", "A mark in a stream: e:record(s), e:wait(s), e:elapsed(later)."},

  {"debug_streams", "flare.%s(true)",
   "Looks for tensors that two streams use without an order between them."},
  {"load_backend", "flare.%s(path)", "Adds a backend from a shared library; true, or nil and why."},
  {"spawn", "flare.%s(source, ...)",
   "Runs a text of Lua on a thread of its own, in a state of its own."},

  {"clock", "flare.%s()", "Seconds since some moment, with nanoseconds; it is never set back."},
  {"version", "flare.%s", "The version of flare, a string."},
  {"newaxis", "x[{{}, flare.%s}]", "Between the brackets of x[...]: a dim of size 1."},

  -- random numbers, kernels
  {"manual_seed", "flare.%s(seed)", "Begins the random numbers anew."},
  {"generator", "flare.%s(seed)", "A source of random numbers, for {generator = ...}."},
  {"default_generator", "flare.%s()", "The source that is used where none is given."},
  {"elementwise", "flare.%s(inputs, outputs, body)",
   'A kernel from a string: flare.elementwise("T x, T b", "T z", "z = x * sigmoid(b * x)").'},
  {"reduce", "flare.%s(inputs, output, body, how)",
   'A kernel that reduces, by "sum", "prod", "max" or "min", what its body computes.'},
  {"kernel", "flare.%s(f)", "A Lua function of numbers as one kernel on tensors."},
  {"max min", "flare.%s(x), (x, dim) or (x, y)",
   "The extreme of everything; along dim, with its positions; or element by element."},
  {"nanmax nanmin", "flare.%s(x, dims, keepdim = false)", "As amax and amin, without NaN."},

  -- of tensors: what they are
  {"shape", "x.%s", "The sizes: x.shape[1], #x.shape."},
  {"dtype", "x.%s", '"f32", "i64", "bool" and so on; x:to("f64") converts.'},
  {"device", "x.%s", '"cpu", "cuda:0" and so on; x:to("cuda") moves.'},
  {"grad", "x.%s", "What backward added up, nil before; x.grad = nil drops it."},
  {"grad_fn", "x.%s", "The operator that x comes from, if it is recorded."},
  {"requires_grad", "x.%s", "Whether gradients are computed for x; it can be set."},
  {"is_leaf", "x.%s", "Whether x is no result of recorded operations."},
  {"T", "x.%s", "The last two dims swapped, or a vector itself: a view."},
  {"ndim dim", "x.%s, x:dim()", "How many dims there are."},
  {"id", "x.%s", "A number that no other tensor has."},
  {"closed", "x.%s", "Whether x:close() has freed it."},
  {"size stride", "x:%s(dim)", "That of a dim, or of all in a table."},
  {"numel nelement", "x:%s()", "How many elements there are."},
  {"nbytes element_size", "x:%s()", "Bytes of all elements, or of one."},
  {"storage_offset", "x:%s()", "The place of the first element in the memory it lies in."},
  {"is_contiguous", "x:%s()", "Whether elements lie row by row without gaps."},
  {"is_floating_point", "x:%s()", "Whether the dtype is one of floats."},
  {"is_pinned", "x:%s()", "Whether it lies in memory of the host that devices copy from."},
  {"pin_memory", "x:%s()", "A copy in memory of the host that devices copy from by themselves."},
  {"shares", "x:%s(y)", "Whether both look at the same memory."},
  {"version", "x.%s", "How often it was written in place."},
  {"site", "x.%s", "The line that made it."},
  {"protect", "x:%s()", "x; its memory, and so that of its views, may only be read from now on."},
  {"data_ptr", "x:%s()", "The address of the first element, for modules in C."},
  {"is", 'x:%s("b t d", names)',
   "x itself if it has such a shape, else an error that says what it should be."},

  -- and what they do
  {"item", "x:%s()", "The number in a tensor of one element."},
  {"totable tolist", "x:%s()", "Nested tables of numbers."},
  {"bytes", "x:%s()", "The elements as a string, row by row."},
  {"to", 'x:%s("f64"), x:to("cuda"), x:to{dtype, device}', "x there and so; itself if it is."},
  {"type", "x:%s(dtype)", "x in that dtype; without one the name of its own."},
  {"f64 f32 f16 bf16 i64 i32 i16 i8 u8 bool c64 c128", "x:%s()", "x in that dtype."},
  {"float double half bfloat16 long int short char byte", "x:%s()",
   "x in f32, f64, f16, bf16, i64, i32, i16, i8, u8."},
  {"cpu", "x:%s()", "x in the host's memory."},
  {"detach", "x:%s()", "The same values, without what they came from."},
  {"backward", "x:%s({gradient, retain_graph, create_graph})",
   "Adds the gradients of x, a loss, into .grad of the leaves that it depends on."},
  {"requires_grad_", "x:%s(on = true)", "Says whether gradients are computed for x; gives x."},
  {"graph", "x:%s(most)", "The operators behind x as a text, a line each with what it saves."},
  {"retain_grad", "x:%s()", "Keeps .grad of a tensor that is no leaf."},
  {"register_hook", "x:%s(f)", "f(gradient) may give another one, on its way through x."},
  {"zero_grad", "x:%s()", "Drops x.grad."},
  {"close", "x:%s()", "Frees the memory at once; x cannot be used any more."},
  {"to_dlpack", "x:%s()", "A capsule by which another library shares the memory."},
  {"t", "x:%s()", "A matrix turned over: a view."},
  {"view_as reshape_as expand_as", "x:%s(y)", "x in the shape of y."},
  {"split", "x:%s(size, dim = 1)", "Views of that size along dim, or of the sizes in a table."},
  {"chunk", "x:%s(n, dim = 1)", "Views of n parts along dim."},
  {"unbind", "x:%s(dim = 1)", "Views of all positions along dim."},
  {"rearrange", 'x:%s("b (h d) t -> b h t d", {h = 4})',
   "Dims by name, split, joined, moved and repeated."},
  {"reduce", 'x:%s("b (c p) t -> b c t", "max", {p = 2})',
   "The same; dims that are on the left only are reduced, by a name or a function."},
  {"zero_", "x:%s()", "Writes zeros."},
  {"uniform_", "x:%s(low = 0, high = 1, {generator})", "Writes random numbers."},
  {"normal_ log_normal_", "x:%s(mean, std, {generator})", "Writes random numbers."},
  {"cauchy_", "x:%s(median = 0, sigma = 1, {generator})", "Writes random numbers."},
  {"exponential_", "x:%s(rate = 1, {generator})", "Writes random numbers."},
  {"geometric_", "x:%s(p, {generator})", "Writes how many tries it takes."},
  {"random_", "x:%s(low, high, {generator})", "Writes random integers; high is not among them."},
}

-- Names of the library's parts whose functions are made in loops or are written in C.
local parts = {
  memory = {
    {"stats", "flare.memory.%s(device)",
     "Bytes in a table: live, peak, reserved from the system, and how often it was asked."},
    {"limit", "flare.memory.%s(bytes, device)",
     "The most that tensors may take; beyond it an operation fails with the biggest holders."},
    {"flush", "flare.memory.%s(device)", "Gives cached blocks back to the system."},
    {"reset_peak", "flare.memory.%s(device)", "Makes what is live now the peak."},
    {"holders", "flare.memory.%s(device)",
     "A text: the lines of the script whose tensors hold most memory."},
  },
  ["nn.init"] = {
    {"zeros ones", "nn.init.%s_(x)", "Writes zeros, or ones, into x."},
    {"constant", "nn.init.%s_(x, {value = 0})", "Writes one value."},
    {"uniform", "nn.init.%s_(x, {low = 0, high = 1, generator =})",
     "Numbers that are uniform between low and high."},
    {"normal", "nn.init.%s_(x, {mean = 0, std = 1, generator =})", "Normal numbers."},
    {"truncated_normal", "nn.init.%s_(x, {mean = 0, std = 1, bound = 2, low =, high =})",
     "Normal numbers within `bound` standard deviations, or between low and high."},
    {"xavier", "nn.init.%s_(x, {gain = 1, normal = false, generator =})",
     "Glorot: keeps the variance forward and backward; uniform, or normal."},
    {"kaiming", 'nn.init.%s_(x, {act = "leaky_relu", slope = 0, mode = "in", normal = false})',
     'He: keeps the variance through the activation behind the layer; mode "in" counts inputs, '
     .. '"out" outputs.'},
    {"eye", "nn.init.%s_(x)", "The identity matrix."},
    {"dirac", "nn.init.%s_(x, {groups = 1})",
     "A convolution's weight that passes channels through unchanged."},
    {"sparse", "nn.init.%s_(x, {sparsity = 0.1, std = 0.01, generator =})",
     "Normal numbers, with this share of each column 0."},
    {"orthogonal", "nn.init.%s_(x, {gain = 1, generator =})",
     "Orthonormal rows, or columns if there are fewer, times gain."},
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
