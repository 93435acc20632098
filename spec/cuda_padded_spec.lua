-- Products of 16-bit matrices of odd sizes on GPUs: the copies that they are made of, by the host.
local tree = require "spec.support.tree"

local function source(name)
  return (tree.read("kernels/cuda/gemm/" .. name):gsub("#pragma once", ""))
end

describe("padded products", function()
  local folder = os.tmpname()
  setup(function()
    os.remove(folder)
    os.execute(("mkdir -p '%s'"):format(folder))
  end)
  teardown(function() os.execute(("rm -r '%s'"):format(folder)) end)

  local function write(name, text)
    local file <close> = assert(io.open(folder .. "/" .. name, "w"))
    file:write(text)
  end

  it("are plain products, with operands that suit tensor cores", function()
    local header = source "padded.h"
    local kernel = header .. source "padded.cu":gsub('#include "[^\n]*\n', "")
    local code, n = source "padded.c":gsub('#include "product.h"',
      '#include "kernels/cuda/gemm/product.h"'):gsub('#include "padded.h"',
      '#include "kernels/cuda/gemm/padded.h"'):gsub("#define (%u+) +%d+", {
        PAYS = "#define PAYS 0", TALL = "#define TALL 16", LEAST = "#define LEAST 2"})
    assert.truthy(n >= 2 and code:find("PAYS 0", 1, true) and code:find("TALL 16", 1, true))
    local function filled(name, mark, by)
      local text = tree.read("spec/support/fake_cuda/" .. name)
      return (text:gsub(mark, function() return by end))
    end
    write("kernel.cc", filled("padded.cc", "// KERNELS", kernel))
    write("main.c", filled("padded.c", "/%* PRODUCT %*/", code))
    local check = "-O1 -g -w -fsanitize=address,alignment -I. -Iruntime -I'" .. tree.build
      .. "/generated'"
    local said = tree.output((("cd '%s' && {cxx} -std=gnu++17 {check} -c '{folder}/kernel.cc' "
      .. "-o '{folder}/kernel.o' && {cc} -std=gnu11 {check} '{folder}/main.c' "
      .. "'{folder}/kernel.o' -lstdc++ -lm -o '{folder}/padded' && '{folder}/padded' 2>&1")
      :format(tree.root or "."):gsub("{(%w+)}", {cxx = os.getenv "CXX" or "c++", check = check,
        cc = os.getenv "CC" or "cc", folder = folder})))
    assert.equal("products taken, the last rows apart taken, bad 0\n", said)
  end)
end)
