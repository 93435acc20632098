-- flare.strict: global names that were never assigned.
local flare = require "flare"
local message = require "spec.support.expect".message

-- luacheck: globals given
describe("flare.strict", function()
  after_each(function() flare.strict(false) end)

  local function chunk(text) return assert(load(text, "=script.lua")) end

  it("names an unknown variable, its line and the nearest name", function()
    local f = chunk [[
      local optim, learning_rate = ..., 0.1
      return optim.SGD({}, {lr = learningrate}), learning_rate]]
    flare.strict()
    flare.strict()
    assert.equal("script.lua:2: there is no variable 'learningrate' "
      .. "(did you mean 'learning_rate'?)", message(f, flare.optim))
    assert.match("there is no variable 'pritn' %(did you mean 'print'%?%)",
                 message(chunk "pritn(1)"))
  end)

  it("lets names be that were assigned, nil too, and ends", function()
    flare.strict()
    assert.equal(3, chunk "given = 3 return given"())
    assert.is_nil(chunk "given = nil return given"())
    assert.is_nil(chunk "return rawget(_G, 'nothing')"())
    flare.strict(false)
    assert.is_nil(chunk "return nothing"())
  end)

  it("keeps what the globals did before", function()
    local old = getmetatable(_G)
    local meta = {__index = function(_, name) return name == "magic" and 7 or nil end}
    setmetatable(_G, meta)
    flare.strict()
    local ok, value = pcall(chunk "return magic")
    local why = message(chunk "return other")
    flare.strict(false)
    setmetatable(_G, old)
    assert.is_true(ok)
    assert.equal(7, value)
    assert.match("no variable 'other'", why)
  end)
end)
