local flare = require "flare"
local data = flare.data

local function values(iterator, most)
  local list = {}
  for x in iterator do
    list[#list + 1] = x:tolist()
    if most and #list == most then break end
  end
  return list
end

local function flat(batches)
  local all = {}
  for _, batch in ipairs(batches) do table.move(batch, 1, #batch, #all + 1, all) end
  return all
end

describe("data.Loader", function()
  local set = data.Tensors(flare.arange(1, 24))

  for _, workers in ipairs{0, 1, 3} do
    local function make(opts)
      opts = opts or {}
      opts.batch, opts.workers = opts.batch or 5, workers
      return data.Loader(set, opts)
    end

    describe(("with %d workers"):format(workers), function()
      it("gives every row once, in order", function()
        local batches = values(make():epoch())
        assert.equal(5, #batches)
        assert.equal(3, #batches[5])
        for i, v in ipairs(flat(batches)) do assert.equal(i, v) end
        assert.equal(4, #values(make({drop_last = true}):epoch()))
      end)

      it("shuffles by seed and epoch", function()
        local loader = make{shuffle = true, seed = 3}
        local first, second = flat(values(loader:epoch())), flat(values(loader:epoch()))
        assert.not_same(first, second)
        local sorted = table.move(first, 1, #first, 1, {})
        table.sort(sorted)
        for i, v in ipairs(sorted) do assert.equal(i, v) end
        -- the reference: one thread
        local plain = data.Loader(set, {batch = 5, shuffle = true, seed = 3})
        assert.same(first, flat(values(plain:epoch())))
        assert.same(second, flat(values(plain:epoch())))
        loader:close()
      end)

      it("survives break: the next loop is the next epoch", function()
        local loader = make{shuffle = true, seed = 4}
        for _ = 1, 20 do
          for _ in loader:epoch() do if loader then break end end
        end
        local whole = values(loader:epoch())
        local plain = data.Loader(set, {batch = 5, shuffle = true, seed = 4})
        for _ = 1, 20 do values(plain:epoch()) end
        assert.same(values(plain:epoch()), whole)
        loader:close()
      end)

      it("goes on from a saved place", function()
        local loader = make{shuffle = true, seed = 9}
        values(loader:epoch())
        values(loader:epoch(), 2)
        local place = loader:state_dict()
        local other = make{shuffle = true, seed = 1}:load_state_dict(place)
        local rest = values(other:epoch())
        local plain = data.Loader(set, {batch = 5, shuffle = true, seed = 9})
        values(plain:epoch())
        local all = values(plain:epoch())
        assert.same({all[3], all[4], all[5]}, rest)
        assert.has_error(function() make{batch = 6}:load_state_dict(place) end)
        loader:close()
        other:close()
      end)

      it("goes on for ever when asked", function()
        local loader = make()
        assert.equal(12, #values(loader:forever(), 12))
        assert.equal(3, loader.at)
        loader:close()
      end)
    end)
  end

  it("applies a transform, a function here and a module in workers", function()
    local plain = data.Loader(set, {batch = 23, transform = function(x) return x * 2 end})
    assert.equal(46, plain:epoch()()[23]:item())
    local threads = data.Loader(set, {batch = 5, workers = 2,
                                      transform = "spec.support.transform"})
    local single = data.Loader(set, {batch = 5, transform = "spec.support.transform"})
    -- it adds random numbers: they depend on seed, epoch and batch only
    assert.same(values(single:epoch()), values(threads:epoch()))
    threads:close()
    assert.has_error(function()
      data.Loader(set, {workers = 1, transform = function(x) return x end})
    end)
  end)

  it("gives ranks their parts of the same batches, however many they are", function()
    for _, workers in ipairs {0, 1} do
      local whole = {}
      for x in data.Loader(set, {batch = 6, shuffle = true, seed = 2}):epoch() do
        whole[#whole + 1] = x:reshape(-1):tolist()
      end
      for _, size in ipairs {2, 3, 4} do
        local parts = {}
        for rank = 0, size - 1 do
          local loader = data.Loader(set, {batch = 6, shuffle = true, seed = 2, workers = workers,
            shard = {rank = rank, size = size}})
          local k = 0
          for x in loader:epoch() do
            k = k + 1
            parts[k] = parts[k] or {}
            for _, v in ipairs(x:reshape(-1):tolist()) do parts[k][#parts[k] + 1] = v end
            if k == 2 then
              local place = loader:state_dict()
              local one = data.Loader(set, {batch = 6, shuffle = true, seed = 2})
              assert.equal(2, one:load_state_dict(place).position)
            end
          end
          loader:close()
        end
        for k, rows in ipairs(whole) do
          if #rows >= size then assert.same(rows, parts[k]) end
        end
      end
    end
    assert.has_error(function() data.Loader(set, {batch = 2, shard = {rank = 0, size = 3}}) end)
  end)

  it("draws rows by weights", function()
    local weights = flare.zeros(1000)
    weights[{{1, 2}}] = flare.tensor{3, 1}
    local rows = data.Tensors(flare.arange(1, 1001))
    local function drawn(weight, epochs)
      local all = {}
      local loader = data.Loader(rows, {batch = 300, weights = weight, seed = 2})
      for _ = 1, epochs do
        for x in loader:epoch() do all[#all + 1] = x end
      end
      return flare.cat(all, 1)
    end
    local x = drawn(weights, 1)
    assert.equal(1000, #x)
    assert.is_true(x:le(2):all():item())
    assert.is_true(math.abs(x:eq(1):float():mean():item() - 0.75) < 0.05)
    assert.is_true(x:equal(drawn(weights:totable(), 1)))
    local two = drawn(weights, 2)
    assert.is_false(two[{{1, 1000}}]:equal(two[{{1001, 2000}}]))
    local ok, message = pcall(data.Loader, rows, {weights = {1, 2}})
    assert.is_false(ok)
    assert.match("weights must be 1000 numbers, one for each row, got %(2%)", message)
  end)

  it("leaves the state's own random numbers alone", function()
    flare.manual_seed(1)
    local before = flare.rand(1):item()
    flare.manual_seed(1)
    local loader = data.Loader(set, {batch = 5, shuffle = true,
                                     transform = function(x) return x + flare.rand(1) end})
    values(loader:epoch())
    assert.equal(before, flare.rand(1):item())
  end)

  it("puts samples together, whose random numbers do not depend on the workers", function()
    local seen = {}
    for _, workers in ipairs{0, 2, 3} do
      local samples = data.Subset(require "spec.support.samples_set"(7), {7, 1, 2, 3, 4, 5})
      local loader = data.Loader(samples, {batch = 2, workers = workers, seed = 4})
      for x, i, half, words, drawn, number in loader:epoch() do
        assert.equal("f32 i64 f32", table.concat({x.dtype, i.dtype, half.dtype}, " "))
        assert.same({i:totable(), half:totable()},
                    {x[{{}, 1}]:totable(), (half * 2 / 2):totable()})
        assert.equal("s" .. i[2]:item(), words[2])
        seen[workers] = seen[workers] or {}
        table.insert(seen[workers], {drawn:totable(), number:totable()})
      end
      loader:close()
    end
    assert.equal(3, #seen[0])
    assert.same(seen[0], seen[2])
    assert.same(seen[0], seen[3])
    assert.not_same(seen[0][1], seen[0][2])
    -- math.random goes on by itself, from where it was
    local function after(loader)
      math.randomseed(9)
      for _ in loader:epoch() do math.random() end
      return math.random()
    end
    local other = data.Loader(set, {batch = 5, seed = 5})
    assert.equal(after(data.Loader(set, {batch = 5})), after(other))
  end)

  it("hands a worker's error on", function()
    local loader = data.Loader(set, {batch = 5, workers = 2, transform = "spec.support.broken"})
    local ok, message = pcall(values, loader:epoch())
    assert.is_false(ok)
    assert.match("broken on purpose", message)
    loader:close()
  end)

  it("says what is wrong", function()
    assert.has_error(function() data.Loader(set, {batchsize = 3}) end)
    assert.has_error(function() data.Loader(flare.ones(3)) end)
    assert.has_error(function() data.Loader(set, {batch = 24, drop_last = true}) end)
  end)
end)
