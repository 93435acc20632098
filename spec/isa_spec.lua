-- Which CPU kernels run: the best of those that are built and that the CPU has, or those that
-- FLARE_ISA names. spec/long/isas.sh runs the operators with each.
local tree = require "spec.support.tree"

-- What `flare doctor` prints with FLARE_ISA set, and its status.
local function doctor(isa)
  local said = tree.output(("FLARE_ISA='%s' '%s/flare' doctor 2>&1; echo status=$?")
    :format(isa, tree.build))
  return said:match "^(.-)\nstatus=(%d+)\n$"
end

-- What instructions a level of x86-64 asks for, as Linux names them.
local levels = {
  {isa = "v4", "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl", "avx2"},
  {isa = "v3", "avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe"},
  {isa = "v2", "cx16", "lahf_lm", "popcnt", "sse4_1", "sse4_2", "ssse3"},
  {isa = "plain"},
}

describe("the kernels of the CPU", function()
  local chosen, built = (doctor ""):match "\nkernels  (%w+) %(built: ([%w, ]+)%)\n"

  it("are the best that are built and that the CPU runs", function()
    local flags = (tree.read("/proc/cpuinfo"):match "\nflags%s*:([^\n]*)" or "") .. " "
    for _, level in ipairs(levels) do
      local here = built:find("%f[%w]" .. level.isa .. "%f[%W]")
      for _, flag in ipairs(level) do here = here and flags:find(" " .. flag .. " ", 1, true) end
      if here then return assert.equal(level.isa, chosen) end
    end
    error "no kernels run"
  end)

  it("are those that FLARE_ISA names", function()
    local said, status = doctor(chosen)
    assert.equal("0", status)
    assert.match("\nkernels  " .. chosen .. " %(", said)
  end)

  it("are not guessed for a name that is not built", function()
    for _, name in ipairs {"v5", "v3", "avx2"} do
      if not built:find("%f[%w]" .. name .. "%f[%W]") then
        local said, status = doctor(name)
        assert.equal("1", status)
        assert.equal(("flare: FLARE_ISA is \"%s\", and this flare has kernels for %s; "
          .. "cmake -D FLARE_ISAS=all builds all"):format(name, built), said)
      end
    end
  end)
end)
