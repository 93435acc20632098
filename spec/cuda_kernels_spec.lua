-- One specialisation of each CUDA kernel, compiled for sm_90a without a GPU and compared with
-- spec/support/cuda_kernels.lua: none may take many more registers, or spill where it did not.
local page = require "spec.support.cuda_kernels_page"
local known = require "spec.support.cuda_kernels"

describe("CUDA kernels", function()
  local version, why = page.compiler()

  it("compile, with the registers that they had", function()
    if not version then return pending(why) end
    local found, names = page.kernels()
    assert.is_true(#names > 200)
    if version ~= known.compiler then
      return pending(("the table is NVRTC %s's, this is %s: compiled only")
        :format(known.compiler, version))
    end
    local worse = {}
    for _, name in ipairs(names) do
      local now, before = found[name], known[name]
      if not before then
        worse[#worse + 1] = name .. " is not in the table"
      elseif now[1] > before[1] + 8 or now[2] > before[2] or now[3] > before[3] then
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
