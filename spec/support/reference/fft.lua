--- References of the Fourier transforms, by the definition, and of windows.
local A = require "spec.support.array"
local special = require "spec.support.reference.special"(
  require "spec.support.reference.elementwise")

local R = {}
local pi, cos, sin = math.pi, math.cos, math.sin

-- cos and sin of 2 pi m / n, m < n, by n
local cosines, sines = {}, {}

local function make_roots(n)
  local c, s = {}, {}
  for m = 0, n - 1 do
    local t = 2 * pi * m / n
    c[m], s[m] = cos(t), sin(t)
  end
  cosines[n], sines[n] = c, s
end

-- Sums n terms (re, im of term(j)) for k.
local function transform(n, k, sign, term)
  if not cosines[n] then make_roots(n) end
  local re, im, cosine, sine = 0, 0, cosines[n], sines[n]
  for j = 0, n - 1 do
    local m = j * k % n
    local xr, xi = term(j)
    local c, s = cosine[m], sign * sine[m]
    re = re + xr * c - xi * s
    im = im + xr * s + xi * c
  end
  return re, im
end

-- Where the line along dim through `index` begins, and the step from one element to the next;
-- of pairs the first part, if `paired`.
local function line(x, index, dim, paired)
  local place, step = A.copy_list(index), 1
  place[dim] = 1
  if paired then place[#x.shape] = 1 end
  for d = dim + 1, #x.shape do step = step * x.shape[d] end
  return A.place(x, place, #x.shape), step
end

-- The dims before the last of a.dims, whose number is dim.
local function others(a, x, dim, inverse)
  for d = dim - (a.dims or 1) + 1, dim - 1 do x = R.dft {x = x, dim = d, inverse = inverse} end
  return x
end

function R.dft(a)
  local dim = A.dim(a.dim or -2, #a.x.shape)
  local x = others(a, a.x, dim, a.inverse)
  local n, scale = x.shape[dim], a.scale or 1
  return A.build(x.shape, function(index)
    local first, step = line(x, index, dim, true)
    local re, im = transform(n, index[dim] - 1, a.inverse and 1 or -1, function(j)
      return x[first + j * step], x[first + j * step + 1]
    end)
    return scale * (index[#index] == 1 and re or im)
  end)
end

function R.rdft(a)
  local x, dim = a.x, A.dim(a.dim or -1, #a.x.shape)
  local n, scale, shape = x.shape[dim], a.scale or 1, A.copy_list(x.shape)
  shape[dim] = n // 2 + 1
  shape[#shape + 1] = 2
  local y = A.build(shape, function(index)
    local real = A.copy_list(index)
    real[#real] = nil
    local first, step = line(x, real, dim)
    local re, im = transform(n, index[dim] - 1, -1, function(j) return x[first + j * step], 0 end)
    return scale * (index[#index] == 1 and re or im)
  end)
  return others(a, y, dim, false)
end

function R.irdft(a)
  local dim, n = A.dim(a.dim or -2, #a.x.shape), a.n
  local x = others(a, a.x, dim, true)
  local shape = A.copy_list(x.shape)
  shape[#shape] = nil
  shape[dim] = n
  return A.build(shape, function(index)
    local pair = A.copy_list(index)
    pair[#pair + 1] = 1
    local first, step = line(x, pair, dim, true)
    local re = transform(n, index[dim] - 1, 1, function(j)
      local k = j <= n // 2 and j or n - j
      local im = (k == 0 or 2 * k == n) and 0 or x[first + k * step + 1]
      return x[first + k * step], k == j and im or -im
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

-- f of places from -1 to 1
local function around(a, f)
  local last = (a.periodic == false) and a.n - 1 or a.n
  return A.build({a.n}, function(_, k) return a.n == 1 and 1 or f(2 * (k - 1) / last - 1) end)
end
function R.bartlett_window(a) return around(a, function(t) return 1 - math.abs(t) end) end
function R.kaiser_window(a)
  local beta = a.beta or 12
  return around(a, function(t)
    return special.i0(beta * math.sqrt(math.max(1 - t * t, 0))) / special.i0(beta)
  end)
end

-- --- complex tensors: results are pairs ---

local function as_pairs(x)
  if x.complex then return x end
  local list = {}
  for k, v in ipairs(x) do list[2 * k - 1], list[2 * k] = v, 0 end
  local shape = A.copy_list(x.shape)
  shape[#shape + 1] = 2
  return A.new(shape, list, "f64")
end

-- Cut, or filled up with zeros, along dim.
local function fitted(x, dim, n)
  local shape = A.copy_list(x.shape)
  shape[dim] = n
  return A.build(shape, function(index)
    return index[dim] > x.shape[dim] and 0 or x[A.place(x, index)]
  end)
end

local function scale_of(norm, inverse, n)
  if norm == "ortho" then return n ^ -0.5 end
  return ((norm or "backward") == "backward") == inverse and 1 / n or 1
end

-- Dims and lengths asked for: of the last `fixed`, or all, where nothing is said.
local function plan(a, fixed, half)
  local x = a.x
  local nd = #x.shape - (x.complex and 1 or 0)
  local dims, sizes = a.dims, a.s
  if fixed == 1 then dims, sizes = {a.dim or -1}, a.n and {a.n} end
  if not dims then
    dims = {}
    local n = sizes and #sizes or fixed or nd
    for d = nd - n + 1, nd do dims[#dims + 1] = d end
  end
  local out, lengths = {}, {}
  for k, d in ipairs(dims) do
    out[k] = A.dim(d, nd)
    local have = x.shape[out[k]]
    lengths[k] = sizes and sizes[k] or half and k == #dims and 2 * (have - 1) or have
  end
  return out, lengths
end

local function whole(fixed, inverse)
  return function(a)
    local dims, sizes = plan(a, fixed)
    local x = as_pairs(a.x)
    for k, d in ipairs(dims) do
      x = R.dft {x = fitted(x, d, sizes[k]), dim = d, inverse = inverse,
        scale = scale_of(a.norm, inverse, sizes[k])}
    end
    return x
  end
end

local function forward_half(fixed)
  return function(a)
    local y = whole(fixed, false)(a)
    local dims, sizes = plan(a, fixed)
    return fitted(y, dims[#dims], sizes[#sizes] // 2 + 1)
  end
end

local function inverse_half(fixed)
  return function(a)
    local dims, sizes = plan(a, fixed, true)
    local x = as_pairs(a.x)
    for k = 1, #dims - 1 do
      x = R.dft {x = fitted(x, dims[k], sizes[k]), dim = dims[k], inverse = true,
        scale = scale_of(a.norm, true, sizes[k])}
    end
    local d, n = dims[#dims], sizes[#sizes]
    return R.irdft {x = fitted(x, d, n // 2 + 1), n = n, dim = d, scale = scale_of(a.norm, true, n)}
  end
end

for suffix, fixed in pairs {[""] = 1, ["2"] = 2, n = false} do
  R["fft" .. suffix], R["ifft" .. suffix] = whole(fixed, false), whole(fixed, true)
  R["rfft" .. suffix], R["irfft" .. suffix] = forward_half(fixed), inverse_half(fixed)
end

local function shift(round)
  return function(a)
    local x = a.x
    local nd = #x.shape - (x.complex and 1 or 0)
    local set = A.dim_set(a.dims, nd)
    return A.build(x.shape, function(index)
      local place = A.copy_list(index)
      for d = 1, nd do
        local n = x.shape[d]
        if set[d] then place[d] = (index[d] - 1 - round(n)) % n + 1 end
      end
      return x[A.place(x, place)]
    end, x.dtype)
  end
end
R.fftshift = shift(function(n) return n // 2 end)
R.ifftshift = shift(function(n) return (n + 1) // 2 end)

function R.fftfreq(a)
  local list = {}
  for k = 0, a.n - 1 do
    list[k + 1] = (2 * k < a.n and k or k - a.n) / (a.n * (a.d or 1))
  end
  return A.new({a.n}, list, "f64")
end

function R.rfftfreq(a)
  local list = {}
  for k = 0, a.n // 2 do list[k + 1] = k / (a.n * (a.d or 1)) end
  return A.new({#list}, list, "f64")
end

-- The window in the middle of n_fft.
local function window_of(a)
  local n = a.win_length or a.n_fft
  local before = (a.n_fft - n) // 2
  local w = {}
  for k = 1, a.n_fft do
    local inside = k > before and k <= before + n
    w[k] = inside and (a.window and a.window[k - before] or 1) or 0
  end
  return w
end

function R.stft(a)
  local x, n, hop, w = a.x, a.n_fft, a.hop or a.n_fft // 4, window_of(a)
  local batch, time = #x.shape > 1 and x.shape[1] or 1, x.shape[#x.shape]
  local half = a.center ~= false and n // 2 or 0
  local frames = (time + 2 * half - n) // hop + 1
  local rows = a.onesided == false and n or n // 2 + 1
  local shape = {batch, rows, frames, 2}
  if #x.shape == 1 then table.remove(shape, 1) end
  local list = {}
  for b = 0, batch - 1 do
    for k = 0, rows - 1 do
      for t = 0, frames - 1 do
        local re, im = transform(n, k, -1, function(j)
          local place = t * hop + j - half
          if place < 0 then place = -place end
          if place >= time then place = 2 * (time - 1) - place end
          return x[b * time + place + 1] * w[j + 1], 0
        end)
        local by = a.normalized and n ^ -0.5 or 1
        list[#list + 1] = re * by
        list[#list + 1] = im * by
      end
    end
  end
  return A.new(shape, list, "f64")
end

function R.istft(a)
  local x, n, hop, w = a.x, a.n_fft, a.hop or a.n_fft // 4, window_of(a)
  local nd = #x.shape
  local batch, rows, frames = nd == 4 and x.shape[1] or 1, x.shape[nd - 2], x.shape[nd - 1]
  local time, skip = n + (frames - 1) * hop, a.center ~= false and n // 2 or 0
  local length = a.length or time - 2 * skip
  local list = {}
  for b = 0, batch - 1 do
    local sum, weight = {}, {}
    for t = 0, frames - 1 do
      for j = 0, n - 1 do
        local re = transform(n, j, 1, function(k)
          local mirror = k >= rows
          if mirror then k = n - k end
          local place = ((b * rows + k) * frames + t) * 2
          local im = x[place + 2]
          if a.onesided ~= false and (k == 0 or 2 * k == n) then im = 0 end
          return x[place + 1], mirror and -im or im
        end)
        local place = t * hop + j
        sum[place] = (sum[place] or 0) + re * w[j + 1] * (a.normalized and n ^ -0.5 or 1 / n)
        weight[place] = (weight[place] or 0) + w[j + 1] ^ 2
      end
    end
    for k = 0, length - 1 do
      local place = k + skip
      local w2 = weight[place] or 0
      list[#list + 1] = (sum[place] or 0) / (w2 > 1e-11 and w2 or 1)
    end
  end
  return A.new(nd == 4 and {batch, length} or {length}, list, "f64")
end

return R
