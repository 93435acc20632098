--- GPTQ (arXiv:2210.17323): columns are rounded one after the other, and the error of each is made
-- up for by those that are still to come, as far as the inputs correlate.
local core = require "flare.core"
local grid = require "flare.quantize.grid"

local BLOCK = 128 -- columns between updates of all columns behind them

-- U with U^T U the inverse of the inputs' products, whose diagonal is raised by `damp` of its mean.
local function factor(h, damp)
  local diagonal = h:diagonal()
  diagonal:add_(diagonal:mean():item() * damp)
  return h:cholesky():cholesky_inverse():cholesky{upper = true}:to "f32"
end

-- Rounds columns first..last, which are rows of w; returns what each is off, in units of the
-- diagonal of u.
local function round_block(w, u, first, last, state, o)
  local errors, diagonal = {}, u:diagonal():narrow(1, first, last - first + 1):tolist()
  for c = first, last do
    if (c - 1) % o.group == 0 then
      local k = #state.scales + 1
      local scales, zeros = grid.params(w:narrow(1, c, o.group):t(), o)
      state.scales[k], state.zeros[k] = scales, zeros
    end
    local scales, zeros = state.scales[#state.scales], state.zeros[#state.scales]
    local q = grid.round(w[c], scales, zeros, o.bits)
    local off = (w[c] - grid.value(q, scales, zeros, o.bits)) / diagonal[c - first + 1]
    state.q[c], errors[#errors + 1] = q, off
    if c < last then
      w:narrow(1, c + 1, last - c):sub_(u[c]:narrow(1, c + 1, last - c):unsqueeze(2) * off)
    end
  end
  return core.stack(errors, 1)
end

--- Rounds a weight (rows, columns), f32, so that its products with the inputs change little.
-- @param h the sum of the products of the inputs' columns, (columns, columns)
-- @param o {bits =, group =, symmetric =, dtype = of the scales, damp =, act_order = whether
--   columns come in the order of their inputs' size, the largest first}
-- @return what grid.nearest gives and, with act_order, `order`: the column that comes first, ...
return function(weight, h, o)
  local columns = weight.shape[2]
  h = h:to "f64"
  local silent = h:diagonal():eq(0) -- inputs that were always 0
  h = h + core.diag(silent:to "f64")
  local w = weight:masked_fill(silent:unsqueeze(1), 0):t():contiguous()
  local order
  if o.act_order then
    order = h:diagonal():argsort{descending = true}
    w, h = w:index_select(1, order), h:index_select(1, order):index_select(2, order)
  end
  local u = factor(h:contiguous(), o.damp)
  local state = {q = {}, scales = {}, zeros = {}}
  for first = 1, columns, BLOCK do
    local last = math.min(first + BLOCK - 1, columns)
    local errors = round_block(w, u, first, last, state, o)
    if last < columns then
      local ahead = u:narrow(1, first, last - first + 1):narrow(2, last + 1, columns - last)
      w:narrow(1, last + 1, columns - last):sub_(ahead:t():matmul(errors))
    end
  end
  local zeros = #state.zeros > 0 and core.stack(state.zeros, 2) or nil
  local out = grid.packed(core.stack(state.q, 2), core.stack(state.scales, 2), zeros, o)
  out.order = order
  return out
end
