-- ZeRO of models whose children share a parameter, such as a tied embedding, against one process.
local launch = require "spec.support.launch"

local tools = [[
  local nn, optim = flare.nn, flare.optim
  local function adam(params) return optim.Adam(params, {lr = 0.01}) end
  local function far(zero, model)
    local most, state = 0, zero:state_dict()
    for name, p in model:named_parameters() do
      most = math.max(most, (state[name] - p:detach()):abs():max():item())
    end
    return most
  end
  local function train(o, loss)
    for _ = 1, 3 do
      o:zero_grad()
      loss():backward()
      o:step()
    end
  end
]]

local function good(text)
  local folder = launch.folder(tools .. text)
  local status, out = launch.shell(folder, "exec $F launch -n 2 --tee all script.lua")
  launch.remove(folder)
  assert.equal(0, status, out)
end

describe("ZeRO of a model whose children share a parameter", function()
  it("leaves it whole in stage 3, and divides the others", function()
    good [[
      local function make()
        local model = nn.Sequential(nn.Linear(6, 6), nn.Linear(6, 6)):to "f64"
        model[2].weight = model[1].weight
        for _, p in ipairs(model:parameters()) do nn.init.constant_(p, {value = 0.1}) end
        return model
      end
      local x = flare.randn({16, 6}, {dtype = "f64", generator = flare.generator(1)})
      local part = x:narrow(1, rank * 8 + 1, 8)
      local alone, model = make(), make()
      train(adam(alone:parameters()), function() return (alone(x) - x):square():mean() end)
      local zero = dist.ZeRO(model, adam, {stage = 3})
      train(zero, function() return (zero(part) - part):square():mean() end)
      assert(far(zero, alone) < 1e-12, far(zero, alone))
      assert(model[1].weight:numel() == 36 and model[1].bias:numel() == 0)
    ]]
  end)

  it("calls the loss of a published model in each stage", function()
    good [[
      local function make()
        flare.manual_seed(5)
        return flare.models.GPT2LMHeadModel{vocab_size = 16, n_embd = 8, n_layer = 1, n_head = 2,
          n_positions = 8, attn_pdrop = 0, embd_pdrop = 0, resid_pdrop = 0}:to "f64":train()
      end
      local ids = flare.randint(0, 16, {4, 8}, {generator = flare.generator(2)})
      local part = ids:narrow(1, rank * 2 + 1, 2)
      local alone = make()
      local optimizer = adam(alone:parameters())
      train(optimizer, function() return alone:loss(ids) end)
      for stage = 1, 3 do
        local zero = dist.ZeRO(make(), adam, {stage = stage})
        train(zero, function() return zero:loss(part) end)
        assert(far(zero, alone) < 1e-10, far(zero, alone))
      end
      local zero = dist.ZeRO(nn.Sequential(nn.Linear(2, 2)), adam)
      local ok, why = pcall(zero.loss, zero)
      assert(not ok and why:find("Sequential has no method 'loss'", 1, true), why)
    ]]
  end)
end)
