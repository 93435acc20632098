-- Adam8bit and AdamW8bit beside bitsandbytes' quantisation (spec/support/adam8bit_data.py).
local flare = require "flare"
local launch = require "spec.support.launch"
local message = require "spec.support.expect".message
local data = require "spec.support.adam8bit_data"
local optim = flare.optim

local N, STEPS = 5000, 6
local i = flare.arange(1, N + 1, {dtype = "f64"})

local function gradient(t)
  return ((i * 0.37 + t * 1.3):sin() * flare.pow(10, i:remainder(5) - 4)):to "f32"
end

local function start(dtype) return (i * 0.11):sin():to(dtype):requires_grad_(true) end

local function steps(opt, p, first, last)
  for t = first, last do
    p.grad = gradient(t):view(p.shape):to(p.dtype)
    opt:step()
  end
end

-- The elements that the data have: 1, 42, 83, ...
local function some(x) return x:detach():reshape(-1)[{{1, -1, 41}}]:to "f64" end

local function far(x, list) return (x - flare.tensor(list, {dtype = "f64"})):abs():amax():item() end

describe("optimizers of 8 bits", function()
  for _, name in ipairs {"Adam8bit", "AdamW8bit"} do
    it(name .. " takes the steps of moments in blocks by the dynamic map", function()
      for dtype, tolerance in pairs {f64 = 2e-6, f32 = 3e-6} do
        local p = start(dtype)
        local opt = optim[name]({p}, {lr = 0.01, weight_decay = 0.1})
        steps(opt, p, 1, STEPS)
        local state = opt.groups[1].state[1].moments
        assert.is_true(far(some(p), data[name].p) < tolerance)
        -- f32 rounds some numbers between two codes to the other one
        assert.is_true(far(some(state[1]), data[name].mean) <= 1)
        assert.is_true(far(some(state[3]), data[name].square) <= 1)
        assert.is_true(far(state[2]:to "f64", data[name].scales) < 1e-6)
      end
    end)
  end

  it("have states of a byte for each element", function()
    local p = start "f32"
    local opt = optim.AdamW8bit({p}, {lr = 0.01})
    steps(opt, p, 1, 1)
    local bytes = 0
    for _, x in ipairs(opt.groups[1].state[1].moments) do bytes = bytes + #x:bytes() end
    assert.equal(2 * (N + 4 * 20), bytes)
  end)

  it("use all codes of bitsandbytes' map", function()
    for key, signed in pairs {signed = true, unsigned = false} do
      local map = data.maps[key]
      assert.equal(256, #map)
      -- the moments of a step are 0.1 g and 0.001 g^2: each code of a block of its numbers
      local x = flare.tensor(map, {dtype = "f32"}):to "f64"
      local p = flare.zeros(256, {requires_grad = true})
      p.grad = (signed and x * 10 or (x * 1000):sqrt()):to "f32"
      local opt = optim.Adam8bit({p}, {min_size = 0})
      opt:step()
      local codes = opt.groups[1].state[1].moments[signed and 1 or 3]
      local off = (codes:to "i64" - flare.arange(0, 256)):abs():amax():item()
      assert.equal(0, off)
    end
  end)

  it("continue from a file, with groups, and on devices", function()
    local plain = start "f32"
    local opt = optim.AdamW8bit({plain}, {lr = 0.01})
    steps(opt, plain, 1, STEPS)
    for _, device in ipairs {"cpu", "sim:0"} do
      local p = start "f32":detach():to(device):requires_grad_(true)
      local first, path = optim.AdamW8bit({p}, {lr = 0.01}), os.tmpname()
      local function on(o, from, to)
        for t = from, to do
          p.grad = gradient(t):to(device)
          o:step()
        end
      end
      on(first, 1, 3)
      assert(flare.save(path, first:state_dict()))
      local second = optim.AdamW8bit({{params = {p}, lr = 0.01}})
      second:load_state_dict(assert(flare.load(path)))
      os.remove(path)
      on(second, 4, STEPS)
      assert.is_true(p:cpu():eq(plain):all():item())
    end
  end)

  it("take 16-bit, transposed and climbing parameters", function()
    local low, high = start "bf16", start "bf16":detach():to("f32"):requires_grad_(true)
    local a, b = optim.Adam8bit({low}, {lr = 0.01}), optim.Adam8bit({high}, {lr = 0.01})
    for t = 1, 3 do
      local g = gradient(t):to "bf16"
      low.grad, high.grad = g, g:to "f32"
      a:step()
      b:step()
    end
    assert.is_true(low:detach():eq(high:detach():to "bf16"):all():item())
    local function turned(x) return x:detach():view(50, 100):t() end
    local p, q = turned(start "f32"):contiguous():requires_grad_(true),
                 turned(start "f32"):requires_grad_(true)
    local one, other = optim.Adam8bit({p}), optim.Adam8bit({q}, {maximize = true})
    for t = 1, 3 do
      p.grad, q.grad = turned(gradient(t)), -turned(gradient(t))
      one:step()
      other:step()
    end
    assert.is_true(p:detach():eq(q:detach()):all():item())
    assert.match("block must be a power of 2", message(function()
      optim.Adam8bit({start "f32"}, {block = 100})
    end))
  end)

  it("continue from ZeRO's files with as many ranks", function()
    local text = [[
      flare.manual_seed(2)
      local model = flare.nn.Sequential(flare.nn.Linear(100, 90), flare.nn.Linear(90, 1))
      local x = flare.randn(16, 100)
      local zero = dist.ZeRO(model, function(p) return flare.optim.AdamW8bit(p) end, {stage = 1})
      local function step()
        zero:zero_grad()
        zero(x):square():mean():backward()
        zero:step()
      end
    ]]
    local folder = launch.folder(text .. [[
      step()
      assert(zero:save "saved")
      step()
      local want = model:state_dict()["1.weight"]:clone()
      assert(zero:load "saved")
      step()
      assert(model:state_dict()["1.weight"]:eq(want):all():item())
    ]])
    local status, out = launch.shell(folder, "exec $J -n 2 --tee all script.lua", 60)
    assert.equal(0, status, out)
    local file <close> = assert(io.open(folder .. "/script.lua", "w"))
    file:write('local flare = require "flare"\nlocal dist = flare.dist\ndist.init()\n', text,
               'print(zero:load "saved")')
    file:close()
    status, out = launch.shell(folder, "exec $F script.lua", 60)
    launch.remove(folder)
    assert.equal(0, status, out)
    assert.match("the checkpoint is of 2 ranks, not of 1", out)
  end)
end)
