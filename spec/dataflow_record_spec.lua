-- Recordings of steps, and replays on changed machines: times worked out by hand.
local flare = require "flare"
local dataflow, nn = flare.dataflow, flare.nn

-- Products reach half of 1 TFLOP/s (4 in bf16), copies all of 1 GB/s, links half of theirs.
local machine = {name = "plain", peak = {f32 = 1e12, bf16 = 4e12}, latency = 1,
  memory = {bytes = 1e12, rate = 1e9},
  links = {host = {rate = 2e6, latency = 3}, peer = {rate = 4e6}},
  efficiency = {product = 0.5, attention = 0.25, memory = 1, link = 0.5, other = 1}}

local function recording()
  return dataflow.recording {name = "step", operators = {
    {name = "matmul", kind = "product", flops = 8e12, bytes = 4e9, dtype = "f32"},      -- 16 + 1
    {name = "gelu", kind = "elementwise", flops = 1e9, bytes = 10e9, dtype = "f32"},    -- 10 + 1
    {name = "attention", kind = "attention", flops = 2e12, bytes = 1e9, dtype = "f32"}, -- 8 + 1
    {name = "small", kind = "elementwise", flops = 0, bytes = 5e8, dtype = "i64"},      -- 0.5 + 1
    {name = "all_reduce", kind = "peer", flops = 0, bytes = 8e6, dtype = "f32"},        -- 4
    {name = "copy to the host", kind = "host", flops = 0, bytes = 2e6, dtype = "f32"},  -- 2 + 3
    {name = "gelu", kind = "elementwise", backward = true, flops = 0, bytes = 2e9,
     dtype = "f32"},                                                                    -- 2 + 1
  }}
end

local function times(opts)
  local list = {}
  local r = recording():replay(machine, opts)
  for k, x in ipairs(r.operators) do list[k] = x.time end
  return list, r
end

describe("a replay", function()
  it("takes the longer of FLOPs and bytes, or the link, and the latency", function()
    local list, r = times()
    assert.same({17, 11, 9, 1.5, 4, 5, 3}, list)
    assert.equal(50.5, r.time)
    local bounds = {}
    for k, x in ipairs(r.operators) do bounds[k] = x.bound end
    assert.same({"compute", "memory", "compute", "latency", "link", "link", "memory"}, bounds)
    assert.same({compute = 26, memory = 14, latency = 1.5, link = 9}, r.bounds)
    assert.near((8 + 0.001 + 2) / 50.5, r.utilisation, 1e-12)
    assert.near(50.5, flare.simulate(recording():schedule(), machine).time, 1e-9)
  end)

  local changes = {
    {"twice the bandwidth of memory", {bandwidth = 2}, {17, 6, 9, 1.25, 4, 5, 2}},
    {"a quarter of it", {bandwidth = 0.25}, {17, 41, 9, 3, 4, 5, 9}},
    {"a matrix unit of twice the size", {matrix = 2}, {9, 11, 5, 1.5, 4, 5, 3}},
    {"one so large that products wait for memory", {matrix = 16}, {5, 11, 2, 1.5, 4, 5, 3}},
    {"twice the compute rate", {compute = 2}, {9, 11, 5, 1.5, 4, 5, 3}},
    {"another link between devices", {peer = 0.016}, {17, 11, 9, 1.5, 1, 5, 3}},
    {"another link to the host", {link = 0.004}, {17, 11, 9, 1.5, 4, 4, 3}},
    {"launches of no time", {latency = 1e-9}, {16, 10, 8, 0.5, 4, 5, 2}},
    {"launches of ten seconds", {latency = 1e7}, {26, 20, 18, 10.5, 4, 5, 12}},
    {"bf16 in place of f32", {dtype = "bf16"}, {5, 6, 3, 1.5, 2, 4, 2}},
    {"an activation that stays on the chip", {on_chip = {"gelu"}}, {17, 1.001, 9, 1.5, 4, 5, 1}},
    {"attention with its keys on the chip", {on_chip = {"attention"}, matrix = 4},
     {5, 11, 3, 1.5, 4, 5, 3}},
    {"bf16, twice the bandwidth and the matrix unit", {dtype = "bf16", bandwidth = 2, matrix = 2},
     {3, 3.5, 2, 1.25, 2, 4, 1.5}},
  }
  for _, change in ipairs(changes) do
    it("on " .. change[1], function()
      local list = times(change[2])
      for k, expected in ipairs(change[3]) do assert.near(expected, list[k], 1e-9) end
    end)
  end

  -- What operators hand to each other: the first linear reads 2e9 + 1e9 bytes and writes 3e9.
  local function flowing()
    local function op(name, kind, flops, bytes, written, reads)
      return {name = name, kind = kind, flops = flops, bytes = bytes, written = written,
              reads = reads, dtype = "f32"}
    end
    return dataflow.recording {operators = {
      op("linear", "product", 4e12, 6e9, 3e9, {{bytes = 2e9}, {bytes = 1e9}}),       -- 8 + 1
      op("gelu", "elementwise", 0, 6e9, 3e9, {{from = 1, bytes = 3e9}}),             -- 6 + 1
      op("linear", "product", 4e12, 5e9, 1e9, {{from = 2, bytes = 3e9}, {bytes = 1e9}}), -- 8 + 1
      op("attention", "attention", 5e11, 4e9, 1e9, {{from = 3, bytes = 1e9}, {bytes = 2e9}}),
      op("add", "elementwise", 0, 9e9, 3e9, {{from = 1, bytes = 3e9}, {from = 4, bytes = 1e9},
        {bytes = 2e9}}),                                                             -- 9 + 1
    }}
  end

  local gb = 1e9 / (1 << 20)
  for name, c in pairs {
    ["as it was"] = {{}, {9, 7, 9, 5, 10}},
    -- the first linear's result is written for add, gelu's is not written at all
    ["streaming dataflow through gelu"] = {{stream = {"linear", "gelu"}}, {9, 1, 9, 5, 10}},
    ["streaming dataflow through all of it"] =
      {{stream = {"linear", "gelu", "attention", "add"}}, {9, 1, 9, 3, 6}},
    ["a cache for attention"] = {{cached = {"attention"}}, {9, 7, 9, 3, 10}},
    -- add reads the first linear's result after 15e9 bytes of others
    ["an SRAM of 3e9 bytes"] = {{sram = 3 * gb}, {9, 4, 9, 4, 9}},
    ["one of 17e9 bytes"] = {{sram = 17 * gb}, {9, 4, 9, 4, 9}},
    ["one of 18e9 bytes"] = {{sram = 18 * gb}, {9, 4, 9, 4, 6}},
    ["a matrix unit of 8 TFLOP/s in bf16"] = {{unit = {bf16 = 8}, dtype = "bf16"},
      {4, 4, 3.5, 3, 5.5}},
    ["a new matrix unit for fp8"] = {{unit = {fp8 = 16}, dtype = "fp8"},
      {2.5, 2.5, 2.25, 2, 3.25}},
    ["a matrix unit for f32 alone"] = {{unit = {f32 = 4}}, {7, 7, 6, 5, 10}},
  } do
    it("with data on the chip, " .. name, function()
      local r = flowing():replay(machine, c[1])
      for k, expected in ipairs(c[2]) do assert.near(expected, r.operators[k].time, 1e-9) end
    end)
  end

  it("moves all bytes of operators whose tensors are not known", function()
    assert.same({17, 11, 9, 1.5, 4, 5, 3}, (times {stream = {"gelu", "matmul"}, sram = 1e6,
      cached = {"attention"}}))
  end)

  it("sums by name, and has a text", function()
    local _, r = times()
    local sums = r:sums()
    assert.equal("matmul", sums[1].name)
    assert.equal("gelu (backward)", sums[6].name)
    local text = tostring(r)
    assert.match("^step on plain: 50.5 s for 7 operators, of the peak 19.8 %%\n"
      .. "bound by compute 51.5 %%, memory 27.7 %%, latency 3.0 %%, link 17.8 %%\n", text)
    assert.match("\nmatmul +1 +17 s +33.7 %% compute +8 T +3.73 GiB +%-\n", text)
  end)

  it("draws the roofline", function()
    local _, r = times()
    local picture = r:svg()
    local points = 0
    for x, y in picture:gmatch '<circle cx="([%d.]+)" cy="([%d.]+)"' do
      points = points + 1
      assert.truthy(tonumber(x) >= 80 and tonumber(x) <= 880 and tonumber(y) >= 60)
    end
    assert.equal(3, points) -- the operators that have FLOPs
    assert.match("matmul: 1 calls, 17 s, 33.7 %% of the time, bound by compute, 471 GFLOP/s",
      picture)
    -- the ridge: 1 TFLOP/s and 1 GB/s meet at 1000 FLOP a byte, half of six decades from 0.1
    local ridge = picture:match 'L([%d.]+) [%d.]+" stroke="#222"'
    local low, high = 0.1, 10000 -- the operators lie at 0.1, 2000 and 2000
    local share = math.log(1000 / low, 10) / math.log(high / low, 10)
    assert.near(80 + share * 800, tonumber(ridge), 0.1)
  end)

  it("draws a roofline without points, if no operator computes", function()
    local copies = dataflow.recording {operators = {{name = "copy", kind = "elementwise", flops = 0,
      bytes = 1e9}}}
    assert.falsy(copies:replay(machine):svg():find("<circle", 1, true))
    local none = dataflow.recording {operators = {}}:replay(machine)
    assert.equal(0, none.time)
    assert.match("^step on plain: 0 us for 0 operators", tostring(none))
    assert.match("</svg>\n$", none:svg())
  end)

  it("says what it does not know", function()
    assert.error_matches(function() times {bandwith = 2} end,
      "unknown figure 'bandwith' %(did you mean 'bandwidth'%?%)")
    assert.error_matches(function() times {dtype = "bf8"} end, "unknown dtype 'bf8'")
    assert.error_matches(function() times {stream = {"geluu"}} end,
      "stream: no operator has the name 'geluu' %(did you mean 'gelu'%?%)")
    assert.error_matches(function() times {cached = "gelu"} end,
      "cached must be a list of operators' names")
    assert.error_matches(function() times {sram = 0} end, "sram must be a number of MiB above 0")
    assert.error_matches(function() times {unit = 3} end, "unit must be a table, got number")
    assert.error_matches(function() times {unit = {bf16 = -1}} end,
      "unit.bf16 must be a number above 0")
    assert.error_matches(function()
      dataflow.recording {operators = {{name = "x", kind = "product", flops = 0, bytes = 1,
        written = 1, reads = {{from = 1, bytes = 2}}}}}
    end, "operators%[1%].reads must be a list of {from = an earlier operator's position")
    assert.error_matches(function() dataflow.recording {operators = {{name = "x"}}} end,
      "operators%[1%].kind must be a string, got nil")
    assert.is_nil((dataflow.recording "/dev/null/step.json"))
  end)
end)

describe("a recording", function()
  it("of a compiled function has its kernels", function()
    local layer = nn.Linear(64, 64)
    local function f(x) return ((layer(x) + 1):tanh() * x):sum() end
    local x = flare.randn(32, 64)
    local explained = flare.explain(f, x)
    local r = dataflow.recording(explained)
    assert.equal(#explained.kernels, #r.operators)
    assert.equal(explained.bytes, r.bytes)
    local fused
    for k, op in ipairs(r.operators) do
      assert.equal(explained.kernels[k].operators, op.name)
      fused = fused or op.name:find("tanh", 1, true) and op
    end
    assert.equal(fused.name:find "linear" and "product" or "elementwise", fused.kind)
    -- fewer bytes than the plain function, so less time where memory is the limit
    local slow = {name = "slow", peak = {f32 = 1e15}, memory = {bytes = 1e9, rate = 1e6}}
    assert.truthy(r:replay(slow).time < flare.record(f, x):replay(slow).time)
  end)

  it("has the operators of the second call with their FLOPs and bytes", function()
    local model = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 32))
    local optimizer = flare.optim.AdamW(model, {lr = 1e-3})
    local x, calls = flare.randn(16, 64), 0
    local r = flare.record(function(scale)
      calls = calls + 1
      optimizer:zero_grad()
      local loss = (model(x) * scale):square():mean()
      loss:backward()
      optimizer:step()
      return loss
    end, 2)
    assert.equal(2, calls)
    assert.truthy(flare.is_tensor(r.results[1]))
    local products, steps = 0, 0
    for _, op in ipairs(r.operators) do
      if op.kind == "product" then products = products + op.flops end
      if op.name == "adam_step" then steps = steps + 1 end
    end
    -- two layers forward, three products backward: there is no gradient for x
    local one, two = 2 * 16 * 64 * 256, 2 * 16 * 256 * 32
    assert.equal(2 * one + 3 * two, products)
    assert.equal(1, steps)
    assert.match("^Recording%(step on cpu, %d+ operators%)$", tostring(r))
    -- parameters, gradients and two states, at least
    assert.truthy(r.peak >= 4 * 4 * (64 * 256 + 256 + 256 * 32 + 32))

    -- a report of the profiler has the same operators
    local report = flare.profile(function() model(x):square():mean():backward() end)
    local reported = dataflow.recording(report)
    assert.equal(report.count, #reported.operators)
    assert.near(2 * one + 3 * two, (function()
      local sum = 0
      for _, op in ipairs(reported.operators) do
        if op.kind == "product" then sum = sum + op.flops end
      end
      return sum
    end)(), 1)

    local path = os.tmpname()
    finally(function() os.remove(path) end)
    assert(r:save(path))
    local again = assert(dataflow.recording(path))
    assert.equal(r:replay("h100").time, again:replay("h100").time)
    local file <close> = io.open(path, "w")
    file:write "[1, 2"
    file:flush()
    local none, message = dataflow.recording(path)
    assert.is_nil(none)
    assert.equal(path .. ": this is no recording of flare.record", message)
  end)
end)

describe("what operators hand to each other", function()
  local function record()
    local first, second = nn.Linear(64, 256), nn.Linear(256, 32)
    local x = flare.ones(16, 64)
    return flare.record(function()
      local _ <close> = flare.no_grad()
      local y = first(x):view(2, 8, 256):gelu()
      return second(y:view(16, 256)) + 1
    end)
  end

  it("is recorded, views included", function()
    for _, r in ipairs {record(), flare.meta(record)} do
      local names, from = {}, {}
      for k, op in ipairs(r.operators) do
        names[k], from[k] = op.name, op.reads[1].from or 0
      end
      assert.same({"linear", "gelu", "linear", "add"}, names)
      assert.same({0, 1, 2, 3}, from)
      assert.same({16 * 256 * 4, 16 * 256 * 4, 16 * 32 * 4, 16 * 32 * 4}, {r.operators[1].written,
        r.operators[2].written, r.operators[3].written, r.operators[4].written})
      assert.same({{bytes = 16 * 64 * 4}, {bytes = 64 * 256 * 4}, {bytes = 256 * 4}},
        r.operators[1].reads)
      local path = os.tmpname()
      finally(function() os.remove(path) end)
      assert(r:save(path))
      local plain, streamed = r:replay "h100", r:replay("h100", {stream = {"linear", "gelu"}})
      assert.equal(streamed.time,
        assert(dataflow.recording(path)):replay("h100", {stream = {"linear", "gelu"}}).time)
      local saved = 0
      for k, op in ipairs(plain.operators) do
        saved = saved + op.bytes - streamed.operators[k].bytes
      end
      assert.equal(4 * 16 * 256 * 4, saved) -- two results, each written and read
    end
  end)

  it("is that of the last operator that wrote a tensor in place", function()
    local x = flare.ones(10)
    local r = flare.record(function()
      local y = x * 2
      y:add_(1)
      return y:exp()
    end)
    assert.same({0, 1, 2}, {r.operators[1].reads[1].from or 0, r.operators[2].reads[1].from,
      r.operators[3].reads[1].from})
  end)
end)

describe("a recording in meta mode", function()
  it("has the operators of a step that runs, at no cost of time or memory", function()
    local function record(width)
      local model = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, 8))
      local optimizer = flare.optim.AdamW(model, {lr = 1e-3})
      local x = flare.ones(16, width)
      return flare.record(function()
        optimizer:zero_grad()
        model(x):square():mean():backward()
        optimizer:step()
      end)
    end
    local real = record(64)
    local meta = flare.meta(record, 64)
    assert.equal("full", table.remove(meta.operators, 6).name) -- the gradient of the loss
    assert.equal(#real.operators, #meta.operators)
    for k, op in ipairs(real.operators) do
      local other = meta.operators[k]
      assert.same({op.name, op.kind, op.flops, op.bytes, op.dtype, op.backward},
        {other.name, other.kind, other.flops, other.bytes, other.dtype, other.backward})
    end
    -- two products forward and three backward
    local large, products = flare.meta(record, 1 << 17), 0
    for _, op in ipairs(large.operators) do
      if op.kind == "product" then products = products + op.flops end
    end
    local width = 1 << 17
    assert.equal(2 * 16 * (2 * width * 4 * width + 3 * 4 * width * 8), products)
  end)
end)

describe("transformers as layers", function()
  it("have the FLOPs and the activations of a model that runs", function()
    local model = flare.models.LlamaForCausalLM {vocab_size = 512, hidden_size = 64,
      intermediate_size = 160, num_hidden_layers = 3, num_attention_heads = 8,
      num_key_value_heads = 4, tie_word_embeddings = false}
    local layers = dataflow.transformer({layers = 3, width = 64, heads = 8, kv_heads = 4,
      inner = 160, vocabulary = 512, gated = true}, {batch = 2, length = 96, dtype = "f32"})
    local count = 0
    for _, p in ipairs(model:parameters()) do count = count + p:nbytes() // 4 end
    assert.equal(count, layers.count + 64) -- but for the final norm

    local ids = flare.ones(2, 96, {dtype = "i64"})
    local function loss(out, targets) -- logits, or a table that has them
      local logits = type(out) == "table" and out.logits or out
      return flare.cross_entropy(logits:reshape {-1, 512}, targets:reshape {-1})
    end
    local recorded, formula = {}, {}
    local r = flare.record(function()
      for _, p in ipairs(model:parameters()) do p.grad = nil end
      loss(model(ids), ids):backward()
    end)
    for _, op in ipairs(r.operators) do
      local key = op.kind .. (op.backward and " backward" or "")
      recorded[key] = (recorded[key] or 0) + op.flops
    end
    local saved = 0
    for _, layer in ipairs(layers) do
      saved = saved + layer.saved
      for _, pass in ipairs {"forward", "backward", "weights"} do
        for _, cost in ipairs(layer[pass]) do
          local key = cost.kind .. (pass == "forward" and "" or " backward")
          formula[key] = (formula[key] or 0) + (cost.flops or 0)
        end
      end
    end
    assert.equal(recorded.product, formula.product)
    assert.equal(recorded["product backward"], formula["product backward"])
    -- the record counts half of all pairs, the layers half and the diagonal
    assert.near(recorded.attention * 97 / 96, formula.attention, 1)
    assert.near(recorded["attention backward"] * 97 / 96, formula["attention backward"], 1)

    local f = flare.fits(model, {batch = 2, optimizer = false, loss = loss,
      input = function(batch) return flare.ones(batch, 96, {dtype = "i64"}) end, probes = {1, 2}})
    assert.near(1, saved / f.activations, 0.1)
  end)
end)
