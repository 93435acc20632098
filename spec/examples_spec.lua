-- Every example runs; the two trainings learn, and one that was stopped goes on exactly.
local flare = require "flare"
local tree = require "spec.support.tree"

-- Runs a script with arguments in this process; gives back what it printed.
local function run(name, ...)
  local out = {}
  local function emit(...)
    local parts = table.pack(...)
    for i = 1, parts.n do parts[i] = tostring(parts[i]) end
    out[#out + 1] = table.concat(parts, "\t")
  end
  local quiet = {write = function(self) return self end, flush = function() end}
  local env = {print = emit, arg = {[0] = "examples/" .. name .. ".lua", ...}}
  local chunk = assert(loadfile("examples/" .. name .. ".lua", "t",
                                setmetatable(env, {__index = _G})))
  local exit, stderr = os.exit, io.stderr
  -- luacheck: push ignore 122
  os.exit, io.stderr = function(code) error("exit " .. tostring(code), 0) end, quiet
  local ok, problem = pcall(chunk)
  os.exit, io.stderr = exit, stderr
  -- luacheck: pop
  if not ok then error(problem, 0) end
  return table.concat(out, "\n")
end

local function temporary()
  local path = os.tmpname()
  os.remove(path)
  return path
end

local data_folder = os.getenv("FLARE_DATA")

describe("examples", function()
  local progress = flare.log.progress
  setup(function()
    -- bars are for people
    flare.log.progress = function(o)
      o.out = {write = function(self) return self end, flush = function() end}
      return progress(o)
    end
  end)
  teardown(function() flare.log.progress = progress end)

  local expected = {
    ["01_tensor"] = "flare.tensor f32 %[2 x 3%] cpu",
    ["02_indexing"] = "positions? .*1",
    ["03_autograd"] = "%[ 6, 12, 18%]",
    ["04_linear_regression"] = "y = [23]%.%d+ x %+ 0%.[45]",
    ["05_mlp"] = "right: %d+ %%",
    ["06_custom_layer"] = "2%.scale",
    ["07_custom_function"] = "%[ 3, %-1,  2, [ %-]0%]",
    ["08_data_loader"] = "goes on:",
    ["09_checkpoint"] = "the same bits:\ttrue",
    ["10_text_rnn"] = "sea sh",
    ["11_elementwise"] = "right:\ttrue.*squares:\ty = %-.*robust: \ty = 3%.0 x %+ 0%.5",
    ["19_trainer"] = "epoch 10  loss 0%.%d+.*best accuracy 0%.[89]",
    ["14_data_parallel"] = "1 ranks, right: %d%d+ %%",
    ["pipeline"] = "1f1b: 1 ranks, loss [34]%.%d+ %-> [0-2]%.%d+\nidle: simulated 0 %%",
    ["tensor_parallel"] = "1 ranks, loss 4%.%d+ %-> [0-3]%.%d+\nof %d+ elements this rank has %d+",
    ["15_zero"] = "1 ranks, loss below 0.01: true, 5508 of 5508",
    ["13_streams"] = "loss 0%.0000%d+, bias 0%.5",
    ["17_generate"] = "step 150: loss 0%.0.*the dog sat on the log; the cat sat on the mat",
    ["fpga"] = "off by 0%.00%d+ at most.*product +4 +%d+.*layer_norm +2  by the CPU.*on AMD Alveo",
    ["moe"] = "step 120: loss 0%.[0-4].*expert 4 reads",
    ["what_if"] = "step on NVIDIA H100 SXM: .*bound by .*matrix units of twice the rate +%d",
    ["12_cuda_kernel"] = "unit%(const f32 %*x, f32 %*y, f32 %*length, i32 n%).*wrong",
  }
  local names = {}
  for name in pairs(expected) do names[#names + 1] = name end
  table.sort(names) -- they run in one process, in the same order each time
  for _, name in ipairs(names) do
    it("runs " .. name, function() assert.match(expected[name], run(name)) end)
  end

  it("runs 16_explain", function()
    -- a checked plan is kept, however long it takes
    local said = tree.output(("FLARE_COMPILE=check '%s' examples/16_explain.lua 2>&1"):format(
      os.getenv "FLARE_PROGRAM" or tree.build .. "/flare"))
    assert.match("%d+ launches in %d+ kernels.*fused reduction.*16_explain.lua:%d.*at most", said)
  end)

  describe("char_gpt", function()
    local text, out = os.tmpname(), {}
    local options = {"--data", text, "--layers", "1", "--heads", "2", "--width", "16", "--block",
                     "16", "--batch", "4", "--dropout", "0.1", "--steps", "30", "--device",
                     "cpu", "--quiet"}
    local function train(folder, ...)
      local arguments = table.move(options, 1, #options, 1, {})
      for _, a in ipairs{"--out", folder, ...} do arguments[#arguments + 1] = a end
      return run("char_gpt", table.unpack(arguments))
    end

    setup(function()
      local file = assert(io.open(text, "w"))
      for i = 1, 400 do file:write("line ", i, " of a text to be learned.\n") end
      file:close()
      for i = 1, 3 do out[i] = temporary() end
    end)
    teardown(function()
      os.remove(text)
      for _, folder in ipairs(out) do os.execute("rm -rf '" .. folder .. "'") end
    end)

    it("ends with the validation loss", function()
      local shown = train(out[1])
      local loss = tonumber(shown:match("\nval_loss (%d%.%d%d%d%d)$"))
      assert.is_true(loss > 1 and loss < 3.6)
      assert.is_truthy(io.open(out[1] .. "/metrics.jsonl"))
    end)

    it("goes on bit for bit", function()
      local whole = train(out[1])
      train(out[2], "--stop", "11")
      local resumed = train(out[2], "--resume")
      assert.equal(whole:match("val_loss %S+"), resumed:match("val_loss %S+"))
      local a = assert(flare.load(out[1] .. "/step-00000030.flare")).parts.model
      local b = assert(flare.load(out[2] .. "/step-00000030.flare")).parts.model
      for key, t in pairs(a) do assert.is_true(t:eq(b[key]):all():item(), key) end
    end)

    it("refuses what it does not know", function()
      assert.has_error(function() run("char_gpt", "--stepz", "3") end, "exit 2")
      assert.has_error(function() run("char_gpt", "--data", "/no/such/file") end, "exit 2")
      assert.has_error(function() train(out[3], "--resume") end, "exit 2")
      assert.has_error(function() run("char_gpt", "--steps", "-1") end, "exit 2")
      assert.has_error(function() train(out[1], "--resume", "--steps", "3") end, "exit 2")
    end)

    it("writes on from a text without lines", function()
      local name = os.tmpname()
      local file <close> = assert(io.open(name, "w"))
      file:write(("ab"):rep(3000))
      file:flush()
      local shown = run("char_gpt", "--data", name, "--steps", "2", "--layers", "1", "--heads", "1",
                        "--width", "8", "--block", "16", "--out", out[3])
      assert.is_truthy(shown:find("\na[ab]+\n"))
      os.remove(name)
    end)

    it("learns Shakespeare in 120 steps", function()
      if not data_folder then return pending("FLARE_DATA names no folder of texts and digits") end
      local shown = run("char_gpt", "--data", data_folder .. "/tinyshakespeare.txt", "--steps",
                        "120", "--device", "cpu", "--quiet", "--out", out[3])
      assert.is_true(tonumber(shown:match("val_loss (%S+)$")) <= 2.6)
    end)
  end)

  describe("mnist", function()
    it("reads the digits that it draws", function()
      local shown = run("mnist", "--count", "1500", "--epochs", "6")
      assert.is_true(tonumber(shown:match("accuracy (%S+)$")) > 0.8)
    end)

    it("trains the convolutional network, too", function()
      local shown = run("mnist", "--count", "300", "--epochs", "1", "--model", "cnn")
      assert.is_truthy(shown:match("accuracy (%S+)$"))
      for _, wrong in ipairs {{"--model", "rnn"}, {"--epochs", "few"}, {"--device", "none"},
                              {"--images", "/no/such/file"}, {"--stepz"}} do
        assert.has_error(function() run("mnist", table.unpack(wrong)) end, "exit 2")
      end
    end)

    it("reads handwritten digits", function()
      if not data_folder then return pending("FLARE_DATA names no folder of texts and digits") end
      if not flare.core.crc32 "" then return pending "needs zlib" end
      local shown = run("mnist", "--images", data_folder .. "/t10k-images-idx3-ubyte.gz",
                        "--labels", data_folder .. "/t10k-labels-idx1-ubyte.gz")
      assert.is_true(tonumber(shown:match("accuracy (%S+)$")) >= 0.93)
    end)
  end)
end)

describe("examples/vit.lua", function()
  it("reads digits, and keeps a model that reads them, too", function()
    local folder = temporary()
    local shown = run("vit", "--count", "1000", "--epochs", "6", "--folder", folder)
    assert.truthy(tonumber(shown:match "epoch 6: loss %S+, accuracy (%S+)") > 0.6)
    local model = assert(flare.models.load(folder))
    os.execute("rm -rf '" .. folder .. "'")
    local images, labels = flare.data.digits(200, {seed = 5})
    local right = model(images * 2 - 1):argmax(2):eq(labels):to "f32":mean():item()
    assert.truthy(right > 0.6)
    assert.equal("7", model.config.id2label["7"])
  end)

  it("refuses what it does not know", function()
    for _, wrong in ipairs{{"--patch", "5"}, {"--width", "20"}, {"--images", "/no/such/file"},
                           {"--device", "none"}} do
      local function wrongly() run("vit", "--count", "10", table.unpack(wrong)) end
      assert.has_error(wrongly, "exit 2")
    end
  end)
end)

describe("examples/diffusion.lua", function()
  if not flare.core.png_encode then return pending "needs libpng" end
  local folder = temporary()
  teardown(function() os.execute("rm -rf '" .. folder .. "'") end)

  it("draws each digit with a U-Net and with a transformer", function()
    assert(flare.core.file.mkdir(folder))
    for _, model in ipairs{"unet", "dit"} do
      local path, kept = ("%s/%s.png"):format(folder, model), ("%s/%s"):format(folder, model)
      local shown = run("diffusion", "--model", model, "--steps", "6", "--batch", "8", "--count",
                        "64", "--width", "8", "--draws", "2", "--rows", "2", "--out", path,
                        "--folder", kept)
      assert.match("step 6: loss [01]%.%d+\n20 samples are in ", shown)
      local picture = assert(flare.data.images.read(path))
      assert.same({1, 56, 280}, table.move(picture.shape, 1, 3, 1, {}))
      assert.truthy(picture:to "f32":std():item() > 10)
      local again = assert(flare.models.load(kept .. "/" .. model))
      assert.equal(1, again.config.in_channels)
      assert(flare.models.load(kept .. "/scheduler"))
    end
  end)

  it("refuses what it does not know", function()
    for _, wrong in ipairs{{"--model", "gan"}, {"--out", "x.gif"}, {"--images", "/no/such/file"},
                           {"--device", "none"}} do
      local function wrongly() run("diffusion", "--count", "10", table.unpack(wrong)) end
      assert.has_error(wrongly, "exit 2")
    end
  end)

  it("learns handwritten digits", function()
    if not data_folder then return pending("FLARE_DATA names no folder of texts and digits") end
    if not flare.core.crc32 "" then return pending "needs zlib" end
    local path = os.tmpname() .. ".png"
    local shown = run("diffusion", "--steps", "30", "--batch", "16", "--width", "8", "--draws", "2",
                      "--rows", "1", "--out", path, "--images",
                      data_folder .. "/t10k-images-idx3-ubyte.gz", "--labels",
                      data_folder .. "/t10k-labels-idx1-ubyte.gz")
    os.remove(path)
    local first, last = shown:match "step 6: loss (%S+)", shown:match "step 30: loss (%S+)"
    assert.truthy(tonumber(last) < 0.6 * tonumber(first))
  end)
end)

describe("each program in examples/", function()
  local program = os.getenv "FLARE_PROGRAM" or tree.build .. "/flare"
  local function said(path, word)
    return tree.output(("'%s' %s %s 2>&1; echo status=$?"):format(program, path, word))
  end

  for _, path in ipairs(tree.files("examples", ".lua")) do
    if not path:find "/embed/" then
      it("prints its options and refuses unknown ones: " .. path, function()
        local text = said(path, "--help")
        local usage = "^usage: flare " .. path:gsub("%p", "%%%0")
        assert.match(usage .. "[^\n]*\n%u[^\n]*%.\n\n", text)
        assert.match("\n  %-%-help +print this and exit\nstatus=0\n$", text)
        local name = path:match "([^/]*)%.lua$"
        assert.equal(name .. ": unknown option '--hepl' (did you mean '--help'?)\nstatus=2\n",
                     said(path, "--hepl"))
        for option in text:gmatch "\n  %-%-([%w_]+)" do
          local message = "%s: unknown option '--%sx' (did you mean '--%s'?)\nstatus=2\n"
          assert.equal(message:format(name, option, option), said(path, "--" .. option .. "x"))
        end
      end)
    end
  end
end)
