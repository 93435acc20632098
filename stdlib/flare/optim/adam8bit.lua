--- Adam and AdamW whose moments take a byte for each element (Dettmers and others, 2022,
-- arXiv:2110.02861): blocks of neighbours have a scale, and a code of 8 bits picks one of 256
-- numbers in [-1, 1] that are dense around 0.
local class = require "flare.class"
local core = require "flare.core"
local fail = require "flare.fail"
local options = require "flare.options"
local Adam = require "flare.optim.adam"
local Optimizer = require "flare.optim.optimizer"

-- The numbers of the dynamic map, ascending: 0, 1, and for each power of ten from 1e-6 to 1 the
-- centres of equal intervals between 0.1 and 1 times it, of which each power has twice as many
-- as the one below. Without signs there are twice as many.
local function dynamic_map(signed)
  local list = {0, 1}
  for k = 0, 6 do
    local n = 2 ^ k * (signed and 1 or 2)
    for i = 1, n do
      local x = 10.0 ^ (k - 6) * (0.1 + 0.9 * (i - 0.5) / n)
      list[#list + 1] = x
      list[#list + 1] = signed and -x or nil
    end
  end
  table.sort(list)
  return list
end

local MOST = 1 << 22 -- elements of a block

local maps = {} -- by device: those of means, which have signs, and of mean squares

local function maps_of(device)
  local found = maps[device]
  if not found then
    found = core.tensor({dynamic_map(true), dynamic_map(false)}, {dtype = "f32"}):to(device)
    core.keep{found}
    maps[device] = found
  end
  return found
end

local function define(name, decoupled, weight_decay, text)
  local Adam8bit = class(name, Optimizer)
  Adam8bit.about = {("optim.%s(parameters, {lr = 1e-3, betas = {0.9, 0.999}, eps = 1e-8, "
    .. "weight_decay = %g, block = 256, min_size = 4096, maximize = false, master = true})"):format(
    name, weight_decay), text .. " The moments take a byte for each element and 4 bytes for each "
    .. "`block`; parameters with fewer than `min_size` elements keep f32 moments."}
  Adam8bit.defaults = {lr = 1e-3, betas = {0.9, 0.999}, eps = 1e-8, weight_decay = weight_decay,
                       block = 256, min_size = 4096, maximize = false}

  function Adam8bit:prepare(o)
    Adam.prepare(self, o)
    options.count("optim." .. name, "block", o.block)
    options.count("optim." .. name, "min_size", o.min_size, 0)
    if MOST % o.block ~= 0 then
      fail("optim.%s: block must be a power of 2 of at most %d, got %d", name, MOST, o.block)
    end
  end

  -- Codes and scales of the mean, then of the mean square; small parameters have moments in the
  -- place of codes, and no scales.
  function Adam8bit:moments() return 4 end -- luacheck: ignore self

  function Adam8bit:moment_shape(p, k, group)
    local n = p:numel()
    if n < group.min_size then return k % 2 == 1 and p.shape or {0} end
    return {k % 2 == 1 and n or (n + group.block - 1) // group.block}
  end

  function Adam8bit:moment_dtype(p, k, group)
    if p:numel() < group.min_size then return nil end
    return k % 2 == 1 and "u8" or "f32"
  end

  local function settings(group, more)
    local s = {beta1 = group.betas[1], beta2 = group.betas[2], eps = group.eps,
               weight_decay = group.weight_decay, decoupled = decoupled}
    for key, value in pairs(more) do s[key] = value end
    return s
  end

  local function step_of(group, p, g, state, step)
    local own = p:contiguous()
    core.adam8_step(group.lr, step, maps_of(p.device), own, g, state[1], state[2], state[3],
                    state[4], settings(group, {block = group.block}))
    if not own:shares(p) then p:copy_(own) end
  end

  function Adam8bit:update(group, xs, step) -- luacheck: ignore self
    local n, small = #xs // 6, {}
    for i = 1, n do
      local p, g = xs[i], xs[n + i]
      if p:numel() < group.min_size then
        small[#small + 1] = i
      else
        step_of(group, p, g, {xs[2 * n + i], xs[3 * n + i], xs[4 * n + i], xs[5 * n + i]}, step)
      end
    end
    if #small == 0 then return end
    local list = {}
    for _, part in ipairs {0, 1, 2, 4} do
      for _, i in ipairs(small) do list[#list + 1] = xs[part * n + i] end
    end
    core.adam_step(group.lr, step, list, settings(group, {moments = 2}))
  end
  return Adam8bit
end

return {
  Adam8bit = define("Adam8bit", false, 0, "Adam with moments of 8 bits (arXiv:2110.02861)."),
  AdamW8bit = define("AdamW8bit", true, 0.01, "AdamW with moments of 8 bits (arXiv:2110.02861)."),
}
