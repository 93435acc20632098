-- Fourier transforms and windows.
local flare = require "flare"
local peers = require "spec.support.peers_data"
local rows = require "spec.support.rows"

require "spec.support.declare"("fft", describe, it)

local function tensor(a)
  return flare.tensor(a, {dtype = "f64"}):reshape(a.shape)
end

local function near(got, want, room)
  assert.equal(tostring(want.shape), tostring(got.shape))
  local off = (got - want):abs():max():item()
  assert(off <= room * (1 + want:abs():max():item()), ("off by %g"):format(off))
end

describe("transforms", function()
  for k, case in ipairs(peers) do
    it("give what NumPy gives, case " .. k, function()
      local x = tensor(case.x)
      local pairs_of_x = flare.stack({x, x * 0}, -1)
      near(flare.dft(pairs_of_x), tensor(case.fft), 1e-14)
      near(flare.rdft(x, 1), tensor(case.rfft), 1e-14)
      near(flare.dft(flare.dft(pairs_of_x), 1), tensor(case.fft2), 1e-14)
    end)
  end

  it("come back for every length", function()
    local generator = flare.generator(1)
    for n = 1, 130 do
      local x = flare.randn({3, n, 2}, {dtype = "f64", generator = generator})
      local y = flare.dft(flare.dft(x), {inverse = true, scale = 1 / n})
      near(y, x, 1e-14)
      local r = x:select(3, 1)
      near(flare.irdft(flare.rdft(r), {n = n, scale = 1 / n}), r, 1e-14)
    end
  end)

  it("of short lines are on each device what they are on the CPU", function()
    local generator = flare.generator(3)
    for _, device in ipairs(rows.devices) do
      for n = 1, 66 do
        for _, shape in ipairs {{2, n, 1}, {3, n, 5}, {1, n, 40}, {300, n, 1}} do
          local x = flare.randn({shape[1], n, shape[3], 2}, {generator = generator})
          local there, options = x:to(device), {dim = 2, inverse = n % 2 == 0, scale = 1 / n}
          near(flare.dft(there, options):to "cpu", flare.dft(x, options), 1e-6)
          local y = flare.rdft(x:select(-1, 1), {dim = 2})
          near(flare.rdft(there:select(-1, 1), {dim = 2}):to "cpu", y, 1e-6)
          options = {dim = 2, n = n, scale = 1 / n}
          near(flare.irdft(y:to(device), options):to "cpu", flare.irdft(y, options), 1e-6)
        end
      end
    end
  end)

  it("are sums over all elements in lines that are split", function()
    for _, n in ipairs {256, 512, 1024, 2048} do
      local k = flare.range(n, {dtype = "f64"}) - 1
      local angle = flare.remainder(k:unsqueeze(2) * k, n) * (2 * math.pi / n)
      local cos, sin = angle:cos(), angle:sin()
      local x = flare.randn({2, n, 2}, {dtype = "f64", generator = flare.generator(n)})
      local re, im = x:select(3, 1), x:select(3, 2)
      local want = flare.stack({re:mm(cos) + im:mm(sin), im:mm(cos) - re:mm(sin)}, -1)
      near(flare.dft(x), want, 1e-12)
      near(flare.dft(x:to "f32"):to "f64", want, 1e-6)
    end
  end)

  it("are sums over all elements in lines that become two dims", function()
    for _, shape in ipairs {{1, 16384}, {1, 48000}, {2, 1 << 18}} do
      local lines, n = table.unpack(shape)
      local x = flare.randn({lines, n, 2}, {dtype = "f64", generator = flare.generator(n)})
      local at = flare.tensor({1, 2, 130, n // 3, n}, {dtype = "i64"})
      local angle = (flare.range(n, {dtype = "i64"}) - 1):unsqueeze(2) * (at - 1)
      angle = flare.remainder(angle, n):to "f64" * (2 * math.pi / n)
      local cos, sin = angle:cos(), angle:sin()
      local re, im = x:select(3, 1), x:select(3, 2)
      for _, inverse in ipairs {false, true} do
        local s = inverse and -sin or sin
        local want = flare.stack({re:mm(cos) + im:mm(s), im:mm(cos) - re:mm(s)}, -1) * 0.5
        local options = {inverse = inverse, scale = 0.5}
        near(flare.dft(x, options):index_select(2, at), want, 1e-11)
        near(flare.dft(x:to "f32", options):index_select(2, at):to "f64", want, 1e-5)
      end
    end
  end)

  it("are as precise as their type in long ones", function()
    local n = 100003 -- a prime
    local x = flare.randn({n, 2}, {generator = flare.generator(2)})
    local wide = flare.dft(x:to "f64")
    near(flare.dft(x):to "f64", wide, 1e-6)
    near(flare.dft(wide, {inverse = true, scale = 1 / n}), x:to "f64", 1e-13)
  end)
end)
