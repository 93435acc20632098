-- Tensors that move into a part of another one's memory, as parameters do which are sent from where
-- they lie.
local core = require "flare.core"
local flare = require "flare"

describe("a tensor that moves", function()
  local function moved(x, from)
    local flat = flare.zeros({20}, {dtype = x.dtype})
    core.place(x, flat, from or 5)
    return flat
  end

  it("has its elements there, and nowhere else", function()
    local x = flare.tensor{{1, 2, 3}, {4, 5, 6}}:requires_grad_(true)
    local id, flat = x.id, moved(x)
    assert.equal(id, x.id)
    assert.is_true(x.requires_grad and x.is_leaf and x:shares(flat))
    assert.equal(4, x:storage_offset())
    assert.same({{1, 2, 3}, {4, 5, 6}}, x:tolist())
    assert.same({0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 0}, flat:narrow(1, 1, 11):tolist())
    flare.no_grad(function() x:mul_(2) end)
    assert.equal(42, flat:sum():item())
    flat:fill_(1)
    x:square():sum():backward()
    assert.same({{2, 2, 2}, {2, 2, 2}}, x.grad:tolist())
    assert.is_false(x.grad:shares(flat))
  end)

  it("takes along what sees it", function()
    local x = flare.arange(1, 7):view(2, 3)
    local row, turned, same, all = x[2], x:t(), x:detach(), x:view(6)
    local flat = moved(x)
    flat:narrow(1, 5, 6):mul_(10)
    assert.same({40, 50, 60}, row:tolist())
    assert.same({{10, 40}, {20, 50}, {30, 60}}, turned:tolist())
    assert.same(x:tolist(), same:tolist())
    row:fill_(7)
    assert.equal(10 + 20 + 30 + 21, all:sum():item())
    assert.is_true(turned:shares(flat) and same:shares(flat))
  end)

  it("leaves what sees more than it where it was", function()
    local big = flare.arange(1, 11)
    local x = big:narrow(1, 3, 4):detach()
    local inside, across = x:narrow(1, 2, 2), big:narrow(1, 6, 3)
    local flat = moved(x, 1)
    flat:fill_(0)
    assert.same({0, 0}, inside:tolist())
    assert.equal(55, big:sum():item())
    assert.same({6, 7, 8}, across:tolist())
    assert.same({0, 0, 0, 0}, x:tolist())
  end)

  it("moves on, and is contiguous afterwards", function()
    local x = flare.arange(1, 7):view(2, 3):t():detach()
    local first = moved(x)
    assert.is_true(x:is_contiguous())
    local second = moved(x, 15)
    first:fill_(0)
    assert.same({1, 4, 2, 5, 3, 6}, second:narrow(1, 15, 6):tolist())
    assert.same({{1, 4}, {2, 5}, {3, 6}}, x:tolist())
  end)

  it("gives its memory back", function()
    collectgarbage()
    collectgarbage()
    local before = flare.memory.stats("cpu").live
    local x = flare.zeros{1000}
    local flat <close> = flare.zeros{1000}
    core.place(x, flat, 1)
    assert.equal(before + 4000, flare.memory.stats("cpu").live)
    x:close()
  end)

  it("is a write for what a tape has kept, and for casts", function()
    local x = flare.ones{3}:requires_grad_(true)
    local y = x:square():sum()
    moved(x)
    assert.error_matches(function() y:backward() end, "changed in place")
    flare.autocast("bf16", function()
      local w = flare.ones({4, 4}):requires_grad_(true)
      local a = flare.ones{4, 4}
      assert.equal(64, a:matmul(w):sum():item())
      local flat = moved(w)
      flat:fill_(2)
      assert.equal(128, a:matmul(w):sum():item())
    end)
  end)

  it("is refused where it has no room, or a history", function()
    local x = flare.zeros{3}
    for _, flat in ipairs {flare.zeros{2}, flare.zeros({9}, {dtype = "f64"}),
      flare.zeros({3, 3}):t(), flare.zeros{9}:requires_grad_(true), x} do
      assert.error_matches(function() core.place(x, flat, 1) end,
        "a tensor of 3 elements moves into a contiguous one of its dtype")
    end
    assert.error_matches(function() core.place(x, flare.zeros{4}, 3) end, "from element 3 on")
    assert.error_matches(function() core.place(x, flare.zeros{4}, 0) end, "from element 0 on")
    local y = flare.ones{3}:requires_grad_(true) * 2
    assert.error_matches(function() core.place(y, flare.zeros{4}, 1) end, "without history")
    x:close()
    assert.error_matches(function() core.place(x, flare.zeros{4}, 1) end, "closed")
  end)
end)
