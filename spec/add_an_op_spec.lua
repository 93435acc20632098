-- The operators that docs/add-an-op.md and docs/add-a-kernel.md add, compiled as the pages say:
-- rows, gradient rule, the CPU's kernel, and the CUDA family with its device code.
local flare = require "flare"
local docs = require "spec.support.docs"
local tree = require "spec.support.tree"

local place -- a copy of what the compiler reads, with the rows of the pages

local function shell(command)
  local pipe = assert(io.popen(("(%s) 2>&1; echo status $?"):format(command)))
  local text = pipe:read "a"
  pipe:close()
  return text:match "status 0%s*$" ~= nil, text
end

local function compile(file, options)
  local ok, text = shell(("cd '%s' && ${CC:-cc} -std=gnu11 -Wall -Wextra -Wno-psabi -Werror "
    .. "-fopenmp-simd -I generated %s -c %s -o one.o && nm one.o")
    :format(place, options or "", file))
  assert(ok, text)
  return text
end

-- The block of a page that begins with these words.
local function block(page, start)
  for _, one in ipairs(docs.blocks(page)) do
    if one.text:sub(1, #start) == start then return one.text end
  end
  error(("%s has no block that begins with '%s'"):format(page, start))
end

local function write(path, text)
  local file = assert(io.open(place .. "/" .. path, "w"))
  file:write(text, "\n")
  file:close()
end

-- Puts a page's rows, an operator's and its line of help, at the end of a family.
local function add_rows(text, family)
  local path = "runtime/ops/" .. family .. ".def"
  write(path, tree.read(place .. "/" .. path) .. text)
end

describe("the pages on adding an operator", function()
  local op, kernel = "docs/add-an-op.md", "docs/add-a-kernel.md"

  setup(function()
    place = os.tmpname()
    os.remove(place)
    assert(shell(("mkdir '%s' && cp -r runtime kernels '%s'"):format(place, place)))
    add_rows(block(op, "FL_UNARY(gaussian"), "unary")
    add_rows(block(op, "FL_OP(discount"), "norm")
    tree.name_slots(place)
    write("runtime/rules/discount.c", block(op, "/* Gradient of discount"))
    write("kernels/cpu/discount.c", block(op, "/* Discounted sums: y"))
    write("kernels/cuda/discount.h", block(kernel, "/* What the kernel"))
    write("kernels/cuda/discount.cu", block(kernel, "/* Discounted sums: a thread"))
    write("kernels/cuda/discount.c", block(kernel, "/* Discounted sums. */"))
    local header = tree.read "kernels/cuda/cuda.h"
    write("kernels/cuda/cuda.h", (header:gsub("  F%(softmax%)", "  F(discount) \\\n%0", 1)))
  end)

  teardown(function() shell(("rm -rf '%s'"):format(place)) end)

  it("have rows, of which a formula needs no more", function()
    assert.match("gaussian", compile("kernels/cpu/loops_unary.c", "-O0"))
  end)

  it("have a gradient rule under the name that the row asks for", function()
    assert.match("T %w*_?grad_discount\n", compile "runtime/rules/discount.c")
  end)

  it("have a kernel on the CPU under the name that the row asks for", function()
    assert.match("T fl_cpu_%w*_?discount\n", compile("kernels/cpu/discount.c"))
  end)

  it("have a CUDA kernel's host side, and what the list of families asks for", function()
    local symbols = compile "kernels/cuda/discount.c"
    assert.match("T fl_cuda_discount\n", symbols)
    assert.match("T flc_visit_discount\n", symbols)
  end)

  it("have device code that NVRTC compiles for each dtype", function()
    if flare.cuda.report():find "nvrtc +no:" then return pending "needs NVRTC" end
    local source = tree.read(place .. "/kernels/cuda/discount.cu")
    for dtype = 2, 3 do -- f16 and bf16
      require "flare.cuda.compile"("spec", source, ("run<%d>"):format(dtype),
        {"-I" .. place .. "/kernels/cuda", "-I" .. place .. "/kernels/cuda/device",
         "--device-as-default-execution-space"}, "sm_90a")
    end
  end)
end)
