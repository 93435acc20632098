-- Long results at the prompt in a terminal.
local Session = require "spec.support.session"

describe("a result longer than the terminal", function()
  local session

  before_each(function() session = Session.open {columns = 60, rows = 10} end)
  after_each(function() if session then session:close() end end)

  -- Types an expression of many lines, and waits for a text.
  local function ask(text, awaited)
    if not session then return pending "there is no pseudo-terminal" end
    session:keys(text)
    session.terminal:write "\r"
    session:see(awaited)
    return session
  end

  local numbers = "(('line %d\\n'):rep(25):gsub('%%d', (function() local n = 0; "
    .. "return function() n = n + 1 return n end end)()))"

  it("comes a screen at a time, or line by line, up to its end", function()
    local s = ask(numbers, "9 of 26 lines")
    if not s then return end
    assert.is_nil(s.screen:text():find("line 10", 1, true))
    s.terminal:write "\r"
    s:see "10 of 26 lines"
    assert.truthy(s.screen:text():find("line 10", 1, true))
    s.terminal:write " "
    s:see "19 of 26 lines"
    assert.is_nil(s.screen:text():find("line 20", 1, true))
    s.terminal:write "G"
    s:see "line 25"
    s:ready()
    assert.is_nil(s.screen:text():find("of 26 lines", 1, true))
    s:enter "1 + 1"
    assert.equal("2", s:after "1 + 1")
  end)

  it("ends at q, and counts long lines as the rows that they fill", function()
    local s = ask("('x'):rep(60 * 9) .. '\\nsecond\\nthird'", "1 of 3 lines")
    if not s then return end
    s.terminal:write "q"
    s:ready()
    assert.is_nil(s.screen:text():find("second", 1, true))
    s:enter "'next'"
    assert.equal("next", s:after "'next'")
  end)
end)
