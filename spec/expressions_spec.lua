-- Rows that have both a kernel and an expression of other rows: a backend without the kernel gives
-- the values and gradients of its specs, too.
local tree = require "spec.support.tree"

local function family_of(row)
  for _, family in ipairs(require "spec.support.families") do
    if require("spec.support.samples." .. family)[row] then return family end
  end
end

local busted = tree.output("command -v busted"):match "%S+"

describe("where there is no kernel", function()
  local count = 0
  for row in tree.op_table():gmatch "\nFL_FUSED%(([%w_]+)" do
    count = count + 1
    it("the expression is taken for " .. row, function()
      local family = assert(family_of(row), "there are no samples")
      local said = tree.output(("FLARE_SIM_WITHOUT=%s FLARE_SPEC_DEVICES=sim:0 '%s/flare' '%s' "
        .. "-o TAP --filter='^%s ' spec/ops/%s_spec.lua 2>&1")
        :format(row, tree.build, busted, row, family))
      local _, passed = said:gsub("\nok %d", "")
      assert.falsy(("\n" .. said):find "\nnot ok", said)
      assert.is_true(passed >= 4, said)
    end)
  end

  it("has rows to be tried", function() assert.is_true(count > 0) end)
end)
