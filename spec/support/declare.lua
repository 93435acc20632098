--- Declares the tests of a family of rows, for busted: declare("reduce", describe, it).
local checks = require "spec.support.checks"
local gradients = require "spec.support.gradients"
local rows = require "spec.support.rows"

return function(family, describe, it)
  local samples = require("spec.support.samples." .. family)
  local reference = require("spec.support.reference." .. family)
  local names = {}
  for name in pairs(samples) do names[#names + 1] = name end
  table.sort(names)
  for _, name in ipairs(names) do
    local row, list = rows.rows[name], samples[name]
    describe(name, function()
      it("is a row", function() assert(row, "there is no row of this name") end)
      if not row then return end
      it("gives the values", function() checks.values(row, list, reference) end)
      it("takes its dtypes", function() checks.dtypes(row, list, reference) end)
      it("takes any strides", function() checks.strides(row, list, reference) end)
      it("knows shapes without values", function() checks.meta(row, list) end)
      if row.inplace and row.method and name ~= "copy" then
        it("works in place", function() checks.inplace(row, list) end)
      end
      if row.differentiable then
        it("has its gradient", function() gradients.first(row, list) end)
        it("has it by every way", function() gradients.others(row, list) end)
        it("has its second gradient", function() gradients.second(row, list) end)
      else
        it("has no gradient", function() gradients.none(row, list) end)
      end
    end)
  end
end
