--- Backward cut in two, for zero-bubble pipelines: the gradients of inputs at once, those of the
-- weights of linear layers later. A linear layer computes with its weight detached, so that
-- backward gives the gradient of its input alone; a tap behind it notes the input and the gradient
-- of the output, whose product is the weight's gradient. Gradients of biases, norms and embeddings
-- take no products and come at once.
local class = require "flare.class"
local core = require "flare.core"
local layers = require "flare.dist.parallel.layers"
local Linear = require "flare.nn.linear"

local M = {}

local acts = {
  none = function(y) return y end, relu = core.relu, gelu = core.gelu, silu = core.silu,
  gelu_tanh = function(y) return core.gelu(y, "tanh") end, tanh = core.tanh,
  sigmoid = core.sigmoid,
}

-- Passes y on, and in backward notes {weight, input, gradient of y} in the list in use.
local tap = core.func{
  name = "note_weight_gradient",
  forward = function(ctx, y, x, weight, book)
    ctx.x, ctx.weight, ctx.book = x:detach(), weight, book
    return y:view(y.shape)
  end,
  backward = function(ctx, dy)
    local list = ctx.book.list
    list[#list + 1] = {ctx.weight, ctx.x, dy}
    return dy, nil, nil, nil
  end,
}

--- Lets the linear layers of a module note the gradients of their weights in book.list.
-- @param module @param book {list = a list}
function M.defer(module, book)
  for _, layer in ipairs(module:modules()) do
    local row = class.is(layer, layers.RowLinear)
    local plain = getmetatable(layer) == Linear
    if row or plain or class.is(layer, layers.ColumnLinear) then
      rawset(layer, plain and "forward" or "product", function(self, x)
        local w = self.weight
        if not (w.requires_grad and core.grad_enabled()) then
          return core.linear(x, w, not row and self.bias or nil, row and "none" or self.act)
        end
        local y = core.linear(x, w:detach(), not row and self.bias or nil)
        return acts[row and "none" or self.act](tap(y, x, w, book))
      end)
    end
  end
end

--- Computes the gradients that were noted, and adds them to those of the weights.
function M.finish(list)
  local _ <close> = core.no_grad()
  for _, entry in ipairs(list) do
    local weight, x, dy = table.unpack(entry)
    local gradient = dy:reshape(-1, dy:size(-1)):t():matmul(x:reshape(-1, x:size(-1)):to(dy.dtype))
    gradient = gradient:to(weight.dtype)
    if weight.grad then weight.grad:add_(gradient) else weight.grad = gradient end
  end
end

return M
