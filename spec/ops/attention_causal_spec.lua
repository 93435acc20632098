-- A causal mask is aligned at the lower right: the last query sees all keys, as decoding with a
-- cache needs. Against scores written out in f64, of lengths that kernels divide differently.
local flare = require "flare"
local rows = require "spec.support.rows"

local tolerance = {f64 = 1e-11, f32 = 3e-5, f16 = 5e-3, bf16 = 3e-2}

-- Head size, heads of q to one of k, options.
local kinds = {{64}, {128, 2}, {40, 1, mask = true}, {256}, {300}, {64, 2, scale = -0.2}}

-- Queries that see no key give 0.
local function written_out(q, k, v, scale, mask)
  local group, nq, nk = q:size(2) // k:size(2), q:size(3), k:size(3)
  k, v = k:repeat_interleave(group, 2), v:repeat_interleave(group, 2)
  local seen = flare.ones(nq, nk):tril(nk - nq):gt(0)
  if mask then seen = seen:logical_and(mask) end
  local scores = (q:matmul(k:transpose(3, 4)) * scale):masked_fill(seen:logical_not(), -1e300)
  return scores:softmax(-1):masked_fill(seen:logical_not(), 0):matmul(v)
end

local function leaves(t, device, dtype)
  local x = {}
  for i = 1, 3 do
    x[i] = t[i]:to(device):to(dtype):clone()
    x[i].requires_grad = true
  end
  return x
end

local function all(y, x, dy) return {y:detach(), flare.grad((y * dy):sum(), x)} end

local function check(device, dtype, nq, nk, kind)
  local g, d, group = flare.generator(5), kind[1], kind[2] or 1
  local function draw(...) return flare.randn({...}, {generator = g}):to(dtype) end
  local t = {draw(1, 2 * group, nq, d), draw(1, 2, nk, d), draw(1, 2, nk, d)}
  local dy = draw(1, 2 * group, nq, d)
  local mask = kind.mask and flare.rand({nq, nk}, {generator = g}):gt(0.2)
  local exact = leaves(t, "cpu", "f64")
  local want = all(written_out(exact[1], exact[2], exact[3], kind.scale or d ^ -0.5, mask), exact,
                   dy:to("f64"))
  local x = leaves(t, device, dtype)
  local y = flare.attention(x[1], x[2], x[3], mask and mask:to(device),
                            {causal = true, scale = kind.scale})
  for i, got in ipairs(all(y, x, dy:to(device):to(dtype))) do
    local off = (got:to("cpu"):to("f64") - want[i]):abs():max():item()
    -- with one key the gradients of scores are nothing but rounding
    local most = tolerance[dtype] * math.max(1e-3, want[i]:abs():max():item())
    assert(off <= most, ("result %d of size %d, %d queries, %d keys: off by %g, not %g")
      :format(i, d, nq, nk, off, most))
  end
  local blind = nq - nk
  if blind > 0 then
    assert.equal(0, y:narrow(3, 1, blind):abs():max():item())
  end
end

describe("causal attention with as many keys as you like", function()
  for _, device in ipairs(rows.devices) do
    for _, dtype in ipairs {"f64", "f32", "bf16"} do
      it(("lets the last query see all, %s in %s"):format(device, dtype), function()
        for n, kind in ipairs(kinds) do
          for i, nq in ipairs {1, 7, 64, 100, 150, 300} do
            for j, nk in ipairs {64, 100, 129, 256, 512} do
              if device:find "cuda" or (i + j + n) % 7 == 0 then
                check(device, dtype, nq, nk, kind)
              end
            end
          end
        end
      end)
    end
  end

  it("gives the same gradients where they are written out", function()
    for _, c in ipairs {{5, 9}, {9, 5}} do
      local t = {flare.randn(1, 2, c[1], 4), flare.randn(1, 2, c[2], 4), flare.randn(1, 2, c[2], 4)}
      local x = leaves(t, "cpu", "f64")
      local y = flare.attention(x[1], x[2], x[3], {causal = true})
      local dy = flare.randn(y.shape):to("f64")
      local loss = (y * dy):sum()
      local fused = {flare.grad(loss, x, {retain_graph = true})}
      local plain = {flare.grad(loss, x, {create_graph = true})}
      for i = 1, 3 do
        assert.is_true((fused[i] - plain[i]):abs():max():item() < 1e-12)
      end
    end
  end)

  it("decodes token by token what one call gives", function()
    local q, k, v = flare.randn(1, 2, 6, 8), flare.randn(1, 2, 6, 8), flare.randn(1, 2, 6, 8)
    local whole = flare.attention(q, k, v, {causal = true})
    for first = 1, 6, 2 do
      local n = first + 1
      local some = flare.attention(q:narrow(3, first, 2), k:narrow(3, 1, n), v:narrow(3, 1, n),
                                   {causal = true})
      assert.is_true((some - whole:narrow(3, first, 2)):abs():max():item() < 1e-6)
    end
  end)

  it("holds for the weights of a layer, too", function()
    local layer = flare.nn.MultiHeadAttention(4, 2, {causal = true})
    local w = layer:weights(flare.randn(1, 2, 4), flare.randn(1, 5, 4))
    assert.same({0, 0, 0, 0}, {w[{1, 1, 1, 5}]:item(), w[{1, 2, 1, 5}]:item(), 0, 0})
    assert.is_true(w[{1, 1, 2, 5}]:item() > 0 and w[{1, 1, 1, 4}]:item() > 0)
  end)
end)
