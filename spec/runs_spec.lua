-- Checkpoints: what is saved can be read before anything older goes, and the runs that share a
-- folder leave each other's files alone.
local flare = require "flare"
local core, nn = flare.core, flare.nn
local file = core.file

local folder, model
before_each(function()
  folder = os.tmpname()
  os.remove(folder)
  model = nn.Linear(2, 2)
end)
after_each(function()
  file.fail(0, 0)
  os.execute("rm -rf '" .. folder .. "'")
end)

local function open(opts) return assert(flare.io.Checkpoint(folder, opts)) end
local function names() return table.concat(file.list(folder), " ") end
local function save(checkpoints, ...)
  for _, step in ipairs {...} do assert(checkpoints:save(step, {model = model}, {note = step})) end
end

describe("a checkpoint", function()
  it("with any state that can be saved can be loaded", function()
    local checkpoints, state = open(), {}
    local odd = {state_dict = function() return state end,
                 load_state_dict = function(_, s) state = s end}
    for step, value in ipairs {
      {f = flare.ones(3, {dtype = "c128"})}, {["a\0b"] = flare.ones(2)}, {s = ("\1"):rep(5000000)},
      {x = {["\xff"] = "\xff"}}, {["a.b"] = flare.ones(1), a = {b = flare.zeros(1)}},
    } do
      state = value
      assert(checkpoints:save(step, {odd = odd, model = model}))
      assert.equal(step, assert(checkpoints:load()).step)
      assert.is_true(#checkpoints:steps() <= 2)
    end
    local history = {}
    for step = 6, 10 do
      for k = 1, 100000 do history[#history + 1] = k / step end
      assert(checkpoints:save(step, {model = model}, {history = history}))
      assert.equal(#history, #assert(checkpoints:load()).history)
    end
  end)

  it("that cannot be written leaves the older ones alone", function()
    local checkpoints, state = open(), nil
    local odd = {state_dict = function() return state end, load_state_dict = print}
    save(checkpoints, 1, 2)
    for _, value in ipairs {{f = print}, {1, nil, 3}, {[0.5] = 1}} do
      state = value
      assert.is_false((pcall(checkpoints.save, checkpoints, 3, {odd = odd})))
      assert.equal("step-00000001.flare step-00000002.flare", names())
      assert.equal(2, checkpoints:load().step)
    end
  end)

  it("that cannot be read back leaves the older ones alone", function()
    local checkpoints = open()
    save(checkpoints, 1, 2)
    local seen = 0
    for n = 0, 40 do
      file.fail(n, 1, "EIO")
      local ok, message = checkpoints:save(3, {model = model})
      local asked = file.fail(0, 0)
      if ok then -- the fault was in the removal of an older one, or there was none
        save(checkpoints, 4)
        assert.same({3, 4}, checkpoints:steps())
        break
      end
      seen = seen + 1
      assert.match("Input/output error", message)
      assert.is_truthy(names():find("step-00000001.flare step-00000002.flare", 1, true), names())
      if asked <= n then break end
    end
    assert.is_true(seen > 8, seen)
  end)

  it("that comes out damaged is noticed", function()
    local checkpoints = open()
    save(checkpoints, 1, 2)
    local write = file.write_atomic
    finally(function() file.write_atomic = write end)
    file.write_atomic = function(path, head, data)
      return write(path, head, data[1]:clone():fill_(9), table.unpack(data, 2))
    end
    local ok, message = checkpoints:save(3, {model = model})
    file.write_atomic = write
    assert.is_nil(ok)
    assert.match("step%-00000003.flare: the checksum does not match", message)
    assert.is_truthy(names():find("step-00000001.flare step-00000002.flare", 1, true))
    local saved = checkpoints:load()
    assert.equal(2, saved.step)
    assert.match("step%-00000003", saved.skipped[1])
  end)

  it("refuses values that load would hide", function()
    local checkpoints = open()
    for _, extra in ipairs {{parts = 1}, {skipped = {}}, {step = 9}} do
      assert.error_matches(function() checkpoints:save(1, {}, extra) end, "another name is needed")
    end
    assert(checkpoints:save(1, {}, {step = 1}))
  end)
end)

describe("runs in one folder", function()
  it("that start again have files of their own", function()
    save(open(), 10, 20)
    local second = open{keep = 2}
    assert.same({10, 20}, second:steps())
    save(second, 1, 2, 3)
    assert.same({2, 3}, second:steps())
    assert.equal(3, second:load().step)
    assert.equal("step-00000002.run-2.flare step-00000003.run-2.flare step-00000010.flare "
      .. "step-00000020.flare", names())
    assert.match("/step%-00000003.run%-2.flare$", second:path(3))
    local third = open()
    assert.equal(3, third:load().step) -- of the newest run
    save(third, 4)
    assert.equal("step-00000003.run-2.flare step-00000004.run-2.flare step-00000010.flare "
      .. "step-00000020.flare", names())
    assert.equal("Checkpoint: " .. folder .. ", steps {3, 4}, keeps 2", tostring(third))
  end)

  it("with the same step do not write over each other", function()
    save(open(), 5)
    local other = open()
    assert(other:save(5, {model = model}, {note = "other"}))
    assert.equal("other", other:load().note)
    assert.equal(5, open{run = 1}:load().note)
    assert.equal("other", open():load().note)
  end)

  it("are loaded by a whole number, not by the parts", function()
    save(open(), 5)
    for _, step in ipairs{{model = model}, "5", 5.5} do
      assert.error_matches(function() open():load(step) end,
        "Checkpoint:load: the step must be a whole number, or nil for the newest, got .*restore")
    end
    assert.equal(5, open():load(5).step)
  end)

  it("that were loaded go on, and delete what they go on from", function()
    save(open(), 1, 2)
    for step = 3, 6 do
      local checkpoints = open()
      assert.equal(step - 1, checkpoints:load().step)
      save(checkpoints, step)
      assert.same({step - 1, step}, open():steps())
    end
    assert.equal("step-00000005.flare step-00000006.flare", names())
  end)

  it("that go back to an earlier step keep what came later", function()
    save(open{keep = 3}, 10, 20, 30)
    local checkpoints = open{keep = 2}
    assert.equal(10, checkpoints:load(10).step)
    save(checkpoints, 11, 12)
    assert.equal(12, checkpoints:load().step)
    assert.equal(12, open():load().step)
    assert.equal("step-00000011.run-2.flare step-00000012.run-2.flare step-00000020.flare "
      .. "step-00000030.flare", names())
    -- in one program, too
    checkpoints:load(11)
    save(checkpoints, 12)
    assert.equal(12, checkpoints:load().note)
    save(checkpoints, 3)
    assert.equal(3, checkpoints:load().step)
    assert.is_truthy(names():find("step-00000020.flare step-00000030.flare", 1, true))
  end)

  it("can be chosen", function()
    save(open(), 1, 2)
    save(open(), 7)
    local first = open{run = 1}
    assert.same({1, 2}, first:steps())
    assert.equal(2, first:load().step)
    save(first, 3)
    assert.same({2, 3}, first:steps())
    assert.equal(7, open():load().step)
    local none, message = flare.io.Checkpoint(folder, {run = 5})
    assert.is_nil(none)
    assert.match("there is no run 5", message)
  end)

  it("go on past a damaged file", function()
    save(open(), 1, 2)
    assert(file.write_atomic(folder .. "/step-00000002.flare", "x"))
    local checkpoints = open()
    assert.equal(1, checkpoints:load().step)
    save(checkpoints, 2)
    assert.same({1, 2}, checkpoints:steps())
    assert.equal("step-00000001.flare step-00000002.flare", names())
    save(checkpoints, 3)
    assert.equal("step-00000002.flare step-00000003.flare", names())
  end)

  it("are seen by programs that only load", function()
    local trainer, server = open{keep = 1}, open()
    for step = 1, 3 do
      save(trainer, step)
      assert.equal(step, server:load().step)
    end
    local again = open()
    save(again, 1)
    assert.equal(1, server:load().step)
    assert.equal(3, trainer:load().step)
  end)

  it("lose unfinished files of killed saves", function()
    save(open(), 1)
    for _, name in ipairs {"step-00000003.run-2.flare", "step-00000003.flare"} do
      assert(file.write_atomic(folder .. "/" .. name .. ".tmp-999999999-0", "half"))
    end
    open()
    assert.equal("step-00000001.flare", names())
  end)
end)
