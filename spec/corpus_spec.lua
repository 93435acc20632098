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

describe("the campaign of the fuzz targets", function()
  -- with a program in place of the target, that says how many inputs it ran
  local function run(says)
    local path, keep = os.tmpname(), os.tmpname()
    local file <close> = assert(io.open(path, "w"))
    file:write("#!/bin/sh\necho '", says, "'\n")
    file:close()
    os.execute(("chmod +x %s && rm %s"):format(path, keep))
    local pipe = assert(io.popen(("PARSERS_PROGRAM=%s PARSERS_KEEP=%s sh spec/long/parsers.sh png")
                                   :format(path, keep)))
    local text = pipe:read "a"
    local ok = pipe:close()
    os.execute(("rm -r %s %s"):format(path, keep))
    return ok, text
  end

  it("fails where no input ran", function()
    local ok, text = run "stat::number_of_executed_units: 70"
    assert.match("^figure: png: 70 inputs in ", text)
    assert.is_true(ok)
    ok, text = run "nothing"
    assert.match("^figure: png: 0 inputs in ", text)
    assert.is_nil(ok)
  end)
end)
