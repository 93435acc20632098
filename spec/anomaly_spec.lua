-- Planted NaNs are found: by operator, module and line.
local class = require "flare.class"
local flare = require "flare"
local nn = require "flare.nn"

describe("anomaly mode", function()
  -- A module that does one thing.
  local function module(f)
    local Planted = class("Planted", nn.Module)
    function Planted:forward(x)
      local y = f(x) -- no tail call, which would leave no trace of the module
      return y
    end
    return nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.Tanh(), Planted()))
  end

  local function first_nan(model)
    local ok, why = pcall(flare.anomaly, function()
      local y = model(flare.ones{3, 2})
      y:sum():backward()
    end)
    assert(not ok, "nothing was found")
    return tostring(why)
  end

  local inf = math.huge
  local forward = {
    {"log", function(x) return (x - 100):log() end},
    {"sqrt", function(x) return (x - 100):sqrt() end},
    {"div", function(x) return (x * 0) / (x * 0) end},
    {"sub", function(x) return (x + inf) - (x + inf) end},
    {"asin", function(x) return (x + 5):asin() end},
    {"pow", function(x) return (x - 100) ^ 0.5 end},
    {"mul", function(x) return (x + inf) * 0 end},
    {"softmax", function(x) return (x:detach() * 0 - inf):softmax() * x end},
    {"matmul", function(x) return (x + inf):matmul(flare.zeros(2, 2)) end},
    {"layer_norm", function(x) return (x + inf):layer_norm(flare.ones(2), flare.zeros(2)) end},
    {"assign", function(x) local y = x * 1; y[{2, 1}] = 0 / 0; return y end},
    {"atanh", function(x) local y = x * 0; y[{{}, 1}]:add_(2):atanh_(); return y end},
  }
  for _, case in ipairs(forward) do
    it("names " .. case[1] .. ", its module and its line", function()
      local why = first_nan(module(case[2]))
      local line = debug.getinfo(case[2], "S").linedefined
      assert.matches("anomaly: " .. case[1] .. " at .-anomaly_spec.lua:" .. line
        .. " gave the first NaN %(in Sequential.2.2%)", why)
    end)
  end

  local backward = {
    {"sqrt_backward", function(x) return (x * 0):sqrt() * 0 end},
    {"asin_backward", function(x) return (x * 0 + 1):asin() * 0 end},
    {"acos_backward", function(x) return (x * 0 - 1):acos() * 0 end},
  }
  for _, case in ipairs(backward) do
    it("names " .. case[1] .. " going backward, and the line that went forward", function()
      local why = first_nan(module(case[2]))
      local line = debug.getinfo(case[2], "S").linedefined
      assert.matches("anomaly: " .. case[1] .. " %(in backward%) at "
        .. ".-anomaly_spec.lua:" .. line .. " gave the first NaN", why)
    end)
  end

  it("says nothing where there is none, and ends", function()
    local x = flare.tensor({1, 2}, {requires_grad = true})
    flare.anomaly(function() (x * x):sum():backward() end)
    assert.same({2, 4}, x.grad:tolist())
    assert.is_true(flare.tensor{-1}:log():isnan():item())
  end)
end)
