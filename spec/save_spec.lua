-- What a save has written can be loaded: a writer refuses what its reader would refuse, and says so
-- before anything is written.
local flare = require "flare"
local core = flare.core
local npy, npz, safetensors = flare.io.npy, flare.io.npz, flare.io.safetensors

local path
before_each(function()
  path = os.tmpname()
  os.remove(path)
end)
after_each(function() os.remove(path) end)

-- A complex tensor of this shape with values that differ.
local function complex(dtype, ...)
  local shape = {...}
  shape[#shape + 1] = 2
  local x = flare.arange(1, flare.zeros(shape):numel() + 1):to(dtype == "c64" and "f32" or "f64")
  return flare.view_as_complex(x:view(shape))
end

local function same(a, b)
  assert.equal(a.dtype, b.dtype)
  assert.same(a.shape, b.shape)
  assert.equal(a:contiguous():bytes(), b:contiguous():bytes())
end

describe("complex tensors", function()
  local function tensors()
    local out = {plain = flare.arange(1, 5)}
    for _, dtype in ipairs {"c64", "c128"} do
      local x = complex(dtype, 2, 3)
      out[dtype], out[dtype .. " turned"] = x, x:t()
      out[dtype .. " alone"] = x[{1, 1}]
      out[dtype .. " empty"] = flare.zeros({0, 3}, {dtype = dtype})
    end
    return out
  end

  it("come back from flare.save and safetensors.save", function()
    local given = tensors()
    assert(flare.save(path, {given, list = nil}))
    local back = assert(flare.load(path))[1]
    for name, t in pairs(given) do same(t, back[name]) end
    for _, map in ipairs {false, true} do
      assert(safetensors.save(path, given, {note = "x"}))
      local metadata
      back, metadata = assert(safetensors.load(path, {map = map}))
      assert.same({note = "x"}, metadata)
      for name, t in pairs(given) do same(t, back[name]) end
    end
    local seen = {}
    local reader <close> = assert(safetensors.open(path))
    for _, e in ipairs(reader:entries()) do seen[e.name] = e.dtype .. " " .. e.stored end
    assert.equal("c128 F64", seen.c128)
    assert.equal("c64 C64", seen.c64)
  end)

  it("come back from .npy and .npz", function()
    local given = tensors()
    given.wide = complex("c128", 4):view(1, 1, 1, 2, 1, 1, 1, 2)
    for name, t in pairs(given) do
      assert(npy.save(path, t))
      for _, map in ipairs {false, true} do same(t, (assert(npy.load(path, {map = map})))) end
      assert(npz.save(path, {[name] = t}, {compress = true}))
      same(t, assert(npz.load(path))[name])
    end
  end)

  it("of 8 dims are refused where pairs of numbers need a dim more", function()
    local x = complex("c128", 4):view(1, 1, 1, 2, 1, 1, 1, 2)
    assert.error_matches(function() safetensors.save(path, {x = x}) end,
                         "could not be read back: tensor \"x\": 9 dims, at most 8 are supported")
    assert.is_nil(core.file.exists(path))
    local y = complex("c64", 4):view(1, 1, 1, 2, 1, 1, 1, 2)
    assert(safetensors.save(path, {x = y}))
    same(y, safetensors.load(path).x)
  end)
end)

describe("flare.save", function()
  local function round(tree)
    assert(flare.save(path, tree))
    return assert(flare.load(path))
  end

  it("stores long lists of numbers and long strings as data", function()
    local floats, integers, mixed = {}, {}, {}
    for i = 1, 1000 do
      floats[i], integers[i], mixed[i] = i / 3, i << 50, i % 2 == 0 and i or i + 0.0
    end
    floats[7], floats[8] = math.huge, -0.0
    local text, bytes = ("ä"):rep(5000), ("\0\xff\1"):rep(5000)
    local tree = {floats = floats, integers = integers, mixed = mixed, text = text, bytes = bytes,
                  short = {1, 2.5}}
    local back = round(tree)
    assert.same(tree, back)
    for i = 1, 1000 do assert.equal(math.type(mixed[i]), math.type(back.mixed[i])) end
    assert.equal("integer", math.type(back.integers[1]))
    assert.equal("float", math.type(back.floats[9]))
  end)

  it("loads a table of two million numbers and 30 MB of text again", function()
    local list = {}
    for i = 1, 2000000 do list[i] = i + 0.25 end
    local back = round{history = list, text = ("\1"):rep(30000000)}
    assert.equal(2000000, #back.history)
    assert.equal(1999999.25, back.history[1999999])
    assert.equal(30000000, #back.text)
  end)

  it("refuses a tree of more JSON than load takes", function()
    local header = require "flare.io.header"
    local limit = header.LIMIT
    finally(function() header.LIMIT = limit end)
    header.LIMIT = 100000
    assert(flare.save(path, {1}))
    local tree = {}
    for i = 1, 20000 do tree[i] = {i} end
    assert.error_matches(function() flare.save(path, tree) end,
                         "could not be read back: header too large %(%d+ bytes")
    assert.same({1}, flare.load(path))
  end)

  it("takes every key, and gives every tensor a name of its own", function()
    local x, y, z = flare.ones(2), flare.zeros(2), flare.full({2}, 5)
    local tree = {["a\0b"] = x, ["\xff"] = y, ["$x"] = 1, [""] = z, ["$key:61"] = 2,
                  inner = {["$key:"] = 3}, ["zero\0"] = {["\0"] = {1}},
                  __metadata__ = flare.ones(3)}
    local back = round(tree)
    assert.equal(1, back["a\0b"][1]:item())
    assert.equal(0, back["\xff"][1]:item())
    assert.equal(5, back[""][1]:item())
    assert.equal(3, #back.__metadata__)
    assert.same({1}, back["zero\0"]["\0"])
    assert.same({1, 2, 3}, {back["$x"], back["$key:61"], back.inner["$key:"]})
    back = round{["a.b"] = x, a = {b = y}, [""] = {a = z}, ["a.b#2"] = flare.ones(4)}
    assert.equal(1, back["a.b"][1]:item())
    assert.equal(0, back.a.b[1]:item())
    assert.equal(5, back[""].a[1]:item())
    assert.equal(4, #back["a.b#2"])
  end)

  it("reads no file whose tree makes no sense", function()
    for json, message in pairs {
      ["null"] = "there is no table in it", ["3"] = "there is no table in it",
      ['{"$number":"nan"}'] = "there is no table in it",
      ['{"a":{"$bytes":5}}'] = "'$bytes' must be followed by a string",
      ['{"a":{"$tensor":{"b":1}}}'] = "'$tensor' must be followed by a string",
      ['{"a":{"$list":"zz"}}'] = "the tensor 'zz' is missing",
      ['{"a":{"$odd":"x"}}'] = "unknown kind of value '$odd'",
    } do
      assert(safetensors.save(path, {}, {format = "flare.tree", version = "2", tree = json,
                                         crc32c = ("%08x"):format(core.crc32c(json))}))
      local tree, said = flare.load(path)
      assert.is_nil(tree)
      assert.equal(path .. ": " .. message, said)
    end
  end)

  it("says which key a table cannot have", function()
    local function says(tree, message)
      assert.error_matches(function() flare.save(path, tree) end, message, 1, true)
    end
    says({1, nil, 3}, "a list must have no holes: position 2 is nil, 3 is not")
    says({x = {[5] = 1}}, "a list must have no holes: position 1 is nil, 5 is not (at 'x')")
    says({x = {1, 2, n = 2}}, "a table has names or positions, not both: this one has 'n' and ")
    says({[0] = 1}, "keys are strings or positions 1, 2, 3 ...; got 0, a number")
    says({y = {[true] = 1}}, "got true, a boolean (at 'y')")
    says({[1.5] = 1}, "got 1.5, a number")
    says(nil, "save: a table is expected, got nil")
    assert.is_nil(core.file.exists(path))
    assert.same({nil, '"": the path is empty'}, {flare.save("", {1})})
  end)

  it("hands on the message of what gave nil", function()
    assert.error_matches(function() flare.save(path, flare.load "/none") end,
                         "save: a table is expected, got nil: /none: No such file or directory")
    assert.error_matches(function() flare.save("x.npz", flare.load "/none") end,
                         "tensors is expected, got nil: /none: No such file or directory")
    assert.error_matches(function() flare.save("x.npy", flare.load "/none") end,
                         "a tensor is expected, got nil: /none: No such file or directory")
  end)
end)

describe("safetensors.save", function()
  it("refuses names and metadata that no file can have", function()
    local x = flare.ones(1)
    local function says(message, ...)
      local given = table.pack(...)
      assert.error_matches(function() safetensors.save(path, table.unpack(given)) end, message, 1,
                           true)
      assert.is_nil(core.file.exists(path))
    end
    says([["a\0b" cannot be a tensor's name]], {["a\0b"] = x})
    says([[cannot be a tensor's name]], {["\xff"] = x})
    says("must be UTF-8", {x = x}, {a = "\xff"})
    says("must be UTF-8", {x = x}, {["a\0"] = "b"})
    says("the name \"flare.c128\" in the metadata is taken", {x = x}, {["flare.c128"] = "[]"})
    assert(safetensors.save(path, {x = x}, {a = "b\0c"}))
    assert.equal("b\0c", select(2, safetensors.load(path)).a)
  end)
end)

describe("npz.save", function()
  it("refuses names that npz.load refuses", function()
    local function says(name, message)
      local function save() npz.save(path, {[name] = flare.ones(1)}) end
      assert.error_matches(save, message, 1, true)
      assert.is_nil(core.file.exists(path))
    end
    says(("x"):rep(65532), "a name of 65536 bytes, at most 65535 are possible")
    says("C:x", "leads out of the archive")
    says("../x", "leads out of the archive")
    says("a\0", "bad name")
    assert.error_matches(function()
      npz.save(path, {flare.ones(1), arr_0 = flare.ones(2)})
    end, "two arrays would have the name arr_0: [1] and 'arr_0'", 1, true)
    local longest = ("x"):rep(65531)
    assert(npz.save(path, {[longest] = flare.ones(1)}))
    assert.equal(1, #npz.load(path)[longest])
  end)

  it("refuses more names than npz.load takes", function()
    local tensors, x = {}, flare.ones(1)
    for i = 1, 450 do tensors[("%03d"):format(i) .. ("x"):rep(60000)] = x end
    assert.error_matches(function() npz.save(path, tensors) end,
                         "could not be read back: directory too large")
  end)
end)

describe("json.encode", function()
  it("refuses names that json.decode refuses", function()
    assert.error_matches(function() core.json.encode{["a\0b"] = 1} end, "a name has a zero byte")
    local log = assert(flare.log.metrics(path))
    assert.error_matches(function() log:write{["a\0"] = 1} end, "a name has a zero byte")
    log:close()
  end)
end)
