-- Readers of published sets of images: their layouts, written here by hand, and what is refused.
local flare = require "flare"
local core, data = flare.core, flare.data
local refused = require("spec.support.expect").refused

local folder

local function write(name, bytes) assert(core.file.write_atomic(folder .. "/" .. name, bytes)) end

describe("readers of images", function()
  before_each(function()
    folder = os.tmpname()
    os.remove(folder)
    assert(core.file.mkdir(folder))
  end)
  after_each(function() os.execute("rm -rf '" .. folder .. "'") end)

  it("read records of CIFAR-10, planes of red, green, blue", function()
    local function record(label, r, g, b)
      return string.char(label) .. r:rep(1024) .. g:rep(1024) .. b:rep(1023) .. "\9"
    end
    write("a", record(9, "\1", "\2", "\255") .. record(0, "\4", "\5", "\6"))
    write("b", record(3, "\7", "\7", "\7"))
    local x, y = assert(data.cifar.read{folder .. "/a", folder .. "/b"})
    assert.equal("u8(3, 3, 32, 32)", x.dtype .. tostring(x.shape))
    assert.same({10, 1, 4}, y:totable())
    assert.same({1, 2, 255}, x[{1, {}, 1, 1}]:totable())
    assert.equal(9, x[{1, 3, 32, 32}]:item())
    assert.same({4, 5, 6}, x[{2, {}, 32, 1}]:totable())
  end)

  it("read both labels of CIFAR-100", function()
    write("c", "\19\99" .. ("\3"):rep(3072))
    local x, fine, coarse = assert(data.cifar.read(folder .. "/c", {classes = 100}))
    assert.same({1, 3, 32, 32}, {table.unpack(x.shape)})
    assert.same({{100}, {20}}, {fine:totable(), coarse:totable()})
  end)

  it("refuse other files", function()
    write("short", ("\1"):rep(3072))
    write("label", "\10" .. ("\1"):rep(3072))
    assert.match("short: not a file of CIFAR%-10: 3072 bytes are no multiple",
                 select(2, data.cifar.read(folder .. "/short")))
    assert.match("a label is 10", select(2, data.cifar.read(folder .. "/label")))
    assert.match("/none: ", select(2, data.cifar.read(folder .. "/none")))
    refused("classes must be 10 or 100, got 20", data.cifar.read, "x", {classes = 20})
    refused("a path or a list of paths", data.cifar.read, {})
  end)

  -- three classes, of images whose samples are all the number of the file
  local function make_folders()
    for k, path in ipairs {"cat/2.png", "ant/b.jpg", "ant/deep/a.PNG", "bee/9.jpeg", "ant/z.png"} do
      local name = path:match "^(.*)/"
      if not core.file.exists(folder .. "/" .. name) then
        assert(core.file.mkdir(folder .. "/" .. name))
      end
      local h = k == 3 and 4 or 6
      local x = core.full({1, h, 8}, 10 * k, {dtype = "u8"})
      write(path, assert(data.images.encode(x, path:lower():find "png" and "png" or "jpeg")))
    end
    write("ant/notes.txt", "none")
    write("cat/.hidden.png", "none")
    write("readme.png", "none")
  end

  it("find images in folders, a class each", function()
    make_folders()
    local set = assert(data.image_folder.open(folder, {transform = data.transforms.Resize(5)}))
    assert.same({"ant", "bee", "cat"}, set.classes)
    assert.equal("ImageFolder: 5 images of 3 classes", tostring(set))
    local short = {}
    for i, path in ipairs(set.paths) do short[i] = path:sub(#folder + 2) end
    assert.same({"ant/b.jpg", "ant/deep/a.PNG", "ant/z.png", "bee/9.jpeg", "cat/2.png"}, short)
    for _, workers in ipairs {0, 2} do
      local loader <close> = data.Loader(set, {batch = 5, workers = workers})
      local x, y = loader:epoch()()
      assert.equal("f32(5, 3, 5, 5)", x.dtype .. tostring(x.shape))
      assert.same({1, 1, 1, 2, 3}, y:totable())
      local means = (x:mean{dims = {2, 3, 4}} * 25.5):round():totable()
      assert.same({2, 3, 5, 4, 1}, means)
    end
  end)

  it("name the file that cannot be read", function()
    make_folders()
    write("bee/9.jpeg", "\xff\xd8\xff\xe0")
    local set = assert(data.image_folder.open(folder))
    refused("bee/9.jpeg: not a good JPEG image", set.get, set, 4)
    assert.match("there is no folder with", select(2, data.image_folder.open(folder .. "/cat")))
    assert.match("/none: ", select(2, data.image_folder.open(folder .. "/none")))
    refused("transform must be an object of data.transforms", data.image_folder.open, folder,
            {transform = print})
  end)
end)
