-- Schedules, their checks, and the simulator. The expected times are worked out by hand from the
-- figures of the machine below.
local flare = require "flare"
local dataflow = flare.dataflow

-- 1 TFLOP/s, 1 GB/s of memory, 1 kB; links of 100 B/s without latency; all shares are 1.
local plain = {name = "plain", peak = {f32 = 1e12, bf16 = 4e12},
  memory = {bytes = 1000, rate = 1e9}, host = {bytes = 5000, rate = 10},
  links = {host = {rate = 100}, peer = {rate = 50, latency = 1}}, power = {idle = 10, busy = 110},
  efficiency = {product = 0.5, memory = 1, link = 1, other = 1}}

local function machine(change)
  local m = {}
  for key, value in pairs(plain) do m[key] = value end
  for key, value in pairs(change or {}) do m[key] = value end
  return m
end

local function simulate(tasks, o, m)
  local s = {tasks = tasks}
  for key, value in pairs(o or {}) do s[key] = value end
  return assert(flare.simulate(s, m or plain))
end

-- Start and end of each task.
local function times(r)
  local all = {}
  for _, t in ipairs(r.tasks) do all[t.name] = {t.start, t.stop} end
  return all
end

describe("a schedule", function()
  local function says(message, tasks, o)
    local s = {tasks = tasks}
    for key, value in pairs(o or {}) do s[key] = value end
    local ok, said = pcall(dataflow.schedule, s)
    assert.is_false(ok)
    assert.match("dataflow_spec.lua:%d+: ", said)
    assert.equal(message, (said:gsub("^.-dataflow_spec.lua:%d+: ", "")))
  end

  it("names what does not exist, with the nearest name", function()
    says("dataflow: task 'run' needs 'lod', but no task has that name (did you mean 'load'?)",
      {{name = "load", seconds = 1}, {name = "run", seconds = 1, needs = "lod"}})
    says("dataflow: task 'run': unknown field 'secnds' (did you mean 'seconds'?)",
      {{name = "run", secnds = 1}})
    says("dataflow: task 'run': unknown field 'flop' of cost (did you mean 'flops'?)",
      {{name = "run", cost = {flop = 1}}})
    says("dataflow: task 'run' uses buffer 'weight', which no task holds (did you mean 'weights'?)",
      {{name = "load", seconds = 1, holds = {{"weights", bytes = 1}}},
       {name = "run", seconds = 1, uses = "weight"}})
    says("dataflow: task 'run': device must be a device from 1 to 2, got 3",
      {{name = "run", seconds = 1, device = 3}}, {devices = 2})
    says("dataflow: two tasks have the name 'run'; needs could not tell them apart",
      {{name = "run", seconds = 1}, {name = "run", seconds = 1}})
    says("dataflow: task 'run': one of cost = {flops =, bytes =}, seconds and transfer (bytes) is "
      .. "needed", {{name = "run"}})
    says("dataflow: task 'run': seconds must be a number of at least 0, got -1",
      {{name = "run", seconds = -1}})
    says("dataflow: task 'go': a transfer on stream 'x' must name its link, such as "
      .. "link = \"host\"",
      {{name = "go", stream = "x", transfer = 1}})
    says("dataflow: task 'run': buffer 'w' has the place 'disk'; the places are device and host",
      {{name = "run", seconds = 1, holds = {{"w", bytes = 1, place = "disk"}}}})
    says("dataflow: schedule 'schedule' has no task", {})
  end)

  it("shows a circle of tasks, with the order of streams", function()
    says("dataflow: tasks wait for each other: 'a' needs 'c', 'c' follows 'b' on stream in of "
      .. "device 1, 'b' needs 'a'", {
        {name = "a", seconds = 1, needs = "c"}, {name = "b", stream = "in", seconds = 1,
         needs = "a"}, {name = "c", stream = "in", seconds = 1}})
  end)

  it("refuses buffers that are not held when they are used, freed or held again", function()
    local hold = {name = "load", stream = "in", seconds = 1, holds = {{"w", bytes = 1}}}
    says("dataflow: task 'run' uses buffer 'w', but nothing makes it run after 'load': add "
      .. "needs = {\"load\"}", {hold, {name = "run", seconds = 1, uses = "w"}})
    says("dataflow: task 'run' frees buffer 'w', but 'load', which holds it, does not come before: "
      .. "add needs = {\"load\"}", {{name = "run", seconds = 1, frees = "w"},
      {name = "load", seconds = 1, holds = {{"w", bytes = 1}}}})
    says("dataflow: task 'c' frees buffer 'w', which 'b' has freed", {
      {name = "a", seconds = 1, holds = {{"w", bytes = 1}}}, {name = "b", seconds = 1, frees = "w"},
      {name = "c", seconds = 1, frees = "w"}})
    says("dataflow: task 'b' holds buffer 'w', which 'a' holds already; it must be freed first, or "
      .. "have another name", {{name = "a", seconds = 1, holds = {{"w", bytes = 1}}},
      {name = "b", seconds = 1, holds = {{"w", bytes = 1}}}})
    says("dataflow: task 'drop' frees buffer 'w' while 'use' may use it: add needs = {\"use\"}", {
      {name = "use", seconds = 1, uses = "w"},
      {name = "drop", stream = "in", seconds = 1, frees = "w"}},
      {resident = {{"w", bytes = 1}}})
  end)

  it("takes buffers that come and go, in an order that needs and streams make", function()
    local s = dataflow.schedule {name = "two rounds", tasks = {
      {name = "load 1", stream = "in", seconds = 1, holds = {{"w", bytes = 1}}},
      {name = "run 1", seconds = 1, needs = "load 1", uses = "w", frees = "w"},
      {name = "load 2", stream = "in", seconds = 1, holds = {{"w", bytes = 1}}, needs = "run 1"},
      {name = "run 2", seconds = 1, needs = {"load 2"}, uses = "w", frees = "w"},
    }}
    assert.equal("Schedule(two rounds, 4 tasks, 1 device)", tostring(s))
    assert.equal(4, flare.simulate(s, plain).time)
  end)
end)

describe("a simulation", function()
  it("takes the longer of FLOPs and bytes, by dtype and share of the kind", function()
    local r = simulate {
      {name = "product", cost = {flops = 3e12, bytes = 1e9, kind = "product"}},
      {name = "fast", cost = {flops = 3e12, bytes = 2e9, dtype = "bf16", kind = "product"}},
      {name = "both", cost = {{bytes = 3e9}, {flops = 1e12}, {seconds = 0.5}}},
    }
    assert.same({product = {0, 6}, fast = {6, 8}, both = {8, 12.5}}, times(r))
    assert.equal("compute", r.tasks[1].bound)
    assert.equal("memory", r.tasks[2].bound)
    assert.equal(7e12, r.flops)
    -- 3 s at the peak of f32, 0.75 at that of bf16, 1 s for the last
    assert.near(4.75 / 12.5, r.utilisation, 1e-12)
    local slow = simulate({{name = "a", cost = {bytes = 1e9}}}, {}, machine {latency = 2})
    assert.equal(3, slow.time)
    assert.equal("latency", slow.tasks[1].bound)
  end)

  it("runs streams in order and side by side, and counts what is idle", function()
    local r = simulate({
      {name = "a", seconds = 2}, {name = "b", seconds = 1, needs = "d"},
      {name = "c", stream = "in", transfer = 300}, {name = "d", stream = "in", transfer = 100},
      {name = "e", device = 2, seconds = 2, needs = "a"},
      {name = "f", device = 2, seconds = 1, again = true},
    }, {devices = 2})
    assert.same({a = {0, 2}, b = {4, 5}, c = {0, 3}, d = {3, 4}, e = {2, 4}, f = {4, 5}}, times(r))
    assert.equal(5, r.time)
    assert.same({busy = 3, useful = 3, flops = 0, idle = 2}, r.devices[1])
    assert.same({busy = 3, useful = 2, flops = 0, idle = 2}, r.devices[2])
    assert.near(0.4, r.bubble, 1e-12)
    assert.near(0.5, r.useful, 1e-12)
    assert.equal(10 * 10 + 100 * 6, r.energy) -- idle power all the time, the rest while computing
    local share = {}
    for _, s in ipairs(r.streams) do share[s.device .. s.name] = s.share end
    assert.same({["1compute"] = 0.6, ["1in"] = 0.8, ["2compute"] = 0.6}, share)
  end)

  it("divides a shared link among its transfers, or gives it to one at a time", function()
    local tasks = {
      {name = "a", stream = "in", transfer = 300},
      {name = "b", device = 2, stream = "in", transfer = 100},
      {name = "c", device = 2, stream = "out", transfer = 100},
    }
    local own = times(simulate(tasks, {devices = 2}))
    assert.same({a = {0, 3}, b = {0, 1}, c = {0, 1}}, own)
    -- a and b have 50 B/s each until b ends at 2, then a has 100 for its other 200 bytes; c goes
    -- the other way
    local shared = simulate(tasks, {devices = 2},
      machine {links = {host = {rate = 100, shared = true}}})
    assert.same({a = {0, 4}, b = {0, 2}, c = {0, 1}}, times(shared))
    assert.same({{name = "host in node 1", bytes = 400, busy = 4},
                 {name = "host out node 1", bytes = 100, busy = 1}}, shared.links)
    local one = times(simulate(tasks, {devices = 2}, machine {links = {host = {rate = 100,
      shared = true, exclusive = true}}}))
    assert.same({a = {0, 3}, b = {3, 4}, c = {0, 1}}, one)
    local half = times(simulate(tasks, {devices = 2}, machine {links = {host = {rate = 100,
      shared = true, exclusive = true, duplex = false}}}))
    assert.same({a = {0, 3}, b = {3, 4}, c = {4, 5}}, half)
  end)

  it("adds a link's latency, and takes the network between nodes", function()
    local r = simulate({
      {name = "near", stream = "peer", transfer = 100, to = 2},
      {name = "far", device = 2, stream = "peer", transfer = 100, to = 3, needs = "near"},
    }, {devices = 4}, machine {node = 2, links = {host = {rate = 1},
      peer = {rate = 50, latency = 1}, net = {rate = 10, latency = 2}}})
    assert.same({near = {0, 3}, far = {3, 15}}, times(r))
  end)

  it("lets tasks wait until memory is free, and counts the peak", function()
    local tasks = {
      {name = "a", seconds = 1, holds = {{"x", bytes = 600}}},
      {name = "b", seconds = 2, uses = "x", frees = "x"},
      {name = "c", stream = "in", transfer = 400, holds = {{"y", bytes = 300}}},
      {name = "d", stream = "in", transfer = 100, holds = {{"z", bytes = 200},
                                                          {"h", bytes = 70, place = "host"}}},
    }
    local r = simulate(tasks)
    -- d would begin at 4; with 900 bytes of 1000 held it needs x to be gone, which is so at 3
    assert.same({a = {0, 1}, b = {1, 3}, c = {0, 4}, d = {4, 5}}, times(r))
    tasks[2].seconds = 7
    r = simulate(tasks)
    assert.same({8, 9}, times(r).d)
    local place = r.places["device 1"]
    assert.equal(900, place.peak)
    assert.equal(1000, place.cap)
    assert.equal(4, place.waited)
    assert.same({{name = "x", bytes = 600}, {name = "y", bytes = 300}}, place.held)
    assert.equal(70, r.places.host.peak)
    assert.same({{0, 900}, {8, 500}}, r.memory["device 1"])
  end)

  it("reports who holds what when no task can go on", function()
    local result, message = flare.simulate({tasks = {
      {name = "keep", seconds = 1, holds = {{"x", bytes = 700}}},
      {name = "more", seconds = 1, holds = {{"y", bytes = 400}}, frees = {"y"}},
      {name = "end", seconds = 1, frees = "x"},
    }}, plain)
    assert.is_nil(result)
    assert.equal("simulate: schedule schedule runs out of memory after 1 of 3 tasks, and no task "
      .. "that could free any can start:\n  'more' needs 400 B on device 1, where 300 B of 1000 B "
      .. "are free; held: x 700 B since 'keep'", message)
    result, message = flare.simulate({tasks = {{name = "a", seconds = 1}},
      resident = {{"w l1", bytes = 600}, {"w l2", bytes = 600}}}, plain)
    assert.is_nil(result)
    assert.equal("simulate: the resident buffers of schedule schedule need at least 1.17 KiB on "
      .. "device 1, which has 1000 B: w 1.17 KiB (2)", message)
  end)

  it("has a text, a picture and a trace", function()
    local r = simulate({
      {name = "forward", seconds = 1, holds = {{"x & y", bytes = 600}}},
      {name = "backward", seconds = 2, frees = "x & y"},
      {name = "recompute", seconds = 1, again = true},
    }, {name = "step", info = {tokens = 8}})
    assert.equal([[
step on plain, 1 device: 4 s
computing 100.0 % (75.0 % without repeated work), idle 0.0 %, of the peak 0.0 %
2 tokens/s, 440 J (55 a token)
memory             peak        cap  at the peak
device 1          600 B     1000 B  x & y 600 B
stream             tasks      busy   share
1 compute              3       4 s 100.0 % |FFBBBBrr|]], r:text(8))
    local picture = r:svg()
    assert.match("^<svg .*</svg>\n$", picture)
    assert.match("<title>backward: 2 s from 1 s</title>", picture)
    assert.match("largest x &amp; y", picture)
    local trace = flare.core.json.decode(r:trace())
    local found = {}
    for _, e in ipairs(trace.traceEvents) do
      if e.ph == "X" then found[e.name] = {e.ts, e.dur} end
      if e.ph == "C" then found[#found + 1] = {e.ts, e.args.bytes} end
    end
    assert.same({forward = {0, 1e6}, backward = {1e6, 2e6}, recompute = {3e6, 1e6},
                 {0, 600}, {3e6, 0}}, found)
    local path = os.tmpname()
    finally(function() os.remove(path) end)
    assert(r:svg(path))
    assert.equal(picture, assert(flare.core.file.read(path)))
    assert.is_nil((r:trace "/dev/null/trace.json"))
  end)
end)

describe("machines", function()
  it("exist by name, with a source for their figures", function()
    for _, name in ipairs(dataflow.machines()) do
      local m = dataflow.machine(name)
      assert.truthy(#m.source > 20 and m.memory.rate > 0 and m.links.host.rate > 0, name)
      for kind, share in pairs(m.efficiency) do assert(share <= 1 and #m.measured > 20, kind) end
    end
    local h100 = dataflow.machine "h100"
    assert.equal(989.5e12, h100:rate "bf16")
    assert.match("bf16 989.5 TFLOP/s.*memory 74.51 GiB at 3350 GB/s", tostring(h100))
    assert.equal(50e9, dataflow.machine("DGX-H100").links.net.rate)
    assert.error_matches(function() dataflow.machine "h10" end,
      "there is no machine 'h10' %(did you mean 'h100'%?%); there are: a100, ")
    assert.error_matches(function() h100:rate "f8" end,
      "NVIDIA H100 SXM has no peak for dtype 'f8' %(there are: bf16, .*fp8, tf32%)")
  end)

  it("change in some figures, and are described by tables", function()
    local h100 = dataflow.machine "h100"
    local m = h100:with {link = 32, memory = 10, compute = 2, latency = 5, peer = 1, host = 3,
                         bandwidth = 7}
    assert.same({32e9, 10 << 30, 2 * 989.5e12, 5 * 1e-6, 1e9, 3 << 30, 7e9}, {m.links.host.rate,
      m.memory.bytes, m.peak.bf16, m.latency, m.links.peer.rate, m.host.bytes, m.memory.rate})
    assert.equal(64e9, h100.links.host.rate)
    assert.error_matches(function() h100:with {lnk = 1} end,
      "unknown figure 'lnk' %(did you mean 'link'%?%)")
    assert.error_matches(function() h100:with {net = 1} end, "has no link 'net' to change")
    assert.error_matches(function() dataflow.machine {name = "x"} end,
      "x: peak = {bf16 = FLOP/s, ...} is missing")
    assert.error_matches(function()
      simulate({{name = "a", stream = "peer", transfer = 1, link = "wire"}})
    end, "task 'a' transfers over link 'wire', which machine plain does not have")
  end)
end)

describe("a sweep", function()
  -- a transfer of 100 bytes for each second of computing, one ahead
  local function schedule(o)
    local tasks = {}
    for k = 1, o.rounds or 10 do
      tasks[#tasks + 1] = {name = "load " .. k, stream = "in", transfer = 100e9,
        holds = {{"x" .. k, bytes = 1}}, needs = k > 2 and "run " .. k - 2 or nil}
      tasks[#tasks + 1] = {name = "run " .. k, seconds = 1, needs = "load " .. k, frees = "x" .. k}
    end
    return {tasks = tasks}
  end

  it("finds the least figure that reaches a goal", function()
    -- ten rounds of 100 / link seconds for a load and one for the run behind it: with link >= 100
    -- the time is 100 / link + 10, below it is 10 * 100 / link + 1
    local s = dataflow.sweep(schedule {}, plain, {{"link", {25, 50, 100, 200, 400}}}, {want = 0.9})
    for i, link in ipairs {25, 50, 100, 200, 400} do
      local time = link < 100 and 1000 / link + 1 or 100 / link + 10
      assert.near(10 / time, s.rows[i][1].value, 1e-9)
    end
    assert.near(1000 / (10 / 0.9 - 1), s.least[1].least, 0.02)
  end)

  it("has a table of two ranges, of options of the schedule, too", function()
    local s = dataflow.sweep(schedule, plain, {{"rounds", {1, 9}}, {"link", {100, 400}}},
      {want = 0.9})
    assert.equal([[
rounds           link 100     link 400
1                  50.0 %       80.0 %
9                  90.0 %       97.3 %
link 100: rounds of 9 suffices for useful of 0.9
link 400: rounds of 9 suffices for useful of 0.9]], tostring(s))
    local tight = dataflow.sweep({tasks = {{name = "a", seconds = 1,
      holds = {{"x", bytes = 3 << 30}}}}}, plain, {{"memory", {1, 2, 4}}}, {want = 1})
    assert.match("\n2 +no memory\n4 +100.0 %%\nmemory of 3 suffices", tostring(tight))
    assert.error_matches(function() dataflow.sweep(schedule, plain, {{"link"}}) end,
      "axis 1 must be {name, {value, ...}}", nil, true)
  end)

  it("aims at the least energy", function()
    -- 10 W all the time and 100 W more for the ten seconds in which it computes
    local axes = {{"link", {25, 50, 100, 200}}}
    local s = dataflow.sweep(schedule {}, plain, axes, {goal = "energy", want = 1107.5})
    for i, link in ipairs {25, 50, 100, 200} do
      local time = link < 100 and 1000 / link + 1 or 100 / link + 10
      assert.near(10 * time + 100 * 10, s.rows[i][1].value, 1e-6)
    end
    assert.equal(200, s.best.point.link)
    assert.near(400 / 3, s.least[1].least, 0.03) -- 100 / link = 0.75
    assert.match("\nlink of 133.[%d]+ suffices for energy of 1107.5\nleast energy: 1105, "
      .. "at link 200$", tostring(s))
    local tokens = schedule {}
    tokens.info = {tokens = 221}
    s = dataflow.sweep(tokens, plain, axes, {goal = "joules_per_token"})
    assert.near(5, s.best.value, 1e-9)
    local tight = dataflow.sweep({tasks = {{name = "a", seconds = 1,
      holds = {{"x", bytes = 3 << 30}}}}}, plain, {{"memory", {2, 4}}}, {goal = "energy"})
    assert.equal(4, tight.best.point.memory)
    assert.error_matches(function()
      dataflow.sweep(schedule {}, plain, axes, {goal = "joules_per_token"})
    end, "the schedule does not say how many tokens it has", nil, true)
    local unknown = {name = "dark", peak = {f32 = 1}, memory = {bytes = 1, rate = 1}}
    assert.error_matches(function()
      dataflow.sweep(schedule {}, unknown, axes, {goal = "energy"})
    end, "dark has no power = {idle = watts, busy = watts}", nil, true)
  end)
end)

describe("wrong arguments", function()
  it("are named at the caller's line", function()
    local m = {peak = {f32 = 1}, memory = {bytes = 1, rate = 1}}
    local function with(key, value)
      local given = {[key] = value}
      for k, v in pairs(m) do given[k] = given[k] or v end
      return function() dataflow.machine(given) end
    end
    local one = {name = "a", seconds = 1}
    local function recording() return dataflow.recording {operators = {}} end
    for message, f in pairs {
      ["simulate: a machine is expected"] = function() flare.simulate {tasks = {one}} end,
      ["a table {tasks = {...}} is expected, got number"] = function() flare.simulate(3, m) end,
      ["a task is a table with a name, got number"] = function()
        flare.simulate({tasks = {3}}, m)
      end,
      ["holds must be a list of {name, bytes = number}, got number"] = function()
        flare.simulate({tasks = {{name = "a", seconds = 1, holds = 3}}}, m)
      end,
      ["resident must be a list of {name, bytes = number}, got number"] = function()
        flare.simulate({resident = 3, tasks = {one}}, m)
      end,
      ["unknown option 'device' (did you mean 'devices'?)"] = function()
        flare.simulate({device = 2, tasks = {one}}, m)
      end,
      ["machine: links must be a table, got number"] = with("links", 3),
      ["machine: efficiency must be a table, got number"] = with("efficiency", 3),
      ["machine: node must be an integer of at least 1, got 1.5"] = with("node", 1.5),
      ["links.host.rate (bytes per second) must be a number above 0"] = with("links",
        {host = {rate = "x"}}),
      ["dataflow.machine: change must be a table, got number"] = function()
        dataflow.machine("h100", 3)
      end,
      ["a name such as \"h100\" or a table is expected, got nil"] = function()
        dataflow.machine()
      end,
      ["'lnk' is no figure of a machine (did you mean 'link'?)"] = function()
        dataflow.sweep({tasks = {one}}, m, {{"lnk", {1}}})
      end,
      ["replay: changes must be a table such as {bandwidth = 5000}, got number"] = function()
        recording():replay("h100", 3)
      end,
      ["replay: on_chip must be a list of operators' names, got number"] = function()
        recording():replay("h100", {on_chip = 3})
      end,
      ["operators[1] must be a table, got number"] = function()
        dataflow.recording {operators = {3}}
      end,
      ["fits: input must be a list of sizes or a function, got number"] = function()
        flare.fits(flare.nn.Linear(2, 2), {input = 3})
      end,
      ["fits: probes must be two batches such as {2, 4}, got number"] = function()
        flare.fits(flare.nn.Linear(2, 2), {input = {2}, probes = 3})
      end,
    } do
      local ok, said = pcall(f)
      assert.is_false(ok, message)
      assert.match("dataflow_spec.lua:%d+: ", said)
      assert(said:find(message, 1, true), said)
    end
  end)
end)
