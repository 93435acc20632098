-- Launches around a large intermediate value run chunk by chunk in a compiled function: values and
-- gradients are those of the function itself, and the value is never in memory as a whole.
local flare = require "flare"
local rows = require "spec.support.rows"
local tree = require "spec.support.tree"
local F = flare.nn.functional

local N, D, V = 40, 16, 96

local function near(want, got, eps, what)
  assert(want.shape == got.shape and want.dtype == got.dtype, what)
  local w, g = want:to "f64", got:to "f64"
  local scale = 1e-30 + (w:numel() > 0 and w:abs():nan_to_num():max():item() or 0)
  for _, v in ipairs{w, g} do assert.equal(w:ne(w):sum():item(), v:ne(v):sum():item(), what) end
  local off = w:numel() == 0 and 0 or (w - g):nan_to_num():abs():max():item() / scale
  assert(off <= eps, ("%s differs by %g of its size"):format(what, off))
end

-- Runs `step` as it is and compiled; what it returns and the gradients of `leaves` are compared,
-- and that the plan has so many chunks (nil: some).
local function compare(step, leaves, o)
  o = o or {}
  local function results()
    for _, t in ipairs(leaves) do t.grad = nil end
    local list = {step()}
    for _, t in ipairs(leaves) do list[#list + 1] = t.grad:clone() end
    return list
  end
  local want = results()
  local f = flare.compile(step, {chunk = o.chunk == nil and V * 4 * 8 or o.chunk})
  step = f
  for _ = 1, 3 do
    for k, got in ipairs(results()) do near(want[k], got, o.eps or 1e-5, "result " .. k) end
  end
  local chunks = flare.compile_stats(f).chunks
  if o.chunks then assert.equal(o.chunks, chunks)
  else assert(chunks > 1, (o.what or "it") .. " has no chunks") end
end

-- What is made of y, (N, V), in chunks of rows, for each row with a rule of its own.
local programs = {
  matmul = function(y, w, x)
    local three, few = y:view(5, 8, V), x[{{}, {1, 3}}]
    return y:matmul(w), few:t():matmul(y), y:t():matmul(few), y:matmul(w[{{}, 1}]),
      three:matmul(w), three:matmul(w:expand(5, V, D)), x[{{}, 1}]:matmul(y)
  end,
  linear = function(y, w, x)
    return F.linear(y, w:t()), F.linear(y, w:t(), w[1]), F.linear(y, w:t(), w[1], "gelu"),
      F.linear(x[{{}, {1, 3}}]:t(), y:t()), F.linear(y:view(5, 8, V), w:t(), nil, "relu")
  end,
  cross_entropy = function(y, _, _, t)
    local three = y:view(8, 5, V):transpose(2, 3)
    return F.cross_entropy(y, t), F.cross_entropy(y, t, {reduction = "sum"}),
      F.cross_entropy(y, t, {reduction = "none"}), F.cross_entropy(y, y:softmax(2)),
      F.cross_entropy(three, t:view(8, 5), {label_smoothing = 0.1})
  end,
  argmax = function(y) return y:argmax(2), y:argmax(2, {keepdim = true}) end,
  argmin = function(y) return y:argmin(2), y:view(5, 8, V):argmin(3) end,
  max_dim = function(y) return y:max(2) end,
  min_dim = function(y) return y:min(2) end,
  sum = function(y) return y:sum(), y:sum(1), y:sum(2), y:sum({1, 2}, {keepdim = true}) end,
  log_softmax = function(y) return y:log_softmax(2):sum(1) end,
}

-- Rows with the mark FL_SPLIT, but for gradients, which other rows' programs have.
local function split_rows()
  local list = {}
  for _, path in ipairs(tree.files("runtime/ops", ".def")) do
    local text = tree.read(path)
    for row in text:gmatch "\nFL_SPLIT%((%l[%w_]*)," do
      if not row:find "_backward$" then list[#list + 1] = row end
    end
  end
  assert(#list > 6)
  return list
end

for _, device in ipairs(rows.devices) do
  describe("chunks on " .. device, function()
    local x, w, b, t
    local function data(dtype, n)
      flare.manual_seed(1)
      local o = {device = device, dtype = dtype}
      x = flare.randn(n or N, D, o):requires_grad_()
      w = flare.randn(V, D, o):requires_grad_()
      b = flare.randn(V, o):requires_grad_()
      t = flare.range(1, n or N, {dtype = "i64", device = device}) * 7 % V + 1
    end
    before_each(function() data() end)

    local function head(opts, bias)
      return function()
        local loss = F.cross_entropy(F.linear(x, w, bias), t, opts)
        if loss.ndim > 0 then loss = loss:sum() end
        loss:backward()
        return loss
      end
    end

    it("take the loss of a linear layer and its gradients", function()
      compare(head(nil, nil), {x, w}, {chunks = 5})
      compare(head(nil, b), {x, w, b}, {chunks = 5})
      compare(head({reduction = "sum"}, b), {x, w, b})
      compare(head({reduction = "none"}, b), {x, w, b})
    end)

    it("are right for every row that can be done in parts", function()
      for _, row in ipairs(split_rows()) do assert(programs[row], row .. " has no program here") end
      for row, program in pairs(programs) do
        local function run(use)
          return flare.no_grad(function() return use(F.linear(x, w), w, x, t) end)
        end
        local count = select("#", run(program))
        for k = 1, count do -- one result each, so that none spoils the others' chunks
          compare(function()
            return run(function(...) return (select(k, program(...))) end)
          end, {}, {eps = 1e-4, what = row .. " " .. k})
        end
      end
    end)

    it("are not made where they are not wanted", function()
      compare(head(nil, b), {x, w, b}, {chunk = false, chunks = 0})
      for bad, named in pairs {[true] = "true", [-1] = "%-1", [1.5] = "1.5", all = '"all"'} do
        assert.error_matches(function() flare.compile(head(), {chunk = bad}) end,
          'chunk must be a number of bytes, text such as "20GiB", or false, got ' .. named)
      end
    end)

    it("end with a shorter one", function()
      data("f32", 37)
      compare(head(nil, b), {x, w, b}, {chunks = 5})
    end)

    it("keep to ignored targets, class weights and label smoothing", function()
      t[3], t[17], t[40] = -100, -100, -100
      local weight = flare.rand(V, {device = device}) + 0.5
      for _, reduction in ipairs{"mean", "sum", "none"} do
        compare(head({reduction = reduction, label_smoothing = 0.1}, b), {x, w, b})
        compare(head({reduction = reduction, weight = weight}, b), {x, w, b})
        compare(head({reduction = reduction, weight = weight, label_smoothing = 0.2}), {x, w})
      end
    end)

    it("have no loss where all targets are ignored", function()
      t:fill_(-100)
      local function loss() return F.cross_entropy(F.linear(x, w), t) end
      compare(function() return flare.no_grad(loss) end, {}) -- nan
      compare(head{reduction = "sum"}, {x, w})
    end)

    it("take probabilities as targets", function()
      t = flare.randn(N, V, {device = device}):softmax(2)
      for _, reduction in ipairs{"mean", "sum", "none"} do
        compare(head({reduction = reduction, label_smoothing = 0.1}, b), {x, w, b})
      end
    end)

    it("take f64 and 16-bit floats, whose sums are f32", function()
      data "f64"
      compare(head(nil, b), {x, w, b}, {eps = 1e-12, chunk = V * 8 * 8})
      data("bf16", 1024)
      compare(head(nil, b), {x, w, b}, {eps = 2e-2})
    end)

    it("pass gradients on that are scaled, and numbers that change", function()
      local scale = 3.0
      compare(function()
        local loss = F.cross_entropy(F.linear(x, w, b) * scale, t) * 1024
        loss:backward()
        return loss
      end, {x, w, b})
      local function loss(k) return F.cross_entropy(F.linear(x, w) * k, t) end
      local f = flare.compile(loss, {chunk = V * 4 * 8})
      for k = 1, 4 do assert.near(loss(k / 4):item(), f(k / 4):item(), 1e-4) end
      assert.equal(1, flare.compile_stats(f).plans)
    end)

    it("go through views, matmul, casts and autocast", function()
      x = flare.randn(5, N / 5, D, {device = device}):requires_grad_()
      compare(function()
        local loss = F.cross_entropy(F.linear(x, w, b):reshape(-1, V), t)
        loss:backward()
        return loss
      end, {x, w, b}, {chunks = 5})
      compare(function()
        local loss = F.cross_entropy((x:view(N, D):matmul(w:t()) + b):to "f64", t)
        loss:backward()
        return loss
      end, {x, w, b}, {chunk = V * 8 * 8})
      compare(function()
        local loss = flare.autocast("bf16", function()
          return F.cross_entropy(F.linear(x, w, b):view(-1, V), t)
        end)
        loss:backward()
        return loss
      end, {x, w, b}, {eps = 2e-2, chunk = V * 2 * 8})
    end)

    it("hold what is read elsewhere, along rows, or none are made", function()
      compare(function()
        local logits = F.linear(x, w, b)
        local loss = F.cross_entropy(logits, t)
        loss:backward()
        return loss, logits:argmax(2):eq(t):to("f32"):mean()
      end, {x, w, b})
      compare(function() -- kept
        local logits = F.linear(x, w, b)
        local loss = F.cross_entropy(logits, t)
        loss:backward()
        return loss, logits
      end, {x, w, b}, {chunks = 0})
      compare(function() -- the whole is needed before the gradient
        local logits = F.linear(x, w, b)
        local loss = F.cross_entropy(logits / logits:abs():max(), t)
        loss:backward()
        return loss
      end, {x, w, b}, {chunks = 0})
    end)

    it("take several losses, and one that depends on itself row by row", function()
      local v = flare.randn(V, D, {device = device}):requires_grad_()
      compare(function()
        local one = F.cross_entropy(F.linear(x, w, b), t)
        local two = F.cross_entropy(F.linear(x * 2, v), t, {label_smoothing = 0.1})
        local loss = one + two * 0.3
        loss:backward()
        return loss
      end, {x, w, b, v})
      compare(function()
        local each = F.cross_entropy(F.linear(x, w, b), t, {reduction = "none"})
        local loss = ((1 - (-each):exp()):square() * each):mean()
        loss:backward()
        return loss
      end, {x, w, b})
    end)

    it("leave steps right that update what they read", function()
      local function train(compiled)
        data()
        local opt = flare.optim.AdamW({x, w, b}, {lr = 0.01})
        local function step()
          opt:zero_grad()
          local loss = F.cross_entropy(F.linear(x, w, b), t)
          loss:backward()
          flare.optim.clip_grad_norm_({x, w, b}, 1)
          opt:step()
          return loss
        end
        local f = compiled and flare.compile(step, {chunk = V * 4 * 8}) or step
        local losses = {}
        for k = 1, 8 do losses[k] = f():item() end
        if compiled then assert.equal(5, flare.compile_stats(f).chunks) end
        return losses
      end
      local want, got = train(false), train(true)
      for k = 1, 8 do assert.near(want[k], got[k], 1e-4) end
    end)

    it("raise what a kernel finds in values", function()
      local function loss(at) return F.cross_entropy(F.linear(x, w), at) end
      local f = flare.compile(loss, {chunk = V * 4 * 8})
      local bad = t:clone()
      bad[29] = 1000
      for _ = 1, 3 do
        assert.error_matches(function() f(bad):item() end, "1000 is out of range")
        assert.near(loss(t):item(), f(t):item(), 1e-4)
      end
    end)

    it("bound the memory of a step", function()
      local rows_, classes, chunk = 2048, 1024, 1024 * 4 * 128
      x = flare.randn(rows_, D, {device = device}):requires_grad_()
      w = flare.randn(classes, D, {device = device}):requires_grad_()
      t = flare.range(1, rows_, {dtype = "i64", device = device}) % classes + 1
      local f = flare.compile(function()
        x.grad, w.grad = nil, nil
        local loss = F.cross_entropy(F.linear(x, w), t)
        loss:backward()
        return loss
      end, {chunk = chunk})
      local function peak()
        collectgarbage()
        collectgarbage()
        flare.memory.reset_peak(device)
        local before = flare.memory.stats(device).live
        local loss = f()
        local most = flare.memory.stats(device).peak - before
        assert(loss:item() > 0)
        return most
      end
      local whole = 0
      for _ = 1, 3 do whole = math.max(whole, peak()) end
      local most = peak()
      local gradients = (rows_ + classes) * D * 4
      -- one chunk, of logits and then their gradient; gradients; and odds and ends
      assert(whole > 2 * rows_ * classes * 4, whole)
      -- products order their operands, or add up parts of their sums
      local scratch = device:find "^sim" and 2 ^ 17 or 2 ^ 20
      assert(most < chunk + gradients + scratch, most - chunk - gradients)
      assert.equal(16, flare.compile_stats(f).chunks)
    end)
  end)
end
