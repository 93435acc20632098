-- flare.explain: which kernels a plan has, with their operators and the user's lines, the bytes
-- that they move, why they are not fewer, and memory over time. The profiler knows these kernels.
local flare = require "flare"
local nn = flare.nn

local here = debug.getinfo(1, "S").short_src

local function line() return debug.getinfo(2, "l").currentline end

local function sorted(list)
  table.sort(list)
  return list
end

-- The operators that kernel k holds, those computed again apart, as two sorted lists.
local function operators(k)
  local own, again = {}, {}
  for _, x in ipairs(k.launches) do table.insert(x.again and again or own, x.op) end
  return sorted(own), sorted(again)
end

-- What holds of every explanation.
local function check(e)
  for i, k in ipairs(e.kernels) do
    assert.equal(i, k.number)
    assert.is_true(k.read >= 0 and k.written >= 0 and k.read + k.written == k.bytes)
    assert.is_true(k.kept >= 0 and k.kept <= k.written)
    assert.is_true(k.time >= 0 and k.live > 0 and k.peak >= k.live)
    assert.is_true(#k.apart > 0 and not k.apart:find "%%")
    assert.is_true(k.from ~= i and (not k.from or e.kernels[k.from] ~= nil))
    for _, x in ipairs(k.launches) do
      assert.equal(here, x.line:match "^(.*):%d+$", k.operators .. ": " .. x.line)
    end
  end
  local text = tostring(e)
  assert.truthy(text:find(("^%d launches in %d kernel"):format(e.launches, #e.kernels)))
  for _, k in ipairs(e.kernels) do assert.truthy(text:find(k.operators, 1, true), k.operators) end
  return e, text
end

describe("an explanation", function()
  before_each(function() flare.manual_seed(1) end)

  it("shows one kernel of a chain, with its lines, bytes and FLOPs", function()
    local first = line() + 2
    local function gelu(x)
      local inner = x + x * x * x * 0.044715
      return x * 0.5 * (1 + (inner * 0.7978845608):tanh())
    end
    local e, text = check(flare.explain(gelu, flare.randn(64, 128)))
    assert.equal(1, #e.kernels)
    local k = e.kernels[1]
    assert.equal("fused pointwise", k.kind)
    assert.same({"add", "add", "mul", "mul", "mul", "mul", "mul", "mul", "tanh"}, (operators(k)))
    assert.same({here .. ":" .. first, here .. ":" .. first + 1}, sorted(k.lines))
    assert.truthy(text:find(("%s:%d-%d"):format(here, first, first + 1), 1, true))
    assert.equal(64 * 128 * 4, k.read)
    assert.equal(64 * 128 * 4, k.written)
    assert.equal(k.written, k.kept) -- it is returned
    assert.equal(9 * 64 * 128, k.flops)
    assert.equal(9, e.eager.launches)
    -- four operators of two tensors, four of a tensor and a number, tanh
    assert.equal((4 * 3 + 5 * 2) * 64 * 128 * 4 + 4 * 8, e.eager.bytes)
    assert.equal(e.kernels[1].bytes, e.bytes)
  end)

  it("numbers the kernels of all windows, on a device that runs behind the host, too", function()
    for _, device in ipairs {"cpu", "sim:0"} do
      local e, text = check(flare.explain(function(x)
        local y = (x * 2 + 1):tanh()
        if y:sum():item() > 1e9 then return y end
        return (y * y):softmax(-1), (y:sum(1) + 1):sqrt()
      end, flare.randn(64, 128, {device = device})))
      local second
      for i, k in ipairs(e.kernels) do
        assert.equal(device, k.device)
        assert.equal(device == "cpu", k.floor ~= nil)
        for _, x in ipairs(k.launches) do second = second or x.op == "softmax" and i end
      end
      -- what follows item() is a plan of its own, whose kernels are apart from each other
      assert.equal("no kernel of the call computes what it reads", e.kernels[second].apart)
      for i = second + 1, #e.kernels do assert.is_true(e.kernels[i].from >= second) end
      assert.is_true(e.kernels[1].kept > 0)
      assert.equal(device, e.memory.device)
      assert.truthy(text:find("memory: at most %S+ %S+ on " .. device))
    end
  end)

  it("tells launches that do not run", function()
    local e, text = check(flare.explain(function(x)
      local unused = (x * 3):matmul(x)
      unused:close()
      return x:exp() + x:exp()
    end, flare.randn(8, 8)))
    assert.same({"add", "exp"}, (operators(e.kernels[1])))
    assert.equal(1, #e.kernels)
    assert.equal(3, e.dropped)
    assert.truthy(text:find "^2 launches in 1 kernel; 3 more do not run")
    assert.equal("0 launches in 0 kernels", tostring(flare.explain(function() end)):match "^[^\n]*")
  end)

  it("lists the kernels of each chunk", function()
    local w = flare.randn(4096, 64)
    local f = flare.compile(function(x, t)
      return flare.cross_entropy(flare.linear(x, w), t)
    end, {chunk = 1 << 20})
    local e = check(flare.explain(f, flare.randn(512, 64), flare.randint(1, 4096, {512})))
    local products, flops = 0, 0
    for _, k in ipairs(e.kernels) do
      if k.kind == "product" then products, flops = products + 1, flops + k.flops end
    end
    assert.equal(512 * 4096 * 4 / (1 << 20), products)
    assert.equal(2 * 512 * 4096 * 64, flops)
    assert.is_true(e.memory.peak < e.eager.peak)
  end)

  it("runs as often as its page says", function()
    local calls = 0
    flare.explain(function(x)
      calls = calls + 1
      return x + 1
    end, flare.ones(2))
    local page = assert(io.open "docs/compile.md"):read "a"
    assert.equal(tonumber(page:match "calls f (%d+) times"), calls)
  end)

  it("refuses what it cannot run", function()
    assert.error_matches(function() flare.explain(flare.ones(2)) end,
      "explain: expected a function or a module, got a tensor")
    assert.error_matches(function() flare.explain(function() error "no luck" end) end, "no luck")
    assert.is_true(flare.explain(function(x) return x + 1 end, flare.ones(2)).bytes > 0)
  end)
end)

-- A whole step: loss, backward and optimizer.
local function step_of(net, loss_of)
  local opt = flare.optim.AdamW(net:parameters(), {lr = 1e-3})
  return function(...)
    opt:zero_grad()
    local loss = loss_of(net, ...)
    loss:backward()
    opt:step()
    return loss
  end
end

local function mean_square(net, x, y)
  return (net(x) - y):square():mean()
end

local function kinds(e)
  local count = {}
  for _, k in ipairs(e.kernels) do count[k.kind] = (count[k.kind] or 0) + 1 end
  return count
end

-- Kernels that hold the operator.
local function holders_of(e, op)
  local list = {}
  for _, k in ipairs(e.kernels) do
    for _, x in ipairs(k.launches) do
      if x.op == op then
        list[#list + 1] = k
        break
      end
    end
  end
  return list
end

local function has(k, names)
  for name in names:gmatch "%S+" do
    local found = false
    for _, x in ipairs(k.launches) do found = found or x.op == name end
    assert.is_true(found, k.operators .. " has no " .. name)
  end
end

-- The elements of an XML document, which must be well-formed: a list of {name, text}.
local function elements(text)
  local open, list, at = {}, {}, 1
  while true do
    local from, to, close, name, attributes, empty = text:find("<(/?)([%a][%w]*)(.-)(/?)>", at)
    local between = text:sub(at, (from or #text + 1) - 1)
    assert(not between:find "[<>]" and not between:gsub("&%a+;", ""):gsub("&#%d+;", ""):find "&",
      between)
    if open[1] then open[#open].text = open[#open].text .. between end
    if not from then break end
    assert(attributes:gsub('%s+[%a:-]+="[^"<&]*"', "") == "", attributes)
    if close == "/" then
      assert.equal(name, assert(table.remove(open)).name)
    else
      list[#list + 1] = {name = name, text = ""}
      if empty == "" then open[#open + 1] = list[#list] end
    end
    at = to + 1
  end
  assert.equal(0, #open)
  return list
end

describe("an explained step", function()
  before_each(function() flare.manual_seed(1) end)

  it("of an MLP has the products alone and the rest in fused kernels", function()
    local net = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
    local opt = flare.optim.Adam(net:parameters(), {lr = 0.1})
    local at = line()
    local step = flare.compile(function(x, y)
      opt:zero_grad()
      local d = net(x) - y
      local loss = d:square():mean()
      loss:backward()
      opt:step()
      return loss
    end)
    local e = check(flare.explain(step, flare.randn(32, 8), flare.randn(32, 1)))
    local products = 0
    for _, k in ipairs(e.kernels) do
      if k.kind == "product" then
        products = products + 1
        assert.equal(here .. ":" .. at + 3, k.lines[1])
      end
    end
    assert.equal(5, products)
    assert.is_true(#e.kernels <= 11)
    assert.equal(15, e.launches)
    local loss = holders_of(e, "mean")[1]
    has(loss, "sub square mean square_backward")
    assert.equal("fused reduction", loss.kind)
    assert.same({here .. ":" .. at + 3, here .. ":" .. at + 4}, sorted(loss.lines))
    -- predictions, targets and the gradient of the loss; the loss, the predictions' gradient and
    -- that of the last bias
    assert.equal(4 * (32 + 32 + 1), loss.read)
    assert.equal(4 * (32 + 1 + 1), loss.written)
    assert.equal(4 * (1 + 1), loss.kept)
    local adam = holders_of(e, "adam_step")
    assert.equal(1, #adam)
    assert.equal(here .. ":" .. at + 6, adam[1].lines[1])
    local again = select(2, operators(holders_of(e, "tanh_backward")[1]))
    assert.same({"tanh"}, again)
  end)

  it("of a GPT block has the products and attention alone", function()
    local Block = flare.class("Block", nn.Module)
    function Block:init(d)
      self.n1, self.n2, self.qkv = nn.LayerNorm(d), nn.LayerNorm(d), nn.Linear(d, 3 * d)
      self.out, self.up, self.down = nn.Linear(d, d), nn.Linear(d, 4 * d), nn.Linear(4 * d, d)
    end
    function Block:forward(x)
      local b, t, d = x:size(1), x:size(2), x:size(3)
      local q, k, v = table.unpack(self.qkv(self.n1(x)):view(b, t, 12, d // 4):transpose(2, 3)
        :chunk(3, 2))
      local y = flare.attention(q, k, v, {causal = true}):transpose(2, 3):reshape(b, t, d)
      x = x + self.out(y)
      return x + self.down(self.up(self.n2(x)):gelu())
    end
    local x = flare.randn(2, 16, 32)
    local e = check(flare.explain(step_of(Block(32), mean_square), x, flare.randn(2, 16, 32)))
    local count = kinds(e)
    assert.equal(2, count.attention)
    assert.equal(4 + 8, count.product)
    assert.is_true(#e.kernels <= 29 and #e.kernels < e.eager.launches)
    has(holders_of(e, "layer_norm")[2], "add layer_norm") -- the residual and the norm of the sum
    has(holders_of(e, "mean")[1], "add sub square mean square_backward")
    local attention = holders_of(e, "attention")[1]
    assert.equal(3 * 2 * 16 * 32 * 4 + 2 * 8, attention.read) -- and two numbers, for dropout
    -- scores of 2 x 4 heads with 8 features each, twice; half of them are masked
    assert.equal(2 * 2 * 2 * 4 * 16 * 16 * 8 / 2, attention.flops)
  end)

  it("of a ResNet block, channels-last, has the convolutions alone", function()
    local Block = flare.class("Block", nn.Module)
    function Block:init(c)
      self.c1, self.c2 = nn.Conv2d(c, c, 3, {padding = 1}), nn.Conv2d(c, c, 3, {padding = 1})
      self.b1, self.b2 = nn.BatchNorm2d(c), nn.BatchNorm2d(c)
    end
    function Block:forward(x)
      return (self.b2(self.c2(self.b1(self.c1(x)):relu())) + x):relu()
    end
    local layout = {layout = "channels_last"}
    local x = flare.randn(2, 8, 8, 8):to(layout)
    local e = check(flare.explain(step_of(Block(8):to(layout), mean_square), x,
      flare.randn(2, 8, 8, 8):to(layout)))
    local count = kinds(e)
    assert.equal(5, count.convolution)
    assert.is_true(#e.kernels <= 15)
    has(holders_of(e, "mean")[1], "square mean square_backward relu_backward")
    has(holders_of(e, "sub")[1], "batch_norm add relu sub")
    -- forward: x by weights of 8 x 8 x 3 x 3, and the bias
    local conv = e.kernels[1]
    assert.equal("conv", conv.operators)
    assert.equal(4 * (2 * 8 * 8 * 8 + 8 * 8 * 9 + 8), conv.read)
    assert.equal(4 * 2 * 8 * 8 * 8, conv.written)
    assert.equal(2 * 2 * 8 * 8 * 8 * 8 * 9, conv.flops)
  end)

  it("of an LSTM tells what runs in each time step", function()
    local e = check(flare.explain(step_of(nn.LSTM(8, 16), function(net, x)
      return net(x):square():mean()
    end), flare.randn(4, 3, 8)))
    assert.equal(4, #holders_of(e, "lstm_cell"))
    assert.equal(4, #holders_of(e, "lstm_cell_backward"))
    assert.is_true(#e.kernels <= 38 and #e.kernels < e.eager.launches)
  end)

  it("of attention written by hand has softmax in one kernel", function()
    local function attention(q, k, v, mask)
      local scores = q:matmul(k:transpose(-1, -2)) * 0.25
      scores = scores:masked_fill(mask, -1e9)
      scores = scores - scores:amax(-1, true)
      local p = scores:exp()
      return (p / p:sum(-1, true)):matmul(v)
    end
    local q, k, v = flare.randn(4, 32, 16), flare.randn(4, 32, 16), flare.randn(4, 32, 16)
    local mask = flare.ones(32, 32):triu(1):to "bool"
    local e, text = check(flare.explain(attention, q, k, v, mask))
    assert.equal(3, #e.kernels)
    assert.equal(9, e.launches)
    local softmax = e.kernels[2]
    assert.same({"amax", "div", "exp", "mul", "sub", "sum", "where"}, (operators(softmax)))
    assert.equal("fused reduction", softmax.kind)
    assert.equal(4 * 4 * 32 * 32 + 32 * 32, softmax.read) -- scores and mask
    assert.equal(4 * 4 * 32 * 32, softmax.written)
    assert.equal(1, softmax.from)
    assert.equal("the operator has a kernel of its own", e.kernels[3].apart)
    assert.equal("it reads the result of kernel 1, which takes no other operators", softmax.apart)
    assert.truthy(text:find("takes no other operators: 2 (1)", 1, true))
  end)
end)

describe("an explanation's", function()
  local net, x, made, e
  before_each(function()
    flare.manual_seed(1)
    net = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 64))
    x, made = flare.randn(128, 64), line()
    e = flare.explain(net, x)
  end)

  it("peak of memory is the allocator's", function()
    local run = flare.core.compiled(net, false, true)
    for _ = 1, 3 do run(x) end
    collectgarbage()
    flare.memory.reset_peak()
    run(x)
    assert.equal(flare.memory.stats().peak, e.memory.peak)
    assert.equal(e.memory.peak, e.kernels[e.memory.kernel].peak)
    for i, k in ipairs(e.kernels) do assert.equal(k.live, e.memory[i]) end
    local held = {}
    for _, h in ipairs(e.memory.holders) do held[h.line] = h.bytes end
    assert.equal("32.8 KB", held[here .. ":" .. made])
  end)

  it("runs leave the allocator's peak as it was, or higher", function()
    local big = flare.empty(1 << 20)
    big:close()
    local before = flare.memory.stats().peak
    flare.explain(net, x)
    assert.is_true(flare.memory.stats().peak >= before)
  end)

  it("picture is well-formed and has every kernel with its lines", function()
    local list = elements(e:svg())
    assert.equal("svg", list[1].name)
    local titles, texts = {}, {}
    for _, item in ipairs(list) do
      if item.name == "title" then titles[#titles + 1] = item.text end
      if item.name == "text" then texts[item.text] = true end
    end
    assert.equal(2 * #e.kernels, #titles) -- in bars and in the chart of memory
    for i, k in ipairs(e.kernels) do
      assert.truthy(titles[i]:find(k.launches[1].line, 1, true))
      assert.is_true(texts[k.operators])
    end
    local path = os.tmpname()
    assert.is_true(e:svg(path))
    local file = assert(io.open(path))
    assert.equal(e:svg(), file:read "a")
    file:close()
    os.remove(path)
    local ok, message = e:svg "/nowhere/plan.svg"
    assert.is_nil(ok)
    assert.truthy(message:find "/nowhere/plan.svg")
  end)

  it("text says why compile would not use the plan", function()
    local other = flare.compile(net)
    for k = 1, 70 do other(flare.randn(k, 64)) end
    assert.is_true(flare.compile_stats(other).off)
    e = flare.explain(other, x)
    assert.equal("no call was like an earlier one", e.off)
    assert.truthy(tostring(e):find "does not use this plan: no call was like an earlier one")
    assert.equal(3, #e.kernels)
  end)
end)

describe("the profiler", function()
  it("tells the operators and lines of a fused kernel", function()
    local at = line()
    local f = flare.compile(function(x)
      local y = x * 2
      return (y + 1):tanh()
    end, {exact = true})
    local x = flare.randn(64)
    for _ = 1, 3 do f(x) end
    local report = flare.profile(f, x)
    assert.equal(1, report.count)
    local r = report:row(1)
    assert.equal("mul+add+tanh", r.op)
    assert.equal(("%s:%d-%d"):format(here, at + 2, at + 3), r.line)
    assert.same({"mul", "add", "tanh"}, {r.step[1].op, r.step[2].op, r.step[3].op})
    assert.equal(2 * 64 * 4, r.bytes)
    assert.equal("mul+add+tanh", report:sums("op")[1].name)
  end)
end)
