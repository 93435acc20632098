-- The specs of errors, ownership, tampering and files once more, in a build with the address
-- and undefined-behaviour sanitizers (kept in build/asan); kernels of CUDA for the chips with the
-- least shared memory and with wgmma. spec/long/sanitize.sh has all specs, chips and checks.
local tree = require "spec.support.tree"

local plain = tree.exists(tree.build .. "/CMakeCache.txt") and not tree.instrumented()
local folder = tree.build .. "/asan"

-- All of gcc's undefined but null, object-size and pointer-overflow, which take a third of the
-- time to compile: the address sanitizer finds such a pointer where it is used.
local checks = "address,alignment,bool,bounds,builtin,enum,integer-divide-by-zero,"
  .. "nonnull-attribute,return,returns-nonnull-attribute,shift,unreachable,vla-bound"

describe("with the sanitizers", function()
  if not plain then
    it("", function() pending "this build is instrumented itself" end)
    return
  end

  it("the program builds", function()
    -- -Og takes less than half of -O1's time; a build type would add -g, full debug information;
    -- checks of addresses are calls, which compile in less time than inline code
    local command = "CMAKE_GENERATOR=Ninja cmake -S . -B '%s' "
      .. "-DCMAKE_BUILD_TYPE=None -DCMAKE_C_FLAGS='-Og -g1 "
      .. "--param asan-instrumentation-with-call-threshold=0' "
      .. "-DFLARE_SANITIZE=%s -DFLARE_ISAS=v3 2>&1 "
      .. "&& cmake --build '%s' --target flare --parallel 2 2>&1"
    local pipe = assert(io.popen(command:format(folder, checks, folder)))
    local log = pipe:read "a"
    assert.is_true(pipe:close(), log:sub(-4000))
  end)

  for _, name in ipairs{"lua/errors", "lua/ownership", "lua/file", "files", "faults", "fuzz",
                        "allocation", "cuda_launches"} do
    it(name .. "_spec is clean", function()
      local command = ("FLARE_SPEC_CHIPS='8.6 9.0' "
        .. "FLARE_BUILD='%s' FLARE_PROGRAM='%s/flare' "
        .. "ASAN_OPTIONS=detect_stack_use_after_return=1:strict_string_checks=1"
        .. ":quarantine_size_mb=32 "
        .. "UBSAN_OPTIONS=print_stacktrace=1 '%s/flare' $(command -v busted) -o TAP "
        .. "spec/%s_spec.lua 2>&1; echo status $?"):format(folder, folder, folder, name)
      local log = tree.output(command)
      -- LeakSanitizer's own tracer faults at times, when a thread ends while it looks
      for _ = 1, 2 do
        if not log:find "LeakSanitizer has encountered a fatal error" then break end
        log = tree.output(command)
      end
      assert.is_nil(log:find "Sanitizer", log)
      assert.is_nil(log:find "runtime error", log)
      assert.equal("0", log:match "status (%d+)%s*$", log)
    end)
  end
end)
