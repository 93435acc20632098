-- Every collective that kernels over peer memory have, in groups of 8, 3, 5, 6 and 7 of 8 ranks,
-- against sums made on the CPU. Under flare launch -n 8 with FLARE_PEERS=only: the ranks share the
-- GPUs that there are, whose time goes around, so a call takes milliseconds. Ends with a line
-- "right: N checks". eight.lua [quick]
local flare = require "flare"
local dist = flare.dist

local rank, size = dist.init()
local quick = arg[1] == "quick"
local device = flare.zeros({1}, {device = "cuda"}).device
local checks, start = 0, flare.clock()
assert(size == 8, "this is for 8 ranks")

-- Small whole numbers: their sums are exact in every dtype, but for i8's largest.
local function values(r, n, dtype)
  local v = (flare.arange(0, n, {dtype = "i64"}) * 7 + r * 13) % 11
  if dtype ~= "u8" then v = v - 5 end
  return v:to "f64"
end

local function folded(g, n, dtype, reduce)
  local sum = values(0, n, dtype)
  for r = 1, g.size - 1 do
    local v = values(r, n, dtype)
    sum = reduce == "min" and flare.minimum(sum, v) or reduce == "max" and flare.maximum(sum, v)
      or sum + v
  end
  if reduce == "mean" then sum = sum / g.size end
  return sum:to(dtype):to "f64"
end

local function put(v, dtype) return v:to(dtype):to(device) end

local function same(what, got, want)
  checks = checks + 1
  assert(got.device == device, what .. ": on " .. got.device)
  got = got:to "cpu":to "f64"
  assert(got:numel() == want:numel(), ("%s: %d elements, not %d"):format(what, got:numel(),
    want:numel()))
  local most = (got:reshape(-1) - want:reshape(-1)):abs():max():item()
  if most ~= 0 then error(("%s: off by %g"):format(what, most)) end
end

-- all_reduce: every way of the list, for all dtypes, sizes and reductions; in place in turns.
local function reductions(g, ways, dtypes, sizes, reduces)
  for dtype in dtypes:gmatch "%S+" do
    for _, n in ipairs(sizes) do
      local x = put(values(g.rank, n, dtype), dtype)
      for reduce in reduces:gmatch "%S+" do
        if reduce ~= "mean" or dtype:find "f" then
          local want = folded(g, n, dtype, reduce)
          for way in ways:gmatch "%S+" do
            local o = {reduce = reduce, algorithm = way}
            local what = ("all_reduce %s %s %s %d of %d ranks"):format(way, dtype, reduce, n,
              g.size)
            if checks % 2 == 0 then
              same(what, g:all_reduce(x, o), want)
            else
              local y = put(values(g.rank, n, dtype), dtype)
              g:all_reduce_(y, o)
              same(what .. " in place", y, want)
            end
          end
        end
      end
      same("what was given", x, values(g.rank, n, dtype):to(dtype):to "f64")
    end
  end
end

local function moves(g, dtypes, sizes)
  local me, last = g.rank, g.size - 1
  for dtype in dtypes:gmatch "%S+" do
    for _, n in ipairs(sizes) do
      local function say(name) return ("%s %s %d of %d ranks"):format(name, dtype, n, g.size) end
      local function mine(v) return v:narrow(1, me * n + 1, n) end
      local all, swapped = {}, {}
      for r = 0, last do
        all[r + 1] = values(r, n, dtype)
        swapped[r + 1] = mine(values(r, n * g.size, dtype))
      end
      local x = put(values(me, n, dtype), dtype)
      local wide = put(values(me, n * g.size, dtype), dtype)
      same(say "all_gather", g:all_gather(x), flare.cat(all))
      local got = g:gather(x, {root = last})
      if me == last then same(say "gather", got, flare.cat(all)) end
      same(say "broadcast", g:broadcast(x, {root = last}), values(last, n, dtype))
      local sum = folded(g, n, dtype, "sum")
      got = g:reduce(x, {root = last})
      same(say "reduce", got, me == last and sum or values(me, n, dtype))
      same(say "reduce_scatter", g:reduce_scatter(wide), mine(folded(g, n * g.size, dtype, "sum")))
      same(say "all_to_all", g:all_to_all(wide), flare.cat(swapped))
      got = g:scatter(me == last and wide or nil, {root = last})
      same(say "scatter", got, mine(values(last, n * g.size, dtype)))
    end
  end
end

-- The same bits in every run, on every rank, and by one_shot as by two_shot.
local function bits(g, dtype, n)
  flare.manual_seed(5 + rank)
  local x, sums = put(flare.randn{n}, dtype), {}
  for _, way in ipairs {"one_shot", "two_shot", "ring"} do
    for _ = 1, 2 do
      local sum = flare.core.crc32c(g:all_reduce(x, {algorithm = way}):to "cpu")
      assert(sum == (sums[way] or sum), way .. ": other bits in another run")
      sums[way] = sum
    end
    local all = g:all_gather(flare.tensor({sums[way]}, {dtype = "i64"}))
    assert(all:eq(sums[way]):all():item(), way .. ": ranks have other bits")
    checks = checks + 1
  end
  assert(sums.one_shot == sums.two_shot, "one_shot and two_shot differ")
end

local function refused(g, what, pattern, ...)
  local ok, why = pcall(g[what], g, ...)
  assert(not ok and tostring(why):find(pattern), what .. ": " .. tostring(why))
  checks = checks + 1
end

-- The first ones of 0 3 6 1 4 7 2 5: on all GPUs, in another order than the job's.
local function group(n)
  local ranks = {}
  for k = 1, n do ranks[k] = 3 * (k - 1) % size end
  return dist.group(ranks)
end

for _, n in ipairs {8, 3, 5, 6, 7} do
  local g = n == size and dist.world or group(n)
  local all = "one_shot two_shot ring auto"
  if g.rank and quick then
    reductions(g, all, "f32 bf16 u8", {1, 1001}, "sum")
    reductions(g, all, "f32", {300007}, "mean")
    moves(g, "f32 u8", {1, 1001})
    bits(g, "f32", 20003)
  elseif g.rank then
    if n == size then
      local dtypes = "f64 f32 f16 bf16 i64 i32 i8 u8"
      reductions(g, "one_shot two_shot auto", dtypes, {1, 13, 1001}, "sum")
      reductions(g, "one_shot two_shot", dtypes, {77}, "mean min max")
      reductions(g, "ring", dtypes, {1001}, "sum")
      reductions(g, all, "f32 bf16", {70001, 1 << 20}, "sum")
      reductions(g, "one_shot two_shot auto", "f32", {2500001}, "sum") -- in pieces
      moves(g, "f32 bf16 i64 u8", {1, 1001, 70001})
    else
      reductions(g, "one_shot two_shot auto", "f32 bf16 i8", {1, 13, 1001, 70001}, "sum")
      reductions(g, all, "f32", {1001, 300007, 1 << 20}, "mean")
      moves(g, "f32 u8", {1, 1001, 70001})
    end
    bits(g, "f32", 200003)
    bits(g, "bf16", 200003)
  end
  if g.rank == 0 then
    print(("%d ranks on %s and others: %d checks, %.1f s"):format(n, device, checks,
      flare.clock() - start))
  end
  dist.barrier()
end

local x = put(values(rank, 9), "f32")
refused(dist.world, "send", "send: the call needs NCCL, which FLARE_PEERS=only excludes", x,
  1 - rank % 2)
refused(dist.world, "all_reduce", "the algorithm \"nccl\" needs NCCL", x, {algorithm = "nccl"})
dist.barrier()
same("after refusals", dist.all_reduce(x), folded(dist.world, 9, "f32", "sum"))
if rank == 0 then print(("right: %d checks on each rank"):format(checks)) end
