-- NumPy's files: what NumPy wrote (spec/data/numpy/make.py) is read, what is written NumPy reads,
-- and files that are wrong are refused with a message that says why.
local flare = require "flare"
local core = flare.core
local npy, npz = flare.io.npy, flare.io.npz
local zip = require "flare.io.zip"
local expected = dofile "spec/data/numpy/expected.lua"
local here = "spec/data/numpy/"

local path
before_each(function()
  path = os.tmpname()
  os.remove(path)
end)
after_each(function()
  core.file.fail(0, 0)
  os.remove(path)
end)

local function put(text)
  local out = assert(io.open(path, "wb"))
  out:write(text)
  out:close()
  return path
end

local function refused(message, none, said)
  assert.is_nil(none)
  assert.is_truthy(said:find(message, 1, true), said)
end

local function check(case, x)
  assert.equal(case[1], x.dtype)
  assert.same(case[2], {table.unpack(x.shape)})
  assert.is_true(x:is_contiguous())
  if x.dtype:find "^c" then x = x:view_as_real() end
  local got = x:reshape(-1):totable()
  for i, value in ipairs(case[3]) do assert.equal(value, got[i]) end
  assert.equal(#case[3], #got)
end

describe("an .npz file of NumPy", function()
  for _, name in ipairs{"arrays", "compressed"} do
    it("is read, " .. name, function()
      local all = assert(npz.load(here .. name .. ".npz"))
      for key, case in pairs(expected) do check(case, all[key]) end
      for key in pairs(all) do assert.is_truthy(expected[key], key) end
      assert.equal(-1 / 0, 1 / all.special[3]:item()) -- minus zero stays one
    end)
  end

  it("lists names and gives one array at a time", function()
    local reader = assert(npz.open(here .. "positional.npz"))
    assert.same({"arr_0", "arr_1"}, reader:names())
    assert.same({0, 1, 2}, assert(reader:tensor "arr_0"):totable())
    refused("there is no array 'arr_2' (did you mean 'arr_", reader:tensor "arr_2")
    assert.same({}, npz.load(here .. "none.npz"))
    assert.equal(4950, npz.load(here .. "streamed.npz").x:sum():item())
  end)

  it("with a type that flare has not says which", function()
    local reader = assert(npz.open(here .. "refused.npz"))
    local function says(name, message) refused(message, reader:tensor(name)) end
    says("complex", "member 'complex.npy': unsupported dtype '<c32': complex numbers of this")
    says("text", "'<U2': strings")
    says("bytes", "'|S2': byte strings")
    says("long", "'<f16': floats of this size")
    says("date", "'<M8[D]': dates")
    says("span", "'<m8[s]': time spans")
    says("raw", "'|V2': records or a type that NumPy does not know (bf16 perhaps")
    says("records", "unsupported dtype: records")
    says("above", "above 2^63 - 1 do not fit i64")
    refused("pickled Python objects, which are never read", npy.load(here .. "pickled.npy"))
  end)
end)

describe("an .npy file", function()
  it("of each version is read, and mapped", function()
    for version = 1, 3 do
      for _, map in ipairs{false, true} do
        local x = assert(npy.load(here .. "version" .. version .. ".npy", {map = map}))
        assert.same({{0, 1, 2}, {3, 4, 5}}, x:totable())
      end
    end
  end)

  it("comes back as it was saved, every dtype and shape", function()
    for _, dtype in ipairs{"f64", "f32", "f16", "i64", "i32", "i16", "i8", "u8", "bool"} do
      local shapes = {{2, 3}}
      if dtype == "i16" then shapes = {{}, {1}, {0}, {3, 0, 2}, {2, 1, 3, 1, 1, 1, 2, 1}} end
      for _, shape in ipairs(shapes) do
        local x = flare.randint(0, 2, shape):to(dtype)
        assert(flare.save(path .. ".npy", x))
        for _, map in ipairs{false, true} do
          local y = assert(npy.load(path .. ".npy", {map = map}))
          assert.equal(dtype, y.dtype)
          assert.same({table.unpack(shape)}, {table.unpack(y.shape)})
          assert.equal(x:bytes(), y:bytes())
        end
      end
    end
    local z = flare.complex(flare.randn(2, 3), flare.randn(2, 3))
    assert(flare.save(path .. ".npy", z))
    assert.equal(z:bytes(), flare.load(path .. ".npy"):bytes())
    local x = flare.arange(1, 7):view(2, 3)
    assert(npy.save(path .. ".npy", x.T))
    assert.same(x.T:totable(), flare.load(path .. ".npy"):totable())
    assert.equal(128 + 48, #core.file.read(path .. ".npy"))
    os.remove(path .. ".npy")
  end)

  it("cannot hold what NumPy has not", function()
    assert.has_error(function() npy.save(path, flare.ones(2):to "bf16") end,
                     'npy.save: NumPy has no bf16; save x:to("f32")')
    assert.has_error(function() npy.save(path, {1, 2}) end,
                     "npy.save: a tensor is expected, got table")
    assert.has_error(function() npz.save(path, {x = 1}) end,
                     "npz.save: 'x': a tensor is expected, got number")
    for _, name in ipairs{"", "../x", "a/../../x", "/x", "a\0b", "\xff"} do
      assert.has_error(function() npz.save(path, {[name] = flare.ones(1)}) end)
    end
    assert.has_error(function() npz.load(path, {limits = 1}) end,
                     "npz.open: unknown option 'limits' (did you mean 'limit'?)")
  end)

  local function file(dict, bytes, version)
    return "\x93NUMPY" .. (version or "\1\0") .. string.pack("<I2", #dict) .. dict
           .. ("\0"):rep(bytes or 0)
  end
  local function dict(descr, fortran, shape)
    return ("{'descr': %s, 'fortran_order': %s, 'shape': %s, }"):format(descr, fortran, shape)
  end
  local function shaped(shape, bytes) return file(dict("'<f4'", "False", shape), bytes) end

  it("may be formatted differently, if it is a dict of the three", function()
    local function load(text, bytes) return (assert(npy.load(put(file(text, bytes))))) end
    assert.same({0, 0}, load("{'shape':(2,),'fortran_order':False,'descr':'<f4'}", 8):totable())
    assert.same({0, 0}, load('  {"descr" : "|u1","shape": (2L,) , "fortran_order": True}\n\n', 2)
                        :totable())
  end)

  it("that is wrong is refused", function()
    local ok = dict("'<f4'", "False", "(2,)")
    for _, case in ipairs{
      {"", "not an .npy file"}, {"\x93NUMP", "not an .npy file"},
      {"\x93NUMPY\1", "ends within its header"}, {"\x93NUMPY\1\0\1", "ends within its header"},
      {"\x93NUMPY\2\0\1\0\0", "ends within its header"},
      {file(ok, 8, "\9\0"), "format version 9.0, this flare reads 1.0, 2.0 and 3.0"},
      {file(ok, 8, "\1\1"), "format version 1.1"}, {file(ok, 8, "\0\0"), "format version 0.0"},
      {"\x93NUMPY\2\0\xff\xff\xff\xff", "header too large (4294967295 bytes"},
      {"\x93NUMPY\1\0\xff\xff{}", "header length 65535 exceeds file size 12"},
      {shaped("(65536, 65536)", 7), "needs 17179869184 bytes, the file has 7"},
      {shaped("(2,)", 7), "(2) of 4 bytes each needs 8 bytes, the file has 7"},
      {shaped("(2,)", 9), "needs 8 bytes, the file has 9"},
      {shaped("(4194305, 4194305, 211106198978564)", 16), "the shape overflows"},
      {shaped("(2, 99999999999999999999)"), "dimension 2 is 99999999999999999999, not an"},
      {shaped("(-1,)"), "dimension 1 is -1, not an integer in range"},
      {shaped("(0x2,)"), "dimension 1 is 0x2"}, {shaped("(1e3,)"), "dimension 1 is 1e3"},
      {shaped("(2.5,)"), "expected ',' or ')'"}, {shaped("(2)"), "expected a tuple, (n,)"},
      {shaped("2"), "expected a tuple of sizes"}, {shaped("[2]"), "expected a tuple of sizes"},
      {shaped("(2 3)"), "expected ',' or ')'"}, {shaped("(,)"), "expected a size"},
      {shaped("(1,1,1,1,1,1,1,1,1)", 4), "9 dims, at most 8 are supported"},
      {file(dict("'<f4'", "Falsey", "(2,)"), 8), "expected True or False"},
      {file(dict("'<f4'", "0", "(2,)"), 8), "expected True or False"},
      {file(dict("'=f4'", "False", "(2,)"), 8), "unsupported dtype '=f4': the order of its bytes"},
      {file(dict("'|f4'", "False", "(2,)"), 8), "unsupported dtype '|f4'"},
      {file(dict("'O'", "False", "(2,)"), 8), "pickled Python objects"},
      {file(dict("'\\x3cf4'", "False", "(2,)"), 8), "expected a type"},
      {file(dict("[('a', '<f4')]", "False", "(2,)"), 8), "records"},
      {file("{'descr': '<f4', 'fortran_order': False}", 8), "'shape' is missing"},
      {file("{'descr': '<f4', 'descr': '<f4'}"), "duplicate key 'descr'"},
      {file("{'descr': '<f4', 'other': 1}"), "unknown key 'other'"},
      {file("{'descr' '<f4'}"), "expected ':'"}, {file("{1: 2}"), "expected a key"},
      {file("[]"), "invalid header at byte 1: expected '{'"}, {file(ok .. "x", 8), "the end"},
      {file("{'descr': '<f4' 'shape': ()}"), "expected ',' or '}'"},
      {file(("("):rep(60000)), "expected '{'"},
      {file("{'shape': " .. ("("):rep(60000)), "expected a size"},
    } do
      refused(path .. ": ", npy.load(put(case[1])))
      refused(case[2], npy.load(path))
      refused(case[2], npy.load(path, {map = true}))
    end
    assert.has_error(function() npy.load(7) end)
  end)

  it("that is cut short anywhere is refused", function()
    local whole = assert(core.file.read(here .. "version1.npy"))
    for n = 0, #whole - 1 do refused(path, npy.load(put(whole:sub(1, n)))) end
  end)
end)

describe("a zip archive", function()
  local function get(name) return (assert(core.file.read(here .. name))) end

  it("comes back as it was saved", function()
    local tensors = {a = flare.randn(3, 4), ["b/ü"] = flare.arange(1, 5).T, c = flare.tensor(7)}
    for _, compress in ipairs{false, true} do
      assert(npz.save(path, tensors, {compress = compress}))
      local back = assert(npz.load(path))
      for name, x in pairs(tensors) do assert.equal(x:bytes(), back[name]:bytes()) end
      local first = core.file.read(path)
      assert(npz.save(path, tensors, {compress = compress}))
      assert.equal(first, core.file.read(path)) -- the same bytes for the same tensors
    end
    assert(flare.save(path .. ".npz", {flare.ones(1), flare.zeros(2)}))
    assert.same({0, 0}, flare.load(path .. ".npz").arr_1:totable())
    os.remove(path .. ".npz")
    assert(npz.save(path, {zeros = flare.zeros(1 << 20)}, {compress = true}))
    assert.is_true(core.file.stat(path).size < 8192)
    assert.equal(1 << 20, npz.load(path).zeros:numel())
    refused("4194432 bytes would come out of", npz.load(path, {limit = 1 << 20}))
  end)

  local function packed(narrow)
    local members = {}
    for i, name in ipairs{"a.npy", "b.npy"} do
      local head, x = npy.encode("test", flare.full({i}, i))
      members[i] = {name = name, pieces = {head, x}, bytes = #head + x:nbytes(),
                    crc = core.crc32(x, assert(core.crc32(head)))}
    end
    assert(core.file.write_atomic(path, zip.pack(members, narrow)))
    return (assert(core.file.read(path)))
  end

  it("may have sizes of 64 bits", function()
    for _, narrow in ipairs{10, 131, 200, 400} do
      packed(narrow)
      local back = assert(npz.load(path))
      assert.same({{1}, {2, 2}}, {back.a:totable(), back.b:totable()})
    end
    local whole = packed(10)
    for n = 0, #whole - 1 do refused(path, npz.load(put(whole:sub(1, n)))) end
    local at = whole:find("PK\6\6", 1, true)
    refused("zip64 directory is cut off", npz.load(put(whole:gsub("PK\6\7....(.)", function()
      return "PK\6\7\0\0\0\0\xff"
    end))))
    refused("zip64 directory is damaged", npz.load(put(whole:sub(1, at) .. "x"
                                                       .. whole:sub(at + 2))))
    refused("zip64 directory is missing", npz.load(put((whole:gsub("PK\6\7", "PK\6\8")))))
    refused("64-bit sizes are cut off", npz.load(put((whole:gsub("\1\0\24\0", "\1\0\23\0")))))
  end)

  it("that is cut short anywhere is refused", function()
    local whole = get "positional.npz"
    for n = 0, #whole - 1 do refused(path, npz.load(put(whole:sub(1, n)))) end
    refused("not a zip file, or cut off", npz.load(put "PK\3\4"))
  end)

  it("with a byte turned over is refused, or the same", function()
    for _, name in ipairs{"positional.npz", "streamed.npz"} do
      local whole = get(name)
      local good = npz.load(here .. name)
      for n = 1, #whole do
        local spoiled = whole:sub(1, n - 1) .. string.char(whole:byte(n) ~ 0x11) .. whole:sub(n + 1)
        local back, message = npz.load(put(spoiled))
        if back then -- times, versions, names
          for _, x in pairs(back) do
            local found = false
            for _, y in pairs(good) do found = found or x:bytes() == y:bytes() end
            assert.is_true(found, n)
          end
        else
          assert.is_truthy(message:find(path, 1, true), message)
        end
      end
    end
  end)

  -- an archive of one member with these fields
  local function archive(o)
    local text = o.text or "hello"
    local name, size = o.name or "x.npy", o.size or #text
    local crc = o.crc or 0x3610a686
    local fields = string.pack("<I2I2I2I2I2I4I4I4I2I2", 20, o.flags or 0, o.method or 0, 0, 0, crc,
                               #text, size, #name, 0)
    local start = o.before or ""
    local directory = "PK\1\2\20\0" .. fields
                      .. string.pack("<I2I2I2I4I4", 0, 0, 0, 0, o.offset or #start) .. name
    directory = directory:rep(o.times or 1)
    local data = start .. "PK\3\4" .. fields .. name .. text
    return data .. directory .. "PK\5\6"
           .. string.pack("<I2I2I2I2I4I4I2", 0, 0, o.count or o.times or 1,
                          o.count or o.times or 1, #directory, #data, 0)
  end

  it("with hostile members is refused", function()
    for _, case in ipairs{
      {{}, "member 'x.npy': not an .npy file"},
      {{name = "../../x.npy"}, "the name '../../x.npy' leads out of the archive"},
      {{name = "/x.npy"}, "leads out"}, {{name = "c:x.npy"}, "leads out"},
      {{name = "a/.."}, "leads out"}, {{name = "a\\b"}, "bad name"}, {{name = "a\0b"}, "bad name"},
      {{name = ""}, "bad name"}, {{name = "\xff"}, "bad name"},
      {{name = "x.txt"}, "member 'x.txt' is not an .npy file"},
      {{flags = 1}, "it is encrypted"}, {{flags = 0x40}, "it is encrypted"},
      {{method = 12}, "compression method 12"}, {{size = 6}, "6 bytes stored as 5"},
      {{method = 8, size = 1 << 30}, "1073741824 bytes cannot come from 5"},
      {{method = 8}, "member 'x.npy': "}, {{crc = 1}, "the checksum does not match"},
      {{method = 8, text = "\3\0", size = 1}, "0 bytes come out, not 1"},
      {{method = 8, text = "\3\0x", size = 0}, "something follows the data"},
      {{method = 8, text = "\75\4", size = 0}, "bytes come out"},
      {{times = 2}, "duplicate name 'x.npy'"}, {{count = 2}, "the directory is damaged"},
      {{count = 0}, "the directory is damaged"}, {{offset = 60}, "overlaps what follows"},
      {{offset = 1}, "overlaps what follows"}, {{before = "abc", offset = 0}, "header is damaged"},
    } do
      put(archive(case[1]))
      refused(path .. ": ", npz.load(path))
      refused(case[2], npz.load(path))
    end
  end)
end)

describe("NumPy", function()
  local python = os.getenv "PYTHON" or "python3"
  local there = os.execute(python .. " -c 'import numpy' 2>/dev/null")

  it("reads saved values", function()
    if not there then return pending "python3 with numpy is not here (PYTHON names another)" end
    local folder = path .. "-numpy"
    assert(core.file.mkdir(folder))
    local all = {}
    for _, dtype in ipairs{"f64", "f32", "f16", "i64", "i32", "i16", "i8", "u8", "bool"} do
      for _, shape in ipairs{{}, {1}, {0, 2}, {2, 3}} do
        local name = dtype .. "_" .. table.concat(shape, "x")
        all[name] = flare.arange(1, core.zeros(shape):numel() + 1):view(shape):to(dtype)
        if #shape == 2 then assert(npy.save(folder .. "/" .. name .. ".npy", all[name])) end
      end
    end
    assert(npz.save(folder .. "/stored.npz", all))
    assert(npz.save(folder .. "/deflated.npz", all, {compress = true}))
    local script = assert(io.open(folder .. "/check.py", "w"))
    script:write [==[
import os, sys
import numpy as np
folder = sys.argv[1]
stored, deflated = np.load(folder + "/stored.npz"), np.load(folder + "/deflated.npz")
count = 0
for name in stored.files:
    path = folder + "/" + name + ".npy"
    dtype, shape = name.split("_")
    kind = dtype if dtype == "bool" else dtype[0] + str(int(dtype[1:]) // 8)
    shape = tuple(int(s) for s in shape.split("x") if s)
    want = np.arange(1, int(np.prod(shape)) + 1).reshape(shape).astype(kind)
    arrays = [np.load(path)] if os.path.exists(path) else []
    for got in arrays + [stored[name], deflated[name]]:
        assert got.dtype == want.dtype and got.shape == want.shape, (name, got.dtype, got.shape)
        assert np.array_equal(got, want), name
    count += 1
assert stored.zip.testzip() is None and deflated.zip.testzip() is None
print("fine", count)
]==]
    script:close()
    local pipe = io.popen(("%s %s/check.py %s 2>&1"):format(python, folder, folder))
    local said = pipe:read "a"
    pipe:close()
    os.execute("rm -rf '" .. folder .. "'")
    assert.equal("fine 36\n", said)
  end)
end)
