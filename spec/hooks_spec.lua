-- The git hooks that ./bootstrap hooks turns on.
local tree = require "spec.support.tree"

local function subject_is_taken(subject)
  local name = os.tmpname()
  local file = assert(io.open(name, "w"))
  file:write(subject, "\n\nA body.\n# a comment\n")
  file:close()
  local out = tree.output(("sh .hooks/commit-msg '%s' 2>&1; echo status=$?"):format(name))
  os.remove(name)
  return out:find "status=0\n$" ~= nil, out
end

describe("the hook for commit messages", function()
  it("takes an area of the list and an imperative", function()
    for _, subject in ipairs {"nn: keep parameters in the order of assignment",
      "cuda: embed headers by closure", "docs: speed up a table", "Merge branch 'x'"} do
      local taken, out = subject_is_taken(subject)
      assert(taken, out)
    end
  end)

  it("refuses an unknown area, no area, a long subject, and no imperative", function()
    for subject, why in pairs {
      ["kernels/cuda: move files"] = "is not an area",
      ["move files"] = "write \"area: what changes\"",
      ["nn: " .. ("x"):rep(60)] = "64 characters, 60 are allowed",
      ["nn: added a layer"] = "begin with a verb in the imperative",
      ["nn: what a layer is"] = "begin with a verb in the imperative",
    } do
      local taken, out = subject_is_taken(subject)
      assert(not taken and out:find(why, 1, true), subject .. ": " .. out)
    end
  end)
end)
