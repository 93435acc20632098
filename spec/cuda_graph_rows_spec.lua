-- Which rows a graph of launches can have, and that their runs give what the calls give.
local fakes = require "spec.support.fakes"
local tree = require "spec.support.tree"

-- Rows that draw random numbers, and those whose result's shape or bounds depend on values.
local random = "bernoulli cauchy dropout exponential gamma geometric log_normal "
  .. "multinomial poisson rand randint randn randperm"
local reading = "bincount histc histogram masked_select nonzero unique unique_consecutive"
-- Rows that a GPU computes on the host, or by steps whose number depends on values.
local host = "cholesky_pivoted geqrf lu lu_factor matrix_exp"

local function check(out, wanted)
  local captured, failed = out:match "(%d+) captured, %d+ rows refused, (%d+) failed\n$"
  assert(failed == "0", out)
  assert.is_true(tonumber(captured) > 700, out)
  local found, names = {}, {}
  for name in out:gmatch "([%w_]+): [%a ]+\n" do found[#found + 1] = name end
  for name in wanted:gmatch "%S+" do names[#names + 1] = name end
  table.sort(names)
  assert.same(names, found)
end

describe("a graph of any row", function()
  it("gives what the call gives, unless it is refused", function()
    local out = tree.output(("'%s/flare' spec/support/graph_rows.lua sim:0 values 2>&1")
      :format(tree.build))
    check(out, random .. " " .. reading)
  end)

  it("is a capture for the CUDA driver", function()
    local place = os.tmpname() .. ".d"
    fakes.machine(place)
    -- memory without a cache is zeros here: kernels that count have counted nothing
    local out = tree.output(fakes.command(place, "FLARE_CACHE=off FLARE_MEMORY=direct",
      "spec/support/graph_rows.lua cuda without=bincount 2>&1"))
    os.execute("rm -rf " .. place)
    check(out, random .. " " .. reading:gsub("bincount ", "") .. " " .. host)
  end)
end)
