-- Rows over more than 2^31 elements on a GPU: `flare spec/gpu/large.lua`, in less than 95 s and
-- 130 GiB. Each result is compared where numbers of 32 bits would have gone wrong, around the
-- 2^31st element and at the end: with a formula of the position, or with what the row gives for
-- these lines alone. Ends with PASS or FAIL. `large.lua N DEVICE` counts to N instead, anywhere.
local flare = require "flare"
local limit = math.tointeger(tonumber(arg[1] or 1 << 31))
local device = arg[2] or "cuda"
local n = limit + 4099
local failed, began = 0, flare.clock()
local on = {device = device}

local function close(...)
  for _, x in ipairs {...} do x:close() end
end

local function report(name, ok, why, start)
  print(("%-34s %s  %.2f s%s"):format(name, ok and "yes" or "FAILED", flare.clock() - start,
    ok and "" or "  " .. tostring(why):gsub("\n.*", "")))
  io.flush()
  if not ok then failed = failed + 1 end
end

local function try(name, f)
  local start = flare.clock()
  local ok, why = pcall(function()
    f()
    flare.synchronize()
  end)
  collectgarbage()
  report(name, ok, why, start)
end

local function same(got, want, what)
  if got ~= want then error(("%s is %s and should be %s"):format(what, got, want), 0) end
end

-- y is one line: f gives its element at each position, from 0.
local function line(y, f)
  for _, first in ipairs {0, limit // 2 - 3, limit - 40, y:numel() - 80} do
    local part = y:narrow(1, first + 1, 80):to "cpu":tolist()
    for k = 1, 80 do same(part[k], f(first + k - 1), "element " .. first + k) end
  end
end

-- y has lines that depend on nothing but lines of x (and more): the last ones, and those about
-- element `limit`, are what they are alone.
local function lines(y, x, f, width)
  local rows = x.shape[1]
  for _, first in ipairs {limit // width - 2, rows - 3} do
    local want = f(x:narrow(1, first, 4):contiguous())
    local got = y:narrow(1, first, 4)
    -- sums may be cut otherwise where there are few lines
    local room = tostring(y.dtype):find "^b?f" and want:abs() * 0.01 + 1e-6 or 0
    assert((got - want):abs():le(room):all():item(),
      "lines from " .. first .. " differ from what they are alone")
  end
end

local function pattern(k, by) return k % (by or 251) end

-- (rows, width) of more than `limit` elements, whose values repeat at no power of 2.
local function table_of(width, dtype)
  local rows = limit // width + 7
  local x = flare.empty({rows, width}, {device = device, dtype = dtype})
  for first = 1, rows, 1 << 17 do
    local count = math.min(1 << 17, rows - first + 1)
    x:narrow(1, first, count):copy_(flare.arange((first - 1) * width,
      (first - 1 + count) * width, 1, on):remainder(1013):reshape(count, width):to(dtype) / 64)
  end
  return x
end

local x = flare.arange(0, n, 1, on)
try("arange", function() line(x, function(k) return k end) end)
local bytes
try("remainder, u8", function()
  bytes = x:remainder(251):to "u8"
  line(bytes, pattern)
end)
try("gt, where", function()
  local half = x:gt(limit)
  local y = flare.where(half, x, bytes)
  line(y, function(k) return k > limit and k or pattern(k) end)
  same(half:count_nonzero():item(), n - limit - 1, "count_nonzero")
  close(half, y)
end)
try("nonzero, masked_select", function()
  local mask = x:remainder(limit // 2 + 1):eq(0)
  local at, some = mask:nonzero(), bytes:masked_select(mask)
  for k = 0, (n - 1) // (limit // 2 + 1) do
    same(at[k + 1]:item(), k * (limit // 2 + 1) + 1, "position " .. k)
    same(some[k + 1]:item(), pattern(k * (limit // 2 + 1)), "element " .. k)
  end
  close(mask, at, some)
end)
try("sum and mean of i64", function()
  same(x:sum():item(), n * (n - 1) // 2, "the sum")
  same(x:mean():item(), flare.tensor((n - 1) / 2):item(), "the mean")
end)
x:close()
try("add", function()
  local y = bytes + bytes
  line(y, function(k) return 2 * pattern(k) % 256 end)
  close(y)
end)
try("sum, amax, argmax", function()
  local whole, rest = n // 251, n % 251
  same(bytes:sum():item(), whole * (250 * 251 // 2) + rest * (rest - 1) // 2, "the sum")
  bytes:narrow(1, n - 5, 1):fill_(255)
  same(bytes:amax():item(), 255, "the largest")
  same(bytes:argmax():item(), n - 5, "its position")
  bytes:narrow(1, n - 5, 1):fill_(pattern(n - 6))
end)
try("cumsum", function()
  local y = bytes:cumsum(1)
  line(y, function(k)
    local whole, rest = (k + 1) // 251, (k + 1) % 251
    return whole * (250 * 251 // 2) + rest * (rest - 1) // 2
  end)
  close(y)
end)
try("flip, roll", function()
  local y = bytes:flip {1}
  line(y, function(k) return pattern(n - 1 - k) end)
  close(y)
  y = bytes:roll({limit - 5}, {1})
  line(y, function(k) return pattern((k - limit + 5) % n) end)
  close(y)
end)
try("cat, pad", function()
  local y = flare.cat({bytes:narrow(1, 1, n - limit // 2), bytes:narrow(1, 1, limit // 2 + 9)}, 1)
  local cut = n - limit // 2
  line(y, function(k) return pattern(k < cut and k or k - cut) end)
  close(y)
  y = bytes:pad {7, 9}
  line(y, function(k) return k < 7 and 0 or k >= n + 7 and 0 or pattern(k - 7) end)
  close(y)
end)
try("index_select, gather, take", function()
  local at = flare.tensor({n, limit + 1, limit, 1, limit // 2 + 1, n - 1},
    {dtype = "i64", device = device})
  local want = {pattern(n - 1), pattern(limit), pattern(limit - 1), 0, pattern(limit // 2),
    pattern(n - 2)}
  for name, y in pairs {index_select = bytes:index_select(1, at), gather = bytes:gather(1, at),
      take = bytes:take(at)} do
    local got = y:tolist()
    for k, v in ipairs(want) do same(got[k], v, name .. " at " .. k) end
  end
end)
try("index_add, scatter_add", function()
  local at = flare.tensor({n, limit + 1, limit, n}, {dtype = "i64", device = device})
  local ones = flare.ones(4, {dtype = "u8", device = device})
  local y = bytes:index_add(1, at, ones)
  line(y, function(k)
    return pattern(k) + (k == n - 1 and 2 or (k == limit or k == limit - 1) and 1 or 0)
  end)
  local z = bytes:scatter_add(1, at, ones)
  assert(y:eq(z):all():item(), "they differ")
  close(y, z)
end)
try("copy of a transposed view", function()
  local width = 1021
  local rows = n // width
  local y = bytes:narrow(1, 1, rows * width):reshape(rows, width):transpose(1, 2):contiguous()
  line(y:reshape(rows * width), function(k) return pattern(k % rows * width + k // rows) end)
  close(y)
end)
try("add of a transposed view", function()
  local width = 1021
  local rows = n // width
  local a = bytes:narrow(1, 1, rows * width)
  local y = a:reshape(rows, width):transpose(1, 2) + a:reshape(width, rows)
  line(y:reshape(rows * width), function(k)
    return (pattern(k % rows * width + k // rows) + pattern(k)) % 256
  end)
  close(y)
end)
try("sum over rows, over columns", function()
  local width = 1 << 12
  local rows = n // width
  local a = bytes:narrow(1, 1, rows * width):reshape(rows, width)
  local down, along = a:sum {1}, a:sum {2}
  same(down:sum():item(), a:sum():item(), "all columns")
  same(along:sum():item(), a:sum():item(), "all rows")
  local want = 0
  for k = 0, width - 1 do want = want + pattern((rows - 1) * width + k) end
  same(along[rows]:item(), want, "the last row")
  close(down, along)
end)
try("sort", function()
  local y, at = bytes:sort()
  local each, more = n // 251, n % 251
  line(y, function(k)
    local value = k < (each + 1) * more and k // (each + 1) or (k - more) // each
    return value
  end)
  same(at[1]:item(), 1, "the first position")
  same(bytes:narrow(1, at[n]:item(), 1):item(), 250, "what is at the last position")
  close(y, at)
end)
bytes:close()

local wide = table_of(1024, "bf16")
local index = flare.arange(1, 1025, 1, on):flip {1}:unsqueeze(1)
local second = wide:narrow(1, 2, 1):contiguous()
local scale = flare.ones(1024, {device = device, dtype = "bf16"})
local function graded(f) -- its gradient towards x, where all results count alike
  return function(a)
    local leaf = a:detach():requires_grad_(true)
    local y = f(leaf)
    return (table.unpack(table.pack(flare.grad(y, {leaf}, {gradient = {flare.core.ops.mul(
      a:detach(), 0.5)}}))))
  end
end
local by_line = {
  {"softmax", function(a) return a:softmax(2) end},
  {"layer_norm", function(a) return (flare.layer_norm(a)) end},
  {"rms_norm", function(a) return (flare.rms_norm(a, scale)) end},
  {"cumsum of rows", function(a) return a:cumsum(2) end},
  {"cumprod of rows", function(a) return a:gt(0):cumprod(2) end},
  {"cummax of rows", function(a) return select(2, a:cummax(2)) end},
  {"gelu", function(a) return a:gelu() end},
  {"mul by a row", function(a) return a * second end},
  {"lerp of three", function(a) return flare.lerp(a, second, 0.25) end},
  {"argmax of rows", function(a) return a:argmax(2) end},
  {"topk of rows", function(a) return select(2, a:topk(3)) end},
  {"sort of rows", function(a) return (a:sort(2)) end},
  {"var of rows", function(a) return a:var {2} end},
  {"any of rows", function(a) return a:gt(15.5):any {2}:to "i64" end},
  {"logsumexp of rows", function(a) return a:logsumexp {2} end},
  {"masked_fill", function(a) return a:masked_fill(second:gt(4), -1) end},
  {"gather of rows", function(a) return a:gather(2, index:expand(a.shape[1], 1024)) end},
  {"index_select of columns", function(a) return a:index_select(2, index[1]) end},
  {"tril of matrices", function(a) return a:reshape(a.shape[1], 32, 32):tril() end},
  {"repeat of rows", function(a) return a:narrow(2, 1, 512):tile {1, 2} end},
  {"max_pool", function(a)
    return (flare.max_pool(a:reshape(a.shape[1], 1, 32, 32), {2, 2}))
  end},
  {"avg_pool", function(a) return flare.avg_pool(a:reshape(a.shape[1], 1, 32, 32), {3, 3}) end},
  {"group_norm", function(a)
    return (flare.group_norm(a:reshape(a.shape[1], 64, 16), nil, nil, {groups = 8}))
  end},
  {"cross_entropy", function(a)
    return (flare.cross_entropy(a, flare.ones(a.shape[1], {device = device, dtype = "i64"}) * 7,
      {reduction = "none"}))
  end},
  {"softmax backward", graded(function(a) return a:softmax(2) end)},
  {"layer_norm backward", graded(function(a) return (flare.layer_norm(a)) end)},
  {"gelu backward", graded(function(a) return a:gelu() end)},
}
for _, one in ipairs(by_line) do
  try(one[1], function()
    local y = one[2](wide)
    lines(y, wide, one[2], 1024)
    close(y)
  end)
end
try("dropout", function()
  local y = flare.dropout(wide, 0.5)
  local tail = y:narrow(1, limit // 1024, 4)
  local kept = tail:ne(0)
  assert(tail:eq(flare.where(kept, wide:narrow(1, limit // 1024, 4) * 2, 0)):all():item(),
    "what is kept is not twice x")
  local part = kept:to "f32":mean():item()
  assert(part > 0.4 and part < 0.6, "kept: " .. part)
  close(y)
end)
try("rfft of rows", function()
  local y = flare.rdft(wide:narrow(1, 1, wide.shape[1] // 2 * 2):reshape(-1, 2048))
  lines(y, wide:narrow(1, 1, wide.shape[1] // 2 * 2):reshape(-1, 2048), flare.rdft, 2048)
  close(y)
end)
try("softmax down", function()
  local y = wide:softmax(1)
  local sums = y:to "f32":sum {1}
  assert((sums - 1):abs():amax():item() < 0.01, "columns do not sum to 1")
  close(y, sums)
end)
wide:close()
try("embedding", function()
  local weight = table_of(4096, "bf16")
  local rows = weight.shape[1]
  local at = flare.tensor({rows, limit // 4096 + 1, limit // 4096, 1},
    {dtype = "i64", device = device})
  local y = flare.embedding(weight, at)
  for k, row in ipairs(at:tolist()) do
    assert(y[k]:eq(weight[row]):all():item(), "row " .. row)
  end
  close(weight, y)
end)
try("matmul", function()
  local rows = math.ceil(limit ^ 0.5) + 77
  local a = table_of(64, "bf16"):narrow(1, 1, rows):contiguous()
  local y = a:matmul(a:transpose(1, 2))
  local last = a:narrow(1, rows - 3, 4)
  local got = y:narrow(1, rows - 3, 4):narrow(2, rows - 99, 100):to "f32"
  local want = last:to "f64":matmul(a:narrow(1, rows - 99, 100):to "f64":transpose(1, 2))
  assert(((got - want):abs() / want):amax():item() < 0.01, "the last rows are wrong")
  assert(y[rows][rows]:item() > 0 and y[1][rows]:item() > 0, "an empty corner")
  close(a, y)
end)
try("conv", function()
  local images = table_of(4096, "bf16"):reshape(-1, 4, 32, 32)
  local kernel = flare.ones({8, 4, 3, 3}, {device = device, dtype = "bf16"}) / 8
  local y = flare.conv(images, kernel, {padding = {1}})
  for _, first in ipairs {limit // 4096 - 2, images.shape[1] - 3} do
    local want = flare.conv(images:narrow(1, first, 4):to "f32", kernel:to "f32", {padding = {1}})
    local off = ((y:narrow(1, first, 4) - want):abs() / (want:abs() + 1)):amax():item()
    assert(off < 0.02, ("images from %d are off by %g"):format(first, off))
  end
  close(images, y)
end)
try("backward of mul and sum", function()
  local leaf = flare.empty({n}, {device = device, dtype = "bf16"}):fill_(2)
  leaf.requires_grad = true
  local y = (leaf * leaf):sum()
  y:backward()
  line(leaf.grad, function() return 4.0 end)
end)
try("rand", function()
  local y = flare.rand({n}, {device = device, dtype = "bf16"})
  local tail = y:narrow(1, limit + 1, 4000)
  assert(tail:to "f32":var():item() > 0.05, "the tail varies too little")
  assert(not tail:eq(y:narrow(1, 1, 4000)):all():item(), "the tail repeats the beginning")
  close(y)
end)

print(("%d failed, %.1f s"):format(failed, flare.clock() - began))
print(failed == 0 and "PASS" or "FAIL")
os.exit(failed == 0 and 0 or 1)
