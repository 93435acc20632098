-- The forms that a row promises, x:name_(...) and a gradient, are those that its samples show.
local A = require "spec.support.array"
local flare = require "flare"
local rows = require "spec.support.rows"
local tree = require "spec.support.tree"

local samples = {}
for _, path in ipairs(tree.files("spec/support/samples", ".lua")) do
  for name, list in pairs(require("spec.support.samples." .. path:match "([^/]+)%.lua$")) do
    samples[name] = list
  end
end

-- A copy of x's values over itself changes nothing; samples run in one process, where parts of
-- ranks are as large as the whole.
local not_wanted = {contiguous = true, comm_gather = true, comm_reduce_scatter = true,
                    comm_scatter = true}

-- Calls visit(x, results, wants) for each sample whose first argument is a tensor: its results,
-- and whether an input asked for a gradient.
local function each_call(row, visit)
  for _, s in ipairs(samples[row.name] and rows.accepted(samples[row.name]) or {}) do
    local o = rows.retyped(row, s, "f32")
    if o then
      local args, wants = rows.with_options(row, s, rows.tensors(o, "cpu")), false
      local function ask(x)
        if flare.is_tensor(x) then
          if x.dtype == "f32" or x.dtype == "c64" then
            x:requires_grad_()
            wants = true
          end
        elseif type(x) == "table" then
          for _, y in pairs(x) do ask(y) end
        end
      end
      local written = {} -- inputs that the call writes cannot require a gradient
      for _, p in ipairs(row.params) do written[p.name] = p.written end
      for key, v in pairs(args) do
        if not written[key] then ask(v) end
      end
      local first = row.positional[1] and args[row.positional[1]]
      visit(A.is(s[row.positional[1]]) and first, rows.guarded(row, s, "", rows.call, row, args),
            wants)
    end
  end
end

describe("a row has", function()
  it("a form in place where its one result has the first input's shape and dtype", function()
    local wrong, seen = {}, 0
    for name, row in pairs(rows.rows) do
      if row.method and row.family ~= "backward" and not not_wanted[name] then
        local same, other = 0, 0
        each_call(row, function(x, y)
          if not x then return end
          if tostring(x.shape) == tostring(y[1].shape) then same = same + 1
          elseif x:numel() <= y[1]:numel() and pcall(x.expand, x, y[1].shape) then
            same = same + 0 -- x is broadcast: that call is refused, others work
          else
            other = other + 1
          end
        end)
        local result = row.signature:match "%->%s*([^;]*)"
        local fixed = row.family ~= "compare" and name ~= "float_power"
                      and (result:find "%f[%w]i64" or result:find "%f[%w]bool")
        local follows = not result:find "complex%(" and not result:find "real%(" and not fixed
          and (row.family ~= "ternary" or result:find(row.positional[1] .. "[,)]"))
        local possible = same > 0 and other == 0 and row.returns == 1 and follows
        if same + other > 0 and (row.inplace or false) ~= (possible and true or false) then
          wrong[#wrong + 1] = ("%s: %s"):format(name, tostring(row.inplace))
        end
        if row.inplace and same + other > 0 then seen = seen + 1 end
      end
    end
    table.sort(wrong)
    assert.same({}, wrong)
    assert(seen > 150, "only " .. seen .. " rows in place had samples")
  end)

  it("no name with _ at its end otherwise", function()
    local x = flare.ones(2, 3)
    for _, name in ipairs {"topk_", "unique_", "sum_", "conv_", "svd_", "cov_", "where_", "sort_",
                           "nonzero_", "var_mean_", "argsort_", "matmul_", "reshape_"} do
      assert.is_nil(flare.core.methods()[name], name)
      assert.is_false(pcall(function() return x[name] end))
    end
    assert.same({{0, 1, 1}, {0, 0, 1}}, flare.ones(2, 3):triu_(1):totable())
  end)

  it("a gradient where results of its samples ask for one", function()
    local wrong = {}
    for name, row in pairs(rows.rows) do
      if row.family ~= "backward" and not name:find "_backward$" and name ~= "geqrf" then
        local any, asked = false, false
        each_call(row, function(_, y, wants)
          asked = asked or wants
          for i = 1, #y do any = any or wants and flare.is_tensor(y[i]) and y[i].requires_grad end
        end)
        if row.differentiable ~= any and (asked or row.differentiable)
           and samples[name] and #samples[name] > 0 then
          wrong[#wrong + 1] = ("%s: %s"):format(name, tostring(row.differentiable))
        end
      end
    end
    table.sort(wrong)
    assert.same({}, wrong)
  end)
end)
