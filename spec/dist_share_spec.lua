-- Texts from one rank to the others, of any length and content.
local launch = require "spec.support.launch"

describe("dist.share", function()
  it("carries every byte, from any root, up to 64 MiB", function()
    local status, out, _, folder = launch.run("-n 2 --timeout 60", [[
      local all = {}
      for k = 0, 255 do all[k + 1] = string.char(k) end
      all = table.concat(all)
      for turn, n in ipairs {0, 1, 255, 256, 999999, 1000000, 1000001, 3 << 20, 64 << 20} do
        local root = turn % 2
        local text = all:rep(n // 256 + 1):sub(1, n)
        local got = dist.share(rank == root and text or nil, root)
        assert(got == text, ("%d bytes came as %d"):format(n, #got))
      end
      local g = dist.group{1, 0}
      assert(g:share(g.rank == 0 and all:rep(8000) or nil) == all:rep(8000))
    ]], 200)
    launch.remove(folder)
    assert.equal(0, status, out)
  end)

  it("says what is wrong with what root gives", function()
    local status, out, _, folder = launch.run("-n 2", "dist.share({1}, 1)")
    launch.remove(folder)
    assert.equal(1, status)
    assert.truthy(out:find("share: rank 1 has to give a string, got table", 1, true), out)
  end)
end)
