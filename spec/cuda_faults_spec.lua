-- Messages about a GPU that fails, runs out of memory or never ends, on a simulated one:
-- its memory is the host's and its kernels do what the environment says.
local fakes = require "spec.support.fakes"
local tree = require "spec.support.tree"

local place = os.tmpname() .. ".d"

-- Lines 2 and 3 make a kernel `bad`; x and y are tensors.
local head = [==[
local flare = require "flare"
local bad = flare.cuda.kernel{name = "bad", source = [[
extern "C" __global__ void bad(float *x) {}]]}
local x = flare.ones(4, {device = "cuda"}) local y = flare.zeros_like(x)
]==]

local function run(settings, script)
  return fakes.run(place, "FLARE_CACHE=off " .. settings, head .. script)
end

local ending = "; CUDA cannot be used any more in this process: start it again"
local access = "cuda:0: an illegal memory access was encountered (700)"

local function says(said, text)
  assert(said:find(text, 1, true), ("%s\nis not in\n%s"):format(text, said))
end

describe("a GPU that", function()
  setup(function() fakes.machine(place) end)
  teardown(function() os.execute("rm -rf " .. place) end)

  it("fails in a kernel is reported with the kernel and its line", function()
    local said, status = run("FAKE_FAULT=bad:700", "bad(x)\nx:tolist()\n")
    says(said, "script.lua:6: " .. access .. " in the kernel bad" .. ending
      .. " (launched at script.lua:5)")
    assert.equal(1, status)
    says(run("FAKE_FAULT=bad:716", "bad(x)\nx:tolist()"),
      "misaligned address (716) in the kernel bad")
    says(run("FAKE_FAULT=bad:710", "bad(x)\nx:tolist()"),
      "device-side assert triggered (710) in the kernel bad")
    says(run("FAKE_FAULT=bad:214", "bad(x)\nx:tolist()"), "cuda:0: something else (214)")
  end)

  it("has failed says so again, whatever is asked of it, and ends quietly", function()
    local said, status = run("FAKE_FAULT=bad:700", [[
bad(x)
y = y + 1
]])
    says(said, "script.lua:6: ")
    assert.equal(1, status)
    said, status = run("FAKE_FAULT=bad:700", [[
bad(x)
local told = {}
local function try(f, ...) told[#told + 1] = select(2, pcall(f, ...)) end
try(function() return y + 1 end)
try(x.tolist, x)
try(x.to, x, "cpu")
try(bad, y)
try(flare.zeros, 1000000, {device = "cuda"})
try(flare.ones, 3, {device = "cuda"})
try(x.copy_, x, flare.ones(4))
try(flare.synchronize)
try(x.clone, x)
for i, message in ipairs(told) do
  print((message:gsub("^script.lua:%d+: ", ""):gsub("^.*/script.lua:%d+: ", "")))
end
print(flare.ones(3):sum():item())
x, y = nil, nil
collectgarbage()
collectgarbage()
]])
    local lines = {}
    for line in said:gmatch "[^\n]+" do lines[#lines + 1] = line end
    assert.equal(10, #lines, said)
    for i = 1, 9 do
      says(lines[i], access .. " in the kernel bad" .. ending)
    end
    assert.equal("3.0", lines[10])
    assert.equal(0, status)
  end)

  it("fails later names the first kernel that can be the cause, or all of them", function()
    says(run("FAKE_FAULT=bad:700", "bad(x)\nbad(y)\nx:tolist()"), "script.lua:6: " .. access)
    says(run("FAKE_FAULT=forward:700", "flare.synchronize()\nx:softmax(1)\nx:tolist()"),
      access .. " in the operator softmax" .. ending .. " (launched at script.lua:6)")
    says(run("FAKE_FAULT=forward:700",
      "flare.synchronize()\nx = x + 1\nx = x + 1\nx:softmax(1)\nx:tolist()"),
      access .. " in one of the last 3 operators, the first of them add (FLARE_SYNC=1 finds out "
      .. "which)" .. ending .. " (launched at script.lua:6)")
  end)

  it("fails at the very line with FLARE_SYNC=1", function()
    says(run("FAKE_FAULT=forward:700 FLARE_SYNC=1",
      "x = x + 1\nx = x + 1\nx:softmax(1)\nx:tolist()"),
      "script.lua:7: " .. access .. " in the operator softmax" .. ending)
    says(run("FAKE_FAULT=bad:700 FLARE_SYNC=1", "bad(x)\nx:tolist()"),
      "script.lua:5: " .. access .. " in the kernel bad" .. ending)
  end)

  it("never ends lets Ctrl-C through, and the program out", function()
    local path = place .. "/forever.lua"
    local file = assert(io.open(path, "w"))
    file:write(head, "bad(x)\nio.write 'waiting\\n' io.flush()\nx:tolist()\n")
    file:close()
    local shell = [[
%s >'%s/said' 2>&1 & child=$!
until grep -q waiting '%s/said'; do sleep 0.01; done
sleep 0.1; before=$(date +%%s%%N); kill -INT $child; wait $child; status=$?
echo $status $((($(date +%%s%%N) - before) / 1000000))]]
    local command = fakes.command(place, "FAKE_HANG=bad FLARE_CACHE=off", path)
    local press = assert(io.open(place .. "/press.sh", "w"))
    press:write("set -m\n", shell:format("env " .. command, place, place))
    press:close()
    local out = tree.output(("bash '%s' 2>/dev/null"):format(place .. "/press.sh"))
    local status, ms = out:match "(%d+) (%d+)"
    assert.equal("1", status, out .. tree.read(place .. "/said"))
    says(tree.read(place .. "/said"), "forever.lua:7: interrupted!")
    assert(tonumber(ms) < 10000, ms .. " ms: it was waited for") -- 30 ms on a machine that rests
  end)

  it("runs out of memory gives the figures, and continues with smaller tensors", function()
    local said, status = run("FAKE_MEMORY=200000000", [[
local big = flare.zeros(30000000, {device = "cuda"})
local ok, message = pcall(flare.zeros, 25000000, {device = "cuda"})
print(ok, message)
print(flare.zeros(2000000, {device = "cuda"}):numel())
]])
    assert.equal(0, status)
    local reserved, free, total, most = said:match(
      "^false\t[^\n]*out of memory on cuda:0: asked for 100 MB; live 120 MB in 3 blocks, "
      .. "reserved (%S+) MB, .-; the device has (%S+) MB free of (%S+) MB; held most: (%S+) MB "
      .. "[^\n]*script.lua:5,")
    assert(most == "120" and total == "200", said)
    assert(math.abs(free - (200 - reserved)) < 1, said)
    says(said, "\n2000000\n")
  end)

  it("draws do not wait for work queued before them", function()
    local said, status = fakes.run(place, "FLARE_CACHE=off FAKE_HANG='randn<1>'", [[
local flare = require "flare"
local half = flare.full({4, 8}, 0.5, {device = "cuda"})
flare.randn({8}, {device = "cuda"}) -- never ends: the wait leaves with status 99
local core = require "flare.core"
core.ops.bernoulli(half)
core.ops.poisson(half)
core.ops.gamma(half)
for _, n in ipairs {1, 3, 20} do core.ops.multinomial(half, n, {replacement = true}) end
core.ops.multinomial(half, 3)
print "queued"
io.stdout:flush()
os.exit(0, false)
]])
    assert.equal("queued\n", said)
    assert.equal(0, status)
  end)
end)
