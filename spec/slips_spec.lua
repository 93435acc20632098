-- What errors say about a colon for a dot, a dot for a colon, and names of other libraries.
local flare = require "flare"
local tree = require "spec.support.tree"

local function message(text)
  local chunk = assert(load("local flare, nn, optim, data = ... " .. text, "=slip"))
  local ok, why = pcall(chunk, flare, flare.nn, flare.optim, flare.data)
  assert.is_false(ok, text .. " did not fail")
  return why
end

local function says(text, ...)
  local why = message(text)
  for _, part in ipairs {...} do
    assert(why:find(part, 1, true), ("%s: no %q in:\n%s"):format(text, part, why))
  end
end

describe("an error", function()
  it("names the dot where a function of the library is called with a colon", function()
    says("flare:zeros(2)", "call it with a dot: flare.zeros(...), not flare:zeros(...)")
    says("flare:arange(5)", "flare.arange(...)")
    says("flare:softmax(flare.ones(2))", "flare.softmax(...)")
    says("flare:randn(2, 3)", "flare.randn(...)")
    says("flare:tensor{1, 2}", "flare.tensor(...)")
    says("flare:save(3)", "call it with a dot")
    says("nn:Linear(2, 3)", "nn.Linear(...), not nn:Linear(...)")
    says("optim:Adam({flare.ones(1)})", "optim.Adam(...)")
    says("data:Loader(3)", "data.Loader(...)")
    says("data:Loader({})", "call it with a dot: data.Loader(...), not data:Loader(...)")
    says("data:Subset({}, {1})", "call it with a dot: data.Subset(...)")
    says("flare.train:loss()", "call it with a dot")
    assert.is_nil(message("local _ = nn.Linaer"):find("with a dot", 1, true))
    assert.is_nil(message("local _ = nn.functional.rellu"):find("with a dot", 1, true))
    says("nn.init:zeros_(flare.ones(2))", "init.zeros_(...)")
  end)

  it("of Lua's in the library names the script's line where it ends a script", function()
    local text = "local layer = flare.nn.Linear(2, 2)\nlayer.forward()"
    local chunk = assert(load("local flare = ... " .. text, "=slip"))
    local _, why = xpcall(chunk, flare.core.hint, flare)
    assert.matches("^slip:2: attempt to index a nil value %(local 'self'%) %(methods are", why)
  end)

  it("names the colon whatever a method got in place of its object", function()
    local colon = "methods are called with ':'"
    for call, text in pairs{
        ["flare.metrics.Accuracy().update(1, 2)"] = "update: expected a metric, got an integer; ",
        ["flare.data.Tensors(flare.ones(1)).fetch()"] = "fetch: expected a set, got nothing; ",
        ["flare.nn.Linear(1, 1).forward(nil)"]
          = "attempt to index a nil value (local 'self') ("} do
      local chunk = assert(load("local flare = ...\n" .. call, "=slip"))
      local _, why = xpcall(chunk, flare.core.hint, flare)
      assert.equal(1, why:find("slip:2: " .. text .. colon, 1, true), why)
    end
  end)

  it("names the colon where a method is called with a dot", function()
    local hint = "methods are called with ':'"
    says("local l = flare.ones(1, {requires_grad = true}) l.backward()", hint)
    says("local x = flare.ones(2) x.sum()", hint)
    says("local m = nn.Linear(2, 2) m.parameters()", hint)
    says("local o = optim.SGD(nn.Linear(2, 2)) o.load_state_dict({})", hint)
    says("local m = nn.Linear(2, 2) m.forward(flare.ones(2, 2))", hint)
  end)

  it("does so nowhere else", function()
    for _, text in ipairs {"nn.Linear(-1, 2)", "nn.Linaer(1, 2)", "flare.softmx(3)",
                           "flare.ones(2):view(3)", "flare.cuda.nothing()"} do
      assert.is_nil(message(text):find("with a dot", 1, true), text)
    end
    assert.equal("f64", flare.tensor({}, {dtype = "f64"}).dtype)
    assert.equal(0, flare.zeros({}):dim())
  end)

  it("says what takes the place of a name of PyTorch, in parts, too", function()
    says("flare.onnx.save()", "there is no flare.onnx.save: models are read, not written")
    says("flare.cuda.is_available()", "cuda.available()")
    says("flare.cuda.synchronize()", 'flare.synchronize("cuda")')
    says("flare.jit()", "flare.compile(f)")
    says("nn.Parameter(flare.ones(2))", "self:param(tensor)")
    says("flare.Parameter(flare.ones(2))", "self:param(tensor)")
    says("nn.init.kaiming_normal_(flare.ones(2, 2))", "{normal = true}")
    says("nn.Conv(1, 2, 3)", "nn.Conv2d")
    says("flare.distributed.init()", "flare.dist")
    says("nn.utils.clip_grad_norm_()", "optim.clip_grad_norm_")
    says("optim.lr_scheduler.StepLR()", "optim.StepLR")
    says("data.DataLoader()", "data.Loader(dataset")
    says("flare.ones(2):sum_to_size(1)", "did you mean 'sum_to'")
    says("flare.memory.stat()", "did you mean 'stats'")
    says("flare.op.registr()", "did you mean 'register'")
    says("flare.onnx.laod()", "did you mean 'load'")
    says("nn.class 'Net'", 'flare.class("Net", nn.Module)')
  end)

  it("says how Lua writes what Python has", function()
    local function hint(text) return flare.core.hint((select(2, load(text, "=slip")))) end
    assert.match("^slip:1: .*no import or with: .*flare%.no_grad%(", hint "with flare.x() do")
    assert.match("^slip:1: .*no tuples: flare%.zeros%(3, 4%)", hint "x = flare.zeros((3, 4))")
    local _, why = pcall(load("(...):extend()", "=slip"), flare.nn.Module)
    assert.match("^slip:1: .*flare%.class%(\"Net\", nn%.Module%)", flare.core.hint(why))
  end)

  it("says that the path comes first where something is saved", function()
    says("flare.save(nn.Linear(1, 1), 'a.pt')", "the path comes first")
    says("flare.save(flare.ones(1), 'a.npy')", "the path comes first", "got a tensor")
    says("flare.io.safetensors.save({a = flare.ones(1)}, 'a.safetensors')", "the path comes first")
    says("flare.io.npy.save(flare.ones(1), 'a.npy')", "the path comes first")
  end)

  -- What the program says about a script that fails.
  local function run(text)
    local path = os.tmpname()
    assert(flare.core.file.write_atomic(path, text))
    local out = tree.output(("%s/flare %s 2>&1"):format(tree.build, path))
    os.remove(path)
    return out:gsub(path:gsub("%p", "%%%0"), "FILE")
  end

  it("names the line that a line with '(' in front continues", function()
    local hint = "FILE:4 begins with '(', so it is a call of what line 3 ends with; put ';' in "
      .. "front of it\n"
    local top = "local flare = require 'flare'\nlocal function twice(x) return x:mul(2) end\n"
    for _, last in ipairs {"local w = flare.ones(2)", "local w = flare.ones(2) -- (",
                           "local w = {1}", "local w = twice"} do
      assert.equal(1, select(2, run(top .. last .. "\n(twice(w) * 2):sum()"):gsub(
        hint:gsub("%p", "%%%0"), "")), last)
    end
    for _, text in ipairs {"local w = twice(\n(flare.nothing))", "local w = nil +\n(1)",
                           "do end\n(nil)()", "error 'no'"} do
      assert.is_nil(run(top .. text):find("begins with", 1, true), text)
    end
  end)

  it("tells where a text in [[ ]] has ended", function()
    local text = "local c = [[\n  y[i] = x[order[i]];\n  z\n]]\n"
    assert.match("FILE:4: .-\nthe text that %[%[ begins on line 1 ends at the first %]%], "
      .. "on line 2; write %[==%[ and %]==%] around", run(text))
    assert.equal("", run(text:gsub("%[%[\n", "[==[\n"):gsub("\n%]%]", "\n]==]")))
    assert.is_nil(run("local c = [[\n  a\n]] nonsense"):find("the text", 1, true))
  end)

  it("shows a number that ends a script", function()
    assert.match("^flare: 0%.5\nstack traceback:", run "assert(false, 0.5)")
    assert.match("^flare: %(error object is a boolean value%)", run "error(true)")
  end)

  it("names existing functions only, in place of missing ones", function()
    for path, instead in pairs(require "flare.foreign") do
      local value = flare
      local there = pcall(function()
        for name in path:gmatch "[^.]+" do value = value[name] end
      end)
      assert(not (there and value ~= nil), path .. " is there")
      for found in instead:gmatch "%f[%w_](%a+%.[%a_][%w_.]*)%(" do
        local at = flare
        for name in found:gsub("^flare%.", ""):gmatch "[^.]+" do at = at[name] end
        assert(at ~= nil, path .. ": " .. found)
      end
    end
  end)
end)
