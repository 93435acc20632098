-- Schemes: times, bubbles and memory as the formulas of their papers and sums by hand say.
local flare = require "flare"
local dataflow = flare.dataflow

-- Links that take no time count for nothing here: layers have no output, or little.
local unit = {name = "unit", peak = {f32 = 1e12}, memory = {bytes = 1e6, rate = 1e12},
  host = {rate = 1e12}, links = {host = {rate = 100}, peer = {rate = 100}},
  efficiency = {link = 1, memory = 1}}

local function run(scheme, layers, o, machine)
  local schedule = dataflow.schemes[scheme](layers, o)
  return assert(flare.simulate(schedule, machine or unit)), schedule
end

local function sorted_names(r, kind)
  local names = {}
  for _, t in ipairs(r.tasks) do
    if t.name:find("^" .. kind) then names[#names + 1] = t.name end
  end
  return names
end

describe("pipelines", function()
  -- seconds of the passes of a stage: powers of two, so sums are exact
  for _, c in ipairs {{1, 1, 1}, {1, 1.5, 0.5}, {2, 2, 1}} do
    local F, B, W = c[1], c[2], c[3]
    for _, p in ipairs {1, 2, 3, 6} do
      it(("have their papers' bubbles: %g, %g, %g s, %d devices"):format(F, B, W, p), function()
        local layers = dataflow.uniform {layers = 2 * p, forward = F / 2, backward = B / 2,
                                         weights = W / 2}
        for _, m in ipairs {p, 4 * p} do
          local bubbles = {
            gpipe = (p - 1) * (F + B + W),           -- Huang and others, 2019
            ["1f1b"] = (p - 1) * (F + B + W),        -- Narayanan and others, 2021
            interleaved = (p - 1) * (F + B + W) / 2, -- the same, two chunks
            zb_h1 = (p - 1) * (F + B - W),           -- Qi and others, 2023
          }
          for scheme, bubble in pairs(bubbles) do
            local r = run(scheme, layers, {devices = p, micro_batches = m})
            local busy = m * (F + B + W)
            assert.equal(busy + bubble, r.time, scheme .. " " .. m)
            for _, d in ipairs(r.devices) do
              assert.equal(busy, d.busy)
              assert.equal(bubble, d.idle)
            end
            assert.near(bubble / (busy + bubble), r.bubble, 1e-12)
          end
        end
      end)
    end
  end

  it("keep as many activations as their papers say", function()
    local p, m = 4, 8
    local layers = dataflow.uniform {layers = p, saved = 10}
    for scheme, most in pairs {
      gpipe = function() return m end,
      ["1f1b"] = function(d) return p - d + 1 end,
      zb_h1 = function() return p end,
    } do
      local r = run(scheme, layers, {devices = p, micro_batches = m})
      for d = 1, p do
        assert.equal(10 * most(d), r.places["device " .. d].peak, scheme .. d)
      end
    end
    -- two chunks of 5 bytes; device d has run 2 (p - d) + p + 1 forward passes before it goes back
    local r = run("interleaved", dataflow.uniform {layers = 2 * p, saved = 5},
      {devices = p, micro_batches = m})
    for d = 1, p do assert.equal(5 * (2 * (p - d) + p + 1), r.places["device " .. d].peak) end
  end)

  it("send results on, and gradients back", function()
    local layers = dataflow.uniform {layers = 2, output = 50}
    local r = run("1f1b", layers, {devices = 2, micro_batches = 1})
    local starts = {}
    for _, t in ipairs(r.tasks) do starts[t.name] = t.start end
    assert.same({["forward s1 m1"] = 0, ["send output s1 m1"] = 1, ["forward s2 m1"] = 1.5,
      ["backward s2 m1"] = 2.5, ["send input gradient s2 m1"] = 4.5, ["backward s1 m1"] = 5},
      starts)
    assert.equal(7, r.time)
    assert.equal(100, r.places["device 2"].peak) -- the input and the gradient for it
  end)

  it("compute forward again if they keep inputs only", function()
    local layers = dataflow.uniform {layers = 2, output = 1, saved = 100}
    local r = run("gpipe", layers, {devices = 2, micro_batches = 4, recompute = true})
    -- one recomputed pass, four inputs and the gradient that is sent on
    assert.equal(100 + 4 + 1, r.places["device 2"].peak)
    assert.equal(8, #sorted_names(r, "recompute"))
    assert.near(r.useful * 4 / 3, 1 - r.bubble, 1e-12)
  end)

  it("add up gradients over replicas, which work side by side", function()
    local layers = dataflow.uniform {layers = 2, parameters = 30, gradients = 40, states = 60}
    local alone = run("1f1b", layers, {devices = 2, micro_batches = 2})
    local r, s = run("1f1b", layers, {devices = 2, micro_batches = 2, replicas = 3})
    assert.equal(6, s.devices)
    -- 2 (3 - 1) / 3 of the gradients go over each link
    local sends = sorted_names(r, "all%-reduce")
    assert.equal(6, #sends)
    assert.near(alone.time + 2 * 2 / 3 * 40 / 100, r.time, 1e-9)
    assert.near(6 * 2 * 2 / 3 * 40, (function()
      local sum = 0
      for _, link in ipairs(r.links) do sum = sum + link.bytes end
      return sum
    end)(), 1e-9)
  end)

  it("say what they cannot do", function()
    local layers = dataflow.uniform {layers = 3}
    assert.error_matches(function() dataflow.schemes.gpipe(layers, {devices = 4}) end,
      "3 layers cannot be cut into 4 stages")
    assert.error_matches(function()
      dataflow.schemes.interleaved(dataflow.uniform {layers = 8}, {micro_batches = 3})
    end, "micro_batches must be a multiple of 4, the number of devices, got 3")
    assert.error_matches(function() dataflow.schemes.gpipe(layers, {device = 2}) end,
      "unknown option 'device' %(did you mean 'devices'%?%)")
    assert.error_matches(function() dataflow.schemes.gpipe({{}}, {devices = 1}) end,
      "layer 1: forward must be a list of costs")
  end)
end)

describe("stages", function()
  -- the least possible slowest stage, by trying all cuts
  local function best(weights, n)
    local function try(first, left)
      if left == 1 then
        local sum = 0
        for k = first, #weights do sum = sum + weights[k] end
        return sum
      end
      local least, sum = math.huge, 0
      for last = first, #weights - left + 1 do
        sum = sum + weights[last]
        least = math.min(least, math.max(sum, try(last + 1, left - 1)))
      end
      return least
    end
    return try(1, n)
  end

  it("are as fast as possible and hold all layers in order", function()
    local state = 1
    local function random(n)
      state = (state * 48271) % 2147483647
      return state % n
    end
    for _ = 1, 40 do
      local weights, layers = {}, dataflow.uniform {layers = 4 + random(7), saved = 1}
      for k, layer in ipairs(layers) do
        weights[k] = random(9)
        layer.forward, layer.backward, layer.weights = {{flops = weights[k]}}, {}, {}
      end
      local n = 1 + random(#layers)
      local list, slowest, expected = dataflow.stages(layers, n), 0, 1
      assert.equal(n, #list)
      for _, stage in ipairs(list) do
        assert.equal(expected, stage.first)
        assert.equal(stage.last - stage.first + 1, stage.saved)
        slowest, expected = math.max(slowest, stage.forward[1].flops), stage.last + 1
      end
      assert.equal(#layers + 1, expected)
      assert.equal(best(weights, n), slowest)
    end
  end)
end)

describe("one device", function()
  it("holds the whole model, or computes activations again", function()
    local layers = dataflow.uniform {layers = 4, parameters = 2, gradients = 3, states = 5,
                                     saved = 100, output = 10}
    local r = run("in_memory", layers, {micro_batches = 2})
    assert.near(2 * 4 * 3, r.time, 1e-6)
    assert.equal(4 * 10 + 4 * 100, r.places["device 1"].peak)
    r = run("in_memory", layers, {micro_batches = 2, recompute = true})
    assert.near(2 * 4 * 4, r.time, 1e-6)
    assert.equal(4 * 10 + 4 * 10 + 100, r.places["device 1"].peak)
    assert.near(0.75, r.useful, 1e-6)
  end)

  it("in several copies adds up gradients while backward runs", function()
    local layers = dataflow.uniform {layers = 4, gradients = 100, parameters = 1}
    local r = run("in_memory", layers, {devices = 2})
    -- an all-reduce takes 1 s of the 2 s of the next layer's backward; the last is not hidden
    assert.near(4 * 3 + 1, r.time, 1e-6)
  end)

  it("computes without a pause while layers come from the host in time", function()
    -- a load takes 1 s, a layer 2 s for two micro-batches, 4 s in backward
    local layers = dataflow.uniform {layers = 6, parameters = 100, gradients = 100, states = 200}
    local r = run("offload", layers, {micro_batches = 2})
    assert.near(1 + 6 * 2 * 3, r.devices[1].busy + 1, 1e-9)
    -- the first load, all passes, and the last layer's gradients on their way
    assert.near(1 + 6 * 2 * 3 + 1, r.time, 1e-6)
    assert.equal(6 * 300 + 100, r.places.host.peak)
    -- slow links: each layer waits for its load, since only one may come ahead
    local slow = run("offload", layers, {micro_batches = 2},
      {name = "slow", peak = {f32 = 1}, memory = {bytes = 1e6, rate = 1e12}, host = {rate = 1e12},
       links = {host = {rate = 20}}, efficiency = {link = 1}})
    -- 5 s a load: 6 of them forward, 2 s, then 5 in backward; the first of these comes while the
    -- last layers compute
    assert.truthy(slow.time > 11 * 5 and slow.time < 11 * 5 + 2 * 2 + 2 * 4 + 2 * 5 + 1)
  end)

  it("brings layers one or more ahead, and holds no more of them", function()
    local layers = dataflow.uniform {layers = 8, parameters = 100}
    for ahead = 1, 3 do
      local r = run("offload", layers, {ahead = ahead})
      assert.equal(100 * (ahead + 1), r.places["device 1"].peak)
      -- loads never wait for the link, which takes 1 s for a layer of 1 s
      assert.truthy(r.time <= 1 + 8 * 3 + 0.001)
    end
  end)

  it("keeps activations on the device, on the host, or not at all", function()
    local layers = dataflow.uniform {layers = 6, parameters = 10, saved = 40, output = 5}
    local keep = run("offload", layers, {micro_batches = 3})
    assert.truthy(keep.places["device 1"].peak >= 6 * 3 * 40)
    local away = run("offload", layers, {micro_batches = 3, activations = "offload"})
    assert.truthy(away.places["device 1"].peak < 6 * 3 * 40)
    assert.equal(5 * 3 * 40 + 60, away.places.host.peak) -- not those of the last layer
    assert.equal(2 * 5 * 3 * 40, (function()
      local sum = 0
      for _, t in ipairs(away.tasks) do
        if t.name:find "saved" then sum = sum + (t.transfer or 0) end
      end
      return sum
    end)())
    local again = run("offload", layers, {micro_batches = 3, activations = "recompute"})
    assert.equal(6 * 3, #sorted_names(again, "recompute"))
    assert.truthy(again.places["device 1"].peak <= 40 + 6 * 3 * 5 + 2 * 10)
    assert.near(6 * 3 * 4, again.devices[1].busy, 1e-9)
  end)

  it("updates on the host or on the device", function()
    local layers = dataflow.uniform {layers = 3, parameters = 100, gradients = 50, states = 200}
    local moved = {}
    for _, update in ipairs {"host", "device"} do
      local r = run("offload", layers, {update = update})
      moved[update] = {["in"] = 0, out = 0}
      for _, t in ipairs(r.tasks) do
        if t.transfer then
          moved[update][t.stream] = moved[update][t.stream] + t.transfer
        end
      end
    end
    -- parameters of three layers forward, of two backward; then gradients, or states both ways
    assert.same({["in"] = 500, out = 150}, moved.host)
    assert.same({["in"] = 500 + 600, out = 600 + 300}, moved.device)
    assert.error_matches(function() dataflow.schemes.offload(layers, {activations = "store"}) end,
      "unknown way 'store'")
  end)
end)

describe("a ring", function()
  local function devices_of(r)
    local list = {}
    for d, x in ipairs(r.devices) do list[d] = x.busy end
    return list
  end

  it("runs all layers on all devices, with each layer at one home", function()
    local layers = dataflow.uniform {layers = 6, parameters = 10, gradients = 20, states = 30,
                                     saved = 7}
    local r = run("ring", layers, {devices = 3, micro_batches = 2})
    for _, busy in ipairs(devices_of(r)) do assert.near(6 * 2 * 3, busy, 1e-6) end
    assert.equal(6 * 3 * 2, #sorted_names(r, "forward"))
    assert.equal(6, #sorted_names(r, "update"))
    local bytes, updates = 0, {}
    for _, t in ipairs(r.tasks) do
      bytes = bytes + (t.transfer or 0)
      if t.name:find "^update" then updates[t.device] = (updates[t.device] or 0) + 1 end
    end
    -- parameters of each layer go over two links in each pass, its gradients over two in backward
    assert.equal(6 * 2 * (10 + 10 + 20), bytes)
    assert.same({2, 2, 2}, updates)
    for d = 1, 3 do
      local peak = r.places["device " .. d].peak
      -- two layers at home, all activations, and a few copies on their way
      assert.truthy(peak >= 2 * 60 + 12 * 7 and peak <= 2 * 60 + 12 * 7 + 2 * 10 + 3 * 40, peak)
    end
  end)

  it("waits only for the first layers to come around if the links keep up", function()
    local layers = dataflow.uniform {layers = 8, parameters = 10, gradients = 10}
    local r = run("ring", layers, {devices = 4, ahead = 2})
    -- a layer is a tenth of a second on each of three links; its gradients the same at the end
    assert.truthy(r.time >= 24 and r.time <= 24 + 2 * 3 * 0.1 + 3 * 0.2 + 0.001, r.time)
    assert.equal(0, #sorted_names(r, "all%-reduce"))
  end)

  it("of one device is a model in memory", function()
    local layers = dataflow.uniform {layers = 3, parameters = 10, gradients = 10, states = 5,
                                     saved = 3}
    local ring, whole = run("ring", layers, {devices = 1}), run("in_memory", layers, {})
    assert.equal(whole.places["device 1"].peak, ring.places["device 1"].peak)
    assert.near(whole.time, ring.time, 1e-9)
  end)
end)

describe("transformers as layers", function()
  local function sums(layers, pass)
    local flops = 0
    for _, layer in ipairs(layers) do
      for _, cost in ipairs(layer[pass]) do flops = flops + (cost.flops or 0) end
    end
    return flops
  end

  it("have the parameters of the published models", function()
    -- without biases and position embeddings, which GPT-2 has beside them
    local gpt2 = dataflow.transformer "gpt2"
    local blocks = 12 * (4 * 768 * 768 + 2 * 768 * 3072 + 2 * 768)
    assert.equal(blocks + 50257 * 768, gpt2.count)
    -- Meta's Llama 3.1 8B has 8,030,261,248 parameters: 4096 more, those of the final norm
    assert.equal(8030261248 - 4096, dataflow.transformer("llama-8b").count)
  end)

  it("have six FLOPs for each parameter of a product and token, and those of attention", function()
    local layers = dataflow.transformer("llama-8b", {batch = 2, length = 4096})
    assert.equal(8192, layers.tokens)
    local products = 32 * (2 * 4096 * 4096 + 2 * 4096 * 1024 + 3 * 4096 * 14336)
      + 4096 * 128256
    local pairs_ = 2 * 4096 * 4097 / 2
    local all = sums(layers, "forward") + sums(layers, "backward") + sums(layers, "weights")
    -- attention: two products of a pair and a width forward, five backward
    assert.near(6 * products * 8192 + 32 * 7 * 2 * pairs_ * 4096, all, 1)
  end)

  it("name what they do not know", function()
    assert.error_matches(function() dataflow.transformer "lama-8b" end,
      "there is no shape 'lama%-8b' %(did you mean 'llama%-8b'%?%)")
    assert.error_matches(function() dataflow.transformer("gpt2", {dtype = "f8"}) end,
      "unknown dtype 'f8'")
    assert.error_matches(function() dataflow.transformer {layers = 2} end,
      "width must be an integer of at least 1, got nil")
  end)
end)

describe("schemes of any layers", function()
  local state = 11
  local function random(n)
    state = (state * 48271) % 2147483647
    return state % n + 1
  end
  local function some(n) return random(3) == 1 and 0 or random(n) end

  local function costs()
    local list = {}
    for k = 1, random(3) - 1 do
      list[k] = random(2) == 1 and {seconds = some(10) / 8}
        or {flops = some(10) * 1e12, bytes = some(5) * 1e9, kind = "product"}
    end
    return list
  end

  local function layers()
    local list = {}
    for k = 1, random(8) do
      list[k] = {name = "layer " .. k, forward = costs(), backward = costs(), weights = costs(),
        parameters = some(1000), gradients = some(1000), states = some(1000), saved = some(1000),
        output = some(100)}
    end
    return list
  end

  local function any(list) return list[random(#list)] end

  local function options(scheme, count)
    if scheme == "in_memory" then
      return {devices = random(4), micro_batches = random(4), recompute = random(2) == 1}
    elseif scheme == "offload" then
      return {ahead = random(4), micro_batches = random(4), update = any {"host", "device"},
              activations = any {"keep", "offload", "recompute"}}
    elseif scheme == "ring" then
      return {devices = random(5), ahead = random(3), micro_batches = random(3)}
    end
    local o = {devices = math.min(random(4), count), replicas = random(3),
               recompute = random(2) == 1}
    o.micro_batches = o.devices * random(3)
    if scheme == "interleaved" then o.chunks = 2 * o.devices <= count and 2 or 1 end
    return o
  end

  local machine = {name = "any", peak = {f32 = 1e12}, memory = {bytes = 1e15, rate = 1e12},
    node = 3, links = {host = {rate = 1e5, latency = 1e-3}, peer = {rate = 1e4, latency = 1e-3},
                       net = {rate = 1e3}}}

  it("free what they hold, and need no more memory than their peak", function()
    for _ = 1, 120 do
      local scheme = any {"in_memory", "offload", "ring", "gpipe", "1f1b", "interleaved", "zb_h1"}
      local list = layers()
      local schedule = dataflow.schemes[scheme](list, options(scheme, #list))
      local r = assert(flare.simulate(schedule, machine))
      local resident, most = {}, 1
      for _, b in ipairs(schedule.residents) do
        local place = b.place == "host" and "host" or "device " .. b.device
        resident[place] = (resident[place] or 0) + b.bytes
      end
      for _, place in ipairs(r.places) do
        local steps = r.memory[place.name]
        assert.equal(resident[place.name] or 0, steps[#steps][2], scheme .. " " .. place.name)
        if place.name:find "device" then most = math.max(most, place.peak) end
      end
      local tight = assert(flare.simulate(schedule, machine, {memory = most / (1 << 30)}))
      assert.near(r.time, tight.time, 1e-9)
    end
  end)
end)
