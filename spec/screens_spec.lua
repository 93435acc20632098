-- The screens in the documentation are those that flare shows.
local screens = require "spec.support.screens"
local tree = require "spec.support.tree"

describe("the screen in the documentation", function()
  for _, name in ipairs(screens.names) do
    it("is that of the program: " .. name, function()
      local now, problem = screens.make(name)
      if not now then return pending(problem) end
      local path = ("%s/%s.svg"):format(screens.folder, name)
      if screens.settled(now) ~= screens.settled(tree.read(path)) then
        error(path .. " differs; build/flare spec/support/screens.lua writes it again:\n" .. now)
      end
    end)
  end

  it("is on the pages", function()
    for name, page in pairs {attach = "debugging", debugging = "debugging", notebook = "notebook",
                             prompt = "prompt", training = "training"} do
      local text = tree.read(("docs/%s.md"):format(page))
      assert(text:find(("](images/%s.svg)"):format(name), 1, true), name)
    end
  end)
end)
