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

  it("an expression draws from the generator of the call", function()
    -- the same numbers as the kernel, and the runtime's generator stays where it was
    local text = [[
      local flare = require "flare"
      local q = flare.arange(48):view(6, 2, 4):to "f32" / 48
      local sums = flare.tensor({0, 2, 6}, {dtype = "i64"})
      local function run(device)
        local g, x = flare.generator(8), q:to(device)
        local options = {dropout = 0.5, generator = g}
        local y = flare.attention_varlen(x, x, x, sums:to(device), nil, options)
        return y:to "cpu", flare.rand(4, {generator = g}), flare.rand(4)
      end
      flare.manual_seed(1)
      local a, next_a, own_a = run "cpu"
      flare.manual_seed(1)
      local b, next_b, own_b = run "sim:0"
      print((a - b):abs():max():item() < 1e-6, (a:eq(0)):any():item(),
        next_a:eq(next_b):all():item(), own_a:eq(own_b):all():item())]]
    local path = os.tmpname()
    local file <close> = assert(io.open(path, "w"))
    file:write(text)
    file:close()
    local said = tree.output(("FLARE_SIM_WITHOUT=attention_varlen '%s/flare' %s 2>&1"):format(
      tree.build, path))
    os.remove(path)
    assert.equal("true\ttrue\ttrue\ttrue\n", said)
  end)

  it("has rows to be tried", function() assert.is_true(count > 0) end)
end)
