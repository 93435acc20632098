-- A fact about an operator has one home, the op table: its row, its marks, and what build and code
-- make of them by including it. No other C source decides by an operator's number or name.
local core = require "flare.core"
local tree = require "spec.support.tree"

-- What may stay, by path: how often, and why.
local allowed = {
  ["runtime/expr/expr.c"] = 10, -- the simplifier computes + - * / on numbers
  ["runtime/rules/matmul.c"] = 1, -- the rows that linear's attribute `act` chooses from
  ["runtime/rules/positions.c"] = 1, -- and scatter_reduce's `reduce`
  ["lua/convert.c"] = 1, -- view_as(y) is view(y.shape), and two more
  ["kernels/cuda/random.c"] = 1, -- entries of random.cu
}

local function code(text) -- without comments, and macros that read the table
  return (text:gsub("/%*.-%*/", " "):gsub("\n%s*#define.-[^\\]\n", "\n\n"))
end

local operators = {}
for _, row in ipairs(core.ops()) do operators[row.name] = true end

-- Comparisons and cases of operators' numbers.
local comparisons = {"case%s+FLI_OP_%l[%w_]*", "[!=]=%s*FLI_OP_%l[%w_]*",
                     "FLI_OP_%l[%w_]*%s*[!=]=", "switch%s*%([^;{]*op%->id"}
-- Comparisons of their names with words.
local words = {'str%l*%s*%([^;"]-op,%s*"', 'str%l*%s*%([^;"]-info%p+name,%s*"'}

-- Initialisers with three operators or more, that are most of the words in them.
local function tables(text, pattern, is)
  local found = {}
  for braces in text:gmatch "=%s*(%b{})" do
    local n, all = 0, 0
    for name in braces:gmatch(pattern) do n, all = n + (is(name) and 1 or 0), all + 1 end
    if n > 2 and 2 * n >= all and not braces:find ";" then
      found[#found + 1] = braces:gsub("%s+", " "):sub(1, 60)
    end
  end
  return found
end

local function offences(source)
  local text, found = code(source), {}
  for _, list in ipairs{comparisons, words} do
    for _, pattern in ipairs(list) do
      for hit in text:gmatch(pattern) do found[#found + 1] = (hit:gsub("%s+", " ")) end
    end
  end
  for _, t in ipairs(tables(text, "FLI_OP_(%l[%w_]*)", function() return true end)) do
    found[#found + 1] = t
  end
  for _, t in ipairs(tables(text, '"([%l%d_]+)"', function(name) return operators[name] end)) do
    found[#found + 1] = t
  end
  return found
end

local row_macros = {}
for macro in ("UNARY TEST BINARY COMPARE TERNARY OP FUSED VIEW COMPOSE"):gmatch "%S+" do
  row_macros[macro] = true
end

describe("facts about operators", function()
  it("are in the op table alone", function()
    local wrong = {}
    for _, path in ipairs(tree.files("runtime kernels lua repl", ".c", ".h", ".cu")) do
      local found = offences(tree.read(path))
      if #found > (allowed[path] or 0) then
        wrong[#wrong + 1] = path .. ": " .. table.concat(found, " | ")
      end
      if allowed[path] and #found < allowed[path] then
        wrong[#wrong + 1] = path .. " needs less of an exception: " .. #found
      end
    end
    assert(#wrong == 0, "\n  " .. table.concat(wrong, "\n  "))
  end)

  it("stand under their row", function()
    local second, wrong = {ALIAS = true, OVERLOAD = true}, {}
    for _, path in ipairs(tree.files("runtime/ops", ".def")) do
      local row
      for line in tree.read(path):gmatch "[^\n]+" do
        local macro, first, next_ = line:match "^FL_(%u+)%s*%(%s*([%w_]+),?%s*([%w_]*)"
        if macro and row_macros[macro] then
          row = first
        elseif macro then
          local of = second[macro] and next_ or macro == "COLLECTIVE" and "comm_" .. first or first
          if of ~= row then wrong[#wrong + 1] = path .. ": " .. line end
        end
      end
    end
    assert.same({}, wrong)
  end)

  it("are explained at the top of the table", function()
    local text = tree.read "runtime/ops.def"
    local head, n = text:match "^/%*(.-)%*/", 0
    for macro in text:gmatch "#define FL_(%u+)%(" do
      assert(head:find("FL_" .. macro .. "%f[^%w_]"), macro)
      n = n + 1
    end
    assert(n > 20)
  end)

  it("are not read out of names in Lua", function()
    local wrong = {}
    for _, path in ipairs(tree.files("stdlib repl", ".lua")) do
      for hit in tree.read(path):gmatch '%f[%w]%l*find%s*%(?%s*"[^"]*_?backward[^"]*"' do
        wrong[#wrong + 1] = path .. ": " .. hit
      end
      for hit in tree.read(path):gmatch '%f[%w]match%s*%(?%s*"[^"]*_step%$?"' do
        wrong[#wrong + 1] = path .. ": " .. hit
      end
    end
    assert.same({}, wrong)
  end)

  it("are found in what decides by numbers and names", function()
    local planted = {
      "switch (c->op->id) {", "if (op->id == FLI_OP_softmax)", "case FLI_OP_sum:",
      "int rows[] = {FLI_OP_sum, FLI_OP_mean, FLI_OP_prod};", 'if (strcmp(l->op, "softmax") == 0)',
      'static const char *const rows[] = {"softmax", "matmul", "conv"};',
    }
    for _, text in ipairs(planted) do assert(#offences(text) > 0, text) end
    assert.same({}, offences("/* op->id == FLI_OP_sum */ y = fli_run(e, FLI_OP_sum, 1);"))
  end)
end)
