-- The public headers as documentation: each function has a comment and stands in the reference.
local tree = require "spec.support.tree"
local headers = require "spec.support.headers"

describe("public headers", function()
  it("have a comment at each function, or at its group", function()
    local missing, n = {}, 0
    for _, f in ipairs(headers.functions()) do
      n = n + 1
      if not f.comment then missing[#missing + 1] = f.header .. ": " .. f.name end
    end
    assert(n > 180, n)
    assert(#missing == 0, "\n  " .. table.concat(missing, "\n  "))
  end)

  it("keep a comment under eleven lines", function()
    local long = {}
    for _, f in ipairs(headers.functions()) do
      local lines = f.comment and select(2, f.comment:gsub("\n", "")) + 1 or 0
      if lines > 10 then long[#long + 1] = f.name .. ": " .. lines end
    end
    assert(#long == 0, "\n  " .. table.concat(long, "\n  "))
  end)

  it("are in docs/reference/c.md, each function and each header", function()
    local page, missing = tree.read "docs/reference/c.md", {}
    for _, f in ipairs(headers.functions()) do
      if not page:find("%f[%w_]" .. f.name .. "%(") then missing[#missing + 1] = f.name end
      if not page:find("## " .. f.header:match "[^/]+$", 1, true) then
        missing[#missing + 1] = f.header
      end
    end
    assert(#missing == 0, "\n  " .. table.concat(missing, "\n  "))
  end)

  it("are all installed", function()
    local list = tree.read "CMakeLists.txt":match "set%(public_headers (.-)%)"
    for _, path in ipairs(headers.files) do assert(list:find(path, 1, true), path) end
  end)
end)
