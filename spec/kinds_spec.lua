-- Files of other programs: what they are is named, and what can be read of them is read.
local flare = require "flare"
local core = flare.core
local safetensors = flare.io.safetensors

local folder
before_each(function()
  folder = os.tmpname()
  os.remove(folder)
  assert(core.file.mkdir(folder))
end)
after_each(function() os.execute("rm -rf '" .. folder .. "'") end)

local function put(name, text)
  local path = folder .. "/" .. name
  assert(core.file.write_atomic(path, text))
  return path
end

local function raw(header, bytes)
  return string.pack("<I8", #header) .. header .. bytes
end

describe("safetensors with types of other programs", function()
  local function file()
    local parts, at, data = {}, 0, {}
    local function add(name, dtype, shape, bytes)
      parts[#parts + 1] = ('"%s":{"dtype":"%s","shape":[%s],"data_offsets":[%d,%d]}'):format(
        name, dtype, shape, at, at + #bytes)
      at, data[#data + 1] = at + #bytes, bytes
    end
    add("u16", "U16", "3", string.pack("<I2I2I2", 0, 40000, 65535))
    add("u32", "U32", "1,2", string.pack("<I4I4", 7, 0xffffffff))
    add("u64", "U64", "2", string.pack("<i8i8", 5, math.maxinteger))
    add("big", "U64", "2", string.pack("<i8i8", 5, -1))
    add("f8", "F8_E4M3", "2,2", "abcd")
    add("f4", "F4", "2,2", "ab")
    add("odd", "X9", "5", "abc")
    add("none", "U16", "0", "")
    add("x", "F32", "2", string.pack("<ff", 1, 2))
    local header = "{" .. table.concat(parts, ",") .. "}"
    return put("mixed.safetensors", raw(header, table.concat(data)))
  end

  it("lists all tensors and reads those that it can", function()
    for _, map in ipairs {false, true} do
      local reader <close> = assert(safetensors.open(file()))
      local seen = {}
      for _, e in ipairs(reader:entries()) do
        seen[e.name] = ("%s %s %d"):format(e.dtype, e.stored, #e.shape)
      end
      assert.same({u16 = "i32 U16 1", u32 = "i64 U32 2", u64 = "i64 U64 1", big = "i64 U64 1",
                   f8 = "F8_E4M3 F8_E4M3 2", f4 = "F4 F4 2", odd = "X9 X9 1", none = "i32 U16 1",
                   x = "f32 F32 1"}, seen)
      local function read(name) return reader:tensor(name, {map = map}) end
      assert.same({0, 40000, 65535}, read "u16":totable())
      assert.equal("i32", read "u16".dtype)
      assert.same({{7, 0xffffffff}}, read "u32":totable())
      assert.same({5, math.maxinteger}, read "u64":totable())
      assert.same({1, 2}, read "x":totable())
      assert.equal("i32", read "none".dtype)
      for name, message in pairs {
        f8 = 'unsupported dtype "F8_E4M3" for tensor "f8"', odd = 'unsupported dtype "X9"',
        f4 = 'unsupported dtype "F4"', big = '"big": unsigned 64-bit numbers above 2^63',
      } do
        local none, said = read(name)
        assert.is_nil(none)
        assert.is_truthy(said:find(message, 1, true), said)
        assert.is_truthy(said:find("mixed.safetensors", 1, true), said)
      end
    end
  end)

  it("refuses to load all of them, and says how to read the others", function()
    local tensors, message = safetensors.load(file())
    assert.is_nil(tensors)
    assert.match("unsupported dtype.*safetensors.open%(path%) reads the others", message)
  end)

  it("still checks sizes that are known", function()
    local tensors, message = safetensors.open(put("x", raw(
      '{"x":{"dtype":"F8_E5M2","shape":[3],"data_offsets":[0,4]}}', "abcd")))
    assert.is_nil(tensors)
    assert.match("F8_E5M2 of %(3%) needs 3 bytes, has 4", message)
  end)
end)

describe("a file of another kind", function()
  local zip = "PK\3\4" .. ("\0"):rep(22)
  local function member(name)
    return zip .. string.pack("<I2I2", #name, 0) .. name .. ("x"):rep(99)
  end
  local cases = {
    {"x.ckpt", member "archive/data.pkl", "a PyTorch file", "flare.io.pt.load(path)"},
    {"x.bin", member "model/data.pkl", "a PyTorch file"},
    {"old", "\x80\2\x8a\10l\xfc\x9cF\xf9 j\xa8P\x19." .. ("x"):rep(99), "a PyTorch file"},
    {"x.pkl", "\x80\4\x95" .. ("\0"):rep(50), "pickled Python objects"},
    {"x.zip", member "notes.txt", "a zip archive: unpack it first"},
    {"renamed", member "w.npy", "flare.io.npz.load(path) reads it"},
    {"arrays", "\x93NUMPY\1\0" .. ("x"):rep(99), "flare.io.npy.load(path) reads it"},
    {"x.lua", "local flare = require 'flare'\nprint(flare)\n", "a Lua script"},
    {"x.csv", "a,b\n1,2\n3,4\n", "flare.data.csv(path) reads it"},
    {"notes", "some words of text, and more", "it is text: flare.data.text.load"},
    {"x.json", '{"a": 1, "b": [1, 2]}', "JSON text: flare.core.json.decode"},
    {"x.gz", "\x1f\x8b\8\0" .. ("\0"):rep(40), "compressed by gzip"},
    {"model", "GGUF\3\0\0\0" .. ("\0"):rep(40), "a GGUF model"},
    {"m.onnx", "\8\7\18\7pytorch" .. ("\1"):rep(99), "flare.onnx.load(path) reads it"},
    {"page", "<!DOCTYPE html>\n<html><body>404</body></html>", "an HTML page"},
    {"page2", "\n  <html lang='en'><body>404</body></html>", "an HTML page"},
    {"x.h5", "\x89HDF\r\n\x1a\n" .. ("\0"):rep(40), "an HDF5 file"},
    {"lfs", "version https://git-lfs.github.com/spec/v1\noid sha256:1234\n", "a Git LFS pointer"},
    {"train", "\0\0\8\3" .. ("\0"):rep(40), "an idx file"},
    {"empty", "", "header too small (0 bytes, need 8)", "empty"},
    {"noise", "\1\2\3\4\5\6\7\8\9\10\11\12\13\14", "not a safetensors file"},
  }
  for _, case in ipairs(cases) do
    it("is named: " .. case[1], function()
      local path = put(case[1], case[2])
      for _, load in ipairs {flare.load, safetensors.load, safetensors.open} do
        local none, message = load(path)
        assert.is_nil(none)
        assert.is_truthy(message:find(path, 1, true), message)
        for k = 3, #case do assert.is_truthy(message:find(case[k], 1, true), message) end
        assert.is_nil(message:find "header length")
      end
    end)
  end

  it("is named by the readers of arrays, models, texts and tables, too", function()
    local pytorch = put("x.pt", member "a/data.pkl")
    local page = put("page", "<html><body>not found</body></html>")
    for load, says in pairs {
      [flare.io.npz.load] = "a PyTorch file", [flare.io.npy.load] = "a PyTorch file",
      [flare.onnx.load] = "a PyTorch file", [flare.onnx.load_tensor] = "a PyTorch file",
    } do
      local none, message = load(pytorch)
      assert.is_nil(none)
      assert.is_truthy(message:find(says, 1, true), message)
      none, message = load(page)
      assert.is_nil(none)
      assert.is_truthy(message:find("an HTML page", 1, true), message)
    end
    for _, load in ipairs {flare.data.idx.read, flare.data.csv, flare.data.text.read,
                           flare.data.text.load} do
      assert.match("the file is a PyTorch file", select(2, load(pytorch)))
    end
    assert.match("the file is an HTML page", select(2, flare.data.idx.read(page)))
    local path = folder .. "/real.npz"
    assert(flare.save(path, {x = flare.ones(2)}))
    assert.match("flare.io.npz.load", select(2, flare.io.npy.load(path)))
    assert(flare.io.safetensors.save(path, {x = flare.ones(2)}))
    assert.match("the file is a safetensors file", select(2, flare.load(path)))
  end)

  it("that was cut off has another message than one of another kind", function()
    local path = folder .. "/model"
    assert(flare.save(path, {x = flare.ones(100)}))
    local text = core.file.read(path)
    for _, n in ipairs {9, 40, #text // 2, #text - 1} do
      local none, message = flare.load(put("cut", text:sub(1, n)))
      assert.is_nil(none)
      assert.match(n < 200 and "header length %d+ exceeds file size %d+" or "past the end", message)
    end
  end)
end)

describe("a state that could not be loaded", function()
  it("is named by what it was handed to", function()
    local nn, optim, data = flare.nn, flare.optim, flare.data
    local model = nn.Linear(2, 2)
    local optimizer = optim.SGD(model, {lr = 0.1})
    local function says(f, ...)
      local ok, message = pcall(f, ...)
      assert.is_false(ok)
      assert.is_truthy(message:find("/none: No such file or directory", 1, true), message)
    end
    for _, object in ipairs {
      model, optimizer, optim.LBFGS(model), optim.StepLR(optimizer, {every = 2}),
      optim.PlateauLR(optimizer), optim.EMA(model), optim.GradScaler(), data.Vocabulary "abc",
      data.Loader(data.Tensors(flare.ones(4)), {batch = 2}),
    } do
      says(object.load_state_dict, object, flare.load "/none")
      says(object.load_state_dict, object, safetensors.load "/none")
    end
    says(nn.from_pytorch, flare.load "/none")
    local checkpoints = assert(flare.io.Checkpoint(folder .. "/run"))
    assert.error_matches(function() checkpoints:restore(checkpoints:load(), {model = model}) end,
                         "there is no checkpoint")
  end)

  it("is not mixed up with the metadata of a file", function()
    local path, model = folder .. "/m", flare.nn.Linear(2, 2)
    assert(safetensors.save(path, model:state_dict(), {format = "pt"}))
    local other = flare.nn.Linear(2, 2)
    other:load_state_dict(assert(safetensors.load(path)))
    assert.same(model.weight:totable(), other.weight:totable())
    assert.error_matches(function()
      other:load_state_dict(safetensors.load(path), {strikt = false})
    end, "unknown option 'strikt'")
  end)
end)
