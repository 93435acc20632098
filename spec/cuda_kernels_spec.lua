-- One specialisation of each CUDA kernel, compiled for sm_90a without a GPU. The families in
-- spec/support/cuda_kernels.lua may not take many more registers than there, or spill where they
-- did not; all others stay within a general bound.
local page = require "spec.support.cuda_kernels_page"
local known = require "spec.support.cuda_kernels"

-- Registers for 2 blocks of 256 threads on a multiprocessor, bytes of stack and of spills.
local bound = {128, 256, 32}

local function exceeds(now, most)
  return now[1] > most[1] or now[2] > most[2] or now[3] > most[3]
end

describe("CUDA kernels", function()
  local version, why = page.compiler()
  local found, names
  if version then found, names = page.kernels() end

  it("compile, within the bound on registers and spills", function()
    if not version then return pending(why) end
    assert.is_true(#names > 200)
    local worse = {}
    for _, name in ipairs(names) do
      if not page.listed(name) and exceeds(found[name], bound) then
        worse[#worse + 1] = ("%s: %s, at most %s (registers, stack, spills)"):format(name,
          table.concat(found[name], " "), table.concat(bound, " "))
      end
    end
    assert(#worse == 0, "\n  " .. table.concat(worse, "\n  "))
  end)

  it("of heavy families have the registers that they had", function()
    if not version then return pending(why) end
    if version ~= known.compiler then
      return pending(("the table is NVRTC %s's, this is %s"):format(known.compiler, version))
    end
    local worse = {}
    for _, name in ipairs(names) do
      local now, before = found[name], known[name]
      if page.listed(name) and not before then
        worse[#worse + 1] = name .. " is not in the table"
      elseif before and exceeds(now, {before[1] + 8, before[2], before[3]}) then
        worse[#worse + 1] = ("%s: %s, it was %s (registers, stack, spills)")
          :format(name, table.concat(now, " "), table.concat(before, " "))
      end
    end
    for name in pairs(known) do
      if name ~= "compiler" and not found[name] then
        worse[#worse + 1] = name .. " is in the table only"
      end
    end
    assert(#worse == 0, "\n  " .. table.concat(worse, "\n  ") .. "\nif that is right: build/flare "
      .. "spec/support/cuda_kernels_page.lua > spec/support/cuda_kernels.lua")
  end)
end)
