--- References of the Fourier transforms, by the definition, and of windows.
local A = require "spec.support.array"

local R = {}
local pi, cos, sin = math.pi, math.cos, math.sin

-- Sums n terms (re, im of term(j)) for k.
local function transform(n, k, sign, term)
  local re, im = 0, 0
  for j = 0, n - 1 do
    local t = sign * 2 * pi * (j * k % n) / n
    local xr, xi = term(j)
    re = re + xr * cos(t) - xi * sin(t)
    im = im + xr * sin(t) + xi * cos(t)
  end
  return re, im
end

-- The element at `index` with another position along dim and another part.
local function at(x, index, dim, j, part)
  local place = A.copy_list(index)
  place[dim] = j + 1
  place[#x.shape] = part or place[#x.shape]
  return x[A.place(x, place, #x.shape)]
end

function R.dft(a)
  local x, dim = a.x, A.dim(a.dim or -2, #a.x.shape)
  local n, scale = x.shape[dim], a.scale or 1
  return A.build(x.shape, function(index)
    local re, im = transform(n, index[dim] - 1, a.inverse and 1 or -1, function(j)
      return at(x, index, dim, j, 1), at(x, index, dim, j, 2)
    end)
    return scale * (index[#index] == 1 and re or im)
  end)
end

function R.rdft(a)
  local x, dim = a.x, A.dim(a.dim or -1, #a.x.shape)
  local n, scale, shape = x.shape[dim], a.scale or 1, A.copy_list(x.shape)
  shape[dim] = n // 2 + 1
  shape[#shape + 1] = 2
  return A.build(shape, function(index)
    local real = A.copy_list(index)
    real[#real] = nil
    local re, im = transform(n, index[dim] - 1, -1, function(j) return at(x, real, dim, j), 0 end)
    return scale * (index[#index] == 1 and re or im)
  end)
end

function R.irdft(a)
  local x, dim, n = a.x, A.dim(a.dim or -2, #a.x.shape), a.n
  local shape = A.copy_list(x.shape)
  shape[#shape] = nil
  shape[dim] = n
  return A.build(shape, function(index)
    local pair = A.copy_list(index)
    pair[#pair + 1] = 1
    local re = transform(n, index[dim] - 1, 1, function(j)
      local k = j <= n // 2 and j or n - j
      local im = (k == 0 or 2 * k == n) and 0 or at(x, pair, dim, k, 2)
      return at(x, pair, dim, k, 1), k == j and im or -im
    end)
    return (a.scale or 1) * re
  end)
end

local function window(a, a0, a1, a2)
  local last = (a.periodic == false) and a.n - 1 or a.n
  local list = {}
  for k = 0, a.n - 1 do
    local t = 2 * pi * k / last
    list[k + 1] = a.n == 1 and 1 or a0 - a1 * cos(t) + a2 * cos(2 * t)
  end
  return A.new({a.n}, list, "f64")
end

function R.hann_window(a) return window(a, 0.5, 0.5, 0) end
function R.hamming_window(a) return window(a, a.alpha or 0.54, a.beta or 0.46, 0) end
function R.blackman_window(a) return window(a, 0.42, 0.5, 0.08) end

return R
