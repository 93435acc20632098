-- One specialisation of each CUDA kernel, compiled for sm_90a without a GPU. The families in
-- spec/support/cuda_kernels.lua may not take many more registers than there, or spill where they
-- did not; all others stay within a general bound. What the table's compiler made of the very
-- sources is known from there: kernels that have changed since are compiled.
local page = require "spec.support.cuda_kernels_page"
local known = require "spec.support.cuda_kernels"

local function told(name, now, before)
  return ("%s: %s, %s (registers, stack, spills)"):format(name, table.concat(now, " "), before)
end

describe("CUDA kernels", function()
  local version, why = page.compiler()
  local names, digests = page.listed_kernels()
  local found
  if version then
    local changed = {}
    for file, digest in pairs(digests) do
      if version ~= known.compiler or digest ~= known.digests[file] then
        changed[#changed + 1] = file
      end
    end
    if #changed > 0 then print("compiled: " .. table.concat(changed, " ")) end
    found = page.compile(changed)
  end

  it("compile, within the bound on registers and spills", function()
    if not version then return pending(why) end
    assert.is_true(#names > 200)
    local worse = {}
    for name, now in pairs(found) do
      if not page.listed(name) and page.exceeds(now, page.bound) then
        worse[#worse + 1] = told(name, now, "at most " .. table.concat(page.bound, " "))
      end
    end
    assert(#worse == 0, "\n  " .. table.concat(worse, "\n  "))
  end)

  it("of heavy families have the registers that they had", function()
    if not version then return pending(why) end
    if version ~= known.compiler then
      return pending(("the table is NVRTC %s's, this is %s"):format(known.compiler, version))
    end
    local worse, there = {}, {compiler = true, digests = true}
    for _, name in ipairs(names) do
      local now, before = found[name], known[name]
      there[name] = true
      if page.listed(name) and not before then
        worse[#worse + 1] = name .. " is not in the table"
      elseif before and now and page.exceeds(now, {before[1] + 8, before[2], before[3]}) then
        worse[#worse + 1] = told(name, now, "it was " .. table.concat(before, " "))
      end
    end
    for name in pairs(known) do
      if not there[name] then worse[#worse + 1] = name .. " is in the table only" end
    end
    assert(#worse == 0, "\n  " .. table.concat(worse, "\n  ") .. "\nif that is right: build/flare "
      .. "spec/support/cuda_kernels_page.lua > spec/support/cuda_kernels.lua")
  end)
end)
