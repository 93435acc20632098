local flare = require "flare"
local data = flare.data
local refused = require("spec.support.expect").refused

local function write(text)
  local path = os.tmpname()
  local file = assert(io.open(path, "wb"))
  file:write(text)
  file:close()
  return path
end

describe("data.idx", function()
  local function read(text)
    local path = write(text)
    local x, message = data.idx.read(path)
    os.remove(path)
    return x, message
  end

  it("reads every type, big-endian", function()
    assert.same({{1, 2, 255}, {4, 5, 6}},
                read("\0\0\8\2" .. string.pack(">I4I4", 2, 3) .. "\1\2\255\4\5\6"):tolist())
    assert.same({-1, 2}, read("\0\0\9\1\0\0\0\2\255\2"):tolist())
    assert.same({-2, 300}, read("\0\0\11\1\0\0\0\2" .. string.pack(">i2i2", -2, 300)):tolist())
    assert.same({7, -70000}, read("\0\0\12\1\0\0\0\2" .. string.pack(">i4i4", 7, -70000)):tolist())
    assert.same({1.5, -2}, read("\0\0\13\1\0\0\0\2" .. string.pack(">ff", 1.5, -2)):tolist())
    local x = read("\0\0\14\2\0\0\0\2\0\0\0\1" .. string.pack(">dd", 0.1, -2))
    assert.same({{0.1}, {-2}}, x:tolist())
    assert.equal("f64", x.dtype)
  end)

  it("reports errors in a file", function()
    local bad = {
      {"", "0 bytes, the magic needs 4"},
      {"\1\2\8\1", "begins with 01 02"},
      {"\0\0\7\1\0\0\0\0", "unknown idx type 0x07"},
      {"\0\0\8\0", "0 dims"},
      {"\0\0\8\3\0\0\0\1", "needs 16 bytes, the file has 8"},
      {"\0\0\8\1\0\0\0\5abc", "needs 5 bytes, the file has 3"},
      {"\0\0\8\1\0\0\0\2abc", "needs 2 bytes, the file has 3"},
      {"\0\0\x0d\8" .. ("\xff"):rep(32), "overflows"},
      {"\0\0\8\1\x7f\xff\xff\xff", "needs 2147483647 bytes, the file has 0"},
    }
    for _, case in ipairs(bad) do
      local x, message = read(case[1])
      assert.is_nil(x)
      assert.is_truthy(message:find(case[2], 1, true), message)
    end
    local x, message = data.idx.read("/no/such/file")
    assert.is_nil(x)
    assert.match("/no/such/file", message)
  end)

  it("reads images with their labels, counted from 1", function()
    local images = write("\0\0\8\3" .. string.pack(">I4I4I4", 2, 1, 2) .. "\0\255\51\0")
    local labels = write("\0\0\8\1\0\0\0\2\0\9")
    local x, y = data.idx.pairs(images, labels)
    assert.same({2, 1, 1, 2}, {table.unpack(x.shape)})
    assert.equal(1, x[{1, 1, 1, 2}]:item())
    assert.same({1, 10}, y:tolist())
    local few = write("\0\0\8\1\0\0\0\1\0")
    local none, message = data.idx.pairs(images, few)
    assert.is_nil(none)
    assert.match("has 2 images, .* has 1 labels", message)
    for _, path in ipairs{images, labels, few} do os.remove(path) end
  end)
end)

describe("data.Vocabulary", function()
  it("numbers characters from 1 in the order of their codes", function()
    local v = data.Vocabulary("hello")
    assert.same({"e", "h", "l", "o"}, v.characters)
    local tokens = v:encode("hole")
    assert.same({2, 4, 3, 1}, tokens:tolist())
    assert.equal("hole", v:decode(tokens))
    local none, message = v:encode("help")
    assert.is_nil(none)
    assert.match('"p" at 4', message)
  end)

  it("takes UTF-8 by characters and anything else by bytes", function()
    local v = data.Vocabulary("añü")
    assert.equal(3, #v)
    assert.equal("üa", v:decode(v:encode("üa")))
    assert.equal(2, #data.Vocabulary("\xff\xfe\xff"))
    local other = data.Vocabulary("x"):load_state_dict(v:state_dict())
    assert.same(v:encode("ñ"):tolist(), other:encode("ñ"):tolist())
  end)
end)

describe("data.text", function()
  it("cuts into windows that cover every token once", function()
    local tokens = flare.arange(1, 24)
    local seen = {}
    for x, y in data.text.blocks(tokens, 5, 3) do
      assert.is_true((x + 1):eq(y):all():item())
      for _, row in ipairs(y:tolist()) do
        for _, value in ipairs(row) do seen[#seen + 1] = value end
      end
    end
    assert.equal(22, #seen)
    for i, value in ipairs(seen) do assert.equal(i + 1, value) end
  end)

  it("wants tokens, and windows of some length", function()
    local tokens = flare.arange(1, 24)
    assert.error_matches(function() data.text.blocks("text", 5, 3) end, "tokens must be a tensor")
    assert.error_matches(function() data.text.blocks(tokens, 0, 3) end, "block must be an integer")
    assert.error_matches(function() data.text.blocks(tokens, 5, 0.5) end, "batch must be an int")
  end)

  it("refuses files that are not text", function()
    for text, what in pairs{[""] = "empty", ["a\0b"] = "zero bytes"} do
      local path = write(text)
      local none, message = data.text.load(path)
      assert.is_nil(none)
      assert.match(what, message)
      os.remove(path)
    end
  end)
end)

describe("data.csv", function()
  local function read(text, opts)
    local path = os.tmpname()
    local file <close> = assert(io.open(path, "wb"))
    file:write(text)
    file:close()
    local t, message = data.csv(path, opts)
    os.remove(path)
    return t, message and message:gsub("^.-: ", "", 1)
  end

  it("gives columns of numbers as tensors, of words as lists", function()
    local t = read "\xef\xbb\xbfa,b,name\r\n1.5,-2,x\r\n0x10,1e3,\"y, \"\"z\"\"\"\r\n\r\n-inf,,x"
    assert.same({"a", "b", "name"}, t.columns)
    assert.equal(3, #t)
    assert.same({1.5, 16, -math.huge}, t.a:totable())
    assert.same({-2, 1000}, t.b[{{1, 2}}]:totable())
    assert.is_true(t.b[3]:isnan():item())
    assert.same({"x", 'y, "z"', "x"}, t.name)
    assert.same({2, 1000}, {t:matrix()[{{}, 1}].shape[1] - 1, t:matrix("b", "a")[{2, 1}]:item()})
    local class, names = t:classes "name"
    assert.same({1, 2, 1}, class:totable())
    assert.same({"x", 'y, "z"'}, names)
  end)

  it("takes other delimiters, no header, other dtypes, names of methods", function()
    local t = read("1\t2\n3\t4\n", {header = false, delimiter = "\t", dtype = "i64"})
    assert.same({{1, 2}, {3, 4}}, t:matrix("c1", "c2"):totable())
    assert.equal("i64", t.c1.dtype)
    assert.same({"classes_1", "x", "x_3"}, read("classes,x,x\n1,2,3").columns)
    assert.same({1, 2, 1}, (read("k\n5\n7\n5"):classes "k"):totable())
    assert.same({5, 6}, read("a;b\n5;6", {delimiter = ";"}):matrix()[1]:totable())
  end)

  it("reports errors with their position", function()
    assert.same({nil, "line 3 has 1 fields, the first has 2"}, {read "a,b\n1,2\n3\n"})
    assert.same({nil, "line 2: a quote is not closed"}, {read 'a,b\n1,"2\n3\n'})
    assert.same({nil, "line 2: text behind a closing quote"}, {read 'a,b\n1,"2"x\n3\n'})
    assert.match("No such file", select(2, data.csv "/nowhere.csv"))
    local t = read "size,name\n1,x"
    for says, f in pairs{
      ["did you mean 'size'"] = function() t:matrix "siz" end,
      ["column 'name' has words"] = function() t:matrix "name" end,
      ["must be one character"] = function() read("a", {delimiter = ", "}) end,
      ["no column has only numbers"] = function() read("a\nx"):matrix() end,
    } do
      assert.match(says, select(2, pcall(f)), 1, true)
    end
  end)
end)

describe("data sets", function()
  it("Tensors gives rows, Windows gives sequences", function()
    local set = data.Tensors(flare.arange(1, 6), flare.arange(1, 6) * 10)
    local a, b = set:fetch(flare.tensor({5, 1}, {dtype = "i64"}))
    assert.same({5, 1}, a:tolist())
    assert.same({50, 10}, b:tolist())
    local windows = data.Windows(flare.arange(1, 8), 3)
    assert.equal(4, windows:size())
    local x, y = windows:fetch(flare.tensor({1, 4}, {dtype = "i64"}))
    assert.same({{1, 2, 3}, {4, 5, 6}}, x:tolist())
    assert.same({{2, 3, 4}, {5, 6, 7}}, y:tolist())
    assert.same({20, 40}, select(2, set:fetch{2, 4}):tolist())
    assert.has_error(function() data.Tensors(flare.ones(3), flare.ones(4)) end)
    assert.has_error(function() data.Windows(flare.arange(1, 4), 3) end)
  end)

  it("say what positions fetch takes", function()
    local set = data.Tensors(flare.arange(1, 6))
    for _, one in ipairs {set, data.Subset(set, {1, 2}), data.Concat(set, set),
                          data.Windows(flare.arange(1, 8), 3)} do
      refused(":fetch: a tensor or a list of positions is expected, got number; {2} is one "
              .. "position", one.fetch, one, 2)
      refused("positions must be integers in one dim, got f32 (2)", one.fetch, one, flare.ones(2))
      refused("is out of range 1..", one.fetch, one, {1, 99})
    end
  end)

  it("split at random, the same way for the same seed", function()
    local set = data.Tensors(flare.arange(1, 11))
    local a, b = data.split(set, {0.7, 0.3}, {seed = 5})
    assert.equal(7, #a)
    assert.equal(3, #b)
    local seen = {}
    for _, part in ipairs{a, b} do
      for x in data.Loader(part, {batch = 4}):epoch() do
        for _, v in ipairs(x:tolist()) do seen[v] = true end
      end
    end
    assert.equal(10, #seen)
    local again = data.split(set, {7, 3}, {seed = 5})
    assert.same(a.index:tolist(), again.index:tolist())
    assert.has_error(function() data.split(set, {8, 3}) end)
  end)
end)

describe("data.digits", function()
  it("draws the same digits for the same seed", function()
    local x, y = data.digits(40, {seed = 2})
    assert.same({40, 1, 28, 28}, {table.unpack(x.shape)})
    assert.is_true(y:amin():item() >= 1 and y:amax():item() <= 10)
    assert.is_true(x:amin():item() >= 0 and x:amax():item() <= 1)
    assert.is_true(x:mean():item() > 0.05 and x:mean():item() < 0.4)
    local again = data.digits(40, {seed = 2})
    assert.is_true(x:eq(again):all():item())
  end)
end)
