--- References of the rows that make complex numbers or take them apart: results are pairs.
local A = require "spec.support.array"
local linalg = require "spec.support.reference.linalg"

local R = {}
local cos, sin, atan = math.cos, math.sin, math.atan

local function real_shape(x)
  return {table.unpack(x.shape, 1, #x.shape - (x.complex and 1 or 0))}
end

local function pairs_of(shape, f)
  local list = {}
  A.each(shape, function(index, k) list[2 * k - 1], list[2 * k] = f(index, k) end)
  local wide = A.copy_list(shape)
  wide[#wide + 1] = 2
  return A.new(wide, list, "f64")
end

function R.view_as_real(a) return A.new(a.x.shape, a.x, a.x.dtype) end
R.view_as_complex = R.view_as_real

function R.complex(a)
  return pairs_of(A.broadcast(a.re, a.im), function(i) return A.get(a.re, i), A.get(a.im, i) end)
end

function R.polar(a)
  return pairs_of(A.broadcast(a.size, a.angle), function(i)
    local r, t = A.get(a.size, i), A.get(a.angle, i)
    return r * cos(t), r * sin(t)
  end)
end

function R.complex_mul(a)
  local shape = A.broadcast(a.a, a.b)
  local function part(x, index, k)
    local place = A.copy_list(index)
    place[#place] = k
    return A.get(x, place)
  end
  return A.build(shape, function(index)
    local ar, ai = part(a.a, index, 1), part(a.a, index, 2)
    local br, bi = part(a.b, index, 1), part(a.b, index, 2)
    bi = a.conj and -bi or bi
    return index[#index] == 1 and ar * br - ai * bi or ar * bi + ai * br
  end)
end

-- f(re, im) for each number.
local function each(x, f, dtype)
  return A.build(real_shape(x), function(_, k)
    if x.complex then return f(x[2 * k - 1], x[2 * k]) end
    return f(x[k], 0)
  end, dtype or "f64")
end

function R.real(a) return each(a.x, function(re) return re end) end
function R.imag(a) return each(a.x, function(_, im) return im end) end
function R.angle(a) return each(a.x, function(re, im) return atan(im, re) end) end

function R.conj(a)
  if not a.x.complex then return a.x end
  return pairs_of(real_shape(a.x), function(_, k) return a.x[2 * k - 1], -a.x[2 * k] end)
end

function R.eig(a) return linalg.eig_pairs(a) end
function R.eigvals(a) return {linalg.eig_pairs(a)[1]} end

return R
