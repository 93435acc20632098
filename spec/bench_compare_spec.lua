-- `flare bench compare`: what it measures of two implementations, and what it refuses.
local tree = require "spec.support.tree"

local function compare(arguments)
  return tree.output(("FLARE_SOURCE=. '%s/flare' bench compare %s 2>&1; echo status=$?"):format(
    tree.build, arguments))
end

describe("flare bench compare", function()
  it("shows time, memory and errors side by side", function()
    local out = compare [["softmax" "(x - x:logsumexp(2, true)):exp() * 1.5" \
      --inputs "x = randn(16, 8)"]]
    for _, line in ipairs {"forward +[%d.]+ us +[%d.]+ us +[%d.]+\n",
        "forward and backward +[%d.]+ %a+ +[%d.]+ %a+ +[%d.]+\n", "memory, at most +[%d.]+ MiB",
        "error +%d.%de%-0[78] +5.0e%-01", "status=0\n$"} do
      assert.truthy(out:find(line), line .. "\n" .. out)
    end
  end)

  it("takes several inputs, types, devices, and files", function()
    local path = os.tmpname() .. ".lua"
    local file <close> = assert(io.open(path, "w"))
    file:write "return function(a, b) return a:matmul(b) end"
    file:close()
    local out = compare(("'a:matmul(b)' '%s' --inputs 'a = randn(3, 4); b = randn(4, 2)' "
      .. "--dtype bf16 --device sim:0"):format(path))
    assert.truthy(out:find "sim:0, bf16", out)
    assert.truthy(out:find "error of gradients +%d.%de%-0%d", out)
    assert.truthy(out:find "status=0\n$", out)
    os.remove(path)
  end)

  it("refuses results of different shapes, which broadcasting would hide", function()
    local out = compare [["x:sum(2)" "x:sum(2, true)" --inputs "x = randn(4, 4)"]]
    assert.truthy(out:find("different shapes: x:sum(2) gives (4), x:sum(2, true) gives (4, 1)", 1,
                           true), out)
    assert.truthy(out:find "status=1\n$", out)
  end)

  local function elsewhere(arguments, variables)
    local folder = tree.build:find "^/" and "" or tree.output("pwd"):match "[^\n]+" .. "/"
    return tree.output(("cd / && %s '%s%s/flare' bench %s 2>&1; echo status=$?"):format(
      variables or "", folder, tree.build, arguments))
  end

  it("finds the folder that the program was built from", function()
    local out = elsewhere [[compare relu relu --inputs "x = randn(4)"]]
    assert.truthy(out:find "forward and backward.*status=0\n$", out)
    out = elsewhere [[compare relu relu --inputs "x = randn(4)"]]
    assert.is_nil(out:find("FLARE_SOURCE", 1, true), out)
    out = elsewhere "--help"
    assert.truthy(out:find "^usage: flare bench NAME .*: .*compare, .*peers.*status=0\n$", out)
  end)

  it("says where to run it where there are no sources", function()
    local out = elsewhere("compare a b", "FLARE_SOURCE=/nowhere")
    assert.truthy(out:find("there is no folder /nowhere/bench: run it in flare's source folder, or "
      .. "name that folder by the variable FLARE_SOURCE", 1, true), out)
    assert.truthy(out:find "status=1\n$", out)
  end)

  it("names the program that was probably meant", function()
    local out = elsewhere "compar"
    assert.match("^flare bench: there is no benchmark compar %(did you mean 'compare'", out)
    assert.truthy(out:find "status=1\n$", out)
  end)

  it("reports errors", function()
    assert.truthy(compare "relu":find "usage: flare bench compare A B.*status=1")
    assert.truthy(compare "relu 'x:rely()'":find "x:rely%(%).*no 'rely'.*status=1")
    assert.truthy(compare "relu relu --inputs 'x ='":find "inputs.*status=1")
  end)
end)

describe("bench/check", function()
  -- The arguments of the comparisons that it would make on a processor of this name.
  local function compared(cpu)
    local place = tree.output "mktemp -d":match "[^\n]+"
    local script = [[
      cp -r --parents bench/check bench/results PLACE && mkdir PLACE/build &&
      printf '#!/bin/sh\necho "$@"\n' > PLACE/build/flare && chmod +x PLACE/build/flare &&
      FLARE_BENCH_CPU='CPU' PLACE/bench/check 2>&1; echo status=$?; rm -rf PLACE]]
    local out = tree.output((script:gsub("PLACE", place):gsub("CPU'", cpu .. "'")))
    return out
  end

  it("compares with tables of the same kind of processor only", function()
    local amd = compared "AMD EPYC 9654"
    assert.truthy(amd:find("peers-epyc-1t.md", 1, true), amd)
    assert.truthy(amd:find("peers-epyc-2t.md", 1, true), amd)
    assert.is_nil(amd:find("/peers-1t.md", 1, true))
    local intel = compared "Intel Xeon Platinum 8480C"
    assert.truthy(intel:find("/peers-1t.md", 1, true), intel)
    assert.is_nil(intel:find("epyc", 1, true))
    assert.truthy(compared "Other":find "no table .* was measured on 'Other'.*status=1")
  end)
end)
