-- flare demo: its options, and figures that agree with what is computed.
local tree = require "spec.support.tree"

local program = os.getenv "FLARE_PROGRAM" or tree.build .. "/flare"

local function said(words)
  local text = tree.output(("'%s' demo %s 2>&1; echo status=$?"):format(program, words))
  local body, status = text:match "^(.*)status=(%d+)\n$"
  return body, tonumber(status)
end

describe("flare demo", function()
  it("explains its options", function()
    local text, status = said "--help"
    assert.equal(0, status)
    assert.match("^usage: flare demo NAME %[options%]; there are: attention, moe;", text)
    text = said "moe --help"
    for option in ("experts top-k batch seq-len d-model device profile-memory"):gmatch "%S+" do
      assert(text:find("\n  --" .. option .. " ", 1, true), option)
    end
    assert.match("\n  %-%-block%-size N ", (said "attention --help"))
  end)

  it("refuses what it does not have", function()
    for words, message in pairs{
      [""] = "usage: flare demo NAME", ["--moe"] = "usage: flare demo NAME",
      ["atention"] = "did you mean 'attention'?",
      ["moe --exprts 3"] = "did you mean '--experts'?",
      ["moe --experts x"] = "--experts needs a number",
      ["moe --top-k 9"] = "flare demo: moe: nn.MoE: top_k is 9, but there are 8 experts",
      ["attention --heads 7"] = "--d-model 512 is no multiple of --heads 7",
      ["attention --block-size 0"] = "--block-size must be at least 1",
    } do
      local text, status = said(words)
      assert.equal(1, status, words)
      assert(text:find(message, 1, true), text)
    end
  end)

  it("trains a mixture of experts and shows where its tokens go", function()
    local text, status = said("moe --experts 5 --top-k 3 --batch 2 --seq-len 40 --d-model 16 "
      .. "--steps 20 --device cpu --profile-memory")
    assert.equal(0, status)
    assert.match("^MoE%(16 %-> 64 %-> 16, experts=5, top_k=3%)", text)
    local first, last = text:match "\n +1 +([%d.]+) ", text:match "\n +20 +([%d.]+) "
    assert(tonumber(last) < tonumber(first) / 2, text)
    for part in (text:match "load before.*"):gmatch "load %l+ .-\n%l" do
      local sum = 0
      for n in part:gmatch "expert %d+ +(%d+)" do sum = sum + n end
      assert.equal(2 * 40 * 3, sum)
    end
    assert.match("forward, backward +[%d.]+ %ls, .* tokens/s", text)
    assert.match("cpu: at most .*held by:", text)
  end)

  it("computes attention in three ways that agree", function()
    local text, status = said("attention --block-size 24 --seq-len 100 --d-model 32 --heads 4 "
      .. "--causal --profile-memory")
    assert.equal(0, status)
    local count = 0
    for name, off in text:gmatch "\n([%a%d%. ]-) +[%d.]+ %ls +[%d.]+ %a+ +([%de.-]+)\n" do
      assert(tonumber(off) < 1e-5, name)
      count = count + 1
    end
    assert.equal(3, count)
    assert.match("held by:", text)
  end)
end)
