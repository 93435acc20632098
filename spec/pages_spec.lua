-- Large blocks of a device whose memory can get other addresses: what is free in pieces is one
-- block when it is needed, and nothing that lives is touched.
local flare = require "flare"
local expect = require "spec.support.expect"
local fakes = require "spec.support.fakes"
local tree = require "spec.support.tree"
local core = flare.core
local MB = 1 << 20
local device = "sim:1"

local function block(bytes, on)
  return core.empty({math.ceil(bytes)}, {dtype = "u8", device = on or device})
end

local function stats() return core.memory.stats(device) end

local function clear()
  flare.synchronize(device)
  collectgarbage()
  core.memory.limit(0, device)
  core.memory.flush(device)
  core.memory.reset_peak(device)
end

describe("memory in pages", function()
  before_each(clear)
  after_each(clear)

  it("that is free in pieces is one block", function()
    local held = {}
    core.memory.limit(200 * MB, device)
    for k = 1, 12 do held[k] = block(16 * MB) end
    for k = 1, 12, 2 do held[k]:close() end
    for k = 2, 12, 2 do held[k]:fill_(k) end
    local before = stats()
    local large = block(90 * MB):fill_(100) -- of six pieces of 16 MB
    local s = stats()
    assert.equal(before.flushes, s.flushes)
    assert(s.moved > before.moved and s.reserved <= 200 * MB, s.reserved)
    for k = 2, 12, 2 do assert.equal(k * 16 * MB, held[k]:sum():item()) end
    assert.equal(100 * 90 * MB, large:sum():item())
    large:close()
    local again = block(90 * MB) -- without moving anything
    assert.equal(s.moved, stats().moved)
    again:close()
    expect.fails("out of memory on sim:1: asked for 115 MB", function() block(110 * MB) end)
  end)

  it("has fixed addresses with FLARE_MEMORY=segments", function()
    local out = tree.output(("FLARE_MEMORY=segments '%s/flare' -e '%s' 2>&1"):format(tree.build, [[
      local core = require "flare.core"
      local function block(mb)
        return core.empty({mb << 20}, {dtype = "u8", device = "sim:0"})
      end
      core.memory.limit(200 << 20, "sim:0")
      local held = {}
      for k = 1, 12 do held[k] = block(16) end
      for k = 1, 12, 2 do held[k]:close() end
      block(90)]]))
    assert.match("out of memory on sim:0: asked for 94.4 MB", out)
  end)

  it("holds any mixture of blocks up to the limit", function()
    local limit, least = 64 * MB, 600 << 10
    local generator, held, live = flare.generator(3), {}, 0
    local numbers = flare.rand(4000, {generator = generator}):totable()
    local at = 0
    local function random(n)
      at = at % #numbers + 1
      return math.min(math.floor(numbers[at] * n) + 1, n)
    end
    local streams = {flare.current_stream(device), flare.stream(device)}
    core.memory.limit(limit, device)
    local before, most = stats(), 0
    for k = 1, 500 do
      local bytes = random(3) == 1 and least + random(12 * MB) or least + random(2 * MB)
      while live + bytes > limit - 8 * MB do
        local one = table.remove(held, random(#held))
        assert.equal(one.value * one.bytes, one.x:sum():item())
        one.x:close()
        live = live - one.bytes
      end
      local stream = streams[k % 8 == 0 and 2 or 1]
      stream:run(function()
        local x = block(bytes):fill_(k % 50)
        stream:synchronize()
        held[#held + 1] = {x = x, bytes = bytes, value = k % 50}
      end)
      live = live + bytes
      most = math.max(most, live)
    end
    local s = stats()
    assert(most > limit - 12 * MB)
    assert.equal(before.flushes, s.flushes)
    assert(s.peak_reserved <= limit and s.moved > before.moved)
    for _, one in ipairs(held) do assert.equal(one.value * one.bytes, one.x:sum():item()) end
  end)

  it("is given back to the device", function()
    local held = {}
    local before = core.device_memory(device)
    for k = 1, 20 do held[k] = block(5 * MB * k) end
    local taken = stats().reserved
    assert.equal(before - taken, core.device_memory(device) + 0)
    for k = 1, 20, 2 do held[k]:close() end
    core.memory.flush(device)
    local s = stats()
    assert(s.reserved <= s.live + 20 * 128 * 1024, s.reserved - s.live)
    for k = 2, 20, 2 do held[k]:close() end
    core.memory.flush(device)
    assert.equal(0, stats().reserved)
    assert.equal(before, core.device_memory(device) + 0)
  end)

  it("moves while streams work, after them", function()
    local held = {}
    core.memory.limit(120 * MB, device)
    core.backend_control("sim", "delay_us", 2000)
    finally(function() core.backend_control("sim", "delay_us", 0) end)
    for k = 1, 6 do held[k] = block(16 * MB):fill_(k) end
    local sums = {}
    for k = 1, 6 do sums[k] = held[k]:sum() end
    for k = 1, 6, 2 do held[k]:close() end
    local large = block(56 * MB):fill_(9)
    for k = 1, 6 do assert.equal(k * 16 * MB, sums[k]:item()) end
    assert.equal(9 * 56 * MB, large:sum():item())
    assert(stats().moved > 0)
  end)

  it("on a GPU is mapped once, and nowhere else", function()
    local place = os.tmpname() .. ".d"
    finally(function() os.execute("rm -rf " .. place) end)
    fakes.machine(place)
    local said, status = fakes.run(place, "FLARE_CACHE=off FAKE_MEMORY=500000000", [[
      local flare = require "flare"
      local core, held, MB = flare.core, {}, 1 << 20
      local function block(bytes)
        return core.empty({bytes}, {dtype = "u8", device = "cuda"})
      end
      core.memory.limit(400 * MB, "cuda")
      local function churn()
        for k = 1, 12 do held[k] = block(32 * MB - 1000 * k) end
        for k = 1, 12, 2 do held[k]:close() held[k] = nil end
        held[1] = block(150 * MB)
        held[1]:close()
        held[1] = block(100 * MB)
        for k = 1, 12 do if held[k] then held[k]:close() held[k] = nil end end
      end
      churn()
      local s = core.memory.stats "cuda"
      print(s.moved > 0, s.flushes, s.reserved <= 400 * MB)
      core.memory.limit(0, "cuda")
      churn()
      for k = 1, 20 do -- until the driver has no more
        local ok, why = pcall(block, 40 * MB)
        if not ok then print(k, why:match "out of memory on cuda:0: asked for [%d.]+ MB") break end
        held[k] = why
      end
      for k = 1, 20, 2 do if held[k] then held[k]:close() end end
      local large = block(160 * MB)
      print(large:numel() // MB)
      large:close()
      for k = 2, 20, 2 do if held[k] then held[k]:close() end end
      core.memory.flush "cuda"
      print(core.memory.stats "cuda".reserved)
      local free, total = core.device_memory "cuda"
      print(free == total)]])
    assert.equal("true\t0\ttrue\n12\tout of memory on cuda:0: asked for 41.9 MB\n"
      .. "160\n0\ntrue\n", said)
    assert.equal(0, status)
  end)
end)
