-- flare.monitor: exact values from a tree of proc and sys, and from a library in place of NVML.
local flare = require "flare"
local message = require "spec.support.expect".message
local fakes = require "spec.support.fakes"
local tree = require "spec.support.tree"

local folder, root

local function write(path, text)
  os.execute("mkdir -p '" .. path:match "^(.*)/" .. "'")
  local file = assert(io.open(path, "w"))
  file:write(text)
  file:close()
end

local function gpus(lines) write(folder .. "/gpus", table.concat(lines, "\n") .. "\n") end

local function numbers(path, n) write(root .. "/sys/class/powercap/" .. path, n .. "\n") end

-- Ticks since the machine and the process began.
local function ticks(user, system, idle, iowait, own)
  write(root .. "/proc/stat", ("cpu  %d 0 %d %d %d 0 0 0 0 0\ncpu0 1 1\ncpu1 1 1\nintr 5\n")
    :format(user, system, idle, iowait))
  write(root .. "/proc/self/stat", ("7 (a b) c) S 1 7 7 0 -1 4194560 1 0 0 0 %d %d 0 0 20 0 3 0 "
    .. "5 100000 250 18446744073709551615"):format(own, own // 2))
end

local function machine()
  ticks(1000, 200, 3000, 50, 100)
  write(root .. "/proc/meminfo",
    "MemTotal:       16000 kB\nMemFree:  5 kB\nMemAvailable:   4000 kB\n")
  for name, kind in pairs {["intel-rapl:0"] = "package-0", ["intel-rapl:0:0"] = "core",
    ["intel-rapl:0:1"] = "dram", ["intel-rapl:1"] = "package-1", ["intel-rapl:2"] = "psys"} do
    write(root .. "/sys/class/powercap/" .. name .. "/name", kind .. "\n")
    numbers(name .. "/max_energy_range_uj", 262143328850)
    numbers(name .. "/energy_uj", 1000000)
  end
  gpus {"GPU-aa11 87 1073741824 4294967296 61 250500 1980 2619 5000000",
        "GPU-bb22 10 0 4294967296 30 - - - -"}
end

local function open(more)
  local o = {period = 0, root = root, library = folder .. "/libnvidia-ml.so.1", gpus = "all"}
  for key, value in pairs(more or {}) do o[key] = value end
  return flare.monitor(o)
end

describe("flare.monitor", function()
  setup(function()
    folder = tree.output "mktemp -d":gsub("\n", "")
    root = folder .. "/root"
    fakes.build(folder, "libnvidia-ml.so.1", "nvml", "")
  end)
  teardown(function() os.execute("rm -rf " .. folder) end)
  before_each(machine)

  it("reads GPUs, the host and the process", function()
    local m <close> = open()
    ticks(1300, 300, 3500, 150, 300) -- 400 of 1000 ticks of two cores; 200 + 100 of this process
    local s = m:sample()
    assert.equal(0.4, s["host/cpu"])
    assert.equal(0.6, s["process/cores"])
    assert.equal(12000 * 1024, s["host/memory"])
    assert.equal(16000 * 1024, s["host/memory_total"])
    local page = tonumber(tree.output "getconf PAGESIZE")
    assert.equal(250 * page, s["process/memory"])
    for name, value in pairs {utilisation = 0.87, memory = 1 << 30, memory_total = 1 << 32,
      temperature = 61, power = 250.5, clock = 1980, memory_clock = 2619} do
      assert.equal(value, s["cuda:0/" .. name], name)
    end
    assert.same({{device = "cuda:0", name = "Fake GPU 0", uuid = "GPU-aa11"},
      {device = "cuda:1", name = "Fake GPU 1", uuid = "GPU-bb22"}}, m.gpus)
    assert.equal(0.1, s["cuda:1/utilisation"])
    assert.is_nil(s["cuda:1/power"])
    assert.same({"cuda:1 (Fake GPU 1) has no power, clock, memory_clock, joules: Not Supported"},
      m.missing)
    local text = tostring(m)
    assert.match("\nprocess  0.60 cores  memory ", text)
    assert.match("\ncuda:0   use  87 %%  memory 1.0 GiB of 4.0 GiB  61 °C  250.5 W  1980 MHz  "
      .. "memory 2619 MHz  Fake GPU 0\n", text)
    assert.equal(2, #m:samples())
  end)

  it("adds up the counters of energy, which begin anew", function()
    local m <close> = open()
    numbers("intel-rapl:0/energy_uj", 3500000)
    numbers("intel-rapl:0:1/energy_uj", 1250000)
    numbers("intel-rapl:0:0/energy_uj", 9000000) -- is part of the package
    numbers("intel-rapl:2/energy_uj", 9000000) -- has all of them
    gpus {"GPU-aa11 0 0 1 0 250500 0 0 5007250"}
    local total, by = m:energy()
    assert.same({host = 2.75, ["cuda:0"] = 7.25}, by)
    assert.equal(10, total)
    numbers("intel-rapl:1/energy_uj", 500000) -- 262143328850 - 500000 further
    gpus {"GPU-aa11 0 0 1 0 250500 0 0 1000"} -- a new driver
    m:energy()
    gpus {"GPU-aa11 0 0 1 0 250500 0 0 2500"}
    total, by = m:energy()
    assert.equal(2.75 + 262142.82885, by.host)
    assert.equal(8.75, by["cuda:0"])
    assert.equal(by.host + by["cuda:0"], total)
  end)

  it("multiplies power by time where nothing counts energy", function()
    gpus {"GPU-aa11 0 0 1 0 100000 0 0 -"}
    local m <close> = open()
    assert.match("^cuda:0 %(Fake GPU 0%) has no counter of energy: ", m.missing[1])
    local from = m.opened[1]
    gpus {"GPU-aa11 0 0 1 0 300000 0 0 -"}
    local to = m:sample()
    local want = (to.time - m:samples()[1].time) * 200 -- between 100 and 300 W
    assert.is_true(math.abs(to["cuda:0/joules"] - want) <= (from - m:samples()[1].time) * 100)
  end)

  it("gives means and joules since the last time", function()
    local m <close> = open()
    ticks(1250, 200, 3250, 50, 100)
    m:sample()
    m:figures()
    ticks(1500, 200, 3500, 50, 350)
    m:sample()
    ticks(1500, 200, 4000, 50, 350)
    gpus {"GPU-aa11 13 2147483648 4294967296 63 250500 1980 2619 5001500",
          "GPU-bb22 10 0 4294967296 30 - - - -"}
    numbers("intel-rapl:0/energy_uj", 2500000)
    m:sample()
    local row = m:figures {tokens = 300, row = {step = 7}}
    assert.equal(7, row.step)
    assert.equal(0.25, row["host/cpu"]) -- 0.5 and 0
    assert.equal(0.75, row["process/cores"]) -- 1.5 and 0
    assert.equal(0.5, row["cuda:0/utilisation"])
    assert.equal(1.5 * (1 << 30), row["cuda:0/memory"])
    assert.equal(62, row["cuda:0/temperature"])
    assert.equal(1.5, row["cuda:0/joules"])
    assert.equal(1.5, row["host/joules"])
    assert.equal(row["cuda:0/power"], row["host/power"])
    assert.equal(3, row.joules)
    assert.equal(0.01, row.joules_per_token)
    assert.is_nil(row.time)
    assert.equal(0, m:figures().joules)
  end)

  it("takes the GPUs that CUDA shows", function()
    for given, uuids in pairs {["1,0"] = "GPU-bb22 GPU-aa11", ["GPU-bb"] = "GPU-bb22", [""] = "",
      ["1,-1,0"] = "GPU-bb22"} do
      local m <close> = open {gpus = given}
      local list = {}
      for k, gpu in ipairs(m.gpus) do
        assert.equal("cuda:" .. k - 1, gpu.device)
        list[k] = gpu.uuid
      end
      assert.equal(uuids, table.concat(list, " "))
    end
    local m <close> = open {gpus = "2"}
    assert.same({"no GPU is called '2': it is an index below 2 or a UUID"}, m.missing)
  end)

  it("says what is not measured, and goes on", function()
    gpus {"error 9"}
    local m = open()
    assert.same({"no GPU is measured: NVML says: Driver Not Loaded"}, m.missing)
    m:close()
    os.execute(("rm -r '%s'/*"):format(root))
    m = open {library = folder .. "/none.so"}
    assert.equal(3, #m.missing)
    assert.match("^no use of the host is measured: .*/proc/stat: No such file", m.missing[1])
    assert.match("has no intel%-rapl", m.missing[2])
    assert.match("^no GPU is measured: .*/none.so, a part of NVIDIA's driver, ", m.missing[3])
    local total, why = m:energy()
    assert.is_nil(total)
    assert.match("^no energy is measured: .*intel%-rapl", why)
    assert.same({}, m:figures {tokens = 5})
    assert.match("none.so", tostring(m))
    m:close()
    machine()
    gpus {"GPU-aa11 0 0 1 0 1 0 0 5"}
    m = open()
    gpus {} -- lost
    local s = m:sample()
    assert.is_nil(s["cuda:0/joules"])
    assert.equal(12000 * 1024, s["host/memory"])
    m:close()
    assert.match("monitor: it is closed", message(function() m:sample() end))
    assert.match("monitor: unknown option 'perod' %(did you mean 'period'%?%)",
      message(function() flare.monitor {perod = 1} end))
    assert.match("monitor: period must be 0 %(no thread%) or 0.001 to 3600 seconds, got %-1",
      message(function() flare.monitor {period = -1} end))
  end)

  it("samples on a thread and keeps the last", function()
    local m <close> = open {period = 0.001, most = 5}
    local first = m:last().time
    repeat
      local list = m:samples()
      assert.is_true(#list <= 5)
      for k = 2, #list do assert.is_true(list[k].time > list[k - 1].time) end
    until list[1].time > first
    assert.is_true(m:overhead() > 0)
  end)

  it("divides the energy of a profile by time, to the last microjoule", function()
    local m <close> = open()
    local net = flare.nn.Sequential(flare.nn.Linear(8, 16), flare.nn.Tanh(), flare.nn.Linear(16, 4))
    local x = flare.randn(32, 8)
    local stop = flare.profile.start {energy = m}
    for _ = 1, 20 do net(x):square():mean():backward() end
    numbers("intel-rapl:0/energy_uj", 1000000 + 1000003)
    gpus {"GPU-aa11 0 0 1 0 250500 0 0 5007249"}
    local report = stop()
    assert.same({host = 1000003, ["cuda:0"] = 7249000}, report.energies)
    assert.equal(8249003, report.energy)
    for _, by in ipairs {"op", "kernel", "line", "launch", "module", "pass"} do
      local sum, time, list = 0, 0, report:sums(by)
      for _, s in ipairs(list) do
        assert.equal("integer", math.type(s.energy))
        sum, time = sum + s.energy, time + s.time
      end
      assert.equal(8249003, sum)
      for _, s in ipairs(list) do
        assert.is_true(math.abs(s.energy - 8249003 * s.time / time) <= 2)
      end
    end
    local text = report:text {by = "module", floor = false, tokens = 640}
    assert.match("^module .* mJ/token\n", text)
    assert.match("\n8.249 J, 0.01289 J a token, divided in proportion to time\n", text)
  end)

  it("divides a GPU's energy among its own launches", function()
    local list = {{time = 30, times = {cpu = 10, ["cuda:0"] = 20}}, {time = 10, times = {cpu = 10}},
                  {time = 60, times = {["cuda:0"] = 60}}, {time = 0, times = {}}}
    require "flare.profile.energy".divide(list,
      {["cuda:0"] = 1001, ["cuda:1"] = 10, host = 5000, cpu = 7})
    -- 20 and 60 of 80; 30, 10 and 60 of 100 for host and cuda:1; 10 and 10 of 20
    assert.equal(250 + 3 + 1500 + 4, list[1].energy)
    assert.equal(0 + 1 + 500 + 3, list[2].energy)
    assert.equal(751 + 6 + 3000, list[3].energy)
    assert.equal(0, list[4].energy)
  end)

  it("says why a profile has no energy", function()
    os.execute(("rm -r '%s'/*"):format(root))
    local m <close> = open {library = "none.so"}
    local stop = flare.profile.start {energy = m}
    local report = (function() flare.ones(3):exp() return stop() end)()
    assert.is_nil(report.energy)
    assert.match("\nno energy is measured: no use of the host", report:text {floor = false})
    assert.is_nil(report:sums "op"[1].energy)
  end)

  it("adds its figures to what a Trainer logs", function()
    local m <close> = open()
    local path = folder .. "/metrics.jsonl"
    local x = flare.randn(40, 4)
    local model = flare.nn.Linear(4, 1)
    local count = 0
    flare.train.Trainer {model = model, optimizer = flare.optim.SGD(model, {lr = 1e-3}),
      train = flare.data.Loader(flare.data.Tensors(x, x:sum(2, true)), {batch = 4}),
      loss = flare.mse_loss, epochs = 1, log = path, log_every = 5, progress = false,
      callbacks = {{step = function()
        count = count + 1 -- 2 J a step
        gpus {("GPU-aa11 50 0 1 0 250500 0 0 %d"):format(5000000 + 2000 * count)}
      end}, m:callback {tokens = 4}}}:fit()
    local rows = flare.log.read_metrics(path)
    assert.equal(3, #rows) -- two of steps, one of the epoch
    for k = 1, 2 do
      assert.equal(5 * k, rows[k].step)
      assert.equal(10, rows[k]["cuda:0/joules"])
      assert.equal(0.5, rows[k].joules_per_token)
      assert.equal(12000 * 1024, rows[k]["host/memory"])
      assert.is_number(rows[k].loss)
    end
    assert.is_nil(rows[3].joules)
  end)
end)
