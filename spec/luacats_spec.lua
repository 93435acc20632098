-- The definitions for editors that know the LuaCATS annotations.
local flare = require "flare"
local core = require "flare.core"
local luacats = require "flare.help.luacats"
local rows = require "flare.help.rows"
local tree = require "spec.support.tree"

local function has(text, ...)
  for _, part in ipairs{...} do
    assert(text:find(part, 1, true), ("no %q in the definitions"):format(part))
  end
end

describe("the definitions for editors", function()
  local text = luacats.text()

  it("are Lua that does nothing but declare", function()
    local chunk = assert(load(text, "=definitions"))
    assert.equal("table", type(chunk()))
  end)

  it("have every operator, as a function and as a method", function()
    for _, row in ipairs(core.ops()) do
      if not rows.is_inner(row) and row.name ~= "repeat" then
        if type(flare[row.name]) == "function" then -- else a part that is called as the operator
          has(text, ("flare.%s = function("):format(row.name))
        end
        if row.method then has(text, ("function Tensor:%s("):format(row.name)) end
        for _, alias in ipairs(row.aliases) do has(text, ("flare.%s = function("):format(alias)) end
      end
    end
    has(text, 'flare["repeat"] = function(', "---@class flare.dist\n---@field world any\n"
        .. "---@overload",
        "---@param dim? number|flare.op.softmax\n---@param options? flare.op.softmax\n"
        .. "---@return flare.tensor\nfunction Tensor:softmax(dim, options) end",
        "---@class flare.op.softmax\n---@field dim? number\n\n")
  end)

  it("have the library's functions and classes", function()
    has(text, "function flare.vmap(f, opts) end", "---@class flare.nn.Linear: flare.nn.Module",
        "---@class flare.nn.Linear.class: flare.nn.Linear\n---@overload fun(inputs?: ",
        "function flare.io.npz.load(path, opts) end", "---@class flare.optim.AdamW",
        "function object:zero_grad(", "function flare.nn.init.normal_(")
    local seen = {}
    for name in text:gmatch "\n%-%-%-@class ([%w_.]+)" do
      assert(not seen[name], name .. " is declared twice")
      seen[name] = true
    end
  end)

  it("name types that they declare, and the arguments that a function has", function()
    local declared = {}
    for name in text:gmatch "%-%-%-@class ([%w_.]+)" do declared[name] = true end
    for name in text:gmatch "%-%-%-@alias ([%w_.]+)" do declared[name] = true end
    local names, tags = {}, 0
    for line in text:gmatch "[^\n]+" do
      local tag, rest = line:match "^%-%-%-@(%a+) (.*)$"
      if tag == "param" then
        local name, kind = rest:match "^([%w_.]+)%??%s+(%S.*)$"
        names[#names + 1], rest = name, kind:match "^%b{}" or kind:match "^%S+"
      elseif tag == "return" then
        rest = rest:match "^[^#]*"
      end
      if tag then
        tags = tags + 1
        for name in rest:gmatch "%f[%w_.]flare%.[%w_.]+" do
          assert(declared[name], ("%s is not declared: %s"):format(name, line))
        end
      else
        local args = line:match "^function [%w_.:]+%((.*)%) end" or
          line:match " = function%((.*)%) end"
        if args then
          local list = table.concat(names, ", ")
          assert(args == list or args == "self, " .. list or args == "self" and list == "",
            ("%s has the arguments %s"):format(line, list))
        end
        if not line:find "^%-%-" then names = {} end
      end
    end
    assert(tags > 5000)
  end)

  -- Reads a type at `at`; returns where it ends. `known` are the names of types.
  local function read_type(line, at, known)
    local function fail(what) error(("%s at %d: %s"):format(what, at, line), 0) end
    local function take(mark)
      local stop = line:match("^ *" .. mark .. "()", at)
      at = stop or at
      return stop
    end
    local read
    local function list(close)
      if take(close) then return end
      repeat
        if not take "%.%.%." and not take "[%a_][%w_]*%f[^%w_.]%??%f[ ,:)]" then
          fail "a name is expected"
        end
        if take ":" then read() end
      until not take ","
      if not take(close) then fail("no " .. close) end
    end
    local function one()
      at = line:match("^ *()", at)
      if take '"[^"]*"' then return end
      if take "fun%(" then
        list "%)"
        if take ":" then
          repeat read() until not take ","
        end
      elseif take "{" then
        list "}"
      elseif take "%(" then
        read()
        if not take "%)" then fail "no )" end
      else
        local name = line:match("^[%a_][%w_.]*%f[^%w_.]", at)
        name = name and name:gsub("%.+$", "")
        if not name or not known[name] then fail "no type" end
        at = at + #name
        if take "<" then
          repeat read() until not take ","
          if not take ">" then fail "no >" end
        end
      end
    end
    function read()
      repeat
        one()
        while line:find("^%[%]", at) or line:find("^%?", at) do
          at = at + (line:sub(at, at) == "?" and 1 or 2)
        end
      until not take "|"
    end
    read()
    return at
  end

  it("follow the syntax of the annotations", function()
    local known, count = {}, 0
    for name in ("any nil boolean number integer string table function userdata thread self "
                 .. "true false"):gmatch "%S+" do known[name] = true end
    for name in text:gmatch "%-%-%-@class ([%w_.]+)" do known[name] = true end
    for name in text:gmatch "%-%-%-@alias ([%w_.]+)" do known[name] = true end
    local forms = { -- what is in front of the type, and what may be behind it
      param = {"^[%a_.][%w_.]*%?? ()", "^ ?"}, ["return"] = {"^()", "^ ?#? ?"},
      overload = {"^()", "^$"}, alias = {"^[%w_.]+ ()", "^$"},
    }
    local function check(tag, rest)
      if tag == "field" then
        local key = rest:match "^%[()"
        local at = key and rest:match("^%] ()", read_type(rest, key, known))
          or rest:match "^[%a_][%w_]*%?? ()"
        assert(at and read_type(rest, at, known) == #rest + 1)
      elseif tag == "class" then
        assert(rest:find "^[%w_.]+$" or known[rest:match "^[%w_.]+: ([%w_.]+)$"])
      elseif tag == "operator" then
        local from, at = rest:match "^%l+%(?()[%w_.]*%)?: ()"
        assert(from and read_type(rest, at, known) == #rest + 1)
      elseif tag ~= "meta" then
        local form = assert(forms[tag], "an unknown tag")
        local stop = read_type(rest, assert(rest:match(form[1])), known)
        assert(rest:find("^ ?%.%.%.$", stop) or rest:find(form[2], stop))
        assert(tag ~= "return" or rest:find("^$", stop) or rest:find("^ ", stop))
      end
    end
    for line in text:gmatch "[^\n]+" do
      local tag, rest = line:match "^%-%-%-@(%a+) (.*)$"
      if tag then
        local fine, why = pcall(check, tag, rest)
        assert(fine, line .. "\n" .. tostring(why))
        count = count + 1
      end
    end
    assert(count > 8000)
    for _, wrong in ipairs{"param x flare.tensr", "field a", "return {a: number", "class a: b",
                           "overload fun(x: number", "param x", "note x"} do
      assert.is_false(pcall(check, wrong:match "^(%a+) (.*)$"))
    end
  end)

  it("say little with any", function()
    local lines, returns = 0, 0
    for line in text:gmatch "[^\n]+" do
      if line:find "%f[%w_]any%f[^%w_]" then lines = lines + 1 end
      if line:find "^%-%-%-@return any" then returns = returns + 1 end
    end
    assert(returns < 300, returns .. " results are any")
    assert(lines < 1500, lines .. " lines have any")
  end)

  it("tell results from the bodies of functions", function()
    local bodies = require "flare.help.bodies"
    local function returns(name)
      return bodies.returns(assert(flare.nn[name[1]][name[2]]))
    end
    assert.same({"string"}, returns{"Linear", "describe"})
    assert.same({"self"}, returns{"Module", "apply"})
    assert.same({x = "flare.tensor"}, bodies.checked(flare.nn.Flatten.forward))
    assert.same({}, bodies.checked(flare.nn.Linear.describe))
    assert.same({a = "number", b = "string?", c = "any", d = "flare.tensor", e = "boolean"},
      bodies.fields [[
        self.a = 1
        self.b = "x" .. self.a
        self.b = nil
        self.c, x = f()
        self.d = core.zeros(3)
        self.e = x == 1 and not y
      ]])
    has(text, "---@param x? flare.tensor\n---@return flare.tensor\nfunction object:forward(x) end",
        "---@return self # the module\nfunction object:apply(f) end",
        "---@return flare.tensor[]\nfunction object:parameters() end",
        "---@overload fun(loc?: flare.tensor|number, scale?: flare.tensor|number): "
          .. "flare.distributions.Normal\n",
        "---@class flare.nn.Linear: flare.nn.Module\n")
  end)

  it("give the types of options that comments describe", function()
    has(text, "---@param opts? {dim?: number, spacing?: number}",
        "---@return true? # true, or nil and a message\n---@return string?")
    local types = require "flare.help.types"
    assert.equal("{a?: number, b?: string, c?: boolean, d?: any}",
                 types.of_options '{a = 0.1, b = "x, y", c = true, d}: what')
    assert.equal("{bits?: number, by?: any}", types.of_options "{bits = 4, by = f(a, b), or more}")
    assert.is_nil(types.of_options "a tensor")
    assert.equal("any", types.of "a tensor or a number")
    assert.equal("flare.tensor[]", types.of "a list of tensors, one for each")
    assert.equal("string", types.of("where it is", "path"))
    assert.same({"flare.tensor?", "string?"}, types.returns "a tensor, or nil and a message")
  end)

  it("declare what examples and documents use of the library", function()
    local declared = {["flare.core"] = true}
    for path in text:gmatch "\nfunction ([%w_.]+)%(" do declared[path] = true end
    local parts = {}
    for path, value in text:gmatch "\n(flare[%w_.]*) = ([^\n]+)" do
      declared[path], parts[path] = true, value == "{}" or nil
    end
    for class, fields in text:gmatch "%-%-%-@class (flare[%w_.]*)[^\n]*\n(.-)\n[^-]" do
      for name in fields:gmatch "@field ([%w_]+)" do declared[class .. "." .. name] = true end
    end
    local seen = 0
    for _, path in ipairs(tree.files("examples docs", ".lua", ".md")) do
      local code = tree.read(path)
      if path:find "%.md$" then
        local blocks = {}
        for block in code:gmatch "\n```lua\n(.-)\n```" do blocks[#blocks + 1] = block end
        code = table.concat(blocks, "\n")
      end
      code = code:gsub("%-%-[^\n]*", ""):gsub("[^\n]*pcall[^\n]*", "") -- errors that are shown
      for chain, after in code:gmatch "%f[%w_.]flare(%.[%a_][%w_.]*)([^%w_.])" do
        local at = "flare"
        for name in chain:gmatch "[%w_]+" do
          at = at .. "." .. name
          if not declared[at] then at = at:gsub("^flare%.nn%.functional", "flare") end
          if not declared[at] then break end
          if not parts[at] then break end -- what a function returns is not followed
        end
        seen = seen + 1
        assert(declared[at] or after == "\"" or after == "/",
               ("%s: %s is not declared"):format(path, at))
      end
    end
    assert(seen > 700)
  end)

  it("declare the methods that examples and documents call", function()
    local declared, missing, seen = {}, {}, 0
    for name in text:gmatch "[.:]([%w_]+) ?=? ?f?u?n?c?t?i?o?n?%(" do declared[name] = true end
    for name in text:gmatch "%-%-%-@field ([%w_]+)" do declared[name] = true end
    for name in pairs(string) do declared[name] = true end
    for name in ("close lines read seek setvbuf write flush"):gmatch "%S+" do
      declared[name] = true -- of files
    end
    for name in ("entries join matrix merge push query remove row sums"):gmatch "%S+" do
      declared[name] = true -- of tables, readers, threads and reports, whose classes have no name
    end
    for _, path in ipairs(tree.files("examples docs", ".lua", ".md")) do
      local code = tree.read(path)
      if path:find "%.md$" then
        local blocks = {}
        for block in code:gmatch "\n```lua\n(.-)\n```" do blocks[#blocks + 1] = block end
        code = table.concat(blocks, "\n")
      end
      local own = {}
      for name in code:gmatch "function [%w_.]+[.:]([%w_]+)" do own[name] = true end
      code = code:gsub("%-%-[^\n]*", ""):gsub('%b""', '""'):gsub("[^\n]*pcall[^\n]*", "")
      for name in code:gmatch "[%w_)%]]:([%a_][%w_]*)%s?[({\"]" do
        seen = seen + 1
        if not (declared[name] or own[name]) then missing[path .. ": " .. name] = true end
      end
    end
    assert.same({}, missing)
    assert(seen > 500)
  end)

  it("are those that were built", function()
    local path = tree.build .. "/luacats/flare.lua"
    if not tree.exists(path) then return pending(path .. " is not built") end
    assert(tree.read(path) == text, path .. " is not up to date: build again")
  end)
end)
