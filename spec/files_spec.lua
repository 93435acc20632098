-- Files and file systems that are wrong, through every reader and writer of the library:
-- the path and the reason come back, nothing blocks, and what was there before stays.
local flare = require "flare"
local tree = require "spec.support.tree"
local core, nn, data = flare.core, flare.nn, flare.data
local file = core.file

local folder
before_each(function()
  folder = os.tmpname()
  os.remove(folder)
  assert(file.mkdir(folder))
end)
after_each(function()
  file.fail(0, 0)
  os.execute("rm -rf '" .. folder .. "'")
end)

local function put(name, text)
  local path = folder .. "/" .. name
  local out = assert(io.open(path, "wb"))
  out:write(text)
  out:close()
  return path
end

local function get(path)
  local text = assert(file.read(path))
  return text
end

local function refused(message, none, said)
  assert.is_nil(none)
  assert.is_truthy(said:find(message, 1, true), said)
end

local readers = {
  ["data.idx"] = data.idx.read, ["data.text"] = data.text.load,
  npy = flare.io.npy.load, npz = flare.io.npz.load,
  safetensors = flare.io.safetensors.load, ["flare.load"] = flare.load,
  ["mapped safetensors"] = function(path)
    return flare.io.safetensors.load(path, {map = true})
  end,
}

for name, read in pairs(readers) do
  describe(name, function()
    it("says what a path is that is no file", function()
      local none = folder .. "/none"
      refused(none .. ": No such file or directory", read(none))
      refused(folder .. ": is a directory", read(folder))
      refused("/dev/zero: is a device", read("/dev/zero"))
      local special = folder .. "/special"
      os.execute("mkfifo " .. special)
      refused(special .. ": is a FIFO", read(special))
      os.remove(special)
      os.execute("ln -s special " .. special)
      refused("Too many levels of symbolic links", read(special))
      refused("Not a directory", read(put("plain", "x") .. "/x"))
      refused("File name too long", read(folder .. "/" .. ("x"):rep(300)))
    end)

    it("says what the system says while it reads", function()
      local path = put("file", ("x"):rep(100))
      for _, wrong in ipairs{{"EIO", "Input/output error"}, {"EACCES", "Permission denied"},
                             {"EMFILE", "Too many open files"}} do
        for n = 0, 1 do
          file.fail(n, 1, wrong[1])
          refused(path .. ": " .. wrong[2], read(path))
        end
      end
    end)

    it("takes no noise", function()
      math.randomseed(7)
      for n = 0, 200 do
        local bytes = {}
        for k = 1, n do bytes[k] = string.char(math.random(0, 255)) end
        local ok, value, message = pcall(read, put("noise", table.concat(bytes)))
        assert.is_true(ok, value)
        if name ~= "data.text" then assert.is_truthy(value == nil and message:find "noise") end
      end
      refused("noise", read(put("noise", "")))
    end)
  end)
end

describe("idx files", function()
  local header = "\0\0\x0d\1"

  it("with 2^31 items, or 2^32 - 1 in each dim, ask for no memory", function()
    refused("needs 8589934592 bytes, the file has 4",
            data.idx.read(put("x", header .. "\x80\0\0\0" .. "1234")))
    refused("overflows", data.idx.read(put("x", "\0\0\8\4" .. ("\xff"):rep(16))))
  end)

  it("that are packed badly are named", function()
    local plain = put("x", "\0\0\8\1" .. string.pack(">I4", 1000) .. ("\7"):rep(1000))
    os.execute(("gzip -nc '%s' > '%s.gz'"):format(plain, plain)) -- ten bytes, then data
    local good = get(plain .. ".gz")
    assert.equal(1000, #assert(data.idx.read(plain .. ".gz")))
    for n = 3, #good - 1 do
      local x, message = data.idx.read(put("cut.gz", good:sub(1, n)))
      assert.is_nil(x, n)
      assert.match("cut.gz", message)
    end
    for n = 11, #good do
      local flipped = good:sub(1, n - 1) .. string.char(good:byte(n) ~ 0x10) .. good:sub(n + 1)
      local x, message = data.idx.read(put("flip.gz", flipped))
      if x then -- bits that pad the last block
        assert.is_true(x:eq(7):all():item(), n)
      else
        assert.match("flip.gz", message)
      end
    end
  end)
end)

describe("texts", function()
  it("that the vocabulary does not cover are named", function()
    local path = put("t", "help")
    refused(path, data.text.load(path, data.Vocabulary "hel"))
    refused('"p" at 4', data.text.load(path, data.Vocabulary "hel"))
  end)

  it("need not be UTF-8", function()
    local tokens, vocabulary = data.text.load(put("t", "a\xffb\xfe"))
    assert.equal(4, #tokens)
    assert.equal("a\xffb\xfe", vocabulary:decode(tokens))
  end)
end)

describe("saving", function()
  it("keeps the old file when the disk is full, at whatever point it fails", function()
    local path = folder .. "/model"
    assert(flare.save(path, {w = flare.zeros(1000)}))
    local before = get(path)
    local failures = 0
    for _, wrong in ipairs{{"ENOSPC", "No space left on device"}, {"EIO", "Input/output error"},
                           {"EDQUOT", "Disk quota exceeded"}, {"EROFS", "Read-only file system"}} do
      for n = 0, 50 do
        file.fail(n, 1, wrong[1])
        local ok, message = flare.save(path, {w = flare.ones(1000)})
        local asked = file.fail(0, 0)
        if not ok then
          failures = failures + 1
          assert.is_truthy(message:find(path .. ": " .. wrong[2] .. ", wrote ", 1, true), message)
          assert.is_truthy(message:find("of %d+ bytes") or message:find("all %d+ bytes"), message)
          local now = get(path)
          if message:find("what was there before is kept", 1, true) then
            assert.equal(before, now)
          else
            assert.is_truthy(flare.load(path)) -- the new one, whole
            assert(file.write_atomic(path, before))
          end
        else
          assert(file.write_atomic(path, before))
        end
        assert.same({"model"}, file.list(folder))
        if ok and asked <= n then break end
      end
    end
    assert.is_true(failures >= 20, failures)
  end)

  it("makes a file durable before it takes its name, and then the name", function()
    local path = folder .. "/durable"
    -- open, write, sync, close and rename; then open and sync the folder
    for n = 0, 6 do
      file.fail(n, 1)
      assert.is_nil(file.write_atomic(path, "abc"))
      file.fail(0, 0)
      assert.equal(n >= 5 and "file" or nil, file.exists(path))
      os.remove(path)
    end
    file.fail(7, 1)
    assert(file.write_atomic(path, "abc"))
    file.fail(0, 0)
    os.remove(path)
  end)

  it("of a checkpoint that fails keeps the ones before", function()
    local checkpoints = assert(flare.io.Checkpoint(folder))
    local model = nn.Linear(8, 8)
    assert(checkpoints:save(1, {model = model}))
    assert(checkpoints:save(2, {model = model}))
    for n = 0, 4 do
      file.fail(n, 1, "ENOSPC")
      refused("No space left on device", checkpoints:save(3, {model = model}))
      file.fail(0, 0)
      assert.same({1, 2}, checkpoints:steps())
      assert.equal(2, assert(checkpoints:load()).step)
    end
    assert(checkpoints:save(3, {model = model}))
    assert.same({2, 3}, checkpoints:steps())
  end)

  it("stops at the limit that the system sets, with the figures", function()
    local program = os.getenv "FLARE_PROGRAM" or tree.build .. "/flare"
    local script = put("s.lua", [[
local flare = require "flare"
assert(flare.save("small", {w = flare.ones(1000)}))
print(flare.save("small", {w = flare.ones(1000000)}))
print(flare.load("small").w:sum():item(), #flare.core.file.list ".")]])
    local text = tree.output(("cd '%s' && trap '' XFSZ && ulimit -f 500 && '%s' %s 2>&1"):format(
      folder, program:sub(1, 1) == "/" and program or tree.output "pwd":match "[^\n]+" .. "/"
      .. program, script))
    assert.match("small: File too large, wrote %d+ of 40%d+ bytes; what was there before is kept",
                 text)
    assert.match("\n1000.0\t2\n", text)
  end)
end)

describe("checkpoints", function()
  local checkpoints, model
  before_each(function()
    checkpoints, model = assert(flare.io.Checkpoint(folder)), nn.Linear(4, 4)
    for step = 1, 2 do assert(checkpoints:save(step, {model = model})) end
  end)

  local function skipped(message)
    local saved = assert(checkpoints:load())
    assert.equal(1, saved.step)
    assert.is_truthy(saved.skipped[1]:find(message, 1, true), saved.skipped[1])
    assert.is_truthy(saved.skipped[1]:find("step-00000002.flare", 1, true))
    local none, said = checkpoints:load(2)
    refused("other steps here: 1", none, said)
  end

  it("with a byte flipped anywhere are passed over", function()
    local good = get(checkpoints:path(2))
    for n = 1, #good, 7 do
      put("step-00000002.flare", good:sub(1, n - 1) .. string.char(good:byte(n) ~ 1)
          .. good:sub(n + 1))
      local saved = checkpoints:load()
      if saved.step == 2 then -- a space between header and data
        assert.equal(" ", good:sub(n, n))
      else
        assert.equal(1, saved.step)
      end
    end
  end)

  it("that were cut off are passed over", function()
    put("step-00000002.flare", get(checkpoints:path(2)):sub(1, -2))
    skipped "past the end"
    put("step-00000002.flare", "")
    skipped "header too small (0 bytes, need 8)"
  end)

  it("of another step under this name are passed over", function()
    put("step-00000002.flare", get(checkpoints:path(1)))
    skipped "not a checkpoint of step 2"
  end)

  it("of a newer format say so", function()
    local safetensors = flare.io.safetensors
    local tensors, metadata = safetensors.load(checkpoints:path(2))
    metadata.version = "99"
    assert(safetensors.save(checkpoints:path(2), tensors, metadata))
    skipped "format version 99, this flare reads"
  end)

  it("that are folders or dangling links are passed over", function()
    os.remove(checkpoints:path(2))
    os.execute("ln -s nowhere " .. checkpoints:path(2))
    skipped "No such file or directory"
    os.remove(checkpoints:path(2))
    assert(file.mkdir(checkpoints:path(2)))
    skipped "is a directory"
  end)

  it("leave the model alone when they do not fit", function()
    local other = nn.Linear(4, 5)
    local before = other.weight:clone()
    local saved = assert(checkpoints:load())
    assert.has_error(function() checkpoints:restore(saved, {model = other}) end)
    assert.is_true(before:eq(other.weight):all():item())
  end)

  it("remove temporary files of killed saves, and no others", function()
    put("step-00000003.flare.tmp-999999999-0", "half")
    local mine = file.exists "/proc/self" and io.open("/proc/self/stat"):read "n"
    local other = ("step-00000003.flare.tmp-%d-0"):format(mine or 1)
    put(other, "half")
    put("notes.txt", "mine")
    assert(flare.io.Checkpoint(folder))
    assert.same({"notes.txt", "step-00000001.flare", "step-00000002.flare", other},
                file.list(folder))
  end)
end)
