-- Help out of the rows and the library's comments, and the definitions for editors.
local flare = require "flare"
local core = flare.core
local rows = require "flare.help.rows"
local luacats = require "flare.help.luacats"
local tree = require "spec.support.tree"

local function has(text, ...)
  for _, part in ipairs{...} do
    assert(text:find(part, 1, true), ("no %q in:\n%s"):format(part, text))
  end
end

describe("flare.help", function()
  it("tells an operator's call, arguments, dtypes, gradient and an example", function()
    local text = flare.help "softmax"
    has(text, "softmax(x, dim = -1)\n", "divided by their sum", "x    a tensor: floats",
        "dim  a dim; -1 if left out", "gives: the dtype of x", "gradient: yes", "x:softmax(...)",
        "x:softmax_(...) in place", "flare.softmax(flare.randn(2, 3))  --> f32 (2, 3)")
    assert.equal(text, flare.help "flare.softmax")
    assert.equal(text, flare.help "x:softmax_")
    assert.equal(text, flare.help(flare.softmax))
    has(flare.help "max_dim", "values, the dtype of x; indices, i64", "f32 (3), i64 (3)")
    has(flare.help "eq", "gradient: none")
    has(flare.help "cat", "xs   a list of tensors", "dim  a dim; 1 if left out")
    has(flare.help "linear", '"none", "relu"', "bias    a tensor: floats; may be left out")
  end)

  it("knows functions and classes by name and by themselves", function()
    has(flare.help "vmap", "flare.vmap(f, opts)", "in_dims", "gives: a function")
    has(flare.help(flare.vmap), "M.vmap(f, opts)")
    has(flare.help "nn.Linear", "Affine map", 'bias = true, act = "none"', ":forward(x)")
    has(flare.help "optim.AdamW", "Adam with weight decay")
    has(flare.help "io", "npz", "safetensors")
    has(flare.help(), 'flare.help "softmax"')
  end)

  it("says what is near, or that nothing is known", function()
    assert.equal("there is no softmx: do you mean softmax?", flare.help "softmx")
    assert.equal("there is no nn.Linaer", flare.help("nn.Linaer"):sub(1, 21))
    has(flare.help "clip", "clamp(x, min", "other names: clip")
    has(flare.help(flare.mm), "matmul(a, b)", "other names: mm, bmm, mv, dot")
    has(flare.help(flare.zeros(1).sum), "sum(x, dims?")
    has(flare.help(flare.zeros(1).sum_), "sum(x, dims?")
    has(flare.help(print), "nothing is written about this function")
    has(flare.help(3), "nothing is written about this number")
  end)

  it("has an example of every operator, and it runs", function()
    local without, count = {}, 0
    for _, row in ipairs(core.ops()) do
      if not rows.is_inner(row) then
        local text = rows.example(row)
        count = count + 1
        if text then
          local ok, problem = pcall(load("local flare = ... return " .. text), flare)
          assert(ok, text .. ": " .. tostring(problem))
        elseif not row.name:find "_step$" and not row.name:find "^comm_" then
          without[#without + 1] = row.name -- those write, or talk to others
        end
        has(rows.describe(row), row.name .. "(", "gradient: ", "gives: ")
      end
    end
    assert(#without <= count // 50, "give examples in stdlib/flare/help/examples.lua of "
                                    .. table.concat(without, ", "))
  end)
end)

describe("the definitions for editors", function()
  local text = luacats.text()

  it("are Lua that does nothing but declare", function()
    local chunk = assert(load(text, "=definitions"))
    assert.equal("table", type(chunk()))
  end)

  it("have every operator, as a function and as a method", function()
    for _, row in ipairs(core.ops()) do
      if not rows.is_inner(row) and row.name ~= "repeat" then
        has(text, ("flare.%s = function("):format(row.name))
        if row.method then has(text, ("function Tensor:%s("):format(row.name)) end
        for _, alias in ipairs(row.aliases) do has(text, ("flare.%s = function("):format(alias)) end
      end
    end
    has(text, 'flare["repeat"] = function(', "---@param dim? integer\n---@return flare.tensor")
  end)

  it("have the library's functions and classes", function()
    has(text, "function flare.vmap(f, opts) end", "---@class flare.nn.Linear: flare.nn.Module",
        "---@overload fun(inputs?: any, outputs?: any, opts?: any): flare.nn.Linear",
        "function flare.io.npz.load(path, opts) end", "---@class flare.optim.AdamW")
    local seen = {}
    for name in text:gmatch "\n%-%-%-@class ([%w_.]+)" do
      assert(not seen[name], name .. " is declared twice")
      seen[name] = true
    end
  end)

  it("are those that were built", function()
    local path = tree.build .. "/luacats/flare.lua"
    if not tree.exists(path) then return pending(path .. " is not built") end
    assert(tree.read(path) == text, path .. " is not up to date: build again")
  end)
end)
