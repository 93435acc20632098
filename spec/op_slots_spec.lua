-- The names of positions that cmake/op_slots.lua makes from the op table: FL_IN_softmax_x and the
-- like are the positions that the runtime's own parser gives, for every row.
local core = require "flare.core"
local tree = require "spec.support.tree"

-- The enum constants of a header, and the macros that stand for names on which rows differ.
local function read_slots(text)
  local values, refused = {}, {}
  for name, value in text:gmatch "\n  (FL_[%w_]+) = (%d+)," do values[name] = tonumber(value) end
  for name in text:gmatch "\n#define (FL_[%w_]+) FL_" do refused[name] = true end
  return values, refused
end

-- Families of rows with formulas, whose attributes a kernel reads as numbers (1) or a choice (2).
local formulas = {unary = true, test = true, binary = true, compare = true, ternary = true}

-- What the runtime says: every position of a row's parameters and results by the name it should
-- have.
local function expected(info)
  local slots, inputs, attributes, wholes, params = {}, 0, 0, {}, 0
  for _, p in ipairs(info.params) do
    if p.kind == "tensor" or p.kind == "rng" then
      slots[("FL_IN_%s_%s"):format(info.name, p.name)] = inputs
      if not p.variadic then inputs = inputs + 1 end
    else
      slots[("FL_ATTR_%s_%s"):format(info.name, p.name)] = attributes
      attributes = attributes + 1
      params = p.choices and 2 or 1
      if info.signature:find(("%%f[%%w_]%s:number"):format(p.name)) then wholes[#wholes + 1] = p end
    end
  end
  slots["FL_INS_" .. info.name] = inputs
  if formulas[info.family] then slots["FL_PARAMS_" .. info.name] = params end
  for k, p in ipairs(wholes) do
    slots[("FL_WHOLE_%s_%s"):format(info.name, p.name)] = attributes + k - 1
  end
  for k, name in ipairs(info.results) do
    if name ~= "" then slots[("FL_OUT_%s_%s"):format(info.name, name)] = k - 1 end
  end
  return slots
end

describe("the names of positions", function()
  local values, refused = read_slots(tree.read(tree.build .. "/generated/op_slots.h"))

  it("agree with the signatures as the runtime reads them, for every row", function()
    local rows, offences = 0, {}
    for _, info in ipairs(core.ops()) do
      rows = rows + 1
      for slot, at in pairs(expected(info)) do
        if values[slot] ~= at then
          offences[#offences + 1] = ("%s is %s, not %d"):format(slot,
            refused[slot] and "refused" or values[slot], at)
        end
      end
    end
    assert(rows > 400, "no rows")
    assert(#offences == 0, "\n  " .. table.concat(offences, "\n  "))
  end)
end)

-- Code of rows of a, b and c, which their formulas name in order, or of any row.
local elementwise = {["runtime/rules/elementwise.c"] = true, ["runtime/modes/complex.c"] = true,
  ["runtime/call/flat.c"] = true, ["runtime/call/call.c"] = true,
  ["runtime/call/integers.c"] = true, ["runtime/expr/order.c"] = true,
  ["runtime/expr/lower.c"] = true, ["runtime/expr/operator.c"] = true,
  ["runtime/expr/print.c"] = true, ["kernels/cpu/tile.c"] = true,
  ["kernels/cpu/tile_plan.c"] = true, ["kernels/cpu/tile_code.c"] = true}

-- Code whose operands are not those of a row: an expression's.
local any_row = setmetatable({["kernels/cpu/expr_reduce.c"] = true}, {__index = elementwise})

-- A file with its comments blank, line by line as before.
local function code(path)
  return (tree.read(path):gsub("/%*.-%*/", function(text) return (text:gsub("[^\n]", " ")) end))
end

local function line_of(text, at)
  return select(2, text:sub(1, at):gsub("\n", "")) + 1
end

local function none(offences)
  assert(#offences == 0, "\n  " .. table.concat(offences, "\n  "))
end

local function sources()
  return tree.files("runtime kernels", ".c", ".h")
end

describe("positions in the sources", function()
  local attributes = {"attrs?[%->.]+v%[%d", "%f[%w_]%l+[%->.]+v%[%d+%]%.[if]%f[%W]",
    "fl_attr_list%([^,()]+,%s*%d", "fl_attrs_list%([^,()]+,%s*%d",
    "fl_attr_whole%([^,()]+,%s*%d", "fli_set_list%([^,()]+,[^,()]+,%s*%d"}
  local operands = {"in", "out", "dx", "dy", "y", "need", "in_meta", "out_meta"}

  local function find(offences, path, text, pattern)
    for at, hit in text:gmatch("()(" .. pattern .. ")") do
      offences[#offences + 1] = ("%s:%d: %s"):format(path, line_of(text, at), hit)
    end
  end

  it("of attributes are names", function()
    local offences = {}
    for _, path in ipairs(sources()) do
      local text = not elementwise[path] and code(path) or ""
      for _, pattern in ipairs(attributes) do find(offences, path, text, pattern) end
    end
    none(offences)
  end)

  it("of inputs and results behind the first are names", function()
    local offences = {}
    for _, path in ipairs(sources()) do
      local text = not elementwise[path] and code(path) or ""
      for _, field in ipairs(operands) do
        find(offences, path, text, "%l[%->.]+" .. field .. "%[[1-9]%]")
      end
    end
    none(offences)
  end)

  -- A bare name in brackets is a loop's or a parameter's; what is added to one must be checked.
  it("behind another position are checked to be there", function()
    local offences = {}
    for _, path in ipairs(sources()) do
      local text = not any_row[path] and code(path) or ""
      for at, body in text:gmatch "\n()%a[^\n;{}]-%b() (%b{})\n" do
        for _, field in ipairs(operands) do
          for hit in body:gmatch("%l[%->.]+" .. field .. "%[%l[%w_]*%s*[+-]%s*%d+%]") do
            if not body:find "FL_IN_FOLLOWS" then
              offences[#offences + 1] = ("%s:%d: %s"):format(path, line_of(text, at), hit)
            end
          end
        end
      end
    end
    none(offences)
  end)

  it("in calls of rows with four inputs or more are names", function()
    local inputs, offences, calls = {}, {}, 0
    local slots = tree.read(tree.build .. "/generated/op_slots.h")
    for name, n in slots:gmatch "FL_INS_([%w_]+) = (%d+)" do
      inputs[name] = tonumber(n)
    end
    for _, path in ipairs(tree.files("runtime", ".c")) do
      local text = code(path)
      for at, row, rest in text:gmatch "()%f[%w_]RUN[_%u]*%(([%l%d_]+)()," do
        if (inputs[row] or 0) >= 4 then
          local named, call = 0, text:match("%b()", text:find("(", at, true))
          for _ in call:gmatch("IN%(" .. row .. ",") do named = named + 1 end
          calls = calls + 1
          if named ~= inputs[row] then
            offences[#offences + 1] = ("%s:%d: %s"):format(path, line_of(text, rest), row)
          end
        end
      end
    end
    assert(calls > 9, "no calls")
    none(offences)
  end)

  it("of the first input are names in code of rows that have several", function()
    local several, offences = {}, {}
    for _, info in ipairs(core.ops()) do
      local inputs = 0
      for _, p in ipairs(info.params) do
        inputs = inputs + ((p.kind == "tensor" or p.kind == "rng") and 1 or 0)
      end
      local own = info.family == "op" or info.family == "view" or info.family == "compose"
      several[info.name] = own and inputs > 1
    end
    for _, path in ipairs(sources()) do
      local text = code(path)
      for at, head, body in text:gmatch "\n()(%a[^\n;{}]-%b()) (%b{})\n" do
        local name = head:match "fli_%l+_([%w_]+)%(" or head:match "FLC?_KERNEL%(([%w_]+)%)"
        if head:find "fli_cost_" then name = nil end -- of rows whose first inputs are alike
        for field in body:gmatch "%l[%->.]+([%l_]+)%[0%]" do
          if name and several[name] and (field == "in" or field == "dx" or field == "need"
              or field == "in_meta") then
            offences[#offences + 1] = ("%s:%d: %s[0] of %s"):format(path, line_of(text, at), field,
              name)
          end
        end
      end
    end
    none(offences)
  end)
end)

describe("attributes that a rule passes on", function()
  it("are those of its own row, or checked by ATTRS_FOR", function()
    local offences = {}
    for _, path in ipairs(tree.files("runtime/rules", ".c")) do
      local text = code(path)
      for at, name, body in text:gmatch "\n()void fli_%l+_([%w_]+)%b() (%b{})\n" do
        for to in body:gmatch "RUN_%u+%(([%w_]+),%s*g%->attrs," do
          if to ~= name then
            offences[#offences + 1] = ("%s:%d: %s to %s"):format(path, line_of(text, at), name, to)
          end
        end
      end
    end
    none(offences)
  end)
end)

describe("a parameter in the middle of a signature", function()
  local place

  local function change(row, from, to)
    local path = "runtime/ops/" .. row .. ".def"
    local text, n = tree.read(path):gsub(from:gsub("%p", "%%%0"), (to:gsub("%%", "%%%%")), 1)
    assert(n == 1, from)
    local file <close> = assert(io.open(place .. "/" .. path, "w"))
    file:write(text)
    file:close()
    tree.name_slots(place)
    return (read_slots(tree.read(place .. "/generated/op_slots.h")))
  end

  local function compile(path)
    return tree.output(("cd '%s' && %s -std=gnu11 -fsyntax-only -I generated %s 2>&1"):format(place,
      os.getenv "CC" or "cc", path))
  end

  before_each(function()
    place = os.tmpname()
    os.remove(place)
    assert(os.execute(("mkdir '%s' && cp -r runtime kernels '%s'"):format(place, place)))
  end)

  after_each(function() os.execute(("rm -rf '%s'"):format(place)) end)

  it("moves the names behind it", function()
    local moved = change("norm", '"x:float, weight:float?, bias:float?, groups:int, eps:real',
      '"x:float, extra:float?, weight:float?, bias:float?, groups:int, more:int=0, eps:real')
    assert.equal(2, moved.FL_ATTR_group_norm_eps)
    assert.equal(2, moved.FL_IN_group_norm_weight)
    assert.equal(3, moved.FL_IN_group_norm_bias)
  end)

  it("moves with the code that uses it", function()
    change("index", '"x:any, k:int, dim:dim=-1, largest',
      '"x:any, more:int=0, k:int, dim:dim=-1, largest')
    assert.equal("", compile "runtime/rules/sort.c")
    assert.equal("", compile "-fopenmp-simd -Wno-psabi kernels/cpu/sort.c")
  end)

  it("does not compile where a call gives fewer values", function()
    change("index", 'FL_OP(gather,      "x:any, dim:dim, index:index',
      'FL_OP(gather,      "x:any, dim:dim, more:any?, index:index')
    assert.match("negative", compile "runtime/rules/order.c")
  end)

  it("does not compile where code reads inputs one behind another", function()
    change("conv", 'FL_FUSED(grid_sample, "x:float, grid',
      'FL_FUSED(grid_sample, "x:float, more:any?, grid')
    assert.match("read for both rows", compile "-fopenmp-simd -Wno-psabi kernels/cpu/grid.c")
  end)

  it("stops the build where offset does not follow seed", function()
    assert.error(function()
      change("random", '"p:float, seed:rng, offset:rng',
        '"p:float, seed:rng, more:any?, offset:rng')
    end)
  end)

  it("does not compile where rows that share a rule differ", function()
    local moved = change("index", 'FL_OP(scatter_add, "x:any, dim:dim, index:index, src:any',
      'FL_OP(scatter_add, "x:any, more:int=0, dim:dim, index:index, src:any')
    assert.is_nil(moved.FL_ATTR_scatter_dim)
    assert.match("FL_ATTR_scatter_dim__differs_in_scatter_and_scatter_add",
      compile "runtime/rules/index.c")
  end)

  it("does not compile where a row passes its attributes to another that has others", function()
    change("norm", 'FL_OP(softmax,     "x:float, dim',
      'FL_OP(softmax,     "x:float, more:int=0, dim')
    assert.match("negative", compile "runtime/rules/softmax.c")
  end)
end)
