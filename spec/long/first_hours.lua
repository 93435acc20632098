-- Programs that a person who knows PyTorch wrote from the pages, `flare help` and messages alone:
-- spec/hours/first, and then, each after what had failed was mended, the others. Each asserts its
-- results. limit: 10 min. FLARE_DATA names a folder with MNIST's test files and
-- tinyshakespeare.txt, FLARE_ONNX_CASES one with the archive of ONNX's cases, PYTHON a Python with
-- torch and safetensors; without them, or without curl or a C compiler, the programs that need
-- them are left out.
package.path = "./?.lua;" .. package.path
local tree = require "spec.support.tree"

-- The attempts that failed when the programs were written, by their causes.
local failed = {
  first = {
    "a line that begins with '(' is a call of what the line before ends with, and no page said so",
    "C code in [[ ]] ends at its own ]], and no page had [==[ ]==]",
    "help called schedule:lr() a list, which gives a number for each group",
    "model:summary() printed nothing, where a page said that it lists layers",
  },
  second = {
    "assert(false, number) at the end of a script showed '(error object is a number value)'",
    "interpolate has the mode linear, not bilinear, and the page for PyTorch's users had neither",
  },
  third = {
    "repeat_interleave wanted a dim, which PyTorch's does not",
    "no page had threads: join() of flare.spawn gives true in front of the results",
    "--report refuses --profile, and the page did not say so",
  },
  fourth = {
    "stage 3 of ZeRO refused a GPT-2, whose embedding is tied",
    "dist.ZeRO had no loss, which a step of the trainer calls",
    "no page had flare.class.is",
    "the page on the prompt did not say that flare < text is a script",
    ":heat x, heat.png took the name for a variable's field, as the page had `:image x, name`",
  },
  fifth = {
    "images of data.cifar are u8, unlike those of data.idx, and the page did not say so",
    "find takes a pattern, in which - has a meaning, and the page on Lua had no patterns",
  },
}

local data = os.getenv "FLARE_DATA"
local python = os.getenv "PYTHON"
local function there(command) return os.execute(("{ %s; } >/dev/null 2>&1"):format(command)) end
local has = {
  data = data and there(("test -f %s/tinyshakespeare.txt"):format(data)),
  cases = there "test -f $FLARE_ONNX_CASES/*.tar.gz",
  curl = there "command -v curl",
  compiler = there "command -v cc && command -v pkg-config",
}
if python and not there(python .. " -c 'import torch, safetensors'") then python = nil end

-- What a program needs, its arguments, and how it is started.
local special = {
  ["first/01_mnist_cnn.lua"] = {needs = "data", arguments =
    "--images $FLARE_DATA/t10k-images-idx3-ubyte.gz "
      .. "--labels $FLARE_DATA/t10k-labels-idx1-ubyte.gz"},
  ["first/07_data_parallel.lua"] = {launcher = "launch -n 2"},
  ["first/09_kernels.lua"] = {needs = "compiler"},
  ["first/11_embed.lua"] = {needs = "compiler"},
  ["second/02_serve.lua"] = {needs = "curl"},
  ["second/07_char_gpt.lua"] = {needs = "data",
                                arguments = "--text $FLARE_DATA/tinyshakespeare.txt"},
  ["fourth/04_zero.lua"] = {launcher = "launch -n 2", arguments = "--folder zero-run"},
  ["fourth/05_pipeline.lua"] = {launcher = "launch -n 2"},
  ["fifth/07_word2vec.lua"] = {needs = "data",
                               arguments = "--text $FLARE_DATA/tinyshakespeare.txt"},
  ["third/11_onnx.lua"] = {needs = "cases", arguments = "--cases $FLARE_ONNX_CASES/*.tar.gz"},
}

local here = tree.output "pwd":gsub("\n", "")
local folder = tree.output "mktemp -d":gsub("\n", "")
local _ <close> = setmetatable({}, {__close = function() os.execute("rm -rf " .. folder) end})
assert(os.execute(("cmake --install build --prefix %s/prefix >/dev/null"):format(folder)))

-- Whether a program succeeds; its output, and the name of what it needs and there is not.
local function run(name)
  local how = special[name] or {}
  if how.needs and not has[how.needs] then return nil, how.needs end
  local log = folder .. "/log"
  local command = ("cd %s && env PATH=%s/build:$PATH FLARE_PREFIX=%s/prefix PYTHON=%s "
    .. "timeout -k 5 120 flare %s %s/spec/hours/%s %s >%s 2>&1 </dev/null"):format(folder, here,
    folder, python or "''", how.launcher or "", here, name, how.arguments or "", log)
  local ok = os.execute(command)
  return ok or false, tree.read(log)
end

local wrong = {}
for _, hour in ipairs {"first", "second", "third", "fourth", "fifth"} do
  local count, ran, missing, start = 0, 0, {}, os.time()
  for _, path in ipairs(tree.files("spec/hours/" .. hour, ".lua")) do
    local name = path:match "spec/hours/(.*)$"
    if name:find "/%d" then -- others are modules of these
      local ok, text = run(name)
      count = count + 1
      ran = ran + (ok and 1 or 0)
      if ok == nil then missing[#missing + 1] = ("%s (no %s)"):format(name, text) end
      if ok == false then
        wrong[#wrong + 1] = name
        print(name .. "\n" .. text)
      end
    end
  end
  print(("figure: the %s hour: %d of %d programs give what they assert, %d s%s"):format(hour, ran,
    count, os.time() - start, missing[1] and "; left out: " .. table.concat(missing, ", ") or ""))
  print(("figure: when they were written %d attempts failed: %s"):format(#failed[hour],
    table.concat(failed[hour], "; ")))
end
assert(not wrong[1], "these programs fail: " .. table.concat(wrong, ", "))
