-- One name for a row's files on every backend: a row defined in kernels/cpu/softmax.c is defined in
-- kernels/cuda/softmax.c too, whatever its folder there.
local tree = require "spec.support.tree"

-- The stems of the files that define each row, by name: {softmax = {softmax = true}}.
local function definitions(folder, macro)
  local rows = {}
  for _, path in ipairs(tree.files(folder, ".c")) do
    local stem = path:match "([^/]+)%.c$"
    for name in tree.read(path):gmatch("\n" .. macro .. "%(([%l%d_]+)%) {") do
      rows[name] = rows[name] or {}
      table.insert(rows[name], stem)
    end
  end
  return rows
end

describe("the kernels of a row", function()
  local cpu = definitions("kernels/cpu", "FL_KERNEL")
  local cuda = definitions("kernels/cuda", "FLC_KERNEL")

  it("are in files of one name on every backend", function()
    local both, differ = 0, {}
    for name, files in pairs(cuda) do
      local there = cpu[name]
      if there then
        both = both + 1
        local here, other = table.concat(files, ", "), table.concat(there, ", ")
        if here ~= other then
          differ[#differ + 1] = ("%s: %s.c in kernels/cpu, %s.c in kernels/cuda"):format(
            name, other, here)
        end
      end
    end
    table.sort(differ)
    assert(both > 100, both)
    assert(#differ == 0, "\n  " .. table.concat(differ, "\n  "))
  end)

  it("are in one file each", function()
    for _, rows in ipairs {cpu, cuda} do
      for name, files in pairs(rows) do assert.equal(1, #files, name) end
    end
  end)

  it("have device code of the names that their host code asks for", function()
    local units, asked, names = {}, {}, {}
    for _, path in ipairs(tree.files("kernels/cuda", ".cu")) do
      units[path:match "([^/]+)%.cu$"] = true
    end
    for _, path in ipairs(tree.files("kernels/cuda", ".c", ".h")) do
      for name in tree.read(path):gmatch 'FLC_SPEC%(%s*"([%w_]+)"' do
        if not asked[name] then names[#names + 1] = name end
        asked[name] = true
        assert(units[name] or name == "raw", path .. " asks for " .. name .. ".cu")
      end
    end
    assert(#names > 20, #names)
  end)
end)
