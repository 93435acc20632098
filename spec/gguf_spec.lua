-- GGUF files: types and blocks as the Python package gguf has them; spec/support/files_data.py made
-- the file and its values.
local flare = require "flare"
local core, gguf = flare.core, flare.io.gguf

local PATH = "spec/data/files/tree.gguf"
local values = assert(flare.load "spec/data/files/gguf.safetensors")

local path
before_each(function() path = os.tmpname() end)
after_each(function() os.remove(path) end)

local function same(want, got)
  assert.equal(want.dtype, got.dtype)
  assert.same(want.shape, got.shape)
  assert.equal(want:contiguous():bytes(), got:contiguous():bytes())
end

describe("flare.io.gguf", function()
  it("reads metadata of all types", function()
    local reader <close> = assert(gguf.open(PATH))
    local m = reader.metadata
    assert.same({7, -5, 0.5, true, "h\u{e9}", {"x", "yy"}, {1, 2, 3}, "test"},
      {m.u32, m.i64, m.f32, m.bool, m.text, m.strings, m.numbers, m["general.architecture"]})
  end)

  it("reads every type of block bit for bit", function()
    local reader <close> = assert(gguf.open(PATH))
    local seen = 0
    for _, e in ipairs(reader:entries()) do
      if values[e.name] then
        seen = seen + 1
        assert.equal(e.name, e.stored)
        same(values[e.name], assert(reader:tensor(e.name)))
        local to = flare.zeros(e.shape, {dtype = "f64", device = "sim:0"})
        assert(reader:copy(e.name, to))
        same(values[e.name]:to "f64", to:to "cpu")
      end
    end
    assert.equal(10, seen)
    assert.equal("f16", reader:tensor("f16").dtype)
    same(flare.arange(0, 24):float():view(2, 3, 4), reader:tensor("f32", {map = true}))
  end)

  it("writes the blocks that the package writes", function()
    local tensors, types, want = {}, {}, assert(gguf.open(PATH))
    for name, x in pairs(values) do
      local type_ = name:match "^source%.(.*)$"
      if type_ then tensors[type_], types[type_] = x, type_ end
    end
    tensors.f16, tensors.f32 = want:tensor "f16", want:tensor "f32"
    local metadata = {text = "h\u{e9}", list = {"a", "b"}, n = 3, minus = -3, x = 0.25, yes = true}
    assert(gguf.save(path, tensors, metadata, {types = types}))
    local got <close> = assert(gguf.open(path))
    assert.same(metadata, got.metadata)
    for _, e in ipairs(got:entries()) do
      same(want:tensor(e.name), got:tensor(e.name))
      assert.equal(types[e.name] or e.name, e.stored)
    end
    want:close()
    assert.matches("closed", select(2, want:tensor "f32"))
  end)

  it("writes one type for all tensors that it fits, and refuses others", function()
    local tensors = {wide = flare.randn(4, 64), narrow = flare.randn(4, 3)}
    assert(gguf.save(path, tensors, nil, {types = "q8_0"}))
    local back = assert(gguf.load(path))
    same(tensors.narrow, back.narrow)
    assert.truthy((back.wide - tensors.wide):abs():max():item() < 0.03)
    local function refused(pattern, types)
      assert.error_matches(function() gguf.save(path, tensors, nil, {types = types}) end, pattern)
    end
    refused("q4_k is read but not written", "q4_k")
    refused("'narrow' has rows of 3 numbers, no multiple of 32", {narrow = "q8_0"})
    refused("as q8_1, which cannot be written", "q8_1")
    assert.error_matches(function() gguf.save(path, tensors, {f = print}) end,
                         "the metadata 'f' is a function")
  end)

  it("refuses damaged headers before it takes memory", function()
    local text = assert(core.file.read(PATH))
    local function refused(pattern, bytes)
      local file = assert(io.open(path, "wb"))
      file:write(bytes)
      file:close()
      local value, message = gguf.load(path)
      assert.is_nil(value)
      assert.matches(pattern, message)
    end
    local function at(k, bytes) return text:sub(1, k) .. bytes .. text:sub(k + #bytes + 1) end
    refused("not a GGUF file", "GGUX" .. text:sub(5))
    refused("version 9, flare reads 2 and 3", at(4, "\9"))
    refused("version 50331648: the file is big%-endian", at(4, "\0\0\0\3"))
    refused("the number of tensors .* is 72057594037927948", at(15, "\1"))
    refused("the number of metadata .* is negative", at(23, "\xff"))
    refused("the length of a name", at(24, "\xff\xff\xff\xff"))
    refused("needs bytes", text:sub(1, #text - 200))
    refused("the number of tensors .* is 12, the file has 100 more", text:sub(1, 116))
  end)

  it("says what it does not know", function()
    local reader <close> = assert(gguf.open(PATH))
    assert.matches("there is no tensor \"f23\" %(did you mean 'f32'%?%)",
                   select(2, reader:tensor "f23"))
    assert.error_matches(function() reader:copy("f32", flare.zeros(2)) end,
                         "'f32' is %(2, 3, 4%), the destination is %(2%)")
    assert.matches("not a GGUF file; the file is a PyTorch file",
                   select(2, gguf.open "spec/data/files/tree.pt"))
  end)
end)
