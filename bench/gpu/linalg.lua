-- Factorizations and Fourier transforms on a GPU; bench/peers/gpu_linalg.py is the peer.
local flare = require "flare"
local m = dofile((arg[0]:match "^(.*/)" or "") .. "measure.lua")

local function time(name, f) m.bytes(name, nil, f) end

local function rows(what, x, b)
  local n = x.shape[#x.shape]
  local positive = x:matmul(x:transpose(-2, -1)) / n + flare.eye(n, {device = "cuda"})
  local symmetric = x + x:transpose(-2, -1)
  time("solve " .. what, function() return flare.solve(x, b) end)
  time("inv " .. what, function() return x:inv() end)
  time("det " .. what, function() return x:det() end)
  time("cholesky " .. what, function() return positive:cholesky() end)
  time("triangular_solve " .. what, function() return flare.triangular_solve(positive, b) end)
  time("qr " .. what, function() return x:qr() end)
  time("eigh " .. what, function() return symmetric:eigh() end)
  time("svd " .. what, function() return x:svd() end)
end

for _, n in ipairs {64, 512, 2048} do rows("f32 " .. n, m.normal("f32", n, n),
  m.normal("f32", n, 64)) end
rows("f64 512", m.normal("f64", 512, 512), m.normal("f64", 512, 64))
rows("f32 1024 of 32", m.normal("f32", 1024, 32, 32), m.normal("f32", 1024, 32, 4))
rows("f32 16 of 256", m.normal("f32", 16, 256, 256), m.normal("f32", 16, 256, 16))
do
  local x = m.normal("f32", 512, 512)
  time("eig f32 512", function() return x:eig() end)
  time("pinv f32 512", function() return x:pinv() end)
  local small = x / 100
  time("matrix_exp f32 512", function() return small:matrix_exp() end)
end

for _, k in ipairs {10, 14, 18, 22} do
  local n = 1 << k
  local x = m.normal("f32", n)
  local z = flare.complex(x, m.normal("f32", n))
  time("fft 2^" .. k, function() return z:fft() end)
  time("rfft 2^" .. k, function() return x:rfft() end)
end
do
  local x = m.normal("f32", 4096, 1000)
  local z = flare.complex(x, x)
  time("fft 4096 of 1000", function() return z:fft() end)
  time("ifft 4096 of 1000", function() return z:ifft() end)
  time("fft 4096 of 1000, down", function() return z:fft(nil, 1) end)
  local prime = flare.complex(m.normal("f32", 64, 10007), m.normal("f32", 64, 10007))
  time("fft 64 of 10007", function() return prime:fft() end)
end
do
  local x = m.normal("f32", 4096, 4096)
  local z = flare.complex(x, x)
  time("fft2 4096x4096", function() return z:fft2() end)
  local half = x:rfft2()
  time("rfft2 4096x4096", function() return x:rfft2() end)
  time("irfft2 4096x4096", function() return half:irfft2() end)
  local images = m.normal("f32", 64, 3, 256, 256)
  time("rfft2 64x3 of 256x256", function() return images:rfft2() end)
  local cubes = flare.complex(m.normal("f64", 8, 64, 64, 64), m.normal("f64", 8, 64, 64, 64))
  time("fftn f64 8 of 64x64x64", function() return cubes:fftn(nil, {2, 3, 4}) end)
end
