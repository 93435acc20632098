--- One kernel with a mistake that a tool of compute-sanitizer has to find: sanitize.sh sees by it
-- that its filter lets kernels of that name through: flare spec/gpu/planted.lua TOOL
local flare = require "flare"
local body = ({
  memcheck = "y[n + threadIdx.x] = 1;",
  racecheck = "__shared__ float s[2]; s[threadIdx.x % 2] = threadIdx.x; y[threadIdx.x] = s[0];",
  -- the seventeenth is not in its mask
  synccheck = "if (threadIdx.x <= 16) __syncwarp(0xffff); y[threadIdx.x] = 1;",
  initcheck = "y[threadIdx.x] = y[(threadIdx.x + 1) % n];",
})[arg[1]]
local planted = flare.cuda.kernel {
  name = "planted_args", grid = 1, block = 64,
  source = "__global__ void planted_args(float *y, int n) {" .. body .. "}",
}
local y = flare.empty({64}, {device = "cuda"})
planted(y, 64)
flare.synchronize()
