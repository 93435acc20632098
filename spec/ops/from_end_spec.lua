-- Positions that count from the end. A row's inputs of type index take them, -1 being the last; its
-- inputs of type id (class labels, ids of embeddings) refuse negative numbers. Which of the two an
-- input is stands in the row's signature.
local flare = require "flare"
local core = require "flare.core"
local rows = require "spec.support.rows"

local function i64(list, device) return flare.tensor(list, {dtype = "i64"}):to(device) end
local function range(...)
  return flare.arange(1, flare.ones({...}):numel() + 1):to("f32"):view(...)
end

-- Arguments before and after the positions; the positions, the same from the end, and which are out
-- of range. A row without an entry fails.
local along = {{{range(3, 4), 2}}, {{1, 4}, {1, 2}}, {{-4, -1}, {-4, 2}}, {{-5, 1}, {1, 2}}}
local function written(src) return {{range(3, 4), 2}, along[2], along[3], along[4], {src}} end
local single = {{range(3, 4), 2}, {1, 4}, {-4, -1}, {0, -5}}
local function slices(src) return {single[1], single[2], single[3], single[4], {src}} end
local index = {
  gather = {along[1][1], along[2], along[3], along[4]},
  scatter = written(range(2, 2)), scatter_add = written(range(2, 2)),
  scatter_prod = written(range(2, 2)), scatter_amax = written(range(2, 2) * 3),
  scatter_amin = written(range(2, 2)), scatter_reduce = written(range(2, 2)),
  gather_nd = {{range(3, 4)}, {{3, 1}, {1, 4}}, {{-1, 1}, {-3, -1}}, {{-4, 1}}},
  scatter_nd = {{range(3, 4)}, {{3, 1}, {1, 4}}, {{-1, 1}, {-3, -1}}, {{1, -5}, {1, 1}},
                {range(2)}},
  take = {{range(3, 4)}, {1, 12, 5}, {-12, -1, 5}, {-13}},
  put = {{range(3, 4)}, {1, 12, 5}, {-12, -1, 5}, {-13, 1, 2}, {range(3)}},
  index_fill = slices(7), index_select = single, index_add = slices(range(3, 2)),
  index_copy = slices(range(3, 2)),
  max_unpool = {{range(1, 2)}, {{2, 4}}, {{2, -1}}, {{2, -5}}, {{2}}},
  lu_solve = {{range(2, 2)}, {2, 1}, {-1, 1}, {-3, 1}, {range(2)}},
}

-- The arguments around ids of two, four or fewer.
local id = {
  embedding = {{range(4, 3)}}, embedding_backward = {{range(2, 3)}, {4}},
  embedding_bag = {{range(4, 3)}, {}, {1, 2}}, one_hot = {{}, {4}}, bincount = {{}},
  nll_loss = {{range(2, 4)}}, cross_entropy = {{range(2, 4)}},
  embedding_bag_backward = {{range(1, 3)}, {i64({1}, "cpu"), nil, 4, n = 3}, {1, 2}},
  max_pool_backward = {{range(1, 2)}, {{1, 4}, 1}, {{2, 4}}},
  grouped_mm = {{range(4, 3), range(2, 3, 2)}, says = "number 2 is %-1"},
  attention_varlen = {{range(4, 1, 2), range(4, 1, 2), range(4, 1, 2)}, {}, {0, 4},
                      says = "cu_seqlens_q must begin with 0"},
  attention_varlen_backward = {
    {range(4, 1, 2), range(4, 1, 2), range(4, 1, 2), range(4, 1, 2)},
    {nil, range(4, 1, 2), range(1, 4), 0, 0, n = 5}, {0, 4},
    says = "cu_seqlens_q must begin with 0"},
}

local function call(name, device, entry, positions, behind)
  local list, n = {}, 0
  local function add(v)
    n = n + 1
    list[n] = core.is_tensor(v) and v:to(device) or v
  end
  for k = 1, #entry[1] do add(entry[1][k]) end
  add(i64(positions, device))
  for k = 1, behind and (behind.n or #behind) or 0 do add(behind[k]) end
  return core[name](table.unpack(list, 1, n))
end

describe("positions from the end", function()
  it("are known of every row that takes positions", function()
    for _, row in ipairs(core.ops()) do
      for _, p in ipairs(row.params) do
        if p.type == "index" then
          assert(index[row.name], row.name .. ": say here what its positions from the end are")
        elseif p.type == "id" then
          assert(id[row.name], row.name .. ": say here how it refuses negative ids")
        end
      end
    end
  end)

  for _, device in ipairs(rows.devices) do
    for name, entry in pairs(index) do
      it(("are the same as from the start, %s in %s"):format(name, device), function()
        local want = call(name, device, entry, entry[2], entry[5])
        local got = call(name, device, entry, entry[3], entry[5])
        assert.same(want:tolist(), got:tolist())
      end)

      it(("have an end themselves, %s in %s"):format(name, device), function()
        local ok, text = pcall(function()
          return call(name, device, entry, entry[4], entry[5]):tolist()
        end)
        assert.is_false(ok)
        assert.matches("position %-?%d+ is out of range", tostring(text))
      end)
    end

    for name, entry in pairs(id) do
      it(("are no ids, %s in %s"):format(name, device), function()
        local good = entry[3] or {1, 4}
        if name == "embedding_bag" then good = {good} end
        call(name, device, entry, good, entry[2])
        local ok, text = pcall(function()
          local bad = name == "max_pool_backward" and {{2, -1}} or {1, -1}
          if name == "embedding_bag" then bad = {bad} end
          return call(name, device, entry, bad, entry[2]):tolist()
        end)
        assert.is_false(ok)
        assert.matches(entry.says or "%-1 is out of range", tostring(text))
      end)
    end
  end

  it("have gradients where they point to", function()
    local x = range(5):to("f64"):requires_grad_(true)
    local y = x:index_select(1, i64({-1, 2, -1}, "cpu")):sum() + x:gather(1, i64({-5}, "cpu")):sum()
    y:backward()
    assert.same({1, 1, 0, 0, 2}, x.grad:tolist())
  end)

  it("count from the end of positions from 0, too", function()
    assert.same({5, 1}, range(5):index_select(1, i64({-1, 0}, "cpu"), {base = 0}):tolist())
    assert.is_false(pcall(range(5).index_select, range(5), 1, i64({-6}, "cpu"), {base = 0}))
    assert.is_false(pcall(core.one_hot, i64({-1}, "cpu"), 4, {base = 0}))
  end)

  it("leave ignore_index unchanged", function()
    local x = range(2, 4)
    for _, name in ipairs {"nll_loss", "cross_entropy"} do
      local one = core[name](x:narrow(1, 1, 1), i64({2}, "cpu")):item()
      assert.equal(one, core[name](x, i64({2, -1}, "cpu"), {ignore_index = -1}):item())
    end
  end)
end)
