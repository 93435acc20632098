-- flare simulate: options, ranges, files, and the same numbers as flare.simulate.
local flare = require "flare"
local tree = require "spec.support.tree"

local program = os.getenv "FLARE_PROGRAM" or tree.build .. "/flare"

local function said(words)
  local text = tree.output(("'%s' simulate %s 2>&1; echo status=$?"):format(program, words))
  local body, status = text:match "^(.*)status=(%d+)\n$"
  return body, tonumber(status)
end

describe("flare simulate", function()
  it("prints what flare.simulate says", function()
    local layers = flare.dataflow.transformer("gpt2", {length = 512})
    local schedule = flare.dataflow.schemes.zb_h1(layers, {devices = 2, micro_batches = 4})
    local text, status = said("zb-h1 --model gpt2 --length=512 --devices 2 --micro-batches 4 "
      .. "--peer 100")
    assert.equal(0, status)
    assert.equal(tostring(flare.simulate(schedule, "h100", {peer = 100})) .. "\n", text)
    text = said "offload --model gpt2-xl --machine rtx4090 --memory 40 --recompute"
    assert.match("unknown option 'recompute'", text)
    text = said "in_memory --devices 2 --model gpt2 --recompute --machine A100"
    assert.match("^in_memory on NVIDIA A100", text)
  end)

  it("reads ranges and finds the least figure", function()
    local words = "offload --model gpt2 --activations recompute --micro-batches 4 "
    local text = said(words .. "--sweep link=1..4:1.5 --sweep memory=4,8")
    assert.match("^link +memory 4 +memory 8\n1 .*\n2.5 .*\n4 [^\n]*\n$", text)
    text = said(words .. "--sweep link=1..20 --want 0.2 --goal useful")
    assert.match("^link +useful\n1 .*\n2 .*\n4 .*\n8 .*\n16 .*\nlink of [%d.]+ suffices", text)
    text = said "gpipe --model gpt2 --devices 2 --sweep micro_batches=1..4"
    assert.match("^micro_batches +useful\n1 .*\n2 .*\n4 [^\n]*\n$", text)
  end)

  it("writes a page of the schedules of a range", function()
    local path = os.tmpname()
    finally(function() os.remove(path) end)
    local text, status = said("1f1b --model gpt2 --devices 2 --sweep micro-batches=2,4,8 --page "
      .. path)
    assert.equal("", text)
    assert.equal(0, status)
    local data = tree.read(path):match '<script id="data" type="application/json">(.-)</script>'
    data = flare.core.json.decode(data)
    assert.equal("flare simulate 1f1b --model gpt2 --devices 2 --sweep micro-batches=2,4,8",
      data.command)
    local labels, tasks = {}, {}
    for k, s in ipairs(data.schedules) do labels[k], tasks[k] = s.label, #s.tasks end
    assert.same({"micro_batches 2", "micro_batches 4", "micro_batches 8"}, labels)
    -- four passes and two transfers for each micro-batch, an update on each device
    assert.same({2 * 6 + 2, 4 * 6 + 2, 8 * 6 + 2}, tasks)
    assert.match("the machine's figures have sliders", (said("1f1b --sweep link=1..2 --page "
      .. path)))
  end)

  it("runs a file, with a machine of another one, and writes files", function()
    local folder = os.tmpname()
    assert(os.remove(folder) and os.execute("mkdir " .. folder))
    finally(function() os.execute("rm -rf " .. folder) end)
    local function file(name, text)
      local f <close> = assert(io.open(folder .. "/" .. name, "w"))
      f:write(text)
    end
    file("plan.lua", [[return {name = "mine", tasks = {
      {name = "load", stream = "in", transfer = 1e9},
      {name = "run", cost = {flops = 3e9}, needs = "load"}}}]])
    file("slow.lua", [[return {name = "slow", peak = {f32 = 1e9}, links = {host = {rate = 1e9}},
      memory = {bytes = 1e9, rate = 1e9}, efficiency = {link = 1}}]])
    local text, status = said(("%s/plan.lua --machine %s/slow.lua --link 0.5 --svg %s/a.svg "
      .. "--trace %s/a.json"):format(folder, folder, folder, folder))
    assert.equal(0, status, text)
    assert.match("^mine on slow, 1 device: 5 s\n", text)
    assert.match("^<svg", tree.read(folder .. "/a.svg"))
    assert.match('"traceEvents"', tree.read(folder .. "/a.json"))
    file("step.json", [[{"operators": [{"name": "gelu", "kind": "elementwise", "flops": 0,
      "bytes": 4e9, "dtype": "f32"}]}]])
    text, status = said(("%s/step.json --machine %s/slow.lua --bandwidth 2 --svg "
      .. "%s/roof.svg"):format(folder, folder, folder))
    assert.equal(0, status, text)
    assert.match("^step on slow: 2.35 s for 1 operators", text) -- copies reach 85 %
    assert.match("^<svg", tree.read(folder .. "/roof.svg"))
    file("none.lua", "local x = 1")
    text, status = said(folder .. "/none.lua")
    assert.equal(1, status)
    assert.match("returns nothing; a schedule is expected", text)
    file("bad.lua", "return {")
    assert.match("^flare simulate: .*bad.lua:1: ", (said(folder .. "/bad.lua")))
  end)

  it("replays what flare record has written", function()
    local folder = os.tmpname()
    assert(os.remove(folder) and os.execute("mkdir " .. folder))
    finally(function() os.execute("rm -rf " .. folder) end)
    local file = assert(io.open(folder .. "/step.lua", "w"))
    file:write [[
      local flare = require "flare"
      local x = flare.ones(64, 32)
      assert(arg[1] == "--out" and ... == "--out")
      local y = x:matmul(x:t()):gelu()]]
    file:close()
    local function record(words)
      local text = tree.output(("'%s' record %s 2>&1; echo status=$?"):format(program, words))
      return text:match "^(.*)status=(%d+)\n$"
    end
    local out = folder .. "/step.json"
    local text, status = record(("--out %s --skip=1 %s/step.lua --out 3"):format(out, folder))
    assert.equal("0", status, text)
    assert.equal("2 operators in " .. out .. "\n", text)
    local recording = assert(flare.dataflow.recording(out))
    assert.equal("step.lua", recording.name)
    assert.equal(2 * 64 * 64 * 32, recording.operators[1].flops)
    assert.equal("gelu", recording.operators[2].name)
    assert.match("^step.lua on NVIDIA A100 SXM 80 GB: .* for 2 operators", (said(out
      .. " --machine a100")))
    local plain = said(out)
    for _, change in ipairs {"--stream matmul,gelu", "--cached gelu", "--sram 1"} do
      text, status = said(out .. " --bandwidth 1 " .. change)
      assert.equal(0, status, text)
      assert.not_equal(plain, text)
    end
    assert.match("^flare simulate: replay: stream: no operator has the name 'gel' %(did you mean "
      .. "'gelu'", (said(out .. " --stream gel")))
    for words, message in pairs {
      [folder .. "/step.lua"] = "--out FILE is missing",
      ["--out x"] = "the script is missing",
      ["--outt x"] = "unknown option --outt",
      [("--out %s --skip 9 %s/step.lua --out"):format(out, folder)] =
        "the script ran 3 operators; --skip 9 leaves none",
      ["--out x " .. folder .. "/none.lua"] = "cannot open",
      [("--out %s %s/step.lua"):format(out, folder)] = "assertion failed",
    } do
      text, status = record(words)
      assert.equal("1", status)
      assert.equal("flare record: ", text:sub(1, 14))
      assert(text:find(message, 1, true), text)
    end
    assert.match("^usage: flare record ", (record "--help"))
  end)

  it("says what is wrong, in a line", function()
    for words, message in pairs {
      ["gpip"] = "there is no flare.dataflow.schemes.gpip (did you mean 'gpipe'?)",
      ["gpipe --machine h10"] = "there is no machine 'h10' (did you mean 'h100'?)",
      ["gpipe --devics 3"] = "unknown option --devics (did you mean --devices?)",
      ["gpipe --devices 0"] = "--devices needs a whole number above 0, got '0'",
      ["gpipe --devices"] = "--devices needs a value",
      ["gpipe ring"] = "one scheme or file is expected, got ring, too",
      ["gpipe --sweep link"] = "a figure and its range are expected, such as link=8..64",
      ["gpipe --sweep link=8...9"] = "a range is 8..64, 8..64:8 or 8,24,64",
      ["gpipe --sweep link=1..9:0.001"] = "a range has at most 200 values",
      ["gpipe --want 1"] = "--want needs a range",
      ["in_memory --model llama-70b"] = "the resident buffers of schedule in_memory need at least",
      [""] = "a scheme or a file is missing",
    } do
      local text, status = said(words)
      assert.equal(1, status, words)
      assert.equal("flare simulate: ", text:sub(1, 16))
      assert(text:find(message, 1, true), text)
      assert.falsy(text:find "traceback")
    end
    assert.match("^usage: flare simulate ", (said "--help"))
    assert.match("\nh100 +NVIDIA H100 SXM: ", (said "--machine list"))
  end)
end)
