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

      -- What an uninterrupted loader gives in three epochs is what two give, the second of which
      -- has the state of the first, wherever that was taken.
      it("goes on from wherever a state was taken, bit for bit", function()
        local weights = flare.rand(23, {generator = flare.generator(3)})
        for _, opts in ipairs {
          {}, {shuffle = true}, {shuffle = true, drop_last = true}, {weights = weights},
          {shuffle = true, transform = "spec.support.transform"}, {batch = 23},
          {shuffle = true, shard = {rank = 1, size = 2}},
        } do
          local function new(seed)
            local o = {seed = seed}
            for key, value in pairs(opts) do o[key] = value end
            return make(o)
          end
          local plain, all, per = new(5), {}, nil
          for _ = 1, 3 do
            for _, batch in ipairs(values(plain:epoch())) do all[#all + 1] = batch end
            per = per or #all
          end
          plain:close()
          for taken = 0, 2 * per do -- after so many batches, inside of the loop
            local first, other = new(5), new(8)
            local place, n = first:state_dict(), 0
            for _ = 1, 2 do
              if n >= taken then break end
              for _ in first:epoch() do
                n = n + 1
                if n == taken then
                  place = first:state_dict()
                  break
                end
              end
            end
            other:load_state_dict(place)
            assert.same(place, other:state_dict())
            local rest = {}
            for _ = taken // per + 1, 3 do
              for _, batch in ipairs(values(other:epoch())) do rest[#rest + 1] = batch end
            end
            assert.same(table.move(all, taken + 1, #all, 1, {}), rest)
            first:close()
            other:close()
          end
        end
      end)

      it("begins the next epoch after a state that was taken behind the loop", function()
        local loader = make{shuffle = true, seed = 9}
        values(loader:epoch())
        local place = loader:state_dict()
        local second = values(loader:epoch())
        local other = make{shuffle = true}:load_state_dict(place)
        assert.same(second, values(other:epoch()))
        assert.equal(2, other.at)
        other = make{shuffle = true}:load_state_dict(place)
        assert.same(second, values(other:forever(), 5))
        -- in the loader itself, too
        loader:load_state_dict(place)
        assert.same(second, values(loader:epoch()))
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

  it("gives each row to one rank, with repeats = false", function()
    local rows = data.Tensors(flare.arange(1, 14)) -- the last batch of 6 has one row
    for _, workers in ipairs {0, 1} do
      local seen = {}
      for rank = 0, 3 do
        local loader = data.Loader(rows, {batch = 6, shuffle = true, workers = workers,
          shard = {rank = rank, size = 4}, repeats = false})
        for epoch = 1, 2 do
          for x in loader:epoch() do
            for _, v in ipairs(x:tolist()) do seen[v] = (seen[v] or "") .. epoch end
          end
        end
        loader:close()
      end
      for v = 1, 13 do assert.equal(2, #seen[v]) end
    end
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

  it("collates samples, whose random numbers do not depend on the workers", function()
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

  it("refuses the state of a loader with other batches", function()
    local place = data.Loader(set, {batch = 5, shuffle = true}):state_dict()
    local function says(message, opts, changed)
      for key, value in pairs(changed or {}) do place[key] = value end
      local loader = data.Loader(set, opts)
      assert.error_matches(function() loader:load_state_dict(place) end, message, 1, true)
    end
    says("batches of 5, this has 23 in 6", {batch = 6, shuffle = true})
    says("with shuffle = true, here it is false", {batch = 5})
    says("with drop_last = false, here it is true", {batch = 5, shuffle = true, drop_last = true})
    says("with weights = false, here it is true", {batch = 5, shuffle = true,
                                                   weights = flare.ones(23)})
    says("not a loader's state", {batch = 5, shuffle = true}, {position = -1})
    says("not a loader's state", {batch = 5, shuffle = true}, {position = 0, epoch = 1.5})
    -- states of before these were written
    local old = {seed = 3, epoch = 2, position = 1, batch = 5, size = 23}
    assert.equal(2, data.Loader(set, {batch = 5, shuffle = true}):load_state_dict(old).at)
    assert.equal(3, data.Loader(set, {seed = 3.0}):state_dict().seed)
    assert.error_matches(function() data.Loader(set, {seed = 0.5}) end, "seed must be an integer")
  end)

  it("takes objects that can be called as transforms, in workers too", function()
    local t = data.transforms
    local images = flare.rand(12, 3, 8, 8)
    local change = t.Compose{t.RandomCrop(6, {padding = 1}), t.RandomHorizontalFlip(),
                             t.Compose{t.ColorJitter{brightness = 0.2}},
                             t.Normalize({0.5, 0.5, 0.5}, {0.2, 0.2, 0.2}), t.MixUp{classes = 3}}
    local both = data.Tensors(images, flare.randint(1, 4, {12}))
    local function batches(workers)
      local loader <close> = data.Loader(both, {batch = 5, workers = workers, transform = change})
      local list = {}
      for x, y in loader:epoch() do list[#list + 1] = {tostring(x.shape), x:bytes(), y:bytes()} end
      return list
    end
    local single = batches(0)
    assert.equal("(5, 3, 6, 6)", single[1][1])
    assert.same(single, batches(2))
  end)

  it("refuses at once what cannot go to workers", function()
    local t = data.transforms
    local function says(message, dataset, transform, workers)
      assert.error_matches(function()
        data.Loader(dataset, {transform = transform, workers = workers or 1})
      end, message, 1, true)
    end
    local Plain = flare.class "Plain"
    function Plain:__call(x) return x end
    says("this Plain has none", set, Plain())
    says("a Plain has no method describe", set, t.Compose{Plain()})
    says("a function cannot be sent to worker threads", set, t.Compose{function(x) return x end})
    says("must be the name of a module", set, function(x) return x end)
    says("got table", set, {1, 2}, 0)
    says("got number", set, 3, 0)
    assert(data.Loader(set, {transform = Plain()}):epoch()())
    function Plain:describe() return "plain", {f = print} end
    says("a function cannot be sent to worker threads (argument [1][f] of what describe gives)",
         set, Plain())
    function Plain:describe() return "plain", {flare.core.channel(1), flare.ones(2)} end
    data.Loader(set, {transform = Plain(), workers = 1}):close()
    local bare = {size = function() return 3 end, get = function(_, i) return i end}
    says("needs a method describe", bare)
    says("has no method describe, which workers need", data.Subset(bare, {1, 2}))
    says("has no method describe, which workers need", data.Concat(bare, bare))
  end)

  it("gives pinned tensors when asked, or as the transform does, in workers too", function()
    for _, workers in ipairs {0, 2} do
      local pinned = data.Loader(set, {batch = 5, workers = workers, pin = true})
      for x in pinned:epoch() do assert.is_true(x:is_pinned()) end
      local plain = data.Loader(set, {batch = 5, workers = workers})
      assert.is_false(plain:epoch()():is_pinned())
      local own = data.Loader(set, {batch = 5, workers = workers, transform = "spec.support.pin"})
      local n = 0
      for x, y in own:epoch() do
        assert.is_true(x:is_pinned())
        assert.is_false(y:is_pinned())
        assert.same(x:tolist(), y:tolist())
        n = n + #x
      end
      assert.equal(23, n)
      pinned:close()
      plain:close()
      own:close()
    end
  end)

  it("reads data that are on a device", function()
    local there = data.Tensors(flare.arange(1, 5, {device = "sim:0"}), flare.arange(1, 5))
    local loader = data.Loader(there, {batch = 2, shuffle = true, pin = true})
    for x, y in loader:epoch() do
      assert.equal("sim:0", x.device)
      assert.same(x:tolist(), y:tolist())
      assert.is_true(y:is_pinned())
    end
  end)

  it("says what it is", function()
    local loader = data.Loader(set, {batch = 5, shuffle = true})
    loader:epoch()()
    assert.equal("Loader: 5 batches of 5 out of 23 rows, shuffled; epoch 1, 1 handed out",
                 tostring(loader))
    assert.equal("Tensors: 23 rows of i64 ()", tostring(set))
    local two = data.Tensors(flare.ones(4, 2, 3), flare.ones(4))
    assert.equal("Tensors: 4 rows of f32 (2, 3), f32 ()", tostring(two))
    assert.equal("Subset: 2 of 4 rows, of Tensors: 4 rows of f32 (2, 3), f32 ()",
                 tostring(data.Subset(two, {1, 3})))
    assert.match("^Concat: 8 rows\n  Tensors: 4", tostring(data.Concat(two, two)))
    assert.equal("Windows: 20 of 3 tokens out of 23",
                 tostring(data.Windows(flare.arange(1, 24), 3)))
    assert.equal("Vocabulary: 3 bytes", tostring(data.Vocabulary "abc"))
    assert.equal("Compose(RandomHorizontalFlip(p = 0.5), Normalize(mean = {0.5}, std = {2.0}))",
                 tostring(data.transforms.Compose{data.transforms.RandomHorizontalFlip(),
                                                  data.transforms.Normalize({0.5}, {2})}))
  end)

  it("hands a worker's error on", function()
    local loader = data.Loader(set, {batch = 5, workers = 2, transform = "spec.support.broken"})
    local ok, message = pcall(values, loader:epoch())
    assert.is_false(ok)
    assert.match("broken on purpose", message)
    loader:close()
  end)

  it("reports errors", function()
    assert.has_error(function() data.Loader(set, {batchsize = 3}) end)
    assert.has_error(function() data.Loader(flare.ones(3)) end)
    assert.has_error(function() data.Loader(set, {batch = 24, drop_last = true}) end)
  end)
end)
