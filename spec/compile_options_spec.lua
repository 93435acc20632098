-- Options of flare.compile and the environment variable FLARE_COMPILE: what is refused, and how.
local flare = require "flare"
local options = require "flare.options"
local tree = require "spec.support.tree"

local function plain(x) return x * 2 + 1 end

describe("options of compile", function()
  local function refuses(o, text)
    assert.error_matches(function() flare.compile(plain, o) end, text, 1, true)
  end

  it("refuse what cannot be called, unknown names and other types", function()
    assert.error_matches(function() flare.compile(flare.ones(2)) end,
      "compile: expected a function or a module, got a tensor")
    assert.error_matches(function() flare.compile_stats(plain) end, "expected a compiled function")
    refuses({exat = true}, "compile: unknown option 'exat' (did you mean 'exact'?)")
    refuses({exact = 1}, "compile: option 'exact' must be a boolean, got number")
    refuses({graphs = "no"}, "compile: option 'graphs' must be a boolean, got string")
    refuses("exact", "compile: options must be a table {name = value}, got string")
  end)

  it("take bytes as integers and as text", function()
    local function bytes(v) return options.bytes("f", "chunk", v) end
    assert.equal(4096, bytes(4096))
    assert.equal(2000000000, bytes(2e9))
    assert.equal(20 * 2 ^ 30, bytes "20GiB")
    assert.equal(1610612736, bytes "1.5 GiB")
    assert.equal(64000000, bytes "64mb")
    assert.equal(512, bytes "512B")
    assert.equal(512, bytes "512")
    for _, v in ipairs{0, -1, 0.5, math.huge, 0 / 0, "", "GiB", "12 GiBs", "1.2.3MiB", "-5", "0"} do
      assert.error_matches(function() bytes(v) end,
        'f: chunk must be a number of bytes, text such as "20GiB", got ', 1, true)
    end
    refuses({chunk = "64 lots"},
      'compile: chunk must be a number of bytes, text such as "20GiB", or false, got "64 lots"')
    refuses({chunk = true}, "or false, got true")
    refuses({chunk = {}}, "or false, got table")
    refuses({chunk = flare.ones(1)}, "or false, got a tensor")
    flare.compile(plain, {chunk = "64MiB"})
  end)
end)

describe("FLARE_COMPILE", function()
  local path = os.tmpname()
  teardown(function() os.remove(path) end)

  local function run(setting, text)
    local f <close> = assert(io.open(path, "w"))
    f:write(text)
    f:flush()
    return tree.output(("FLARE_COMPILE=%s %s/flare %s 2>&1"):format(setting, tree.build, path))
  end

  local stats = [[
    local flare = require "flare"
    local f = flare.compile(function(x) return x * 2 + 1 end)
    for _ = 1, 4 do assert(f(flare.ones(3)):sum():item() == 9) end
    local s = flare.compile_stats(f)
    print(s.windows, s.planned)
  ]]

  it("turns compilation off, or compares each plan", function()
    assert.equal("0\t0\n", run("off", stats))
    assert.equal("4\t3\n", run("check", stats))
    assert.equal("4\t3\n", run("on", stats))
    assert.equal("4\t3\n", run("check,exact", stats))
  end)

  it("refuses other words, and off beside others", function()
    assert.matches("FLARE_COMPILE is \"exact,chek\": \"chek\" is none of off, on, all, exact,"
      .. " check and wait (did you mean 'check'?)", run("exact,chek", stats), 1, true)
    assert.matches("with off there is nothing to be all", run("off,check", stats), 1, true)
  end)
end)
