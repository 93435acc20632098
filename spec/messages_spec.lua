-- What wrong lines say: the exact text, with the line and the place in the model.
local flare = require "flare"
local cases = require "spec.support.messages"
local habits = require "spec.support.habits"
local syntax = require "flare.repl.syntax"
local tree = require "spec.support.tree"

-- A model of a user's, in a file of their own.
local model = [[
local flare = require "flare"
local class, nn = flare.class, flare.nn
local Block = class("Block", nn.Module)
function Block:init(inputs)
  self.mlp = nn.Sequential(nn.Linear(inputs, 4), nn.GELU())
end
function Block:forward(x)
  return (self.mlp(x))
end
local Net = class("Net", nn.Module)
function Net:init() self.blocks = {Block(3), Block(5)} end
function Net:forward(x)
  for _, block in ipairs(self.blocks) do x = block(x) end
  return x
end
return Net]]
local Net = assert(load(model, "=net.lua"))()

local function message(source)
  local env = setmetatable({
    flare = flare, nn = flare.nn, optim = flare.optim, data = flare.data, net = Net(),
    x = flare.arange(1, 7):to("f32"):view(2, 3), i = flare.tensor({1, 2}, {dtype = "i64"}),
    w = flare.ones(3, {requires_grad = true}),
  }, {__index = _G})
  local ok, err = pcall(assert(load(source, "=user.lua", "t", env)))
  assert(not ok, "no error: " .. source)
  return err
end

describe("the message of", function()
  for _, case in ipairs(cases) do
    it(case[1], function() assert.equal(case[2], message(case[1])) end)
  end
end)

-- What the program says of a script with this text.
local function says(source)
  local env = setmetatable({
    flare = flare, nn = flare.nn, optim = flare.optim, data = flare.data,
    x = flare.arange(1, 7):to("f32"):view(2, 3), i = flare.tensor({1, 2}, {dtype = "i64"}),
    w = flare.ones(3, {requires_grad = true}),
    model = flare.nn.Sequential(flare.nn.Linear(3, 4), flare.nn.ReLU(), flare.nn.Linear(4, 2)),
  }, {__index = _G})
  local chunk, problem = load(source, "=user.lua", "t", env)
  if not chunk then return syntax.hint(problem, source) end
  local ok, err = xpcall(chunk, flare.core.hint)
  assert(not ok, "no error: " .. source)
  return err
end

describe("a habit from elsewhere", function()
  assert(#cases + #habits >= 240, #cases + #habits)
  for _, case in ipairs(habits) do
    it("gets its answer: " .. case[1]:gsub("\n", " "), function()
      local expected = case[2]:find "^user%.lua:" and case[2] or "user.lua:1: " .. case[2]
      assert.equal(expected, says(case[1]))
    end)
  end

  it("is not looked for in strings and comments", function()
    for _, source in ipairs {"print 'x is y' x = }", "x = } -- a lambda x", "x = '=> {a: 1}' )"} do
      assert.equal(select(2, load(source, "=user.lua")), says(source))
    end
  end)

  it("in a file gets it for the line of the file", function()
    local name = os.tmpname()
    local file <close> = assert(io.open(name, "w"))
    file:write "x = 1\n\ndef f(x):\n  return x\n"
    file:close()
    local program = os.getenv "FLARE_PROGRAM" or tree.build .. "/flare"
    local out = tree.output(("'%s' '%s' 2>&1"):format(program, name))
    os.remove(name)
    assert.equal(("flare: %s:3: syntax error near 'f' (a function is: function name(x) ... end)\n")
                 :format(name), out)
  end)

  it("such as True and False is an error, until they have a value", function()
    local program = os.getenv "FLARE_PROGRAM" or tree.build .. "/flare"
    local function run(text) return tree.output(("'%s' -e '%s' 2>&1"):format(program, text)) end
    assert.match("^flare: %(command line%):1: there is no variable 'False': Lua writes false\n",
                 run "return {bias = False}")
    assert.match("'True': Lua writes true\n", run [[require("flare").strict() print(True)]])
    assert.equal("1\n", run "True = 1 print(True)")
    assert.equal("nil\n", run "print(None)")
  end)
end)
