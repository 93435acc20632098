-- The profiler: which launches and transfers it counts, forward and backward apart, by operator,
-- line and module, with the peak of memory; and what it writes.
local flare = require "flare"
local tree = require "spec.support.tree"
local nn = flare.nn

local function names(list)
  local by = {}
  for _, s in ipairs(list) do by[s.name] = s end
  return by
end

describe("a profile", function()
  local function work(device)
    local w = flare.ones(8, 8, {device = device}):requires_grad_(true)
    local x = flare.ones(4, 8, {device = device})
    return flare.profile(function(scale)
      local y = (x:matmul(w) * scale):sum()
      y:backward()
      return y:item()
    end, 2)
  end

  for _, device in ipairs {"cpu", "sim:0"} do
    it("counts launches by operator, forward and backward apart, on " .. device, function()
      local report = work(device)
      assert.same({512, n = 1}, report.results)
      local by = names(report:sums "op")
      assert.equal(1, by["matmul"].calls)
      assert.equal(1, by["matmul (backward)"].calls) -- x needs no gradient
      assert.equal(1, by["sum"].calls)
      assert.equal(0, report.lost)
      local pass = names(report:sums "pass")
      assert.equal(3, pass.forward.calls)
      assert.equal(report.count, pass.forward.calls + pass.backward.calls
        + (device == "cpu" and 0 or 1)) -- item() copies
    end)
  end

  it("knows lines, operations and bytes", function()
    local by_line, by_op = work("cpu"):sums "line", names(work("cpu"):sums "op")
    assert.truthy(by_line[1].name:find("profile_spec.lua:%d+"))
    assert.equal(2 * 4 * 8 * 8, by_op.matmul.flops)
    assert.is_true(by_op.matmul.bytes >= 4 * (4 * 8 + 8 * 8 + 4 * 8))
    for _, sum in pairs(by_op) do assert.is_true(sum.host > 0) end
  end)

  it("counts transfers apart, with their lines", function()
    local report = flare.profile(function()
      local x = flare.ones(256):to "sim:0"
      return (x + 1):totable()
    end)
    local by = names(report:sums("op", {transfers = true}))
    assert.equal(1024, by["copy to the device"].bytes)
    assert.equal(1024, by["copy to the host"].bytes)
    assert.is_nil(names(report:sums "op")["copy to the device"])
    for _, s in ipairs(report:sums("line", {transfers = true})) do
      assert.truthy(s.name:find "profile_spec.lua:%d+", s.name)
    end
    assert.truthy(tostring(report):find "\ncopies +times +B +device [um]s +host [um]s\n")
    assert.truthy(tostring(report):find "\ncopy to the host +1 +1024%.0 +[%d.]+ +[%d.]+\n")
    assert.truthy(tostring(report):find(
      "sim:0: %d+ launches, [%d.]+ us of the host each; busy %d+%%"))
  end)

  it("knows the path of the module, in backward too", function()
    local Net = flare.class("Net", nn.Module)
    function Net:init() self.blocks = nn.ModuleList {nn.Linear(4, 8), nn.Linear(8, 2)} end
    function Net:forward(x) return self.blocks[2](self.blocks[1](x):relu()) end
    local net, x = Net(), flare.rand(3, 4)
    local report = flare.profile(function() (net(x):sum() * 2):backward() end)
    local by = names(report:sums "module")
    for name, calls in pairs {["Net.blocks.1"] = 1, ["Net.blocks.2"] = 1, Net = 1, -- relu
                              ["(outside of modules)"] = 2, ["Net (backward)"] = 1} do
      assert.equal(calls, by[name] and by[name].calls, name)
    end
    assert.is_true(by["Net.blocks.1 (backward)"].calls >= 1)
    assert.is_true(by["Net.blocks.2 (backward)"].calls >= 2)
    local lines = names(report:sums "line") -- of the script, not of the library
    for name in pairs(lines) do assert.truthy(name:find "profile_spec.lua:%d+", name) end
    local one = names(report:sums("module", {depth = 1}))
    assert.equal(3, one.Net.calls)
    net(x) -- the profile has ended
    assert.is_true(pcall(net, x))
  end)

  it("gives a module what a checkpoint in it computes again", function()
    local Net = flare.class("Net", nn.Module)
    function Net:init() self.first, self.last = nn.Linear(4, 8), nn.Linear(8, 2) end
    function Net:forward(x)
      return self.last(flare.checkpoint(function(h) return self.first(h):relu():exp() end, x))
    end
    local net, x = Net(), flare.rand(3, 4)
    local report = flare.profile(function() net(x):sum():backward() end)
    local by = names(report:sums "module")
    -- two products and a sum of columns; the gradients of exp and relu, which are computed again
    assert.equal(3, by["Net.last (backward)"].calls)
    assert.equal(4, by["Net (backward)"].calls)
  end)

  it("knows the lines of tensors that were moved to a device", function()
    local x = flare.ones(1 << 16)
    local report = flare.profile(function()
      local y <close> = x:to "sim:0"
      local wide <close> = x:to("sim:0", "f64")
      local _ <close> = y + 1
      return wide:numel()
    end)
    for _, p in ipairs(report.peaks) do
      assert.is_nil(p.holders:find("?", 1, true), p.holders)
    end
    assert.is_nil(tostring(report):find("no line is known", 1, true))
  end)

  it("knows who held memory when there was the most", function()
    local report = flare.profile(function()
      local a <close> = flare.zeros(1 << 18, {device = "sim:0"})
      local _ <close> = a + 1
    end)
    local peak = names((function(list)
      for _, p in ipairs(list) do p.name = p.device end
      return list
    end)(report.peaks))["sim:0"]
    assert.is_true(peak.bytes >= 2 << 20 and peak.bytes < 3 << 20, peak.bytes)
    assert.truthy(peak.holders:find "1.05 MB spec/profile_spec.lua:%d+", peak.holders)
    assert.truthy(tostring(report):find "sim:0: at most 2[%d.]* MiB in tensors, held by:")
  end)

  it("knows the floor", function()
    local x = flare.rand(1 << 18)
    local report = flare.profile(function() return x + 1 end)
    local by = names(report:sums("op", {floor = true}))
    assert.is_true(by.add.floor > 0)
    assert.is_nil(names(report:sums "op").add.floor)
    local sim = flare.profile(function() return flare.ones(4, {device = "sim:0"}) end)
    assert.is_nil(sim:sums("op", {floor = true})[1].floor)
  end)

  it("is a table in words", function()
    local text = tostring(work "cpu")
    assert.truthy(text:find "matmul %(backward%)")
    assert.truthy(text:find "\nforward: 3 calls, 3 kernels, [%d.]+ [um]s\n")
    assert.truthy(work("cpu"):text({most = 1}):find "%.%.%. and %d more")
  end)

  it("counts calls of operators and the kernels that they launch", function()
    local x = flare.rand(64, 64)
    local report = flare.profile(function()
      for _ = 1, 3 do x:std(1) end
      return x + 1
    end)
    local op, kernel = names(report:sums "op"), names(report:sums "kernel")
    assert.equal(3, op.std.calls)
    assert.is_nil(op.var)
    assert.equal(3, kernel.var.kernels)
    assert.is_nil(kernel.std)
    local launches = 0
    for _, s in pairs(kernel) do launches = launches + s.kernels end
    assert.equal(report.count, launches)
    assert.equal(launches - 1, op.std.kernels)
    assert.is_true(op.std.kernels >= 6)
    assert.equal(4, report:sums("pass")[1].calls)
    assert.equal("std", report:row(1).called)
    assert.truthy(report:text():find("\nstd +3 +" .. op.std.kernels .. " "))
  end)

  it("has one unit for each column, and FLOPs", function()
    local x, y = flare.rand(256, 256), flare.rand(4)
    local text = flare.profile(function() return x:matmul(x), y + y end):text {floor = false}
    local lines = {}
    for line in text:gmatch "[^\n]+" do lines[#lines + 1] = line end
    assert.match("^op +calls +kernels +device [um]s +share +host [um]s +MFLOP +GB/s +TFLOP/s +f",
                 lines[1])
    assert.match("^matmul +1 +1 +[%d.]+ +[%d.]+%% +[%d.]+ +33%.6 ", text:match "matmul[^\n]*")
    assert.match("^add +1 +1 +[%d.]+ +[%d.]+%% +[%d.]+ +0%.0 ", text:match "\n(add[^\n]*)")
    local report = flare.profile(function() return y + y end)
    report.rows = nil
    function report.sums(_, by)
      return by == "op" and {
        {name = "a", calls = 1, kernels = 2, time = 25e3, host = 12, flops = 3e12, bytes = 8},
        {name = "b", calls = 1, kernels = 1, time = 10, host = 12e3, flops = 1e9, bytes = 8},
      } or {}
    end
    report.count = 0
    text = report:text {floor = false}
    assert.match("^op +calls +kernels +device ms +share +host ms +GFLOP ", text)
    assert.match("\na +1 +2 +25%.0 +100%.0%% +0%.0 +3000%.0 ", text)
    assert.match("\nb +1 +1 +0%.0 +0%.0%% +12%.0 +1%.0 ", text)
  end)

  it("explains a line that is not known", function()
    local x = flare.ones(8)
    local report = flare.profile(function() -- no function of Lua runs in this coroutine
      return coroutine.wrap(flare.rand)(8)
    end)
    local text = report:text {by = "line"}
    assert.match("\n%? +1 +1 ", text)
    assert.truthy(text:find("\n?: no line is known, since the call came from C or from Lua code "
      .. "that was compiled without line numbers\n", 1, true), text)
    assert.is_nil(flare.profile(function() return x * 2 end):text {by = "line"}:find "no line is")
  end)

  it("ends with an error in it", function()
    assert.has_error(function() flare.profile(function() error("stop", 0) end) end, "stop")
    local ok, why = pcall(flare.core.profile_stop)
    assert.is_false(ok)
    assert.truthy(tostring(why):find "not running")
  end)

  it("keeps as many launches as the option `most` says, and there is one at a time", function()
    local stop = flare.profile.start {most = 3}
    assert.error_matches(function() flare.profile(print) end, "running already")
    for _ = 1, 5 do local _ = flare.ones(2) + 1 end
    local report = stop()
    assert.equal(3, report.count)
    assert.equal(7, report.lost)
    assert.truthy(tostring(report):find "7 launches more were not kept")
  end)

  it("refuses an unknown sum by name", function()
    assert.error_matches(function() work("cpu"):sums "file" end,
      "by 'op', 'kernel', 'line', 'launch', 'module' or 'pass'")
  end)
end)

describe("a trace", function()
  local function events(path)
    local text = path:find "%.gz$" and flare.core.gunzip(path) or tree.read(path)
    local list = {}
    for _, e in ipairs(flare.core.json.decode(text).traceEvents) do
      if e.ph == "X" then list[#list + 1] = e end
    end
    return list, #text
  end

  it("has every launch, on the host and on the device", function()
    local report, path = flare.profile(function()
      return (flare.ones(4, {device = "sim:0"}) + 1):sum():item()
    end), os.tmpname()
    assert.is_true(report:trace(path))
    local list = events(path)
    os.remove(path)
    assert.equal(2 * report.count, #list)
    assert.equal("forward", list[1].cat)
    assert.truthy(list[1].args.line:find "profile_spec.lua")
  end)

  it("is compressed, and has a limit", function()
    local report = flare.profile(function()
      local x = flare.rand(64)
      for _ = 1, 2000 do local _ <close> = x + 1 end
      for _ = 1, 5 do local _ = flare.rand(1 << 19):exp() end
    end)
    local path = os.tmpname() .. ".json.gz"
    assert.is_true(report:trace(path))
    local list, size = events(path)
    assert.equal(report.count, #list)
    assert.is_true(#tree.read(path) < size / 5)
    assert.is_true(report:trace(path, {most = 100}))
    list = events(path)
    os.remove(path)
    assert.equal(100, #list)
    local long = 0
    for _, e in ipairs(list) do if e.name == "exp" then long = long + 1 end end
    assert.equal(5, long) -- the longest are kept
  end)

  it("is refused where it cannot be written", function()
    local report = flare.profile(function() return flare.ones(2) end)
    local ok, why = report:trace "/nowhere/trace.json"
    assert.is_nil(ok)
    assert.truthy(why:find "/nowhere/trace.json")
  end)
end)

describe("flare --profile", function()
  local program = tree.build .. "/flare"
  local script = os.tmpname()
  setup(function()
    local file <close> = assert(io.open(script, "w"))
    file:write [[
      local flare = require "flare"
      print((flare.ones(100) * 2):sum():item(), arg[1])
      if arg[1] == "fail" then error "failed" end
      if arg[1] == "exit" then os.exit(3) end
    ]]
  end)
  teardown(function() os.remove(script) end)

  it("tells where a script's time went", function()
    local trace = script .. ".json.gz"
    local out = tree.output(("'%s' --profile='%s' '%s' word 2>&1; echo status=$?"):format(
      program, trace, script))
    assert.truthy(out:find "200.0\tword", out)
    assert.truthy(out:find "\nop +calls +kernels +device [um]s", out)
    assert.truthy(out:find "\nline +calls", out)
    assert.truthy(out:find "status=0", out)
    assert.equal("\31\139", tree.read(trace):sub(1, 2))
    os.remove(trace)
  end)

  it("does so when the script fails, too", function()
    local command = "'%s' --profile '%s' fail 2>&1; echo status=$?"
    local out = tree.output(command:format(program, script))
    assert.truthy(out:find "failed\n", out)
    assert.truthy(out:find "forward: %d+ calls", out)
    assert.truthy(out:find "status=1", out)
    out = tree.output((command:gsub("fail", "exit")):format(program, script))
    assert.truthy(out:find "forward: %d+ calls.*status=3", out)
    out = tree.output(("'%s' --profile 2>&1; echo status=$?"):format(program))
    assert.truthy(out:find "%-%-profile wants a script\nstatus=1", out)
  end)

  it("shows ranges to NVIDIA's tools, if their library is there", function()
    local folder = os.tmpname() .. ".d"
    local source = folder .. "/nvtx.c"
    assert(os.execute("mkdir " .. folder))
    local file <close> = assert(io.open(source, "w"))
    file:write [[
      #include <stdio.h>
      int nvtxRangePushA(const char *name) { return fprintf(stderr, "[%s\n", name); }
      int nvtxRangePop(void) { return fprintf(stderr, "]\n"); }
    ]]
    file:close()
    assert.equal("", tree.output(("%s -shared -fPIC -o '%s/libnvtx3interop.so.1' '%s' 2>&1"):format(
      os.getenv "CC" or "cc", folder, source)))
    local command = "FLARE_CUDA_PATH='%s' FLARE_NVTX=1 %s '%s' --profile '%s' 2>&1"
    local out = tree.output(command:format(folder, "", program, script))
    assert.truthy(out:find "%[profile\n", out)
    assert.truthy(out:find("[mul " .. script .. ":2\n]", 1, true), out)
    out = tree.output(command:format("", "FLARE_CUDA_HIDE=libnvtx3interop", program, script))
    assert.truthy(out:find "NVTX: libnvtx3interop.so.1 is hidden", out)
    os.execute("rm -rf " .. folder)
  end)
end)
