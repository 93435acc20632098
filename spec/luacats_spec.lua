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

  it("are those that were built", function()
    local path = tree.build .. "/luacats/flare.lua"
    if not tree.exists(path) then return pending(path .. " is not built") end
    assert(tree.read(path) == text, path .. " is not up to date: build again")
  end)
end)
