-- Words that docs/style.md rules out: pronouns without a person, and phrases in the passive that
-- hide who acts. The check covers comments, titles, messages and pages alike.
local tree = require "spec.support.tree"

-- Folders that are free of them; a folder that has been cleaned is added here.
local folders = "README.md docs stdlib examples bench repl spec kernels runtime lua"
local endings = {".md", ".lua", ".c", ".h", ".cu", ".cuh", ".py", ".sh"}

local words = {
  "whoever", "nobody", "somebody", "everybody", "anybody", "anyone", "lies so", "lie so",
  "is told", "are told", "was told", "were told", "told of", "tells of", "is said of",
  "is said by", "to be had",
}

-- Lines that may have one of the words: path and text in lower case.
local allowed = {
  {"spec/style_spec.lua", ""}, -- the list itself
  {"spec/lua/file_spec.lua", "nobody inspects the spammish repetition"}, -- the hash's test vector
}

local function may_stand(path, line)
  for _, pair in ipairs(allowed) do
    if path == pair[1] and line:find(pair[2], 1, true) then return true end
  end
end

describe("text", function()
  it("has none of the words that docs/style.md rules out", function()
    local found = {}
    for _, path in ipairs(tree.files(folders, table.unpack(endings))) do
      local text = tree.read(path):lower() .. "\n"
      for _, word in ipairs(words) do
        local at = text:find("%f[%w]" .. word .. "%f[^%w]")
        while at do
          local start = #text:sub(1, at):match "^(.-)[^\n]*$"
          if not may_stand(path, text:sub(start + 1):match "[^\n]*") then
            local _, above = text:sub(1, at):gsub("\n", "")
            found[#found + 1] = ("%s:%d: %s"):format(path, above + 1, word)
          end
          at = text:find("%f[%w]" .. word .. "%f[^%w]", at + 1)
        end
      end
    end
    assert(#found == 0, "docs/style.md, Text:\n  " .. table.concat(found, "\n  "))
  end)
end)
