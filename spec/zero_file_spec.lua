-- Sharded checkpoints after a kill in the middle of a save, in odd folders, and of other models.
local launch = require "spec.support.launch"

local function good(text, before)
  local folder = launch.folder([[
    local nn, optim = flare.nn, flare.optim
    local function make(o)
      local model = nn.Sequential(nn.Linear(3, 5), nn.Linear(5, 2))
      return dist.ZeRO(model, function(parts) return optim.Adam(parts) end, o)
    end
    local zero = make()
    local function step()
      zero:zero_grad()
      zero(flare.ones{4, 3}):square():mean():backward()
      zero:step()
    end
    local function alone(f) -- on rank 0, while the other waits
      if rank == 0 then f() end
      dist.barrier()
    end
    local function weights() return zero.model[1].weight:detach():clone() end
  ]] .. text)
  local status, out = launch.shell(folder, (before or "") .. "\n$F launch -n 2 script.lua")
  launch.remove(folder)
  assert.equal(0, status, out)
end

describe("ZeRO's checkpoints", function()
  it("are written again and again after a kill in the middle of one", function()
    good([[
      for _ = 1, 4 do
        step()
        assert(zero:save "at")
      end
      local want = weights()
      step()
      assert(zero:load "at")
      assert(weights():eq(want):all():item())
      assert(flare.core.file.exists "at.old" == nil and flare.core.file.exists "at.tmp" == nil)
    ]], "mkdir at.tmp at.old; touch at.tmp/rank-0 at.tmp/rank-1.tmp-77-0 at.old/about.tmp-78-1")
  end)

  it("are there after a kill between two names, and stay until there is another", function()
    good [[
      step()
      local want = weights()
      assert(zero:save "at")
      alone(function() assert(os.rename("at", "at.old")) end)
      step()
      assert(zero:load "at")
      assert(weights():eq(want):all():item())
      if rank == 1 then flare.core.file.fail(0, -1, "ENOSPC") end -- a disk that is full on one
      local ok, why = zero:save "at"
      assert(not ok and why:find "rank%-1: No space left", why)
      flare.core.file.fail(0, 0)
      assert(zero:load "at")
      assert(zero:save "at" and zero:load "at/")
      alone(function() assert(not flare.core.file.exists "at.old") end)
      assert(zero:save "other/" and zero:load "other" and zero:save "other//")
    ]]
  end)

  it("do not take other files away, and say what does not fit", function()
    good [[
      alone(function() os.execute "mkdir at.tmp && touch at.tmp/notes" end)
      local ok, why = zero:save "at"
      assert(not ok and why:find("at.tmp: there are other files than a checkpoint's", 1, true), why)
      alone(function() os.execute "rm -r at.tmp; mkdir -p at at.old && touch at.old/notes" end)
      ok, why = zero:save "at"
      assert(not ok and why:find("at.old: there are other files", 1, true), why)
      assert(zero:save "of1")
      ok, why = make({stage = 3}):load "of1"
      assert(not ok and why:find("of stage 1, has 1 parts, this model, of stage 3, 2", 1, true))
    ]]
  end)
end)
