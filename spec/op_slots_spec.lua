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

-- What the runtime says: every position of a row's parameters and results by the name it should
-- have.
local function expected(info)
  local slots, inputs, attributes, wholes = {}, 0, 0, {}
  for _, p in ipairs(info.params) do
    if p.kind == "tensor" or p.kind == "rng" then
      slots[("FL_IN_%s_%s"):format(info.name, p.name)] = inputs
      if not p.variadic then inputs = inputs + 1 end
    else
      slots[("FL_ATTR_%s_%s"):format(info.name, p.name)] = attributes
      attributes = attributes + 1
      if info.signature:find(("%%f[%%w_]%s:number"):format(p.name)) then wholes[#wholes + 1] = p end
    end
  end
  slots["FL_INS_" .. info.name] = inputs
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
