-- Files of PyTorch: what torch.save wrote comes back as tensors and tables, and nothing else does.
-- spec/support/files_data.py made the files.
local flare = require "flare"
local core, pt = flare.core, flare.io.pt
local Cursor = require "flare.io.cursor"
local pickle = require "flare.io.pickle"

local FOLDER = "spec/data/files/"

local function same(want, got)
  assert.equal(want.dtype, got.dtype)
  assert.same(want.shape, got.shape)
  assert.equal(want:contiguous():bytes(), got:contiguous():bytes())
end

local function check_tree(tree)
  local base = flare.arange(0, 24):float():view(4, 6)
  same(base, tree.base)
  same(base:t()[{{2, 3}}], tree.turned)
  same(base:narrow(1, 1, 1):expand(5, 6), tree.wide)
  same(flare.zeros(0, 3), tree.none)
  same(flare.tensor(3.25), tree.scalar)
  same(flare.tensor({1, -2, 3}, {dtype = "i64"}), tree.i64)
  same(flare.tensor({255}, {dtype = "u8"}), tree.u8)
  same(flare.tensor{1, 0, 1}:ne(0), tree.bool)
  same(flare.full({2, 2}, 1.5, {dtype = "bf16"}), tree.bf16)
  same(flare.tensor({0.5}, {dtype = "f16"}), tree.f16)
  assert.equal("c64", tree.c64.dtype)
  assert.same({{1, 2}}, flare.view_as_real(tree.c64):totable())
  same(flare.ones(2), tree.parameter)
  assert.equal(pt.None, tree.nothing)
  assert.same({0.5, 2 ^ 40 // 1 | 0, -7, "h\u{e9}", "five", true, "f16"},
              {tree.half, tree.big, tree.minus, tree.text, tree[5], tree.yes, tree.dtype})
  assert.same({1, "a", {2, 3}}, tree.list)
  assert.same({a = 1}, tree.ordered)
  assert.same({1, 2}, tree.size)
end

describe("flare.io.pt", function()
  it("reads both layouts, copied and mapped, and flare.load does", function()
    check_tree(assert(pt.load(FOLDER .. "tree.pt")))
    check_tree(assert(pt.load(FOLDER .. "tree.pt", {map = true})))
    check_tree(assert(pt.load(FOLDER .. "tree.old.pt")))
    check_tree(assert(flare.load(FOLDER .. "tree.pt")))
  end)

  it("keeps memory that tensors share", function()
    for _, o in ipairs{{map = false}, {map = true}} do
      local tree = assert(pt.load(FOLDER .. "tree.pt", o))
      tree.base[{1, 2}] = 77
      assert.equal(77, tree.turned[{1, 1}]:item())
      assert.equal(77, tree.wide[{5, 2}]:item())
    end
  end)

  it("refuses objects and functions by name, and runs nothing", function()
    for file, name in pairs{["code.pt"] = "posix.system", ["code.old.pt"] = "posix.system",
                            ["module.pt"] = "torch.nn.modules.linear.Linear"} do
      local value, message = pt.load(FOLDER .. file)
      assert.is_nil(value)
      assert.matches(file .. ".*the pickle names " .. name .. ", which could run code", message)
    end
  end)

  -- A pickle of these instructions, or the message about it.
  local function read(text)
    return Cursor.guard(pickle.read, Cursor("\x80\2" .. text, "x"))
  end

  it("refuses pickles that are damaged or want more than tensors", function()
    local tensor = "ctorch._utils\n_rebuild_tensor_v2\n((X\7\0\0\0storagectorch\nFloatStorage\n"
      .. "X\1\0\0\0000X\3\0\0\0cpuK\6tQ%stR."
    local function shape(...) return tensor:format((...)) end
    local good = assert(read(shape("K\1K\2K\2\x86K\2K\1\x86")))
    assert.same({2, 2}, good.shape)
    for pattern, text in pairs{
      ["reaches beyond its storage of 6 elements"] = shape "K\3K\2K\2\x86K\2K\1\x86",
      ["of 2 dims has 1 strides"] = shape "K\1K\2K\2\x86K\2\x85",
      ["the size of a tensor has %-1"] = shape "K\1J\xff\xff\xff\xffK\2\x86K\2K\1\x86",
      ["from 9 on reaches beyond"] = shape "K\9))",
      ["the pickle names builtins.eval"] = "cbuiltins\neval\n(X\1\0\0\0001tR.",
      ["the pickle names os.system"] = "X\2\0\0\0osX\6\0\0\0system\x93.",
      ["takes more than its stack has"] = "0.",
      ["has no mark"] = "t.",
      ["recalls 3, which it never kept"] = "h\3.",
      ["needs 1 bytes, the file has 0 more"] = "K",
      ["length of a string .* is 4294967295"] = "X\xff\xff\xff\xff.",
      ["instruction 0x69 of the pickle is not read"] = "i.",
      ["integer of 9 bytes"] = "\x8a\x09123456789.",
      ["a key of a dictionary is a tuple"] = "})K\1s.",
      ["a key without a value"] = "}(K\1u.",
      ["puts an element into what is none"] = "K\1K\2a.",
      ["calls what is no function"] = "K\1)R.",
      ["refers to something that is no storage"] = "K\1Q.",
      ["a tensor without a storage"] =
        "ctorch._utils\n_rebuild_tensor_v2\n(K\1K\0))tR.",
    } do
      local value, message = read(text)
      assert.is_nil(value, pattern)
      assert.matches(pattern, message)
    end
  end)

  it("says what another file is", function()
    assert.matches("not a file of PyTorch; the file is a GGUF model",
                   select(2, pt.load(FOLDER .. "tree.gguf")))
    assert.matches("No such file", select(2, pt.load "/no/such.pt"))
    assert.error_matches(function() flare.save("x.pt", {}) end, "are read, but not written")
    assert.error_matches(function() pt.load(3) end, "the path must be a string, got number")
    assert.truthy(core.file.exists(FOLDER .. "code.pt"))
  end)
end)
