local core = require "flare.core"
local file, json = core.file, core.json

local dir

local function path(name) return dir .. "/" .. name end
local function write(name, text)
  local f = assert(io.open(path(name), "wb"))
  f:write(text)
  f:close()
  return path(name)
end

describe("core.file", function()
  setup(function()
    dir = os.tmpname()
    os.remove(dir)
    assert(file.mkdir(dir))
  end)
  teardown(function() os.execute("rm -rf '" .. dir .. "'") end)
  after_each(function() file.fail(0, 0) end)

  it("reads whole files and parts", function()
    local p = write("a", "hello\0world")
    assert.equal("hello\0world", file.read(p))
    assert.equal("world", file.read(p, 6))
    assert.equal("lo", file.read(p, 3, 2))
    assert.equal("", file.read(p, 100, 2))
    assert.equal("", file.read(write("empty", "")))
  end)

  it("reads files that have no size, such as those of /proc", function()
    if not file.exists "/proc/self/status" then return pending "there is no /proc" end
    local text = file.read "/proc/self/status"
    assert.match("^Name:.*\nVmPeak:", text)
    assert.equal(text:sub(3, 7), file.read("/proc/self/status", 2, 5))
    local h <close> = file.open "/proc/self/status"
    assert.equal(text:sub(1, 5), h:read(0, 5))
    local maps = file.read "/proc/self/maps"
    assert.is_true(#maps > 4096)
    assert.equal("\n", maps:sub(-1))
  end)

  it("holds files open", function()
    local p = write("held", "hello world")
    local h = file.open(p)
    assert.equal(11, #h)
    assert(file.write_atomic(p, "another"))
    assert.equal("hello world", h:read())
    assert.equal("world", h:read(6))
    assert.equal("lo", h:read(3, 2))
    assert.equal("", h:read(11, 5))
    assert.equal(p, h:path())
    local m = h:map()
    assert.equal("hello world", m:bytes())
    assert.equal(("flare.file: %s, 11 bytes"):format(p), tostring(h))
    os.execute(("ln -s held %s"):format(path("alias")))
    local alias <close> = file.open(path("alias"))
    assert.equal(file.real(p), alias:real())
    assert.equal(path("alias"), alias:path())
    h:close()
    h:close()
    assert.equal("hello", m:bytes(0, 5))
    for _, name in ipairs {"read", "map", "real"} do
      assert.error_matches(function() h[name](h) end, "the file is closed")
    end
    assert.matches("closed$", tostring(h))
    assert.equal(path("nothing") .. ": No such file or directory",
                 select(2, file.open(path("nothing"))))
    assert.matches("is a directory", select(2, file.open(dir)))
    assert.error_matches(function() file.open() end, "a path is a string, got no value")
    assert.error_matches(function() alias:read(-1) end, "first: cannot be negative")
    assert.matches("No such file", select(2, file.real(path("nothing"))))
    assert.equal('"": the path is empty', select(2, file.read ""))
    assert.equal('"": the path is empty', select(2, file.write_atomic("", "x")))
  end)

  it("takes paths only", function()
    assert.error_matches(function() file.read() end, "a path is a string, got no value")
    for _, f in ipairs {file.stat, file.remove, file.map, require("flare.data").text.load} do
      assert.error_matches(function() f(3) end, "a path is a string, got an integer")
      assert.error_matches(function() f(path("a\0b")) end, 'a path has no zero bytes: ".*/a')
    end
  end)

  it("returns the system's messages with the path", function()
    local x, err = file.read(path("nothing"))
    assert.is_nil(x)
    assert.equal(path("nothing") .. ": No such file or directory", err)
    assert.equal(dir .. ": is a directory, not a file", select(2, file.read(dir)))
    assert.equal("/dev/zero: is a device, not a file", select(2, file.read("/dev/zero")))
    os.execute("mkfifo " .. path("fifo"))
    assert.equal(path("fifo") .. ": is a FIFO, not a file", select(2, file.read(path("fifo"))))
    os.execute("ln -s loop " .. path("loop"))
    assert.matches("loop: Too many levels of symbolic links", select(2, file.read(path("loop"))))
    assert.matches("No such file", select(2, file.map(path("nothing"))))
    assert.matches("is a directory", select(2, file.map(dir)))
    assert.matches("No such file", select(2, file.list(path("nothing"))))
    assert.matches("No such file", select(2, file.remove(path("nothing"))))
    assert.matches("No such file", select(2, file.stat(path("nothing"))))
    assert.is_nil(file.exists(path("nothing")))
  end)

  it("writes strings, tensors and lists atomically", function()
    local x = core.tensor({1, 2}, {dtype = "i16"})
    assert.is_true(file.write_atomic(path("w"), "ab", x, {"c", {x[{{2}}], "d"}}))
    assert.equal("ab\1\0\2\0c\2\0d", file.read(path("w")))
    assert.is_true(file.write_atomic(path("w")))
    assert.equal("", file.read(path("w")))
    local y = core.tensor{{1, 2}, {3, 4}}
    assert(file.write_atomic(path("w"), y:t(), y:to("sim:0")))
    assert.equal(string.pack("<ffffffff", 1, 3, 2, 4, 1, 2, 3, 4), file.read(path("w")))
    for _, name in ipairs(file.list(dir)) do assert.is_nil(name:find "tmp") end
  end)

  it("keeps the mode, and writes through links", function()
    local p = write("mode", "old")
    os.execute("chmod 640 " .. p)
    assert(file.write_atomic(p, "new"))
    assert.equal(tonumber("640", 8), file.stat(p).mode)
    os.execute(("ln -sf mode %s"):format(path("link")))
    assert(file.write_atomic(path("link"), "newer"))
    assert.equal("newer", file.read(p))
    assert.equal("newer", file.read(path("link")))
  end)

  it("leaves the old file when anything fails", function()
    local p = write("kept", "old contents")
    local calls = 0
    for n = 0, 50 do
      file.fail(n, 1, "ENOSPC")
      local ok, err = file.write_atomic(p, "new", " contents")
      local asked = file.fail(0, 0)
      if ok then
        calls = asked
        break
      end
      assert.matches("kept: No space left on device, wrote .*12 bytes", err)
      if err:find("all 12", 1, true) then
        assert.equal("new contents", file.read(p))
        write("kept", "old contents")
      else
        assert.matches("what was there before is kept", err)
        assert.equal("old contents", file.read(p))
      end
      for _, name in ipairs(file.list(dir)) do assert.is_nil(name:find("kept.tmp", 1, true)) end
    end
    assert.is_true(calls >= 6)
    assert.equal("new contents", file.read(p))
    assert.equal(dir .. ": is a directory, not a file", select(2, file.write_atomic(dir, "x")))
    assert(os.execute("mkfifo '" .. path("pipe") .. "'"))
    assert.equal(path("pipe") .. ": is a FIFO, not a file",
                 select(2, file.write_atomic(path("pipe"), "x")))
    assert.equal("FIFO", file.exists(path("pipe")))
    assert.matches("No such file", select(2, file.write_atomic(path("no/such"), "x")))
    assert.error_matches(function() file.write_atomic(path("x"), 5) end, "expected a tensor")
    assert.error_matches(function() file.fail(0, 1, "EWHAT") end, "no error 'EWHAT'")
  end)

  it("fails to read on order", function()
    local p = write("b", "text")
    for n = 0, 2 do
      file.fail(n, 1)
      local x, err = file.read(p)
      assert.is_nil(x)
      assert.equal(p .. ": Input/output error", err)
    end
    file.fail(0, 0)
    assert.equal("text", file.read(p))
  end)

  it("makes, lists, renames and removes", function()
    assert.is_true(file.mkdir(path("d/e/f")))
    assert.is_true(file.mkdir(path("d/e/f")))
    assert.equal("directory", file.exists(path("d/e")))
    write("d/2", "x")
    write("d/10", "xy")
    assert.same({"10", "2", "e"}, file.list(path("d")))
    assert.equal(2, file.stat(path("d/10")).size)
    assert.equal("file", file.stat(path("d/10")).kind)
    assert.is_true(file.rename(path("d/2"), path("d/3")))
    assert.equal("x", file.read(path("d/3")))
    assert.is_true(file.remove(path("d/3")))
    assert.matches("not empty", select(2, file.remove(path("d"))))
    assert.matches("a", select(2, file.mkdir(write("plain", ""))))
  end)

  it("maps files under tensors", function()
    local p = write("m", string.pack("<ffffi4", 1, 2, 3, 4, 7) .. "end")
    local m = assert(file.map(p))
    assert.equal(23, #m)
    local x = m:tensor(0, "f32", {2, 2})
    assert.same({{1, 2}, {3, 4}}, x:totable())
    assert.equal(7, m:tensor(16, "i32", {}):item())
    assert.equal("end", m:bytes(20))
    assert.equal("nd", m:bytes(21, 2))
    assert.same({101, 110, 100}, m:tensor(20, "u8", {3}):totable())
    assert.equal("(0, 4)", tostring(m:tensor(23, "f32", {0, 4}).shape))
    -- unaligned data is copied
    assert.equal("i16", m:tensor(21, "i16", {1}).dtype)
    -- writing does not reach the file
    x[1] = 9
    assert.same({9, 9}, x[1]:totable())
    assert.equal(1, (string.unpack("<f", file.read(p))))
    m:close()
    m:close()
    collectgarbage()
    assert.same({{9, 9}, {3, 4}}, x:totable())
    assert.error_matches(function() m:bytes() end, "closed")
    m = assert(file.map(p))
    assert.error_matches(function() m:tensor(0, "f32", {6}) end,
                         "bytes 0 to 24 are not in a file of 23")
    assert.error_matches(function() m:tensor(-4, "f32", {1}) end, "are not in a file")
    assert.error_matches(function() m:tensor(0, "f32", {1 << 40, 1 << 40}) end, "overflow")
    assert.error_matches(function() m:tensor(0, "f31", {1}) end, "no dtype")
    local e = assert(file.map(write("empty", "")))
    assert.equal(0, #e)
    assert.equal("", e:bytes())
  end)

  it("unpacks gzip", function()
    local p = write("z", ("flare "):rep(10000))
    os.execute(("gzip -kf %s && cat %s.gz %s.gz > %s"):format(p, p, p, path("two.gz")))
    assert.equal(("flare "):rep(10000), core.gunzip(p .. ".gz"))
    assert.equal(120000, #core.gunzip(path("two.gz")))
    assert.matches("larger than the limit", select(2, core.gunzip(p .. ".gz", {limit = 1000})))
    assert.matches("not a good gzip file", select(2, core.gunzip(p)))
    local gz = file.read(p .. ".gz")
    assert.matches("ends too early", select(2, core.gunzip(write("cut.gz", gz:sub(1, -9)))))
    assert.matches("not a good gzip", select(2, core.gunzip(
      write("bad.gz", gz:sub(1, 30) .. "\255" .. gz:sub(32)))))
    assert.matches("No such file", select(2, core.gunzip(path("nothing"))))
    assert.matches("ends too early", select(2, core.gunzip(write("empty.gz", ""))))
  end)
end)

describe("checksums", function()
  it("are those of the standards", function()
    assert.equal(0xe3069283, core.crc32c("123456789"))
    assert.equal(0, core.crc32c(""))
    assert.equal(0x8a9136aa, core.crc32c(("\0"):rep(32)))
    assert.equal(core.crc32c("123456789"), core.crc32c("6789", core.crc32c("12345")))
    assert.equal("ef46db3751d8e999", core.xxh64(""))
    assert.equal("44bc2cf5ad770999", core.xxh64("abc"))
    assert.equal("d24ec4f1a98c6e5b", core.xxh64("a"))
    assert.equal("fbcea83c8a378bf1", core.xxh64("Nobody inspects the spammish repetition"))
  end)

  it("are of a tensor's elements in order", function()
    local x = core.arange(100):to("f32"):view(10, 10)
    assert.equal(core.xxh64(x:bytes()), core.xxh64(x))
    assert.equal(core.crc32c(x:t():bytes()), core.crc32c(x:t()))
    assert.equal(core.crc32c(x), core.crc32c(x:to("sim:0")))
  end)
end)

describe("core.json", function()
  it("reads", function()
    assert.same({a = {1, 2.5, true, "x"}, b = {}},
                json.decode '{"a": [1, 2.5, true, "x"], "b": {}}')
    assert.equal(math.maxinteger, json.decode "9223372036854775807")
    assert.equal("integer", math.type(json.decode "1"))
    assert.equal("float", math.type(json.decode "1.0"))
    assert.equal(json.null, json.decode "null")
    assert.equal("é\n", json.decode [["\u00e9\n"]])
    assert.equal("a\0b", json.decode [["a\u0000b"]])
  end)

  it("says where it is wrong", function()
    for text, what in pairs{
      ['{"a": 1, "a": 2}'] = "duplicate",
      ["[1, 2"] = "line 1",
      ["\n\n[1 2]"] = "line 3",
      ["9223372036854775808"] = "too big",
      [("["):rep(100000)] = "depth",
      ["{} x"] = "end of file expected",
      [""] = "JSON: ",
      ["\"\xff\""] = "unable to decode byte 0xff",
    } do
      local x, err = json.decode(text)
      assert.is_nil(x)
      assert.matches(what, err)
    end
  end)

  it("writes, keys sorted, numbers short and exact", function()
    assert.equal('{"a":[1,2.0,0.1],"b":"x\\"\\\\\\n\\u0001é","c":null}',
                 json.encode{b = 'x"\\\n\1é', a = {1, 2.0, 0.1}, c = json.null})
    assert.equal("{}", json.encode{})
    assert.equal("[]", json.encode(json.array{}))
    assert.equal("[]", json.encode(json.decode "[]"))
    assert.equal("[1,2]", json.encode(json.array{1, 2}))
    assert.equal("1e+300", json.encode(1e300))
    assert.equal('{\n  "a": [1, 2]\n}', json.encode({a = {1, 2}}, {indent = 2}))
    for _, v in ipairs{1/3, 2^53, 1e-320, -0.0, math.pi, 123456789.123456789, math.mininteger} do
      local back = json.decode(json.encode(v))
      assert.equal(v, back)
      assert.equal(math.type(v), math.type(back))
    end
  end)

  it("refuses what JSON has not", function()
    local cases = {
      {0/0, "NaN"}, {1/0, "infinity"}, {{1, a = 2}, "both"}, {{[1] = 1, [3] = 2}, "both"},
      {print, "function has no form"}, {core.zeros(1), "x:totable%(%)"},
      {"\xff", "not UTF%-8"}, {"\xed\xa0\x80", "not UTF%-8"}, {{[true] = 1}, "keys of an object"},
    }
    for _, case in ipairs(cases) do
      assert.error_matches(function() json.encode(case[1]) end, case[2])
    end
    local itself = {}
    itself.a = itself
    assert.error_matches(function() json.encode(itself) end, "holds itself")
    assert.error_matches(function() json.encode({}, {indnt = 1}) end, "did you mean 'indent'")
  end)
end)
