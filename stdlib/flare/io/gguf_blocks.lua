--- The quantised types of GGUF files: blocks of 32 or 256 numbers with their scales, to f32 and,
-- for the simpler types, back. Sums and products are done in f32, on whole tensors of blocks.
--
-- A function `read(b, h)` gets the bytes of n blocks, b (n, bytes) as i32, and the same memory as
-- f16, h (n, bytes / 2) in f32; it gives (n, numbers).
local core = require "flare.core"

local M = {}

-- Bytes from..from + count - 1 of each block, from 0.
local function part(b, from, count) return b:narrow(2, from + 1, count) end
-- The f16 number at byte `at`, as a column.
local function half(h, at) return h:narrow(2, at // 2 + 1, 1) end

local function low(x) return x:bitwise_and(15) end
local function high(x) return x:bitwise_right_shift(4) end
-- The bits from `shift` on, as many as `mask` has.
local function bits(x, shift, mask) return x:bitwise_right_shift(shift):bitwise_and(mask) end
local function float(x) return x:to "f32" end
-- Bytes that are signed numbers.
local function signed(x) return x - x:bitwise_and(128) * 2 end

local function nibbles(b, at) -- (n, 32): the low halves of 16 bytes, then the high ones
  local q = part(b, at, 16)
  return core.cat({low(q), high(q)}, 2)
end

-- (n, 32): bit k of the four bytes at `at`.
local function mask_bits(b, at)
  local all = {}
  for k = 0, 31 do all[k + 1] = bits(part(b, at + k // 8, 1), k % 8, 1) end
  return core.cat(all, 2)
end

-- The six-bit scales and minima of eight sub-blocks in 12 bytes: two (n, 8).
local function scales_k4(b, at)
  local x, y, z = part(b, at, 4), part(b, at + 4, 4), part(b, at + 8, 4)
  local function top(v) return bits(v, 6, 3):bitwise_left_shift(4) end
  return core.cat({x:bitwise_and(63), low(z):bitwise_or(top(x))}, 2),
    core.cat({y:bitwise_and(63), high(z):bitwise_or(top(y))}, 2)
end

-- (n, groups, size) times a factor for each group (n, groups): (n, groups * size)
local function by_group(q, size, factor)
  return (float(q):view(q:size(1), -1, size) * factor:unsqueeze(3)):view(q:size(1), -1)
end

local function q4_k_like(b, h, q)
  local s, m = scales_k4(b, 4)
  return by_group(q, 32, float(s) * half(h, 0))
    - (core.ones_like(q, {dtype = "f32"}):view(q:size(1), 8, 32)
       * (float(m) * half(h, 2)):unsqueeze(3)):view(q:size(1), -1)
end

-- (n, 256) of the 128 bytes at `at`: for each 32 bytes the low halves, then the high ones
local function nibbles_k(b, at)
  local all = {}
  for g = 0, 3 do
    local q = part(b, at + 32 * g, 32)
    all[#all + 1], all[#all + 2] = low(q), high(q)
  end
  return core.cat(all, 2)
end

-- (n, 256) of two bits each of the 64 bytes at `at`: for each 32 bytes, shifts 0, 2, 4 and 6
local function pairs_k(b, at)
  local all = {}
  for g = 0, 1 do
    local q = part(b, at + 32 * g, 32)
    for shift = 0, 6, 2 do all[#all + 1] = bits(q, shift, 3) end
  end
  return core.cat(all, 2)
end

-- Name: number in files, numbers in a block, its bytes, and how it is read.
M.types = {
  q4_0 = {2, 32, 18, function(b, h) return (float(nibbles(b, 2)) - 8) * half(h, 0) end},
  q4_1 = {3, 32, 20, function(b, h)
    return float(nibbles(b, 4)) * half(h, 0) + half(h, 2)
  end},
  q5_0 = {6, 32, 22, function(b, h)
    local q = nibbles(b, 6):bitwise_or(mask_bits(b, 2):bitwise_left_shift(4))
    return (float(q) - 16) * half(h, 0)
  end},
  q5_1 = {7, 32, 24, function(b, h)
    local q = nibbles(b, 8):bitwise_or(mask_bits(b, 4):bitwise_left_shift(4))
    return float(q) * half(h, 0) + half(h, 2)
  end},
  q8_0 = {8, 32, 34, function(b, h) return float(signed(part(b, 2, 32))) * half(h, 0) end},
  q2_k = {10, 256, 84, function(b, h)
    local s, q = part(b, 0, 16), pairs_k(b, 16)
    local least = float(high(s)) * half(h, 82)
    return by_group(q, 16, float(low(s)) * half(h, 80))
      - least:repeat_interleave(16, 2)
  end},
  q3_k = {11, 256, 110, function(b, h)
    local q, mask, top, all = pairs_k(b, 32), part(b, 0, 32), {}, {}
    for k = 0, 7 do top[k + 1] = bits(mask, k, 1) end
    q = q + core.cat(top, 2) * 4 - 4
    local packed, more = part(b, 96, 8), part(b, 104, 4)
    for k = 0, 3 do all[k + 1] = bits(more, 2 * k, 3):bitwise_left_shift(4) end
    local s = core.cat({low(packed), high(packed)}, 2):bitwise_or(core.cat(all, 2))
    return by_group(q, 16, (float(s) - 32) * half(h, 108))
  end},
  q4_k = {12, 256, 144, function(b, h) return q4_k_like(b, h, nibbles_k(b, 16)) end},
  q5_k = {13, 256, 176, function(b, h)
    local top, mask = {}, part(b, 16, 32)
    for k = 0, 7 do top[k + 1] = bits(mask, k, 1):bitwise_left_shift(4) end
    return q4_k_like(b, h, nibbles_k(b, 48):bitwise_or(core.cat(top, 2)))
  end},
  q6_k = {14, 256, 210, function(b, h)
    local all = {}
    for g = 0, 1 do
      local a, c = part(b, 64 * g, 32), part(b, 64 * g + 32, 32)
      local top = part(b, 128 + 32 * g, 32)
      for k, q in ipairs{low(a), low(c), high(a), high(c)} do
        all[#all + 1] = q:bitwise_or(bits(top, 2 * (k - 1), 3):bitwise_left_shift(4))
      end
    end
    local s = float(signed(part(b, 192, 16))) * half(h, 208)
    return by_group(core.cat(all, 2) - 32, 16, s)
  end},
}

--- The numbers in blocks of a type: (n * numbers) in f32.
-- @param text the bytes of whole blocks
function M.read(name, text)
  local kind = M.types[name]
  local n = #text // kind[3]
  local b = core.from_bytes(text, "u8", {n, kind[3]}):to "i32"
  local h = core.from_bytes(text, "f16", {n, kind[3] // 2}):to "f32"
  return kind[4](b, h):reshape(-1)
end

---------------------------------------------------------------- writing

-- 1 / d, or 0 where d is 0.
local function inverse(d) return core.where(d:eq(0), core.zeros_like(d), d:reciprocal()) end

local function extreme(x) -- the number of the largest magnitude in each row, with its sign
  return x:gather(2, x:abs():argmax{dim = 2, keepdim = true})
end

local function bytes_of_half(d) return d:to("f16") end

-- The 16-bit and 8-bit parts of blocks joined: f16 columns, then bytes.
local function join(halves, bytes)
  local n = halves[1]:size(1)
  local parts = {}
  for k, d in ipairs(halves) do
    local raw = bytes_of_half(d):contiguous():bytes()
    parts[k] = core.from_bytes(raw, "u8", {n, 2})
  end
  for _, each in ipairs(bytes) do parts[#parts + 1] = each:to "u8" end
  return core.cat(parts, 2):contiguous()
end

-- Two rows of 16 numbers below 16 as 16 bytes.
local function pack_nibbles(q)
  return q:narrow(2, 1, 16):bitwise_or(q:narrow(2, 17, 16):bitwise_left_shift(4))
end

-- Bit 4 of 32 numbers as four bytes.
local function pack_top(q)
  local bit = bits(q, 4, 1):view(q:size(1), 4, 8)
  local place = core.tensor({1, 2, 4, 8, 16, 32, 64, 128}, {dtype = "i32"})
  return (bit * place):sum(3)
end

-- Quantised with one scale d: x / d + middle, from 0 to most.
local function symmetric(x, middle, most)
  local d = extreme(x) / -middle
  local q = (x:to "f64" * inverse(d):to "f64" + (middle + 0.5)):trunc():clamp(0, most)
  return d, q:to "i32"
end

-- Quantised with a scale and a minimum.
local function affine(x, most)
  local least = x:amin(2, {keepdim = true})
  local d = (x:amax(2, {keepdim = true}) - least) / most
  local q = ((x - least) * inverse(d) + 0.5):trunc():clamp(0, most)
  return d, least, q:to "i32"
end

local writers = {
  q4_0 = function(x)
    local d, q = symmetric(x, 8, 15)
    return join({d}, {pack_nibbles(q)})
  end,
  q4_1 = function(x)
    local d, least, q = affine(x, 15)
    return join({d, least}, {pack_nibbles(q)})
  end,
  q5_0 = function(x)
    local d, q = symmetric(x, 16, 31)
    return join({d}, {pack_top(q), pack_nibbles(q:bitwise_and(15))})
  end,
  q5_1 = function(x)
    local d, least, q = affine(x, 31)
    return join({d, least}, {pack_top(q), pack_nibbles(q:bitwise_and(15))})
  end,
  q8_0 = function(x)
    local d = x:abs():amax(2, {keepdim = true}) / 127
    local y = x * inverse(d)
    local q = (y:abs() + 0.5):floor() * y:sign()
    return join({d}, {q:to("i32"):bitwise_and(255)})
  end,
}

--- Whether blocks of a type can be written.
function M.writes(name) return writers[name] ~= nil end

--- The names of the types that can be written, with true for each.
function M.writable()
  local out = {}
  for name in pairs(writers) do out[name] = true end
  return out
end

--- The blocks of a tensor, whose last size is a multiple of 32, as bytes (blocks, bytes).
function M.write(name, x)
  return writers[name](x:to("f32"):contiguous():view(-1, 32))
end

return M
