-- NVIDIA's libraries as they are on machines that are not as they should be: fakes of them,
-- found by FLARE_CUDA_PATH, that are missing, old, in parts or broken. The same program says what
-- is wrong, and works on the CPU.
local fakes = require "spec.support.fakes"
local tree = require "spec.support.tree"

local place = os.tmpname() .. ".d"
local others = "libcuda,libnvrtc,libcublasLt,libcublas,libcusolver,libcufft,libcudnn,libnccl"

-- A shared library of `sources` in a folder of its own.
local function build(folder, name, sources, defines)
  fakes.build(place .. "/" .. folder, name, sources, defines)
end

local function driver(folder, defines, sources)
  local given = {VERSION = 13000, INIT = 0, DEVICES = 1, MAJOR = 9, MINOR = 0}
  for key, value in pairs(defines) do given[key] = value end
  local list = {"-D DRIVER"}
  for key, value in pairs(given) do list[#list + 1] = ("-D %s=%d"):format(key, value) end
  build(folder, "libcuda.so.1", sources or "all driver", table.concat(list, " "))
end

-- What the program prints for `arguments`, with the libraries of a folder alone.
local function flare(folder, hide, arguments)
  local out = tree.output(("FLARE_CUDA_PATH='%s/%s' FLARE_CUDA_HIDE='%s' FLARE_PACK=none "
    .. "FLARE_CACHE=off '%s/flare' %s 2>&1; echo status=$?")
    :format(place, folder, hide, tree.build, arguments))
  return out
end

-- All but one of the libraries hidden.
local function only(name)
  local list = {}
  for other in others:gmatch "[^,]+" do
    if other ~= name then list[#list + 1] = other end
  end
  return table.concat(list, ",")
end

local script = "-e 'local flare = require \"flare\" "
  .. "print(flare.cuda.available()) print(flare.ones(3):sum():item()) "
  .. "print(pcall(flare.ones, 3, {device = \"cuda\"}))'"

-- The driver of a folder cannot be used, with this reason; everything else works.
local function refused(folder, reason, hide)
  local out = flare(folder, hide or only "libcuda", script)
  reason = reason:gsub("@", function() return place .. "/" .. folder end)
  assert.equal("false\t" .. reason, out:match "^[^\n]*")
  assert.equal("3.0", out:match "\n([^\n]*)")
  assert.truthy(out:match "\nfalse\t([^\n]*)":find((reason:gsub("^cuda: ", "")), 1, true), out)
  assert.truthy(out:find "status=0\n$", out)
  local doctor = flare(folder, hide or only "libcuda", "doctor")
  assert.truthy(doctor:find("no: " .. reason:gsub("^cuda:%d?:? ", ""), 1, true), doctor)
  assert.truthy(doctor:find "status=0\n$", doctor)
end

describe("NVIDIA's libraries", function()
  setup(function() assert(os.execute("mkdir " .. place)) end)
  teardown(function() os.execute("rm -rf " .. place) end)

  it("are not needed", function()
    refused("none", "cuda: libcuda.so.1 is hidden by FLARE_CUDA_HIDE: "
      .. "there is no NVIDIA driver on this machine", others)
    local doctor = flare("none", others, "doctor")
    for name, command in pairs {nvrtc = "pip install nvidia-cuda-nvrtc",
        cublasLt = "pip install nvidia-cublas", cufft = "pip install nvidia-cufft",
        cublas = "pip install nvidia-cusolver nvidia-cublas",
        cusolver = "pip install nvidia-cusolver nvidia-cublas",
        cudnn = "pip install nvidia-cudnn-cu13",
        pack = "flare kernels --pack sm_90a"} do
      local line = doctor:match("\n" .. name .. "%s+no: ([^\n]*)")
      assert.truthy(line and line:find("`" .. command .. "`", 1, true), name .. "\n" .. doctor)
    end
  end)

  it("refuse an old driver by its version", function()
    -- as it is: without the functions of later ones
    driver("old", {VERSION = 11040}, "driver")
    refused("old", "cuda: @/libcuda.so.1 is the driver of CUDA 11.4, 12.0 is needed")
  end)

  it("name the function that a driver lacks", function()
    driver("part", {}, "driver")
    refused("part",
      "cuda: @/libcuda.so.1 has no cuGetErrorName: it is too old, or not what it claims")
  end)

  it("pass on why a driver does not start", function()
    driver("init", {INIT = 802})
    refused("init", "cuda: the driver does not start: system not yet initialized (802)")
  end)

  it("say that a driver sees no GPU", function()
    driver("empty", {DEVICES = 0})
    refused("empty", "cuda: the driver sees no GPU" .. (os.getenv "CUDA_VISIBLE_DEVICES"
      and " (CUDA_VISIBLE_DEVICES is set)" or ""))
  end)

  it("refuse a GPU that is too old by its name", function()
    driver("turing", {MAJOR = 7, MINOR = 5})
    refused("turing", "cuda: Fake 7.5 has compute capability 7.5, 8.0 is needed")
  end)

  it("are listed by the doctor with their paths", function()
    driver("good", {VERSION = 12080, MAJOR = 9})
    build("good", "libnvrtc.so.13", "all versions", "-D COMPILER -D MAJOR=13 -D MINOR=1")
    build("good", "libcublasLt.so.13", "all versions", "-D BLAS -D MAJOR=0 -D MINOR=0")
    build("good", "libcublas.so.13", "all versions", "-D CUBLAS -D MAJOR=0 -D MINOR=0")
    build("good", "libcusolver.so.12", "all versions", "-D CUSOLVER -D MAJOR=0 -D MINOR=0")
    build("good", "libcufft.so.12", "all versions", "-D CUFFT -D MAJOR=0 -D MINOR=0")
    build("good", "libcudnn.so.9", "all versions", "-D DNN -D MAJOR=0 -D MINOR=0")
    build("good", "libnccl.so.2", "all versions", "-D NCCL -D MAJOR=0 -D MINOR=0")
    local doctor = flare("good", "", "doctor")
    for _, line in ipairs {"driver   CUDA 12.8 (@/libcuda.so.1)", "cuda:0   Fake 9.0, sm_90a, ",
        "nvrtc    13.1 (@/libnvrtc.so.13)", "cublasLt 13.2 (@/libcublasLt.so.13)",
        "cublas   13.1 (@/libcublas.so.13)", "cusolver 12.1 (@/libcusolver.so.12)",
        "cufft    12.2 (@/libcufft.so.12)", "cudnn    9.12 (@/libcudnn.so.9)",
        "nccl     2.20 (@/libnccl.so.2)"} do
      line = line:gsub("@", function() return place .. "/good" end)
      assert.truthy(doctor:find("\n" .. line, 1, true), line .. "\n" .. doctor)
    end
    assert.truthy(doctor:find "status=0\n$", doctor)
    assert.equal("true", flare("good", "", script):match "^[^\n]*")
  end)

  it("refuse an old compiler, and one that is no compiler", function()
    build("rtc_old", "libnvrtc.so.13", "versions", "-D MAJOR=11 -D MINOR=2")
    local out = flare("rtc_old", "", "kernels --check sm_90a --quick")
    assert.equal(("flare: %s/rtc_old/libnvrtc.so.13 is NVRTC 11.2, 12.0 is needed\nstatus=1\n")
      :format(place), out)
    build("rtc_part", "libnvrtc.so.13", "versions", "-D MAJOR=13 -D MINOR=0")
    out = flare("rtc_part", "", "kernels --check sm_90a --quick")
    assert.equal(("flare: %s/rtc_part/libnvrtc.so.13 has no nvrtcCreateProgram: "
      .. "it is too old, or not what it claims\nstatus=1\n"):format(place), out)
  end)

  it("end a check of the kernels with what the compiler says", function()
    build("rtc_fails", "libnvrtc.so.13", "all versions", "-D COMPILER -D MAJOR=13 -D MINOR=0")
    local out = flare("rtc_fails", "", "kernels --check sm_90a --quick")
    assert.truthy(out:find
      "^flare: compiling [%w_]+%.cu [^\n]*NVRTC_ERROR_COMPILATION\nstatus=1\n$",
      out)
  end)

  it("name the function that each of the others lacks", function()
    for _, name in ipairs {"libcublasLt.so.13", "libcublas.so.13", "libcusolver.so.12",
        "libcufft.so.12", "libcudnn.so.9"} do
      build("parts", name, "versions", "-D MAJOR=0 -D MINOR=0")
    end
    local doctor = flare("parts", "libcuda,libnvrtc", "doctor")
    for _, line in ipairs {"cublasLt no: @/libcublasLt.so.13 has no cublasLtCreate: ",
        "cublas   no: @/libcublas.so.13 has no cublasCreate_v2: ",
        "cusolver no: @/libcusolver.so.12 has no cusolverDnCreate: ",
        "cufft    no: @/libcufft.so.12 has no cufftCreate: ",
        "cudnn    no: @/libcudnn.so.9 has no cudnnCreate: "} do
      line = line:gsub("@", function() return place .. "/parts" end)
      assert.truthy(doctor:find("\n" .. line, 1, true), line .. "\n" .. doctor)
    end
    assert.truthy(doctor:find "status=0\n$", doctor)
  end)

  it("that are missing leave factorizations and transforms to the host", function()
    local folder = place .. "/host"
    fakes.machine(folder)
    local there = [[
      local flare = require "flare"
      local x = flare.tensor({{2, 0}, {0, 4}}, {device = "cuda"})
      print(table.concat((x:inv():to "cpu" + 0):reshape(4):tolist(), " "))
      local long = {1}
      for k = 2, 66 do long[k] = 0 end -- longer than a kernel of ours does
      print(flare.tensor(long, {device = "cuda"}):rdft():to "cpu":sum():item())]]
    for _, name in ipairs {"libcublas", "libcusolver"} do
      local out = fakes.run(folder, "FLARE_CUDA_HIDE=libcufft,libcublasLt," .. name, there)
      assert.equal("0.5 0.0 0.0 0.25\n34.0\n", out)
    end
  end)
end)
