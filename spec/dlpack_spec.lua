-- Memory shared with other libraries: capsules in Lua, and NumPy and PyTorch in a process with
-- libflare (spec/support/dlpack.py). The C side is proven by spec/c/dlpack.c.
local flare = require "flare"
local tree = require "spec.support.tree"
local core = flare.core

describe("to_dlpack and from_dlpack", function()
  it("share memory, strides and dtype", function()
    for _, dtype in ipairs{"f64", "f32", "f16", "bf16", "i64", "i32", "i16", "i8", "u8", "bool"} do
      for _, versioned in ipairs{true, false} do
        local x = flare.arange(0, 12):view(3, 4):to(dtype)
        local part = x:transpose(1, 2):narrow(1, 2, 3)
        local y = flare.from_dlpack(part:to_dlpack{versioned = versioned})
        assert.equal(dtype, y.dtype)
        assert.same(part:totable(), y:totable())
        assert.same({part:stride(1), part:stride(2)}, {y:stride(1), y:stride(2)})
        y:zero_()
        assert.same(part:totable(), y:totable())
        assert.is_false(y.requires_grad)
      end
    end
  end)

  it("pass light userdata to and from other modules", function()
    local pointer = flare.ones(3):to_dlpack():take()
    assert.equal("userdata", type(pointer))
    assert.same({1, 1, 1}, flare.from_dlpack(pointer):totable())
    pointer = flare.ones(2):to_dlpack{versioned = false}:take()
    assert.same({1, 1}, flare.from_dlpack(pointer, {versioned = false}):totable())
  end)

  it("keep the memory as long as there is a reference", function()
    core.collect()
    local before = core.memory.stats().live
    do
      local capsule = flare.zeros(1000):to_dlpack()
      core.collect()
      assert.is_true(core.memory.stats().live >= before + 4000)
      capsule:close()
      capsule:close()
      local y = flare.from_dlpack(flare.full({1000}, 7):to_dlpack())
      core.collect()
      assert.equal(7000, y:sum():item())
      flare.ones(1000):to_dlpack() -- forgotten
    end
    core.collect()
    assert.equal(before, core.memory.stats().live)
  end)

  it("refuse what cannot be shared", function()
    local capsule = flare.ones(2):to_dlpack()
    assert.equal("flare.dlpack (versioned)", tostring(capsule))
    flare.from_dlpack(capsule)
    assert.equal("flare.dlpack (taken)", tostring(capsule))
    assert.has_error(function() flare.from_dlpack(capsule) end,
                     "from_dlpack: the tensor has been taken already")
    assert.has_error(function() capsule:take() end,
                     "take: the tensor has been taken already")
    assert.has_error(function() flare.from_dlpack {1, 2} end,
      "from_dlpack: expected what x:to_dlpack() gives or a light userdata, got table")
    local w = flare.ones(2):requires_grad_(true)
    assert.has_error(function() w:to_dlpack() end)
    assert.has_error(function() (w * 2):to_dlpack() end,
      "dlpack: the tensor takes part in gradients, which end here: detach() it first")
    assert.has_error(function() flare.ones(2):to_dlpack{versions = 1} end)
  end)

  it("hand streams over", function()
    local x = flare.ones(3):to "sim:0"
    local s = flare.stream "sim:0"
    assert.is_true(s == flare.stream("sim:0", s:handle()))
    local y = flare.from_dlpack(x:to_dlpack{stream = s:handle()})
    s:run(function() y:add_(1) end)
    local z = flare.from_dlpack(y:to_dlpack(), {stream = s:handle()})
    assert.same({2, 2, 2}, z:totable())
    assert.has_error(function() flare.stream("sim:0", 99) end,
                     "sim:0 takes no streams of others")
    assert.has_error(function() flare.stream("cpu", 1) end)
  end)
end)

describe("one process with libflare and", function()
  local python = os.getenv "PYTHON" or "python3"
  local library = (os.getenv "FLARE_BUILD" or "build") .. "/libflare.so"
  local said

  for name, proof in pairs{numpy = "numpy: zero%-copy both ways",
                           torch = "torch: zero%-copy both ways on cpu"} do
    it(name .. " shares memory", function()
      if not core.file.exists(library) then return pending(library .. " is not built") end
      if tree.instrumented() then return pending "a sanitizer's library must come first" end
      if not os.execute(("command -v %s >/dev/null 2>&1"):format(python)) then
        return pending(python .. " is not here (PYTHON names another)")
      end
      if not said then
        local pipe = io.popen(("%s spec/support/dlpack.py %s 2>&1"):format(python, library))
        said = pipe:read "a"
        pipe:close()
      end
      assert(said:find "done\n$", said)
      local missing = said:match("skipped: [^\n]*" .. name .. "[^\n]*")
      if missing then return pending(missing .. " (PYTHON names another python)") end
      assert(said:find(proof), said)
    end)
  end
end)
