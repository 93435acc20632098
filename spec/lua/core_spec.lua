-- What flare.core says about devices, memory, launches and being stopped.
local core = require "flare".core
local tree = require "spec.support.tree"

describe("devices", function()
  it("are listed by name, the CPU first", function()
    local names = core.devices()
    assert.equal("cpu", names[1])
    local known = {}
    for _, name in ipairs(names) do known[name] = true end
    assert.is_true(known["sim:0"] and known["sim:1"])
  end)

  it("are waited for", function()
    local x = core.ones(3, {device = "sim:0"})
    local y = x + 1
    core.synchronize "sim:0"
    core.synchronize()
    assert.same({2, 2, 2}, y:totable())
    assert.error_matches(function() core.synchronize "sim:99" end, "sim:99")
    assert.error_matches(function() core.synchronize(3) end,
                         "device: expected a name such as \"cpu\", got an integer")
  end)

  it("come from shared objects, or it is said why not", function()
    local program = ([[
      local core = require "flare".core
      assert(core.load_backend "%s/spec/backend_fourth_module.so")
      local names = table.concat(core.devices(), " ")
      local name = names:match "fourth:0"
      print(name, (core.ones(2, {device = name}) + 1):totable()[2])
    ]]):format(tree.build)
    assert.equal("fourth:0\t2.0\n", tree.output(("'%s/flare' -e '%s' 2>&1"):format(tree.build,
      program)))
    local done, message = core.load_backend "/no/such/backend.so"
    assert.is_nil(done)
    assert.match("/no/such/backend.so", message)
    local path = os.tmpname()
    local file = assert(io.open(path, "w"))
    file:write "not a shared object"
    file:close()
    done, message = core.load_backend(path)
    os.remove(path)
    assert.is_nil(done)
    assert.match(path, message, 1, true)
  end)
end)

describe("the last launches", function()
  it("are listed with line and shapes, the latest first", function()
    local x = core.ones(2, 3)
    local y = x:tanh()
    local _ = y + x
    local lines = {}
    for line in core.launches(2):gmatch "[^\n]+" do lines[#lines + 1] = line end
    assert.equal(2, #lines)
    assert.match("^#%d+ add .*core_spec.lua:%d+ %(2, 3%)", lines[1])
    assert.match("^#%d+ tanh .*core_spec.lua:%d+ %(2, 3%)", lines[2])
    assert.equal("", core.launches(0))
    assert.is_true(select(2, core.launches(100000):gsub("\n", "")) <= 256)
  end)

  it("fit with large shapes of many dims, too", function()
    local n = 1 << 28
    local x = core.zeros(0, n, n // 2, 16, 1, 1)
    for _ = 1, 300 do x:add(x) end
    local text = core.launches(256)
    assert.match("%(0, 268435456, 134217728, 16%)%.%.%.", text)
    assert.equal(256, select(2, text:gsub("\n", "")))
  end)
end)

describe("memory's limits", function()
  it("are checked, and shown", function()
    assert.error_matches(function() core.memory.limit(-1) end, "bytes: cannot be negative")
    local limit = core.memory.stats().limit
    core.memory.limit(1 << 40)
    assert.equal(1 << 40, core.memory.stats().limit)
    core.memory.limit(limit)
    core.memory.limit(1 << 20, "sim:1")
    assert.has_error(function() core.zeros(1 << 20, {device = "sim:1"}) end)
    core.memory.limit(0, "sim:1")
    assert.equal(1 << 20, core.zeros(1 << 20, {device = "sim:1"}):numel())
  end)
end)

describe("a request to stop", function()
  after_each(function() core.interrupt(false) end)

  it("is seen, stops the next operator, and is taken back", function()
    assert.is_false(core.interrupted())
    core.interrupt()
    assert.is_true(core.interrupted())
    assert.error_matches(function() return core.ones(600, 600):matmul(core.ones(600, 600)) end,
                         "interrupted")
    core.interrupt(false)
    assert.is_false(core.interrupted())
    assert.equal(600, core.ones(600, 600):matmul(core.ones(600, 600))[{1, 1}]:item())
  end)
end)

it("threads are as many as cores that the process may use", function()
  local command = "%s '" .. tree.build .. "/flare' -e 'print(require([[flare]]).core.threads())'"
  assert.equal(tree.output "nproc", tree.output(command:format ""))
  assert.equal("1\n", tree.output(command:format "taskset -c 0"))
  local said = tree.output("'" .. tree.build .. "/flare' doctor")
  assert.match("threads  " .. tree.output "nproc", said)
end)

it("a file is no terminal", function()
  local command = "'%s/flare' -e 'print(require([[flare]]).core.is_terminal(1))'"
  assert.equal("false\n", tree.output(command:format(tree.build)))
end)
