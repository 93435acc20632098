-- The pages for people who come from elsewhere name only what there is: each snippet in a
-- table's second column is Lua, and each name in it exists.
local flare = require "flare"
local tree = require "spec.support.tree"

local methods = flare.core.methods()
local fields = {shape = true, dtype = true, device = true, T = true, grad = true}

-- The value at a path of names from flare; false if a name is missing.
local function find(path)
  local value = flare
  for name in path:gmatch "[^.]+" do
    local ok, inner = pcall(function() return value[name] end)
    if not ok or inner == nil then return false end
    value = inner
  end
  return value
end

local function check(snippet, where)
  local filled = snippet:gsub("%.%.%.([%])}])", "nil%1"):gsub("{dtype = nil}", "{}")
  local is_lua = load("return " .. filled) or load(filled) or load("return {" .. filled .. "}")
  local name_only = snippet:match "^x[.:][%w_]+$" -- a method by its name
  assert(is_lua or name_only, ("%s: no Lua: %s"):format(where, snippet))
  for path in snippet:gmatch "%f[%w]flare%.([%w_.]+)" do
    assert(find(path), ("%s: there is no flare.%s"):format(where, path))
  end
  for name in snippet:gmatch "%f[%w]x:([%w_]+)" do
    assert(methods[name], ("%s: tensors have no method %s"):format(where, name))
  end
  for name in snippet:gmatch "%f[%w]x%.([%w_]+)" do
    assert(fields[name], ("%s: tensors have no field %s"):format(where, name))
  end
end

describe("pages for people who come from elsewhere", function()
  for _, page in ipairs{"pytorch", "torch7", "numpy"} do
    local path = ("docs/from-%s.md"):format(page)
    it("name what there is: " .. page, function()
      local count, number = 0, 0
      for line in tree.read(path):gmatch "([^\n]*)\n" do
        number = number + 1
        local right = line:match "^|.*|%s*(.-)%s*|$"
        for snippet in (right or ""):gmatch "`([^`]+)`" do
          if snippet:find "^[%a~{]" and not snippet:find '^"' then
            check(snippet, path .. ":" .. number)
            count = count + 1
          end
        end
      end
      assert(count > 40, count)
    end)
  end
end)
