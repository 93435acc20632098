-- Every block of every page runs, every link leads somewhere, and the page of
-- operators says what the rows say.
local docs = require "spec.support.docs"
local tree = require "spec.support.tree"

describe("the documentation", function()
  for _, path in ipairs(docs.pages) do
    for _, block in ipairs(docs.blocks(path)) do
      local check = docs[block.kind]
      if block.kind ~= "" and check then
        it(("%s:%d %s"):format(path, block.line, block.kind), function() check(block) end)
      end
    end
  end

  it("has blocks of known kinds only", function()
    local known = {lua = true, flare = true, c = true, sh = true, text = true, diff = true}
    for _, path in ipairs(docs.pages) do
      for _, block in ipairs(docs.blocks(path)) do
        assert(known[block.kind], ("%s:%d: a block of kind '%s'"):format(path, block.line,
                                                                        block.kind))
      end
    end
  end)

  it("has no broken links", function()
    local broken = {}
    for _, path in ipairs(docs.pages) do
      for _, link in ipairs(docs.broken_links(path)) do broken[#broken + 1] = link end
    end
    assert(#broken == 0, "\n  " .. table.concat(broken, "\n  "))
  end)

  it("has every page in the site's navigation", function()
    local site, missing = tree.read "docs/mkdocs.yml", {}
    for _, path in ipairs(docs.pages) do
      if not site:find(": " .. path .. "\n", 1, true) then missing[#missing + 1] = path end
    end
    assert(#missing == 0, "docs/mkdocs.yml: " .. table.concat(missing, ", "))
  end)

  it("says at the top of each page what one can do after it, and ends with what to see", function()
    local lists = {["docs/ops.md"] = true, ["docs/changelog.md"] = true}
    for _, path in ipairs(docs.pages) do
      local text = tree.read(path)
      if path:find "^docs/[%w-]+%.md$" and not lists[path] then
        assert(text:match "^# [^\n]+\n\n([^\n]*)":find "^After this page you ", path)
        assert(text:sub(-1500):find "\n#* ?See also[:\n]", path)
      end
    end
  end)

  it("stays within 120 columns, tables aside", function()
    local over = {}
    for _, path in ipairs(docs.pages) do
      local number = 0
      for line in (tree.read(path) .. "\n"):gmatch "([^\n]*)\n" do
        number = number + 1
        if (utf8.len(line) or #line) > 120 and line:sub(1, 1) ~= "|" then
          over[#over + 1] = path .. ":" .. number
        end
      end
    end
    assert(#over == 0, "\n  " .. table.concat(over, "\n  "))
  end)

  it("has reference pages as the sources say", function()
    local folder = os.tmpname()
    os.remove(folder)
    local make = "mkdir '%s' && '%s/flare' spec/support/reference_pages.lua '%s' 2>&1"
    assert.equal("", tree.output(make:format(folder, tree.build, folder)))
    local stale = tree.output(("diff -rq docs/reference '%s'; rm -rf '%s'"):format(folder, folder))
    assert(stale == "", "build/flare spec/support/reference_pages.lua writes them anew\n" .. stale)
  end)

  it("describes every operator as its row does", function()
    assert(tree.read "docs/ops.md" == require "spec.support.ops_page"(),
      "docs/ops.md is not up to date: build/flare spec/support/ops_page.lua > docs/ops.md")
  end)
end)
