-- Dims and positions that do not exist: every row refuses them and names itself.
local core = require "flare.core"
local rows = require "spec.support.rows"

local attribute = {dim = true, dims = true, newdim = true, pos = true}
local families = {"attention", "complex", "conv", "elementwise", "fft", "index", "linalg", "math",
  "norm", "optim", "random", "reduce", "shape", "space", "statistics"}

describe("a dim or position that does not exist", function()
  local tried = 0

  -- The first sample, with another value of one attribute.
  local function refuse(row, samples, p, value)
    local sample = rows.accepted(samples)[1]
    local args = rows.with_options(row, sample, rows.tensors(sample, "cpu"), "cpu")
    args[p.name] = p.type == "dims" and {value} or value
    local ok, text = pcall(rows.call, row, args)
    assert.is_false(ok, ("%s, %s = %s"):format(rows.describe(row, sample), p.name, value))
    assert.matches(row.name, text, 1, true)
    tried = tried + 1
  end

  for _, family in ipairs(families) do
    it("is refused by the rows of " .. family, function()
      for name, samples in pairs(require("spec.support.samples." .. family)) do
        local row = rows.rows[name]
        for _, p in ipairs(row and row.params or {}) do
          for _, value in ipairs(attribute[p.type] and {0, 99, -99} or {}) do
            refuse(row, samples, p, value)
          end
        end
      end
    end)
  end

  it("was tried", function()
    assert(tried > 300, tried)
    assert(#core.ops() > 500)
  end)
end)
