--- References of LU, of Householder's reflections and of the pivoted Cholesky factor: what their
-- results must be, with reference/linalg.lua's tools.
local A = require "spec.support.array"
local M = require "spec.support.matrix"

local abs = math.abs

return function(R)
  local tools = R._parts
  R._parts = nil
  local last, near, every, fits, led, room, solutions, orthonormal = tools.last, tools.near,
    tools.every, tools.fits, tools.led, tools.room, tools.solutions, tools.orthonormal

  -- The parts of factors: l with ones on its diagonal, and u.
  local function parts(f, columns)
    local l, u = {}, {}
    for i = 1, #f do
      l[i] = {}
      for j = 1, math.min(#f, columns) do l[i][j] = j < i and f[i][j] or j == i and 1 or 0 end
      if i <= columns then
        u[i] = {}
        for j = 1, columns do u[i][j] = j >= i and f[i][j] or 0 end
      end
    end
    return l, u
  end

  -- Whether rows x[order] are l u, with no element of l above 1 and each row once.
  local function is_lu(x, l, u, order, dtype)
    local rows, seen = {}, {}
    for i, k in ipairs(order) do
      rows[i] = x[k]
      if not rows[i] or seen[k] then return false, "row " .. k .. " is not there once" end
      seen[k] = true
      for _, v in ipairs(l[i]) do
        if abs(v) > 1 + room[dtype] then return false, "an element of l is above 1" end
      end
    end
    return near(M.mul(l, u, #u), rows, dtype, "l u")
  end

  function R.lu_factor(a)
    local m, n = last(a.x, 1), last(a.x)
    local factors
    return {
      function(got)
        factors = got
        return fits(got, led(a.x, m, n))
      end,
      function(order)
        local ok, why = fits(order, led(a.x, m))
        if not ok or m == 0 or n == 0 then return ok, why end
        return every(a.x, function(b)
          local l, u = parts(M.of(factors, b), n)
          return is_lu(M.of(a.x, b), l, u, M.of(order, b, 1, m)[1], factors.dtype)
        end)
      end,
    }
  end

  function R.lu(a)
    local m, n = last(a.x, 1), last(a.x)
    local k, p, l = math.min(m, n), nil, nil
    return {
      function(got)
        p = got
        return fits(p, led(a.x, m, m))
      end,
      function(got)
        l = got
        return fits(l, led(a.x, m, k))
      end,
      function(u)
        local ok, why = fits(u, led(a.x, k, n))
        if not ok or m == 0 or n == 0 then return ok, why end
        return every(a.x, function(b)
          local order, of_p, of_l, of_u = {}, M.of(p, b), M.of(l, b), M.of(u, b)
          for i = 1, m do
            for j = 1, m do
              if of_p[i][j] == 1 then order[j] = i end
            end
          end
          local l1, u1 = parts(of_l, k), select(2, parts(of_u, n))
          for i = 1, m do for j = 1, k do
            if of_l[i][j] ~= l1[i][j] then return false, "l is no unit triangle" end
          end end
          for i = 1, k do for j = 1, n do
            if of_u[i][j] ~= u1[i][j] then return false, "u is no triangle" end
          end end
          return is_lu(M.of(a.x, b), of_l, of_u, order, u.dtype)
        end)
      end,
    }
  end

  function R.lu_solve(a)
    local n, number = last(a.factors), -1
    local x = M.each(a.factors, {n, n}, function(f)
      number = number + 1
      local l, u = parts(f, n)
      local rows, product = {}, M.mul(l, u, n, n)
      for i = 1, n do rows[a.order[number * n + i]] = product[i] end
      return rows
    end)
    return solutions(x, a.b, function(y) return y end)
  end

  -- The product of I - tau v v^T, with the vectors below the diagonal.
  local function reflections(x, tau)
    local m = #x
    local q = M.eye(m)
    for j = 1, #tau do
      local h = M.eye(m)
      for i = j, m do
        for k = j, m do
          h[i][k] = h[i][k] - tau[j] * (i == j and 1 or x[i][j]) * (k == j and 1 or x[k][j])
        end
      end
      q = M.mul(q, h)
    end
    return q
  end

  function R.geqrf(a)
    local m, n = last(a.x, 1), last(a.x)
    local k, x = math.min(m, n), nil
    return {
      function(got)
        x = got
        return fits(x, led(a.x, m, n))
      end,
      function(tau)
        local ok, why = fits(tau, led(a.x, k))
        if not ok or m == 0 or n == 0 then return ok, why end
        return every(a.x, function(b)
          local f, of_tau, r = M.of(x, b), M.of(tau, b, 1, k)[1], {}
          for i = 1, m do
            r[i] = {}
            for j = 1, n do r[i][j] = j >= i and f[i][j] or 0 end
          end
          local q = reflections(f, of_tau)
          ok, why = orthonormal(q, x.dtype)
          if not ok then return ok, why end
          return near(M.mul(q, r), M.of(a.x, b), x.dtype, "q r")
        end)
      end,
    }
  end

  local function taus(a, b)
    local k = last(a.tau)
    return M.of(a.tau, b, 1, k)[1] or {}
  end

  function R.householder_product(a)
    local m, n, number = last(a.x, 1), last(a.x), -1
    return M.each(a.x, {m, n}, function(x)
      number = number + 1
      local q = reflections(x, taus(a, number))
      for i = 1, m do q[i] = {table.unpack(q[i], 1, n)} end
      return q
    end)
  end

  -- What matrix number b of all is in x, whose leading dims broadcast.
  local function at(x, lead, index)
    local frame = {shape = {table.unpack(x.shape, 1, #x.shape - 2)}}
    local k = {}
    for d = 1, #frame.shape do
      k[d] = math.min(index[#lead - #frame.shape + d], frame.shape[d])
    end
    return A.place(frame, k) - 1
  end

  function R.ormqr(a)
    local rows, columns = last(a.c, 1), last(a.c)
    local lead = A.broadcast({table.unpack(a.x.shape, 1, #a.x.shape - 2)},
                             {table.unpack(a.c.shape, 1, #a.c.shape - 2)})
    local list = {}
    A.each(lead, function(index)
      local q = reflections(M.of(a.x, at(a.x, lead, index)), taus(a, at(a.x, lead, index)))
      if a.transpose then q = M.turn(q) end
      local c = M.of(a.c, at(a.c, lead, index))
      local y = a.left == false and M.mul(c, q) or M.mul(q, c, rows, columns)
      for i = 1, rows do for j = 1, columns do list[#list + 1] = y[i][j] end end
    end)
    local shape = A.copy_list(lead)
    shape[#shape + 1], shape[#shape + 2] = rows, columns
    return A.new(shape, list, "f64")
  end

  -- The textbook's, with the largest element left on the diagonal each time.
  function R.cholesky_pivoted(a)
    local n, dtype = last(a.x), a.x.dtype
    local ls, orders, ranks = {}, {}, {}
    local shape = {table.unpack(a.x.shape, 1, #a.x.shape - 2)}
    for b = 0, M.count(a.x) - 1 do
      local x = M.of(a.x, b)
      local order, l, rank, tol = {}, M.scale(M.eye(n), 0), 0, a.tol
      for i = 1, n do order[i] = i end
      for i = 1, n do
        for j = 1, i - 1 do
          if a.upper then x[i][j] = x[j][i] else x[j][i] = x[i][j] end
        end
      end
      for k = 1, n do
        local p = k
        for i = k + 1, n do if x[i][i] > x[p][p] then p = i end end
        tol = tol or n * (dtype == "f64" and 2 ^ -53 or 2 ^ -24) * x[p][p]
        if x[p][p] <= tol then break end
        order[k], order[p], x[k], x[p], l[k], l[p] = order[p], order[k], x[p], x[k], l[p], l[k]
        for i = 1, n do x[i][k], x[i][p] = x[i][p], x[i][k] end
        rank = k
        l[k][k] = math.sqrt(x[k][k])
        for i = k + 1, n do
          l[i][k] = x[i][k] / l[k][k]
          for j = k + 1, n do x[i][j] = x[i][j] - l[i][k] * x[k][j] / l[k][k] end
        end
      end
      if a.upper then l = M.turn(l, n) end
      for i = 1, n do
        orders[#orders + 1] = order[i]
        for j = 1, n do ls[#ls + 1] = l[i][j] end
      end
      ranks[#ranks + 1] = rank
    end
    return {A.new(a.x.shape, ls, "f64"), A.new(led(a.x, n), orders, "i64"),
      A.new(shape, ranks, "i64")}
  end
end
