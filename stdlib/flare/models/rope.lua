--- Rotary positions (arXiv:2104.09864): each pair of features (i, i + size / 2) of a head is
-- rotated by an angle in proportion to the token's position, and the variants that stretch the
-- angles for longer texts.
local class = require "flare.class"
local core = require "flare.core"
local fail = require "flare.fail"
local options = require "flare.options"

local Rope = class("Rope")

-- Frequencies are rounded to f32 where the published code rounds them: at position 10^5 the last
-- bit of a frequency is visible in the angle.
local function f32(x) return (string.unpack("<f", string.pack("<f", x))) end

-- base ^ (2 i / dims) for the pairs i = 0, 1, ...
local function powers(base, dims)
  local out = {}
  for i = 0, dims // 2 - 1 do out[i + 1] = f32(base ^ f32(2 * i / dims)) end
  return out
end

local function plain(base, dims)
  local out = powers(base, dims)
  for i, p in ipairs(out) do out[i] = f32(1 / p) end
  return out
end

-- Each kind: function(rope parameters, dims, limit, length) -> frequencies, factor of cos and sin.
-- `limit` is the config's max_position_embeddings, `length` how many tokens there are.
local kinds = {}

function kinds.default(p, dims)
  return plain(p.rope_theta, dims), 1
end

-- Positions are divided by a factor (arXiv:2306.15595).
function kinds.linear(p, dims)
  local out = plain(p.rope_theta, dims)
  for i, f in ipairs(out) do out[i] = f32(f / p.factor) end
  return out, 1
end

-- The base grows with the length of texts above the limit.
function kinds.dynamic(p, dims, limit, length)
  length = math.max(length, limit)
  local grown = (p.factor * length / limit - (p.factor - 1)) ^ (dims / (dims - 2))
  return plain(p.rope_theta * grown, dims), 1
end

-- Llama 3.1: long waves are stretched, short ones are kept, those between are mixed.
function kinds.llama3(p, dims)
  local out, original = plain(p.rope_theta, dims), p.original_max_position_embeddings
  local low, high = p.low_freq_factor, p.high_freq_factor
  for i, f in ipairs(out) do
    local turns = original * f / (2 * math.pi)
    local mix = (turns - low) / (high - low)
    mix = math.max(0, math.min(1, mix))
    out[i] = f32((1 - mix) * f / p.factor + mix * f)
  end
  return out, 1
end

local function yarn_scale(factor, m)
  return factor <= 1 and 1 or 0.1 * (m or 1) * math.log(factor) + 1
end

-- YaRN (arXiv:2309.00071): as llama3, over the index of the pair, and scores are scaled.
function kinds.yarn(p, dims, limit)
  local original = p.original_max_position_embeddings or limit
  local factor = p.factor or limit / original
  local function pair_of(turns)
    return dims * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(p.rope_theta))
  end
  local low, high = pair_of(p.beta_fast or 32), pair_of(p.beta_slow or 1)
  if p.truncate ~= false then low, high = math.floor(low), math.ceil(high) end
  low, high = math.max(low, 0), math.min(high, dims - 1)
  if low == high then high = high + 0.001 end
  local out = powers(p.rope_theta, dims)
  for i, power in ipairs(out) do
    local keep = 1 - math.max(0, math.min(1, (i - 1 - low) / (high - low)))
    out[i] = f32((1 - keep) / (factor * power) + keep / power)
  end
  local scale = p.attention_factor
  if not scale and p.mscale and p.mscale_all_dim then
    scale = yarn_scale(factor, p.mscale) / yarn_scale(factor, p.mscale_all_dim)
  end
  return out, scale or yarn_scale(factor)
end

-- LongRoPE (arXiv:2402.13753): a factor for each pair, one list for short texts and one for long.
function kinds.longrope(p, dims, limit, length)
  local original = p.original_max_position_embeddings or limit
  local factor = p.factor or limit / original
  local factors = length > original and p.long_factor or p.short_factor
  local out = powers(p.rope_theta, dims)
  for i, power in ipairs(out) do out[i] = f32(1 / f32(f32(factors[i]) * power)) end
  return out, p.attention_factor
    or factor <= 1 and 1 or math.sqrt(1 + math.log(factor) / math.log(original))
end

local needs = {linear = {"factor"}, dynamic = {"factor"},
  longrope = {"short_factor", "long_factor"},
  llama3 = {"factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"}}
local lengths = {dynamic = true, longrope = true} -- kinds that depend on the length

--- models.Rope(config): the rotation that a configuration asks for, by rope_parameters or by the
-- older rope_theta and rope_scaling.
function Rope:init(c)
  local given = c.rope_parameters or c.rope_scaling or {}
  local p = {rope_theta = c.rope_theta or 10000}
  for key, value in pairs(given) do
    if value ~= core.json.null then p[key] = value end
  end
  self.kind = p.rope_type or p.type or "default"
  if not kinds[self.kind] then
    fail("%s: unknown rope_type '%s'%s", "Rope", tostring(self.kind),
         options.hint(tostring(self.kind), kinds))
  end
  for _, name in ipairs(needs[self.kind] or {}) do
    if not p[name] then fail("Rope: rope_type '%s' needs %s", self.kind, name) end
  end
  if self.kind ~= "dynamic" then
    p.original_max_position_embeddings = p.original_max_position_embeddings
      or c.original_max_position_embeddings or nil
  end
  local size = c.head_dim or c.hidden_size // c.num_attention_heads
  local part = p.partial_rotary_factor or c.partial_rotary_factor or 1
  self.parameters, self.limit = p, c.max_position_embeddings
  self.dims = math.floor(size * part)
  self._tables = {}
end

-- Frequencies on a device, and the factor of cos and sin.
function Rope:frequencies(device, length)
  local key = device .. (lengths[self.kind] and ":" .. length or "")
  local entry = self._tables[key]
  if not entry then
    local list, scale = kinds[self.kind](self.parameters, self.dims, self.limit, length)
    entry = {core.tensor(list, {dtype = "f32", device = device}), scale}
    if lengths[self.kind] then self._tables = {} end
    self._tables[key] = entry
  end
  return entry[1], entry[2]
end

--- The cosines and sines of the angles at these positions.
-- @param positions (batch or 1, time), from 0
-- @param length how many tokens the longest text has
-- @return two tensors (batch or 1, time, 1, dims / 2) in f32
function Rope:angles(positions, length)
  local frequencies, scale = self:frequencies(positions.device, length)
  local angles = positions:unsqueeze(-1):unsqueeze(-1) * frequencies
  local cos, sin = angles:cos(), angles:sin()
  if scale ~= 1 then cos, sin = cos * scale, sin * scale end
  return cos, sin
end

--- Rotates x (batch, time, heads, size) by angles that `angles` gave; features beyond the rotated
-- dims stay as they are.
function Rope.rotate(x, cos, sin)
  local half, size = cos:size(-1), x:size(4)
  local a, b = x:narrow(4, 1, half), x:narrow(4, half + 1, half)
  local parts = {a * cos - b * sin, b * cos + a * sin}
  if 2 * half < size then parts[3] = x:narrow(4, 2 * half + 1, size - 2 * half) end
  return core.cat(parts, 4):to(x.dtype)
end

return Rope
