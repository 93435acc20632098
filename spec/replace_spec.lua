-- Files that are replaced while they are read: a reader sees one of them, never parts of two.
local flare = require "flare"
local tree = require "spec.support.tree"
local core = flare.core
local npy, npz, safetensors = flare.io.npy, flare.io.npz, flare.io.safetensors

local folder
before_each(function()
  folder = os.tmpname()
  os.remove(folder)
  assert(core.file.mkdir(folder))
end)
after_each(function() os.execute("rm -rf '" .. folder .. "'") end)

describe("a reader that is open", function()
  it("of safetensors stays with its file", function()
    local path = folder .. "/x"
    assert(safetensors.save(path, {a = flare.zeros(4), b = flare.ones(4)}, {v = "1"}))
    for _, map in ipairs {false, true} do
      local reader <close> = assert(safetensors.open(path))
      assert(safetensors.save(path, {a = flare.full({4}, 7), aa = flare.full({4}, 8),
                                     b = flare.full({4}, 9)}))
      assert.same({0, 0, 0, 0}, reader:tensor("a", {map = map}):totable())
      assert.same({1, 1, 1, 1}, reader:tensor("b", {map = map}):totable())
      os.remove(path)
      assert.equal(1, reader:tensor("b", {map = map})[4]:item())
      assert.match("^safetensors reader: .*/x, 2 tensors$", tostring(reader))
      reader:close()
      assert.match("/x: the reader is closed", select(2, reader:tensor "a"))
      assert.match("2 tensors, closed$", tostring(reader))
      assert(safetensors.save(path, {a = flare.zeros(4), b = flare.ones(4)}, {v = "1"}))
    end
  end)

  it("of npz stays with its file", function()
    local path = folder .. "/x.npz"
    assert(npz.save(path, {a = flare.zeros(4), b = flare.ones(4)}))
    local reader = assert(npz.open(path))
    assert(npz.save(path, {b = flare.full({4000}, 9)}))
    assert.same({0, 0, 0, 0}, reader:tensor("a"):totable())
    assert.same({1, 1, 1, 1}, reader:tensor("b"):totable())
    assert.match("^npz reader: .*/x.npz, 2 arrays$", tostring(reader))
    reader:close()
    assert.match("the reader is closed", select(2, reader:tensor "a"))
  end)

  it("need not be closed: dropped ones do not use up descriptors", function()
    local path = folder .. "/x"
    assert(safetensors.save(path, {a = flare.zeros(4)}))
    for _ = 1, 3000 do assert(safetensors.open(path)) end
  end)
end)

-- What the other process does until the file "stop" is there: the files' values all are n.
local WRITER = [[
local flare = require "flare"
local folder = ...
local n = 0
while not flare.core.file.exists(folder .. "/stop") do
  n = n + 1
  local wide = n % 2 == 0
  local tensors = {}
  for k = 1, 20 do tensors[(wide and "long name " or "x") .. k] = flare.full({64}, n) end
  assert(flare.io.safetensors.save(folder .. "/s", tensors, {n = tostring(n)}))
  assert(flare.save(folder .. "/t", {n = n, x = tensors}))
  assert(flare.save(folder .. "/z.npz", tensors))
  assert(flare.save(folder .. "/y.npy", wide and flare.full({300}, n, {dtype = "i64"})
                                        or flare.full({2, 7}, n)))
end
]]

describe("files that another process replaces", function()
  it("are read whole", function()
    local script = folder .. "/writer.lua"
    local out = assert(io.open(script, "w"))
    out:write(WRITER)
    out:close()
    local program = os.getenv "FLARE_PROGRAM" or tree.build .. "/flare"
    local process = assert(io.popen(("'%s' %s %s 2>&1"):format(program, script, folder)))
    finally(function() -- also when an assertion fails
      assert(core.file.write_atomic(folder .. "/stop", ""))
      assert.equal("", process:read "a")
      process:close()
    end)
    while not core.file.exists(folder .. "/y.npy") do os.execute "sleep 0.01" end

    local function one_value(tensors, n)
      for name, t in pairs(tensors) do
        local low, high = t:min():item(), t:max():item()
        n = n or low
        assert.same({n, n}, {low, high}, name)
      end
      return n
    end
    local seen, n, rounds = {}, 0, 0
    while n < 10 or rounds < 100 do
      rounds = rounds + 1
      local tensors, metadata = assert(safetensors.load(folder .. "/s", {map = rounds % 2 == 0}))
      local value = one_value(tensors)
      n = seen[value] and n or n + 1
      seen[value] = true
      assert.equal(metadata.n, ("%d"):format(one_value(tensors)))
      local saved = assert(flare.load(folder .. "/t"))
      one_value(saved.x, saved.n)
      one_value(assert(npz.load(folder .. "/z.npz")))
      one_value{assert(npy.load(folder .. "/y.npy", {map = rounds % 2 == 1}))}
    end
  end)
end)
