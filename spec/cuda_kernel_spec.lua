-- Kernels in CUDA C++: what broken ones say, and what is checked before a launch. Compiling needs
-- NVRTC, not a GPU; what needs a GPU says so.
local flare = require "flare"

local compiles = (flare.cuda.report():match "nvrtc%s+(%S+)") ~= "no:"
local gpu = flare.cuda.available()

local function needs(what, there, name, f)
  it(name, function()
    if not there then return pending("needs " .. what) end
    f()
  end)
end

-- Here, not in spec/support: errors quote the file that f is called from.
local function message(f, ...)
  local ok, why = pcall(f, ...)
  assert.is_false(ok, "it did not fail")
  return tostring(why)
end

local function scale(more)
  local o = {name = "scale", out = {"y"}, source = [[
    __global__ void scale(const float *__restrict__ x, float *y, float a, int n) {
      int i = blockIdx.x * blockDim.x + threadIdx.x;
      if (i < n) y[i] = a * x[i];
    }]]}
  for key, value in pairs(more or {}) do o[key] = value end
  return flare.cuda.kernel(o)
end

-- The line of this file that `text` stands in.
local function line_of(text)
  local n = 0
  for line in io.lines "spec/cuda_kernel_spec.lua" do
    n = n + 1
    if line:find(text, 1, true) then return n end
  end
end

describe("a broken kernel", function()
  needs("NVRTC", compiles, "shows the line of the script (1: unknown name)", function()
    local why = message(flare.cuda.kernel, {name = "f", source = [[
      __global__ void f(float *y) {
        y[0] = 1;
        y[1] = nothing;       // the unknown name
      }]]})
    assert.truthy(why:find(("cuda_kernel_spec.lua:%d (kernel line 3): error"):format(
      line_of "// the unknown name"), 1, true), why)
    assert.truthy(why:find('"nothing" is undefined', 1, true), why)
    assert.truthy(why:find("\n *%^"), why)
    assert.truthy(why:find("f does not compile for sm_", 1, true), why)
  end)

  needs("NVRTC", compiles, "shows it for a missing semicolon (2: syntax)", function()
    local why = message(flare.cuda.kernel, {name = "f", source = [[
      __global__ void f(float *y) {
        y[0] = 1
      }                       // the missing semicolon is above
    ]]})
    assert.truthy(why:find(("cuda_kernel_spec.lua:%d (kernel line 3): error"):format(
      line_of "// the missing semicolon is above"), 1, true), why)
  end)

  needs("NVRTC", compiles, "shows it for a wrong type (3) and tells the options", function()
    local why = message(flare.cuda.kernel, {name = "f", options = {"-DSIZE=3"}, source = [[
      __global__ void f(float *y) {
        float *z = SIZE;      // the wrong type
      }]]})
    assert.truthy(why:find(("cuda_kernel_spec.lua:%d (kernel line 2): error"):format(
      line_of "// the wrong type"), 1, true), why)
    assert.truthy(why:find("with -DSIZE=3", 1, true), why)
  end)

  needs("NVRTC", compiles, "shows the line of the text alone where the text is built", function()
    local why = message(flare.cuda.kernel, {name = "f", source =
      "__global__ void f(float *y) {\n  " .. ("z"):rep(2) .. " = 1;\n}"})
    assert.truthy(why:find("%(kernel line 2%): error"), why)
  end)

  it("names a kernel that is not there (4)", function()
    local why = message(flare.cuda.kernel, {name = "g", source = "__global__ void f(float *y) {}"})
    assert.truthy(why:find("the source has no __global__ function g", 1, true), why)
  end)

  needs("NVRTC", compiles, "names a wrong option (5)", function()
    local why = message(scale, {options = {"--no-such-option"}})
    assert.truthy(why:find("no-such-option", 1, true), why)
  end)

  needs("NVRTC", compiles, "tells where headers come from (6)", function()
    local why = message(flare.cuda.kernel, {name = "f", source =
      "#include <iostream>\n__global__ void f(float *y) {}"})
    assert.truthy(why:find("iostream", 1, true), why)
    assert.truthy(why:find("headers of CUDA are found by themselves", 1, true), why)
  end)

  needs("NVRTC", compiles, "asks for declarations of types it does not know (7)", function()
    local source = "struct S { int a; };\n__global__ void f(float *y, S s) {}"
    local why = message(flare.cuda.kernel, {name = "f", source = source})
    assert.truthy(why:find("the type of parameter s is not known (S)", 1, true), why)
    why = message(flare.cuda.kernel, {name = "f", source = source, args = {"y:f32*"}})
    assert.truthy(why:find("args has 1 parameters, f in the source has 2", 1, true), why)
  end)
end)

describe("a launch", function()
  local x = flare.ones(8)

  it("checks the count (8), types (9), dtypes, layout and integers before it", function()
    local k = scale()
    assert.truthy(message(k, x, 2):find("expected 3 arguments, got 2", 1, true))
    assert.truthy(message(k, 1, 2, 8):find("x: expected a tensor of f32, got number", 1, true))
    assert.truthy(message(k, x:to "f64", 2, 8):find("x: expected f32, got f64", 1, true))
    assert.truthy(message(k, flare.ones(4, 4):t(), 2, 8):find("x: expected contiguous", 1, true))
    assert.truthy(message(k, x, "a", 8):find("a: expected a number (f32), got string", 1, true))
    assert.truthy(message(k, x, 2, 8.5):find("n: expected an integer (i32), got 8.5", 1, true))
    assert.truthy(message(k, x, 2, 1 << 31)
      :find("n: expected an integer from -2147483648 to 2147483647", 1, true))
    assert.truthy(message(k, x, 2, 8):find("x: expected a tensor on a GPU, got one", 1, true))
    local closed = flare.ones(8)
    closed:close()
    assert.truthy(message(k, closed, 2, 8):find("got a closed one", 1, true))
  end)

  it("checks blocks (10), grids (11) and shared memory (12)", function()
    assert.truthy(message(scale {block = 2048}, x, 2, 8)
      :find("block[1] must be an integer from 1 to 1024, got 2048", 1, true))
    assert.truthy(message(scale {block = {512, 4}}, x, 2, 8)
      :find("a block of 2048 threads is too large: at most 1024", 1, true))
    assert.truthy(message(scale {grid = 0}, x, 2, 8)
      :find("grid[1] must be an integer from 1 to 2147483647, got 0", 1, true))
    assert.truthy(message(scale {grid = {1, 70000}}, x, 2, 8)
      :find("grid[2] must be an integer from 1 to 65535, got 70000", 1, true))
    assert.truthy(message(scale {shared = -1}, x, 2, 8)
      :find("shared must be a number of bytes, got -1", 1, true))
  end)

  it("refuses a gradient that is not defined", function()
    local why = message(scale(), flare.ones(8, {requires_grad = true}), 2, 8)
    assert.truthy(why:find("x requires a gradient, but the kernel has none", 1, true), why)
    assert.truthy(message(scale, {backward = 3}):find("backward must be a function or a kernel"))
  end)

  it("is refused without a GPU, with the reason", function()
    local _, reason = flare.cuda.available()
    local why = message(scale(), x, 2, 8)
    assert.truthy(gpu or why:find(reason, 1, true), why)
  end)
end)

describe("a signature", function()
  it("is read from the source", function()
    local k = flare.cuda.kernel {name = "f<float, 3>", args = nil, source = [[
      // __global__ void f(int wrong);
      template <class T, int N> __device__ T g(T x) { return x; }
      template <class T, int N>
      __global__ void __launch_bounds__(256) f(const double* __restrict__ a, long long n,
          /* how */ unsigned char b[], bool c, size_t d, unsigned e) {}]]}
    assert.equal("flare.cuda.kernel f<float, 3>(const f64 *a, i64 n, u8 *b, bool c, u64 d, u32 e)",
                 tostring(k))
  end)

  it("is declared by args", function()
    local k = scale {args = {"x:const f32*", "y: f32 *", "a:f32", "n:i32"}}
    assert.equal("flare.cuda.kernel scale(const f32 *x, f32 *y, f32 a, i32 n)", tostring(k))
    assert.truthy(message(scale, {args = {"x=f32"}}):find("args[1] must be like", 1, true))
    assert.truthy(message(scale, {out = {"x"}}):find("has no parameter x to write to", 1, true))
  end)

  needs("NVRTC", compiles, "comes with what a kernel takes", function()
    local a = flare.cuda.kernel {name = "f", source = [[
      #include <cuda_fp16.h>
      #include <cub/block/block_reduce.cuh>
      __global__ void f(const half *x, float *y) {
        typedef cub::BlockReduce<float, 128> reduce;
        __shared__ typename reduce::TempStorage room;
        float sum = reduce(room).Sum(__half2float(x[threadIdx.x]));
        if (threadIdx.x == 0) y[0] = sum;
      }]], block = 128}:attributes()
    assert.is_true(a.registers > 0 and a.shared > 0 and a["local"] == 0)
    assert.truthy(a.arch:find "^sm_%d+a?$")
  end)
end)

describe("on a GPU a kernel", function()
  needs("a GPU", gpu, "runs, and writes to what it is given", function()
    local x = flare.arange(1000):to "f32":to "cuda"
    assert.equal(2 * 499500, scale()(x, 2, 1000):sum():item())
    local add = flare.cuda.kernel {name = "add", source = [[
      __global__ void add(float *y, float a, long long n) {
        long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
        if (i < n) y[i] += a;
      }]]}
    add(x, 1, 1000)
    assert.equal(500500, x:sum():item())
  end)

  needs("a GPU", gpu, "has the gradient that it is given", function()
    local source = [[
      __global__ void square(const float *x, float *y, int n) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i < n) y[i] = x[i] * x[i];
      }
      __global__ void square_backward(const float *x, const float *gy, float *gx, int n) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i < n) gx[i] = 2 * x[i] * gy[i];
      }]]
    local back = flare.cuda.kernel {source = source, name = "square_backward", out = {"gx"}}
    for _, backward in ipairs {back, function(ctx, dy) return 2 * ctx.args.x * dy end} do
      local square = flare.cuda.kernel {source = source, name = "square", out = {"y"},
                                        backward = backward}
      local x = flare.tensor({1, 2, 3}, {device = "cuda", requires_grad = true})
      square(x, 3):sum():backward()
      assert.same({2, 4, 6}, x.grad:to "cpu":totable())
    end
  end)

  needs("a GPU", gpu, "takes more than 48 KB of shared memory", function()
    local k = flare.cuda.kernel {name = "turn", out = {"y"}, grid = 1, shared = 80000, source = [[
      __global__ void turn(const float *x, float *y) {
        extern __shared__ float room[];
        for (int i = threadIdx.x; i < 20000; i += blockDim.x) room[i] = x[i];
        __syncthreads();
        for (int i = threadIdx.x; i < 20000; i += blockDim.x) y[i] = room[19999 - i];
      }]]}
    local x = flare.arange(20000):to "f32":to "cuda"
    assert.is_true(k(x):eq(x:flip(1)):all():item())
    k = scale {shared = 1 << 20}
    assert.truthy(message(k, x, 2, 20000):find("bytes of shared memory", 1, true))
    assert.equal(20000, scale()(flare.ones(20000, {device = "cuda"}), 1, 20000):sum():item())
  end)
end)
