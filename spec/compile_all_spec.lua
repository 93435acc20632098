-- Specs of layers and optimizers as one compiled program, plans being made at first sight: a child
-- process for each with FLARE_COMPILE=all,exact. (spec/long/compile.lua runs more of them.)
local tree = require "spec.support.tree"

local files = {"spec/nn/layers_spec.lua", "spec/nn/losses_spec.lua", "spec/nn/recurrent_spec.lua",
  "spec/nn/transformer_spec.lua", "spec/nn/module_spec.lua", "spec/nn/peers_spec.lua",
  "spec/optim_spec.lua", "spec/optim_peers_spec.lua", "spec/autograd_views_spec.lua",
  "spec/grad_scaler_spec.lua", "spec/hooks_spec.lua"}

describe("as one compiled program", function()
  for _, file in ipairs(files) do
    it(file .. " passes", function()
      local out = tree.output(("FLARE_COMPILE=all,exact %s/flare %s -o plainTerminal %s 2>&1")
        :format(tree.build, tree.output "command -v busted":match "%S+", file))
      local passed, failed, errors = out:match "(%d+) success%a* / (%d+) failure%a* / (%d+) error"
      assert(passed, out:sub(-2000))
      assert.is_true(tonumber(passed) > 0)
      assert(failed == "0" and errors == "0", out:sub(-4000))
    end)
  end
end)
