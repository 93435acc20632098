-- Every collective of GPU tensors, in every dtype and by every algorithm, against sums made on the
-- CPU. Under flare launch, with a GPU for each rank; ends with a line "right: N checks".
local flare = require "flare"
local dist = flare.dist

local rank, size = dist.init()
local device = arg[1] or "cuda:" .. dist.local_rank()
local last, checks = size - 1, 0

-- Small whole numbers: their sums are exact in every dtype.
local function values(r, n, dtype)
  local v = (flare.arange(0, n, {dtype = "i64"}) * 7 + r * 13) % 11
  if dtype ~= "u8" then v = v - 5 end
  return v:to "f64"
end

local function each(n, dtype)
  local all = {}
  for r = 0, last do all[r + 1] = values(r, n, dtype) end
  return all
end

local function folded(n, dtype, reduce)
  local stack = flare.stack(each(n, dtype))
  if reduce == "mean" then return stack:mean{dim = 1} end
  if reduce == "min" then return stack:amin{dim = 1} end
  if reduce == "max" then return stack:amax{dim = 1} end
  return stack:sum{dim = 1}
end

local function put(v, dtype) return v:to(dtype or "f32"):to(device) end

local function same(what, got, want)
  checks = checks + 1
  assert(got.device == device, what .. ": on " .. got.device)
  got = got:to "cpu":to "f64"
  assert(got:numel() == want:numel(), ("%s: %d elements, not %d"):format(what, got:numel(),
    want:numel()))
  if want:numel() == 0 then return end
  local most = (got:reshape(-1) - want:reshape(-1)):abs():max():item()
  if most ~= 0 then error(("%s: off by %g"):format(what, most)) end
end

local function refused(what, pattern, f, ...)
  checks = checks + 1
  local ok, why = pcall(f, ...)
  assert(not ok and tostring(why):find(pattern), what .. ": " .. tostring(why))
end

-- Names of the algorithms that this flare has for GPUs.
local function algorithms()
  local list = {"auto", device:find "^cuda" and "nccl"}
  for _, way in ipairs {"one_shot", "two_shot", "ring"} do
    local ok, why = pcall(dist.all_reduce, flare.ones({4}, {device = device}), {algorithm = way})
    if ok then list[#list + 1] = way
    elseif rank == 0 then print(("not here: %s: %s"):format(way, why)) end
  end
  return list
end

local ways = algorithms()
local dtypes = {"f64", "f32", "f16", "bf16", "i64", "i32", "i8", "u8"}

for _, way in ipairs(ways) do
  for _, n in ipairs {1, 13, 1001, 70001, 3000017} do
    for _, dtype in ipairs(n > 2e6 and {"f32", "bf16"} or dtypes) do
      for _, reduce in ipairs(n > 2e6 and {"sum"} or {"sum", "mean", "min", "max"}) do
        if reduce ~= "mean" or dtype:find "f" then
          local x, want = put(values(rank, n, dtype), dtype), folded(n, dtype, reduce)
          local what = ("all_reduce %s %s %s %d"):format(way, dtype, reduce, n)
          want = want:to(dtype):to "f64"
          local y = dist.all_reduce(x, {reduce = reduce, algorithm = way})
          same(what, y, want)
          same(what .. ", x", x, values(rank, n, dtype):to(dtype):to "f64")
          dist.all_reduce_(x, {reduce = reduce, algorithm = way})
          same(what .. " in place", x, want)
        end
      end
    end
  end
end

for _, dtype in ipairs(dtypes) do
  for _, n in ipairs {0, 1, 5, 70000} do
    local function say(name) return ("%s %s %d"):format(name, dtype, n) end
    local x, all = put(values(rank, n, dtype), dtype), each(n, dtype)
    local wide = put(values(rank, n * size, dtype), dtype)
    local function mine(v) return v:narrow(1, rank * n + 1, n) end
    same(say "all_gather", dist.all_gather(x), flare.cat(all))
    local got = dist.gather(x, {root = last})
    if rank == last then same(say "gather", got, flare.cat(all)) end
    same(say "broadcast", dist.broadcast(x, {root = last}), values(last, n, dtype))
    got = dist.reduce(x, {root = last})
    same(say "reduce", got, rank == last and folded(n, dtype, "sum") or values(rank, n, dtype))
    same(say "reduce_scatter", dist.reduce_scatter(wide), mine(folded(n * size, dtype, "sum")))
    local swapped = {}
    for r = 0, last do swapped[r + 1] = mine(values(r, n * size, dtype)) end
    same(say "all_to_all", dist.all_to_all(wide), flare.cat(swapped))
    if n > 0 then
      got = dist.scatter(rank == last and wide or nil, {root = last})
      same(say "scatter", got, mine(values(last, n * size, dtype)))
    end
  end
end
if rank == 0 then print(("collectives: %d checks"):format(checks)) end

-- strides, handles, other streams' work in between
local grid = put(values(rank, 24)):view(4, 6)
local part = grid:transpose(1, 2):narrow(1, 2, 2, 2)
local want = folded(24, "f32", "sum"):view(4, 6):transpose(1, 2):narrow(1, 2, 2, 2)
dist.all_reduce_(part)
same("strided in place", part:contiguous(), want:contiguous())
local works = {}
for k = 1, 40 do
  works[k] = dist.all_reduce(put(values(rank, 999 * k)) * k, {async = true})
end
for k = 40, 1, -1 do
  same("handle", works[k]:wait(), folded(999 * k, "f32", "sum") * k)
end
for turn = 1, 3 do -- large ones, beside work
  local n, here = 3000017, flare.ones({2048, 2048}, {device = device})
  local x, wide = put(values(rank, n)), put(values(rank, n * size))
  local all = dist.all_reduce(x * turn, {async = true})
  for _ = 1, 20 do here = here:matmul(here) / 2048 end
  local gathered = dist.all_gather(x, {async = true})
  local scattered = dist.reduce_scatter(wide, {async = true})
  for _ = 1, 20 do here = here:matmul(here) / 2048 end
  same("beside: all_reduce", all:wait(), folded(n, "f32", "sum") * turn)
  same("beside: all_gather", gathered:wait(), flare.cat(each(n, "f32")))
  same("beside: reduce_scatter", scattered:wait(),
    folded(n * size, "f32", "sum"):narrow(1, rank * n + 1, n))
  assert(here:sum():item() == 2048 * 2048, "the work beside it")
end
for k = 1, 200 do -- more than the engine follows at a time
  local x = put(values(rank, 100)) + k
  same("many", dist.all_reduce(x), folded(100, "f32", "sum") + k * size)
end

-- neighbours, in the order that needs no luck
local right, left = (rank + 1) % size, (rank - 1) % size
for _, n in ipairs {1, 100003, 5000000} do
  local x, like = put(values(rank, n)), flare.zeros({n}, {device = device})
  local got
  if rank % 2 == 0 then
    dist.send(x, right)
    got = dist.recv(like, left)
  else
    got = dist.recv(like, left)
    dist.send(x, right)
  end
  same("send and recv", got, values(left, n))
end

-- groups and meshes
local pairs_of = {}
for a = 0, last - 1, 2 do pairs_of[a // 2 + 1] = dist.group{a + 1, a} end
local pair = pairs_of[rank // 2 + 1]
local sum = values(pair.ranks[1], 50) + values(pair.ranks[2], 50)
same("subgroup", pair:all_reduce(put(values(rank, 50))), sum)
if size == 4 then
  local mesh = dist.mesh{dp = 2, tp = 2}
  local function over(list)
    local all = {}
    for k, r in ipairs(list) do all[k] = values(r, 77) end
    return flare.stack(all):sum{dim = 1}
  end
  same("mesh.tp", mesh.tp:all_reduce(put(values(rank, 77))), over(mesh.tp.ranks))
  same("mesh.dp", mesh.dp:all_reduce(put(values(rank, 77))), over(mesh.dp.ranks))
end

-- differentiable; the same bits in every run, and the same on every rank
local leaf = put(values(rank, 60)):requires_grad_(true)
local y = dist.all_reduce(leaf)
same("gradient", flare.grad((y * (rank + 1)):sum(), {leaf}),
  flare.ones({60}, {dtype = "f64"}) * (size * (size + 1) // 2))
flare.manual_seed(5 + rank)
local noise = {f32 = flare.randn{200003}:to(device), bf16 = flare.randn{200003}:to(device)}
noise.bf16 = noise.bf16:to "bf16"
for _, dtype in ipairs {"f32", "bf16"} do
  local sums = {}
  for _, way in ipairs(ways) do
    local first
    for _ = 1, 5 do
      local bits = flare.core.crc32c(dist.all_reduce(noise[dtype], {algorithm = way}):to "cpu")
      first = first or bits
      assert(bits == first, way .. ": other bits in another run")
    end
    local all = dist.all_gather(flare.tensor({first}, {dtype = "i64"}))
    assert(all:eq(first):all():item(), way .. ": ranks have other bits")
    sums[way] = first
    checks = checks + 1
  end
  assert(sums.one_shot == sums.two_shot, "one_shot and two_shot differ")
  if rank == 0 then print("bits", dtype, table.concat(ways, " ")) end
end

-- what it says of bad calls, after which all goes on
if device:find "^cuda" then
  refused("dtype", "i16", dist.all_reduce, flare.ones({3}, {dtype = "i16", device = device}),
    {algorithm = "nccl"})
end
refused("root", "there is no rank", dist.broadcast, flare.ones({3}, {device = device}),
  {root = size})
dist.barrier()
same("after refusals", dist.all_reduce(put(values(rank, 3))), folded(3, "f32", "sum"))
if rank == 0 then print(("right: %d checks with %d ranks"):format(checks, size)) end
