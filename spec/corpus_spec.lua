-- The files that the fuzz targets begin with, and those that broke something once: each is read,
-- or refused with a message.
local tree = require "spec.support.tree"
local parsers = require "spec.support.parsers"

describe("every file of the corpus", function()
  for name, read in pairs(parsers.readers) do
    it("is read or refused by " .. name, function()
      local files = tree.files("spec/corpus/" .. name, "")
      assert.is_true(#files > 0)
      for _, path in ipairs(files) do assert.is_nil(parsers.judge(read, path), path) end
    end)
  end
end)
