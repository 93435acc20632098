local core = require "flare.core"

local function values(x) return x:totable() end

describe("channels", function()
  it("carry numbers, strings, booleans, tables and tensors", function()
    local ch = core.channel(8)
    local sent = {1, 2.5, "a\0b", true, {x = {1, 2}, [3] = false}}
    for _, v in ipairs(sent) do assert.is_true(ch:push(v)) end
    assert.equal(5, #ch)
    for _, v in ipairs(sent) do assert.same(v, ch:pop()) end
    ch:push{name = "batch", x = core.tensor{{1, 2}, {3, 4}}, i = core.tensor({1}, {dtype = "u8"})}
    local b = ch:pop()
    assert.same({{1, 2}, {3, 4}}, values(b.x))
    assert.equal("u8", b.i.dtype)
    ch:push(core.zeros(0, 3))
    assert.equal("(0, 3)", tostring(ch:pop().shape))
    ch:push(core.tensor{{1, 2}, {3, 4}}:t())
    assert.same({{1, 3}, {2, 4}}, values(ch:pop()))
    ch:push(core.ones(2):to("sim:0"))
    assert.equal("cpu", ch:pop().device)
  end)

  it("are bounded, with time limits", function()
    local ch = core.channel(1)
    assert.is_true(ch:push(1))
    assert.same({nil, "timeout"}, {ch:push(2, 0.01)})
    assert.equal(1, ch:pop())
    assert.same({nil, "timeout"}, {ch:pop(0.01)})
  end)

  it("close", function()
    local ch = core.channel(4)
    ch:push("left")
    assert.is_false(ch:closed())
    ch:close()
    ch:close()
    assert.is_true(ch:closed())
    assert.same({nil, "closed"}, {ch:push(1)})
    assert.equal("left", ch:pop())
    assert.same({nil, "closed"}, {ch:pop()})
  end)

  it("carry channels, even themselves", function()
    local a, b = core.channel(2), core.channel(2)
    a:push{reply = b}
    local got = a:pop().reply
    assert.is_true(got == b)
    got:push(5)
    assert.equal(5, b:pop())
  end)

  it("copy tensors, but not those in shared memory", function()
    local ch = core.channel(2)
    local x = core.ones(3)
    ch:push(x)
    x[1] = 5
    local y = ch:pop()
    assert.same({1, 1, 1}, values(y))
    local s = core.shared(3, {dtype = "f64"})
    assert.same({0, 0, 0}, values(s))
    ch:push(s)
    s[1] = 7
    local r = ch:pop()
    assert.same({7, 0, 0}, values(r))
    ch:push(r)
    r[2] = 8
    assert.same({7, 8, 0}, values(ch:pop()))
    s:close()
    assert.same({7, 8, 0}, values(r))
  end)

  it("refuse what cannot cross", function()
    local ch = core.channel(2)
    assert.error_matches(function() ch:push(print) end, "tables, tensors and channels can go")
    assert.error_matches(function() ch:push{{print}} end, "not function")
    assert.error_matches(function() ch:push(nil) end, "nil cannot be sent")
    local t = {}
    t.t = t
    assert.error_matches(function() ch:push(t) end, "hold themselves")
    assert.error_matches(function() core.channel(0) end, "at least 1")
    assert.error_matches(function() ch.pop(5) end, "flare.channel expected, got")
    assert.error_matches(function() ch:pop("x") end, "timeout: expected seconds")
    assert.equal(0, #ch)
  end)

  it("stop waiting when interrupted", function()
    local ch = core.channel(1)
    core.interrupt()
    assert.error_matches(function() ch:pop() end, "interrupted!")
    core.interrupt(false)
    assert.same({nil, "timeout"}, {ch:pop(0)})
  end)
end)

describe("threads", function()
  it("run a text with values and return values", function()
    local t = core.spawn([[
      local core = require "flare.core"
      local x, n = ...
      return x * n, {sum = (x * n):sum():item()}, "done"
    ]], core.tensor{1, 2, 3}, 10)
    local ok, x, r, s = t:join()
    assert.is_true(ok, x)
    assert.same({10, 20, 30}, values(x))
    assert.equal(60, r.sum)
    assert.equal("done", s)
    assert.error_matches(function() t:join() end, "joined already")
    assert.is_false(t:alive())
    assert.is_true(core.spawn(""):join())
  end)

  it("have a runtime of their own", function()
    core.manual_seed(1)
    local before = core.tensors()
    local ok, n, threads = core.spawn([[
      local core = require "flare.core"
      core.manual_seed(2)
      local x = core.zeros(5, {requires_grad = true})
      x:sum():backward()
      return core.tensors(), core.threads()
    ]]):join()
    assert.is_true(ok, n)
    assert.is_true(n < 10)
    assert.equal(1, threads)
    assert.equal(before, core.tensors())
    assert.equal(1, core.default_generator().seed)
  end)

  it("find the modules that their parent finds", function()
    local ok, name = core.spawn([[return require("flare").core.version]]):join()
    assert.is_true(ok, name)
    assert.equal(core.version, name)
  end)

  it("return errors with their traceback", function()
    local t = core.spawn({source = "local function f() error('on purpose') end\nf()",
                          name = "=work"})
    local ok, err = t:join()
    assert.is_nil(ok)
    assert.matches("^work:1: on purpose\nstack traceback:", err)
    assert.matches("work:2", err)
    ok, err = core.spawn("this is no Lua"):join()
    assert.is_nil(ok)
    assert.matches("syntax error", err)
    ok, err = core.spawn("return print"):join()
    assert.is_nil(ok)
    assert.matches("not function", err)
    assert.error_matches(function() core.spawn(print) end, "functions do not cross threads")
    assert.error_matches(function() core.spawn("", print) end, "not function")
    assert.error_matches(function() core.spawn({sorce = ""}) end, "did you mean 'source'")
  end)

  it("feed each other through channels", function()
    local jobs, results = core.channel(4), core.channel(4)
    local worker = [[
      local core = require "flare.core"
      local jobs, results = ...
      while true do
        local job = jobs:pop()
        if not job then return "ended" end
        local x = core.shared(100, 100)
        x:fill_(job.value)
        results:push{value = job.value, x = x}
      end
    ]]
    local a, b = core.spawn(worker, jobs, results), core.spawn(worker, jobs, results)
    local sum, sent = 0, 0
    for i = 1, 200 do
      while sent < 200 and jobs:push({value = sent + 1}, 0) do sent = sent + 1 end
      local r = results:pop(10)
      assert(r, "no result " .. i)
      assert.equal(r.value, r.x:mean():item())
      sum = sum + r.value
    end
    assert.equal(200 * 201 // 2, sum)
    jobs:close()
    assert.same({true, "ended"}, {a:join(10)})
    assert.same({true, "ended"}, {b:join(10)})
  end)

  it("are stopped wherever they are", function()
    local ch = core.channel(1)
    local waiting = core.spawn("local ch = ... return ch:pop()", ch)
    local looping = core.spawn("while true do local t = {} end")
    local computing = core.spawn([[
      local core = require "flare.core"
      local x = core.rand(1000, 1000)
      while true do x = x:matmul(x):clamp(0, 1) end
    ]])
    assert.same({nil, "timeout"}, {waiting:join(0.05)})
    assert.is_true(waiting:alive())
    for _, t in ipairs{waiting, looping, computing} do
      t:stop()
      local ok, err = t:join(10)
      assert.is_nil(ok)
      assert.matches("interrupted!", err)
    end
  end)

  it("end when no handle refers to them", function()
    local ch = core.channel(1)
    do core.spawn("local ch = ... ch:push(1) ch:push(2)", ch) end
    assert.equal(1, ch:pop())
    collectgarbage()
    collectgarbage()
    assert.is_true(#ch <= 1)
  end)

  it("leave nothing behind", function()
    local function once()
      local ok, x = core.spawn([[return (require "flare.core").rand(10000)]]):join()
      assert(ok, x)
      return x:sum():item()
    end
    once()
    core.collect()
    local n = core.tensors()
    for _ = 1, 30 do once() end
    core.collect()
    assert.equal(n, core.tensors())
  end)
end)
