-- Files of Torch7 in its binary mode, written here byte by byte as its File.lua does. The Python
-- package torchfile reads the same from spec/data/files/tree.t7.
local flare = require "flare"
local t7 = flare.io.t7

local path
before_each(function() path = os.tmpname() end)
after_each(function() os.remove(path) end)

local function i4(n) return string.pack("<i4", n) end
local function text(s) return i4(#s) .. s end
local function string_of(s) return i4(2) .. text(s) end
local function number(x) return i4(1) .. string.pack("<d", x) end
local function object(index, class) return i4(4) .. i4(index) .. text "V 1" .. text(class) end
local function longs(...) return string.pack(("<i8"):rep(select("#", ...)), ...) end

local function tensor(index, shape, stride, offset)
  return object(index, "torch.FloatTensor") .. i4(#shape) .. longs(table.unpack(shape))
    .. longs(table.unpack(stride)) .. longs(offset)
end

local storage = object(3, "torch.FloatStorage") .. longs(6)
  .. string.pack("<ffffff", 1, 2, 3, 4, 5, 6)

local function tree(of)
  return i4(3) .. i4(1) .. i4(3) .. string_of "w" .. of .. number(1) .. i4(5) .. i4(1)
    .. string_of "n" .. object(4, "nn.Linear") .. i4(3) .. i4(5) .. i4(1) .. string_of "weight"
    .. i4(4) .. i4(2)
end

local function load(bytes)
  local file = assert(io.open(path, "wb"))
  file:write(bytes)
  file:close()
  return t7.load(path)
end

describe("flare.io.t7", function()
  it("reads tables, numbers, tensors and objects, each of which is there once", function()
    for _, value in ipairs{assert(load(tree(tensor(2, {2, 3}, {3, 1}, 1) .. storage))),
                           assert(flare.load "spec/data/files/tree.t7")} do
      assert.same({{1, 2, 3}, {4, 5, 6}}, value.w:totable())
      assert.is_true(value[1])
      assert.equal("nn.Linear", value.n.torch_class)
      assert.equal(value.w, value.n.weight)
    end
    local turned = assert(load(tree(tensor(2, {3, 1}, {1, 9}, 4) .. storage)))
    assert.same({{4}, {5}, {6}}, turned.w:totable())
  end)

  it("refuses functions, and files that are damaged", function()
    local function refused(pattern, bytes)
      local value, message = load(bytes)
      assert.is_nil(value)
      assert.matches(pattern, message)
    end
    refused("a function at byte 4, which could run code", i4(8) .. i4(1) .. text "code")
    refused("reaches beyond its storage of 6 elements",
            tree(tensor(2, {3, 3}, {3, 1}, 1) .. storage))
    refused("begins outside of its storage", tree(tensor(2, {2}, {1}, 7) .. storage))
    refused("negative size or stride", tree(tensor(2, {2}, {-1}, 3) .. storage))
    refused("torch.QuintTensor is not read", object(1, "torch.QuintTensor"))
    refused("the length of a string at byte 8 is 99", i4(2) .. i4(99) .. "x")
    refused("the size of a table .* is 1000000", i4(3) .. i4(1) .. i4(1000000))
    local deep = {}
    for k = 1, 1200 do deep[k] = i4(3) .. i4(k) .. i4(1) .. number(1) end
    refused("nested more than 1000 deep", table.concat(deep))
    refused("not a file of Torch7; the file is a PyTorch file",
            flare.core.file.read "spec/data/files/tree.pt")
  end)
end)
