-- index_copy_ writes the rows of the index and nothing else, as caches of keys and values need it.
local flare = require "flare"
local rows = require "spec.support.rows"
local fakes = require "spec.support.fakes"

for _, device in ipairs(rows.devices) do
  describe("index_copy_ on " .. device, function()
    local function i64(t) return flare.tensor(t, {dtype = "i64", device = device}) end
    local function range(...) return flare.arange(1, 13, {device = device}):view(...):to "f32" end

    it("takes rows of the tensor itself as they were", function()
      local x = range(4, 3)
      x:index_copy_(1, i64{2, 3, 4, 1}, x)
      assert.same({{10, 11, 12}, {1, 2, 3}, {4, 5, 6}, {7, 8, 9}}, x:tolist())
      x = range(4, 3)
      x:index_copy_(1, i64{2, 3}, x[{{1, 2}}])
      assert.same({{1, 2, 3}, {1, 2, 3}, {4, 5, 6}, {10, 11, 12}}, x:tolist())
    end)

    it("writes into views, contiguous or not", function()
      local x = range(3, 4)
      x:transpose(1, 2):index_copy_(1, i64{4}, flare.zeros({1, 3}, {device = device}))
      x[2]:index_copy_(1, i64{1, 1}, flare.tensor({-1, -2}, {device = device}))
      assert.same({{1, 2, 3, 0}, {-2, 6, 7, 0}, {9, 10, 11, 0}}, x:tolist())
    end)

    it("has a gradient, of what was there and of what came", function()
      local x = range(4, 3):requires_grad_(true)
      local row = flare.ones({1, 3}, {device = device}):requires_grad_(true)
      local y = x * 2
      y:index_copy_(1, i64{3}, row)
      y:square():sum():backward()
      assert.same({{8, 16, 24}, {32, 40, 48}, {0, 0, 0}, {80, 88, 96}}, x.grad:tolist())
      assert.same({{2, 2, 2}}, row.grad:tolist())
    end)

    it("leaves the tensor alone where a position is out of range", function()
      local x = range(4, 3)
      assert.is_false(pcall(function()
        x:index_copy_(1, i64{9}, flare.zeros({1, 3}, {device = device}))
        flare.synchronize()
      end))
      assert.equal(78, x:sum():item())
    end)
  end)
end

describe("index_copy_ on a GPU", function()
  it("of one row is one launch", function()
    local place = os.tmpname() .. ".d"
    fakes.machine(place)
    local said = fakes.run(place, ("FLARE_CACHE=off FAKE_LAUNCHED='%s/launched'"):format(place), [[
local flare = require "flare"
local device = {device = "cuda"}
local x, at = flare.zeros({64, 8}, device), flare.ones({1}, {dtype = "i64", device = "cuda"})
local row = flare.ones({1, 8}, device)
io.open(os.getenv "FAKE_LAUNCHED", "w"):close()
x:index_copy_(1, at, row)
print(io.open(os.getenv "FAKE_LAUNCHED"):read "a")
]])
    os.execute("rm -rf " .. place)
    assert.equal("put<16>\n\n", said)
  end)
end)
