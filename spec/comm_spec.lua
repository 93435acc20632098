-- Collectives between processes: the engine of one host, against sums made here.
local ranks = require "spec.support.ranks"

-- What every script below begins with: x(rank) is what a rank has, near and same compare.
local tools = [[
  local function values(r, n, dtype)
    local t = {}
    for k = 1, n do t[k] = (k * 7 + r * 13) % 11 - (dtype == "u8" and 0 or 5) end
    return t
  end
  local function make(list, dtype, device)
    if #list == 0 then return flare.zeros({0}, {dtype = dtype}):to(device or "cpu") end
    return flare.tensor(list, {dtype = dtype}):to(device or "cpu")
  end
  local function folded(n, dtype, reduce)
    local t, all = {}, {}
    for r = 0, size - 1 do all[r] = values(r, n, dtype) end
    for k = 1, n do
      local v
      for r = 0, size - 1 do
        local x = all[r][k]
        if v == nil then v = x
        elseif reduce == "min" then v = math.min(v, x)
        elseif reduce == "max" then v = math.max(v, x)
        else v = v + x end
      end
      t[k] = reduce == "mean" and v / size or v
    end
    return t
  end
  local function same(t, want, what)
    local list = t:numel() == 0 and {} or t:to("cpu"):reshape(-1):to("f64"):tolist()
    assert(#list == #want, ("%s: %d elements, not %d"):format(what, #list, #want))
    for k = 1, #want do
      if math.abs(list[k] - want[k]) > 1e-2 * math.abs(want[k]) then
        error(("%s: element %d is %g, not %g"):format(what, k, list[k], want[k]))
      end
    end
  end
]]

local devices = [[for _, device in ipairs {"cpu", "sim:0"} do ]]

describe("the engine of one host", function()
  for _, n in ipairs {2, 4} do
    describe("with " .. n .. " ranks", function()
      it("reduces every dtype by every algorithm", function()
        ranks.good(n, tools .. devices .. [[
          for _, way in ipairs {"auto", "ring", "one_shot", "two_shot"} do
            for dtype in ("f64 f32 f16 bf16 i64 i32 i16 i8 u8"):gmatch "%S+" do
              for _, reduce in ipairs {"sum", "mean", "min", "max"} do
                if reduce ~= "mean" or dtype:find "f" then
                  local m = dtype == "f32" and 1001 or 13
                  local x = make(values(rank, m, dtype), dtype, device)
                  local y = x:comm_all_reduce{reduce = reduce, algorithm = way}
                  same(y, folded(m, dtype, reduce), way .. " " .. dtype .. " " .. reduce)
                  assert(y.dtype == dtype and y.device == device)
                end
              end
            end
          end end
          local odd = flare.tensor{rank == 1, rank < 5, false}
          assert(tostring(odd:comm_all_reduce{reduce = "max"}:tolist()[1]) == "true")
        ]])
      end)

      it("moves blocks to where they belong", function()
        ranks.good(n, tools .. devices .. [[
          for _, m in ipairs {0, 1, 5, 70000} do
            local mine = values(rank, m)
            local x = make(mine, "f32", device)
            local all, last = {}, size - 1
            for r = 0, last do table.move(values(r, m), 1, m, #all + 1, all) end
            same(x:comm_all_gather(), all, "all_gather")
            local own = flare.zeros({m * size}, {device = device})
            own:narrow(1, rank * m + 1, m):copy_(x)
            same(own:comm_all_gather{whole = true}, all, "all_gather of the whole")
            local kept = own:comm_all_gather_{whole = true}
            assert(kept.id == own.id)
            same(own, all, "all_gather_")
            same(x:comm_gather{root = last}, rank == last and all or {}, "gather")
            same(x:comm_broadcast{root = last}, values(last, m), "broadcast")
            local sum = folded(m, "f32", "sum")
            same(x:comm_reduce{root = last}, rank == last and sum or mine, "reduce")
            local wide, part = make(values(rank, m * size), "f32", device), {}
            local whole = folded(m * size, "f32", "sum")
            table.move(whole, rank * m + 1, rank * m + m, 1, part)
            same(wide:comm_reduce_scatter(), part, "reduce_scatter")
            local swapped = {}
            for r = 0, last do
              table.move(values(r, m * size), rank * m + 1, rank * m + m, #swapped + 1, swapped)
            end
            same(wide:comm_all_to_all(), swapped, "all_to_all")
            local given = {}
            table.move(values(0, m * size), rank * m + 1, rank * m + m, 1, given)
            same(wide:comm_scatter{shape = {m}}, given, "scatter")
          end end
        ]])
      end)
    end)
  end

  it("writes over tensors, whatever their strides", function()
    ranks.good(2, [[
      local x = flare.zeros{4, 6}
      x:fill_(rank + 1)
      local part = x:transpose(1, 2):narrow(1, 2, 2, 2)
      part:comm_all_reduce_()
      assert(x:sum():item() == 16 * (rank + 1) + 8 * 3)
      x:comm_broadcast_{root = 1}
      assert(x[{1, 1}]:item() == 2 and x[{1, 2}]:item() == 3)
      x:fill_(rank + 1):transpose(1, 2):comm_all_gather_{whole = true}
      assert(x:sum{dim = 1}:eq(flare.tensor{4, 4, 4, 8, 8, 8}):all():item())
      local ok, why = pcall(x.comm_all_gather_, x:narrow(1, 1, 3), {whole = true})
      assert(not ok and tostring(why):find("x (3, 6) must be a multiple of the 2 ranks", 1, true))
      ok, why = pcall(x.comm_all_gather_, x)
      assert(not ok and tostring(why):find("the result has shape (8, 6)", 1, true))
    ]])
  end)

  it("sends and receives, in both directions at once", function()
    ranks.good(2, [[
      local other = 1 - rank
      for _, n in ipairs {0, 3, 100000} do
        local x = flare.arange(0, n, {dtype = "i64"}) + rank
        flare.core.comm_send(x, {peer = other, async = true})
        local lane, seq = comm.last(0, "cpu")
        local y = flare.core.comm_recv{peer = other, shape = {n}, dtype = "i64"}
        comm.wait(0, "cpu", lane, seq)
        assert(n == 0 or (y - flare.arange(0, n, {dtype = "i64"})):eq(other):all():item())
      end
    ]])
  end)

  it("goes on while an asynchronous call is under way", function()
    ranks.good(2, [[
      local results, numbers = {}, {}
      for k = 1, 20 do
        results[k] = (flare.ones{1000 * k} * (k + rank)):comm_all_reduce{async = true}
        numbers[k] = {comm.last(0, "cpu")}
      end
      local y = (flare.ones{3} * rank):comm_all_reduce()
      for k = 1, 20 do
        comm.wait(0, "cpu", table.unpack(numbers[k]))
        assert(comm.done(0, "cpu", table.unpack(numbers[k])))
        assert(results[k]:eq(2 * k + 1):all():item())
      end
      assert(y:eq(1):all():item())
    ]])
  end)

  it("gives the same bits in every run", function()
    local text = [[
      flare.manual_seed(7 + rank)
      local x = flare.randn{70001}
      for _, way in ipairs {"ring", "one_shot", "two_shot"} do
        print(way, flare.core.crc32c(x:comm_all_reduce{algorithm = way}))
      end
    ]]
    local first, second = ranks.good(4, text), ranks.good(4, text)
    assert.same(first, second)
    for rank = 2, 4 do assert.equal(first[1], first[rank]) end
    local one, two = first[1]:match "one_shot%s+(%S+).*two_shot%s+(%S+)"
    assert.equal(one, two)
  end)

  it("has groups of some of the ranks", function()
    ranks.good(4, [[
      local even, odd = comm.group{0, 2}, comm.group{3, 1}
      local mine = rank % 2 == 0 and even or odd
      comm.attach(mine, "host", "cpu")
      local me, list = comm.members(mine)
      assert(list[me + 1] == rank and #list == 2)
      local y = flare.tensor{rank}:comm_all_gather{group = mine}
      assert(y[1]:item() == list[1] and y[2]:item() == list[2])
      local ok, why = pcall(flare.core.comm_barrier, {group = mine == even and odd or even})
      assert(not ok and why:find("is not in group", 1, true), why)
    ]])
  end)

  it("is differentiable", function()
    ranks.good(2, [[
      local function leaf() return flare.tensor({rank + 1, 2, 3, 4 + rank}, {dtype = "f64"})
        :requires_grad_(true) end
      local weight = flare.tensor({1, 10, 100, 1000}, {dtype = "f64"}) * (rank + 1)
      local function check(f, want)
        local x = leaf()
        local y = f(x)
        local g = flare.grad((y * weight:narrow(1, 1, math.min(4, y:numel()))):sum(), {x})
        assert((g - flare.tensor(want, {dtype = "f64"})):abs():max():item() == 0, tostring(g))
      end
      check(function(x) return x:comm_all_reduce() end, {3, 30, 300, 3000})
      check(function(x) return x:comm_all_reduce{reduce = "mean"} end, {1.5, 15, 150, 1500})
      check(function(x) return x:comm_all_reduce{reduce = "max"} end,
        rank == 1 and {3, 15, 150, 3000} or {0, 15, 150, 0})
      check(function(x) return x:comm_broadcast() end,
        rank == 0 and {3, 30, 300, 3000} or {0, 0, 0, 0})
      check(function(x) return x:comm_reduce_scatter() end, {1, 10, 2, 20})
      check(function(x) return x:comm_all_to_all() end,
        rank == 0 and {1, 10, 2, 20} or {100, 1000, 200, 2000})
      local x = leaf()
      local g = flare.grad((x:comm_all_gather() * (rank + 1)):sum(), {x})
      assert(g:eq(3):all():item())
      check(function(x) return x:comm_all_gather{whole = true} end,
        rank == 0 and {3, 30, 0, 0} or {0, 0, 300, 3000})
      check(function(x) return (x * 1):comm_all_gather_{whole = true} end,
        rank == 0 and {3, 30, 0, 0} or {0, 0, 300, 3000})
    ]])
  end)
end)

describe("two engines in one group", function()
  local fakes = require "spec.support.fakes"
  local place = os.tmpname() .. ".d"

  local settings = ("FLARE_CUDA_PATH='%s' FLARE_CUDA_HIDE=libcublasLt,libcudnn FLARE_PACK=none "
    .. "FLARE_PEERS=0"):format(place)

  setup(function()
    fakes.machine(place)
    fakes.build(place, "libnccl.so.2", "all versions nccl", "-D NCCL -D MAJOR=0 -D MINOR=0")
  end)
  teardown(function() os.execute("rm -rf " .. place) end)

  it("count calls of their own, so neither waits for the other's", function()
    ranks.good(2, [[
      comm.attach(0, "nccl", "cuda:0", "a ticket that the fake does not read")
      local far, near = flare.empty(3, {device = "cuda:0"}), flare.ones(3)
      for _ = 1, 4 do
        far:comm_all_reduce()
        far:comm_all_reduce()
        assert(near:comm_all_reduce():sum():item() == 6)
        local y = near:comm_all_reduce{async = true}
        comm.wait(0, "cpu", comm.last(0, "cpu"))
        assert(y:sum():item() == 6)
      end
    ]], {settings = settings})
  end)

  it("compare each other's calls where that is asked for", function()
    local cases = {
      {"far:comm_broadcast()", "broadcast #2 f32 %(3%) root 0 by nccl at"},
      {"flare.empty(4, {device = 'cuda:0'}):comm_all_reduce()",
        "all_reduce #2 f32 %(4%) sum by nccl at"},
      {"far:to('f64'):comm_all_reduce()", "all_reduce #2 f64 %(3%) sum by nccl at"},
      {"far:comm_all_reduce{reduce = 'max'}", "all_reduce #2 f32 %(3%) max by nccl at"},
      {"near:comm_all_reduce()", "all_reduce #4 f32 %(3%) sum at"},
    }
    for _, case in ipairs(cases) do
      local results = ranks.run(2, ([[
        comm.attach(0, "nccl", "cuda:0", "a ticket that the fake does not read")
        local far, near = flare.empty(3, {device = "cuda:0"}), flare.ones(3)
        far:comm_all_reduce()
        if rank == 1 then %s else far:comm_all_reduce() end
      ]]):format(case[1]), {settings = settings, check = true})
      for _, r in ipairs(results) do
        assert.equal(1, r.status)
        assert.truthy(r.output:find("rank 1 called " .. case[2]), r.output)
        assert.truthy(r.output:find "but rank 0 called all_reduce #2 f32 %(3%) sum by nccl at",
          r.output)
      end
    end
  end)
end)

describe("a call of NCCL that does not come back", function()
  local fakes = require "spec.support.fakes"
  local place = os.tmpname() .. ".d"

  setup(function()
    fakes.machine(place)
    fakes.build(place, "libnccl.so.2", "all versions nccl", "-D NCCL -D MAJOR=0 -D MINOR=0")
  end)
  teardown(function() os.execute("rm -rf " .. place) end)

  -- Rank 0 of two with a function of NCCL that hangs or fails; the other one runs `text` and ends,
  -- not before rank 0 hangs.
  local function first(variable, text, o)
    o = o or {}
    o.settings = ("%s FLARE_CUDA_PATH='%s' FLARE_CUDA_HIDE=libcublasLt,libcudnn FLARE_PACK=none "
      .. "FLARE_PEERS=0 %s"):format(fakes.leaks, place, variable)
    local r = ranks.run(2, ([[
      local function attach()
        for g = 0, argument == "two groups" and comm.group{0, 1} or 0 do
          comm.attach(g, "nccl", "cuda:0", "the fake does not read it")
        end
      end
      if rank == 1 then
        %s
        while %s and not io.open(arg[0] .. ".0"):read("a"):find("[in ", 1, true) do
          os.execute "sleep 0.02"
        end
        os.exit(3, false)
      end
      attach()
      local x = flare.ones(3, {device = "cuda:0"})
      x:comm_all_reduce()
      x:comm_broadcast()
    ]]):format(text or "", variable:find "HANG" and "true" or "false"), o)[1]
    assert.equal(1, r.status, r.output)
    return r.output
  end

  local function told(out)
    local list = {}
    for word in out:gmatch "%[([%a%- ]+)%]\n" do list[#list + 1] = word end
    return list
  end

  -- Rank 1 is gone: with its status while its parent has not yet waited for it.
  local function gone(out)
    local word = out:match "rank 1 %(pid %d+%) (died)" or
      out:match "rank 1 %(pid %d+%) (ended with status 3)"
    assert.truthy(word, out)
  end

  local call = {"in ncclBroadcast", "aborted", "out", "freed"}

  it("is aborted, and then freed, when another rank has ended", function()
    local out = first("FAKE_HANG_IN=ncclBroadcast", "attach()")
    gone(out)
    assert.same(call, told(out))
  end)

  it("is aborted when the time is over", function()
    local out = first("FAKE_HANG_IN=ncclBroadcast",
      "attach() while comm.verdict() == '' do end", {timeout = 3})
    assert.match("rank 1 %(pid %d+%) did not come to broadcast #2 [^\n]* within 3 s", out)
    assert.same(call, told(out))
  end)

  it("is aborted by Ctrl-C", function()
    local out = first("FAKE_INTERRUPT=1 FAKE_HANG_IN=ncclBroadcast",
      "attach() pcall(flare.core.comm_barrier, {group = 0})")
    assert.match("interrupted!", out)
    assert.same(call, told(out))
  end)

  it("is aborted while it joins", function()
    local out = first "FAKE_HANG_IN=ncclCommInitRankConfig"
    gone(out)
    call[1] = "in ncclCommInitRankConfig"
    assert.same(call, told(out))
  end)

  it("is aborted with all groups before one is freed", function()
    local out = first("FAKE_HANG_IN=ncclBroadcast", "attach()", {argument = "two groups"})
    local list = told(out)
    table.sort(list)
    assert.same({"aborted", "aborted", "freed", "in ncclBroadcast", "out"}, list)
    assert.match("%[freed%]\n[^%[]*$", out)
  end)

  it("is left behind if it does not heed that", function()
    for _, name in ipairs {"ncclBroadcast", "ncclCommInitRankConfig"} do
      local out = first(("FAKE_HANG_IN='deaf %s'"):format(name),
        name == "ncclBroadcast" and "attach()" or "")
      gone(out)
      assert.same({"in " .. name, "aborted"}, told(out))
    end
  end)

  it("is another rank's fault, if that one is dead, and NCCL's own otherwise", function()
    local out = first("FAKE_FAIL_IN=ncclBroadcast", "attach()")
    gone(out)
    out = first("FAKE_FAIL_IN=ncclBroadcast", "attach() while comm.verdict() == '' do end")
    assert.match("a collective: NCCL: remote process exited", out)
    assert.same({"aborted", "freed"}, told(out))
  end)
end)
