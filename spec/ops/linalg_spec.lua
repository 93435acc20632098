-- Linear algebra.
local flare = require "flare"
local peers = require "spec.support.peers_data"
local tree = require "spec.support.tree"

require "spec.support.declare"("linalg", describe, it)

local function tensor(a, dtype)
  return flare.tensor(a, {dtype = "f64"}):reshape(a.shape):to(dtype or "f64")
end

local function near(got, want, dtype)
  want = tensor(want)
  assert.equal(tostring(want.shape), tostring(got.shape))
  local room = (dtype == "f32" and 2e-5 or 1e-12) * (1 + want:abs():max():item())
  local off = (got:to "f64" - want):abs():max():item()
  assert(off <= room, ("off by %g"):format(off))
end

describe("linear algebra", function()
  for k, case in ipairs(peers) do
    for _, d in ipairs {"f64", "f32"} do
      it(("gives what NumPy and SciPy give, case %d in %s"):format(k, d), function()
        local x, b = tensor(case.x, d), tensor(case.b, d)
        near(x:svdvals(), case.s, d)
        near(x:pinv(), case.pinv, d)
        near(flare.lstsq(x, b), case.lstsq, d)
        near(select(2, x:qr()):abs(), case.r, d)
        near(x:matrix_norm "nuc", case.nuc, d)
        near(x:matrix_norm "2", case.two, d)
        assert.equal(case.rank[1], x:matrix_rank():item())
        if not case.inv then return end
        local spd = x:matmul(x:transpose(1, 2)) + flare.eye(x.shape[1], {dtype = d})
        near(x:inv(), case.inv, d)
        near(flare.solve(x, b), case.solve, d)
        near(x:det(), case.det, d)
        near(select(2, x:slogdet()), case.logdet, d)
        near(x:matrix_exp(), case.expm, d)
        near(spd:cholesky(), case.cholesky, d)
        near(spd:eigvalsh(), case.eigvalsh, d)
        near(x:matrix_power(3), case.power, d)
        local w = x:eig_pairs():tolist()
        local eps = 1e-4 -- of one pair the real parts may differ in the last bit
        table.sort(w, function(u, v)
          if math.abs(u[1] - v[1]) > eps then return u[1] < v[1] end
          return u[2] < v[2]
        end)
        near(flare.tensor(w, {dtype = "f64"}), case.eigvals, d)
      end)
    end
  end

  it("does a matrix of a batch as it does it alone", function()
    local x = flare.randn{300, 5, 5}
    local inv, s = x:inv(), x:svdvals()
    for _, k in ipairs {1, 77, 300} do
      assert.equal(0, (inv[k] - x[k]:inv()):abs():max():item())
      assert.equal(0, (s[k] - x[k]:svdvals()):abs():max():item())
    end
  end)

  it("gives the cofactors as the gradient of the determinant of a singular matrix", function()
    local x = flare.tensor({{1, 2, 3}, {4, 5, 6}, {7, 8, 9}}, {dtype = "f64", requires_grad = true})
    x:det():backward()
    near(x.grad, {shape = {3, 3}, -3, 6, -3, 6, -12, 6, -3, 6, -3})
    x = flare.tensor({{{1, 2}, {2, 4}}, {{1, 2}, {3, 5}}}, {dtype = "f64", requires_grad = true})
    local g = flare.grad(x:det():sum(), {x}, {create_graph = true})
    near(g, {shape = {2, 2, 2}, 4, -2, -2, 1, 5, -3, -2, 1})
    near(flare.grad(g:square():sum(), {x}), {shape = {2, 2, 2}, 2, 4, 4, 8, 2, 4, 6, 10})
  end)

  it("leaves NaN where nothing can be computed, and says where that cannot be", function()
    local bad = flare.full({2, 2}, 0 / 0)
    for _, name in ipairs {"inv", "det", "matrix_exp"} do
      assert.is_true(flare.core.ops[name](bad):isnan():all():item(), name)
    end
    for _, name in ipairs {"svd", "eigh", "eig_pairs", "pinv", "cholesky"} do
      assert.error_matches(function() flare.core.ops[name](bad) end, name .. ": the matrix")
    end
  end)

  it("names the matrix of a batch that is singular", function()
    local x = flare.stack {flare.eye(2), flare.eye(2), flare.ones{2, 2}}
    assert.error_matches(function() x:inv() end, "inv: matrix 3 of the batch is singular: pivot 2")
    assert.error_matches(function() flare.solve(x, flare.ones{2, 1}) end, "matrix 3 of the batch")
  end)

  it("says what to install where there is no LAPACK", function()
    local text = tree.output("FLARE_LAPACK=/none/liblapack.so.3 " .. tree.build
      .. "/flare -e 'print(pcall(require(\"flare\").inv, require(\"flare\").eye(2)))' 2>&1")
    assert.matches("inv: needs LAPACK, and FLARE_LAPACK does not open", text)
  end)
end)
