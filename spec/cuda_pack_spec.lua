-- The file of kernels compiled ahead: one that is whole is read, a damaged one is as none.
local tree = require "spec.support.tree"

local path = os.tmpname()

-- A pack of one image with one name: head, a row, the image, the name.
local function pack(change)
  local p = {magic = "flarepk2", count = 1, at = 64, stored = 8, bytes = 8, entry = 72,
             tail = "kernel\0"}
  for key, value in pairs(change or {}) do p[key] = value end
  return ("c8I8 I8I8 I8I8I8I8"):pack(p.magic, p.count, 1, 2, p.at, p.stored, p.bytes, p.entry)
    .. "image..." .. p.tail
end

-- The doctor's line about the pack with this text.
local function line(text)
  local file <close> = assert(io.open(path, "wb"))
  file:write(text)
  file:flush()
  local out = tree.output(("FLARE_PACK='%s' FLARE_CUDA_HIDE=libcuda,libnvrtc,libcublasLt,libcudnn "
    .. "'%s/flare' doctor 2>&1; echo status=$?"):format(path, tree.build))
  assert.truthy(out:find "status=0\n$", out)
  return out:match "\npack%s+([^\n]*)"
end

describe("a pack", function()
  teardown(function() os.remove(path) end)

  it("is read", function()
    assert.equal(("1 kernels (%s)"):format(path), line(pack()))
  end)

  for what, text in pairs {
    ["is empty"] = "",
    ["is of another version"] = pack{magic = "flarepk1"},
    ["has more rows than bytes"] = pack{count = 1 << 60},
    ["has an image that begins behind its end"] = pack{at = 1000},
    ["has an image that ends behind its end"] = pack{stored = 1 << 40},
    ["has an image of any size"] = pack{bytes = 1 << 40},
    ["has a name behind its end"] = pack{entry = 1000},
    ["has a name without an end"] = pack{tail = "kernel"},
    ["is cut off"] = pack():sub(1, -3),
    ["is cut off in its rows"] = pack():sub(1, 40),
  } do
    it("that " .. what .. " is as none", function()
      assert.truthy((line(text) or ""):find "^no: ", what)
    end)
  end
end)
