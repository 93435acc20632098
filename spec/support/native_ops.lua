--- Operators from outside with their samples and references, as those of rows are: an elementwise
-- one in CUDA C++ and as an expression, one by rows of a cubin and of a shared library, one of a
-- shared library alone. Kernels for GPUs are registered where there is something to make them with.
local A = require "spec.support.array"
local flare = require "flare"

local library = (os.getenv "FLARE_BUILD" or "build") .. "/spec/op_module.so"
local compiles = (flare.cuda.report():match "nvrtc%s+(%S+)") ~= "no:"
local gpu = flare.cuda.available()

local M = {library = library, compiles = compiles}

local blend = [[
  template <typename T>
  __global__ void blend(const T *x, const T *w, T *y, double by, bool twice, long long n) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] * w[i] * (T)by + (twice ? x[i] : (T)0);
  }]]

local squares = [[
  template <typename T>
  __device__ void squares(const T *x, T *y, long long size) {
    extern __shared__ double memory[];
    T *part = (T *)memory;
    T sum = 0;
    for (long long k = threadIdx.x; k < size; k += blockDim.x) {
      T v = x[blockIdx.x * size + k];
      sum += v * v;
    }
    part[threadIdx.x] = sum;
    __syncthreads();
    for (int half = blockDim.x / 2; half > 0; half /= 2) {
      if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
      __syncthreads();
    }
    if (threadIdx.x == 0) y[blockIdx.x] = part[0];
  }
  extern "C" __global__ void squares_f32(const float *x, float *y, long long size, long long n) {
    squares(x, y, size);
  }
  extern "C" __global__ void squares_f64(const double *x, double *y, long long size, long long n) {
    squares(x, y, size);
  }]]

-- From source, for two types; elsewhere an expression.
local function register_blend()
  local o = {name = "outside_blend",
             signature = "x:float, w:float, by:real=2, twice:flag=false -> y:x",
             expression = "y = x * w * by + (twice ? x : 0)",
             gradient = "gx = gy * (w * by + (twice ? 1 : 0)); gw = gy * x * by"}
  if compiles then
    o.source, o.symbol, o.dtypes = blend, "blend<*>", {"f32", "f64"}
    o.init = function(name, fingerprint) M.initialized = {name, fingerprint} end
  end
  return flare.op.register(o)
end

-- From a cubin, with a launch of its own; elsewhere from the library.
local function register_squares()
  local function o(more)
    local all = {name = "outside_squares", signature = "x:float, size:int -> y:x",
      shape = function(names)
        local shape = names.x
        shape[#shape] = 1
        return shape
      end}
    for key, value in pairs(more) do all[key] = value end
    return all
  end
  for _, backend in ipairs {"cpu", "sim"} do
    flare.op.register(o {library = library, symbol = "row_squares", backend = backend,
                         gradient = backend == "cpu" and "gx = 2 * x * gy" or nil})
  end
  if not compiles then return end
  M.image = flare.cuda.kernel {source = squares, name = "squares_f32"}:image()
  flare.op.register(o {
    image = M.image, symbol = "squares_*", dtypes = {"f32", "f64"}, launch = function(names)
      local rows = 1
      for _, size in ipairs(names.y) do rows = rows * size end
      M.launched = names
      return rows, 64, 64 * 8
    end})
end

-- Of the library alone, with an init hook there.
local function register_scale()
  local signature = "x:float, by:real=2 -> y:x"
  local backward = "x:float, y:float, dy:float, by:real=2 -> dx:x"
  local kinds = {{"cpu", "scale", "scale_init"}, {"sim", "scale", "scale_init"}}
  if gpu then kinds[3] = {"cuda", "scale_cuda", "scale_cuda_init"} end
  for _, kind in ipairs(kinds) do
    flare.op.register {name = "outside_axpb_backward", signature = backward, library = library,
                       symbol = kind[2] .. "_backward", backend = kind[1]}
    flare.op.register {name = "outside_axpb", signature = signature, library = library,
                       symbol = kind[2], init = kind[3], backend = kind[1],
                       backward = "outside_axpb_backward"}
  end
end

--- Registers them all.
function M.register()
  M.blend, M.fingerprint = register_blend()
  register_squares()
  register_scale()
end

local function f(shape) return A.fill(shape, {low = -2, high = 2}) end

M.samples = {
  outside_blend = {
    {x = f{7}, w = f{7}}, {x = f{3, 5}, w = f{3, 5}, by = 0.5, twice = true},
    {x = f{}, w = f{}}, {x = f{0, 3}, w = f{0, 3}},
  },
  outside_squares = {
    {x = f{4, 9}, size = 9, _dtypes = "f64 f32"},
    {x = f{2, 3, 130}, size = 130, _dtypes = "f64 f32", _grad = false},
  },
  outside_axpb = {
    {x = f{5}, _dtypes = "f64 f32", _contiguous = true},
    {x = f{3, 4}, by = -3, _dtypes = "f64 f32", _contiguous = true},
  },
}

M.reference = {
  outside_blend = function(a)
    local out = {shape = a.x.shape}
    for k = 1, A.count(a.x.shape) do
      out[k] = a.x[k] * a.w[k] * (a.by or 2) + (a.twice and a.x[k] or 0)
    end
    return out
  end,
  outside_squares = function(a)
    local shape = {table.unpack(a.x.shape)}
    local size = shape[#shape]
    shape[#shape] = 1
    local out = {shape = shape}
    for k = 1, A.count(a.x.shape) do
      local row = (k - 1) // size + 1
      out[row] = (out[row] or 0) + a.x[k] ^ 2
    end
    return out
  end,
  outside_axpb = function(a)
    local out = {shape = a.x.shape}
    for k = 1, A.count(a.x.shape) do out[k] = a.x[k] * (a.by or 2) + 1 end
    return out
  end,
}

return M
