-- A flare without the libraries that it can do without: it builds, from this very tree, says by
-- name what it lacks where that is asked for, and does the rest. What no library changes is that
-- of the build that is tested; spec/long/bare.sh compiles all.
local tree = require "spec.support.tree"

if tree.instrumented() then return end

local bare = tree.build .. "/bare"

-- What a shell command prints and its status.
local function run(command)
  local text = tree.output(("(%s) 2>&1; echo status=$?"):format(command))
  return text:match "^(.-)status=(%d+)\n$"
end

-- What a script prints.
local function script(text)
  local path = os.tmpname()
  local file = assert(io.open(path, "w"))
  file:write(text)
  file:close()
  local out, status = run(("'%s/flare' '%s'"):format(bare, path))
  os.remove(path)
  assert.equal("0", status, out)
  return out
end

describe("a flare without optional libraries", function()
  lazy_setup(function() -- without optimization it takes seconds
    local made, status = run(([[cmake --preset bare -B '%s' -D CMAKE_BUILD_TYPE=None \
      -D FLARE_OBJECTS="$(cd '%s' && pwd)"]]):format(bare, tree.build))
    assert.equal("0", status, made)
    for name, found in made:gmatch "\n  (%S+) +(%S[^\n]*)" do
      if name ~= "Lua" and name ~= "jansson" and name ~= "apt" then
        assert.match("^not found: ", found, "preset bare takes " .. name)
      end
    end
    -- not the programs of spec/c, which spec/long/bare.sh builds and runs
    made, status = run(("cmake --build '%s' --parallel 2 --target flare flare_shared flare_static "
      .. "flarelua_shared flarelua_static core_module"):format(bare))
    assert.equal("0", status, made:sub(-4000))
  end)

  it("says so", function()
    local said = run(("'%s/flare' doctor"):format(bare))
    for _, name in ipairs {"zlib", "libpng", "libjpeg%-turbo", "nanopb", "utf8proc",
                          "libmicrohttpd", "PCRE2"} do
      assert.match("\nno +" .. name, said)
    end
  end)

  it("names what a file needs", function()
    local out = script [[
      local flare = require "flare"
      local x, path = flare.ones(2), os.tmpname()
      assert(flare.core.file.write_atomic(path .. ".gz", "\x1f\x8b"))
      print(flare.data.idx.read(path .. ".gz"))
      print(flare.io.npz.save(path, {x = x}))
      print(flare.io.npz.save(path, {x = x}, {compress = true}))
      print(flare.onnx.load(path))
      for _, name in ipairs {"grey.png", "grey.jpg"} do
        print(flare.data.images.read(flare.core.file.real("spec/data/images/" .. name)))
      end
      print(flare.data.images.write(path .. ".png", x:view(1, 2)))
      assert(flare.core.file.write_atomic(path .. ".json", '{"model": {"vocab": {"a": 0}}}'))
      print(flare.text.load(path .. ".json"))
      os.remove(path)
      os.remove(path .. ".gz")
      os.remove(path .. ".json")
    ]]
    local lines = {"zlib", "zlib", "zlib", "nanopb", "libpng", "libjpeg%-turbo", "libpng", "PCRE2"}
    for line in out:gmatch "[^\n]+" do
      assert.match("^nil\t/.*: this flare was built without " .. table.remove(lines, 1), line)
    end
    assert.same({}, lines)
  end)

  it("trains, saves and loads", function()
    assert.equal("true\n", script [[
      local flare = require "flare"
      flare.manual_seed(1)
      local model = flare.nn.Linear(2, 1)
      local optimizer = flare.optim.SGD(model, {lr = 0.1})
      local x = flare.randn(64, 2)
      local y, path = x:sum{dim = 2, keepdim = true}, os.tmpname()
      for _ = 1, 100 do
        optimizer:zero_grad()
        flare.mse_loss(model(x), y):backward()
        optimizer:step()
      end
      assert(flare.save(path, model:state_dict()))
      print(flare.allclose(assert(flare.load(path)).weight, flare.ones(1, 2), {atol = 1e-4}):item())
      os.remove(path)
    ]])
  end)

  it("has a plain prompt", function()
    local out = run(([[printf 'x = 20 +\n1\nx * 2\n' | FLARE_HISTORY= '%s/flare' -i]]):format(bare))
    assert.match("> 42\n", out)
  end)
end)
