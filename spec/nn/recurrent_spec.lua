-- Recurrent layers against figures computed by PyTorch 2.11 from the same values.
local flare = require "flare"
local core = require "flare.core"
local nn = flare.nn
local rows = require "spec.support.rows"
local support = require "spec.support.fill"
local fill, near = support.fill, support.near

local function known(layer)
  local state, names = layer:to("f64"):state_dict(), {}
  for name in pairs(state) do names[#names + 1] = name end
  table.sort(names)
  for k, name in ipairs(names) do state[name]:copy_(fill(state[name].shape, k) * 0.5) end
  return layer
end

-- class, options, sum of y * weights, sum of h, then sums of |gradient| of x, weight_hh_l1,
-- bias_ih_l1
local cases = {
  {"RNN", {}, 0.07295276712771226, -0.8165632956659188, 4.906558989603168, 3.6673547824951367,
   1.0744486340018802},
  {"LSTM", {}, -0.027647304640326165, 0.26438740182707193, 2.5962854468991563, 0.4661651483908229,
   1.10278754392337},
  {"GRU", {}, -0.5891992077892058, 1.6365512655256418, 3.397218739596557, 2.0741843758617184,
   2.235095506089025},
  {"LSTM", {layers = 2, bidirectional = true}, -0.7060772128601098, -0.13731262598140304,
   0.555354561886109, 0.2043514208075855, 0.3995641883575859},
  {"GRU", {layers = 2, bidirectional = true}, -1.3390780882536744, 4.7038075955259355,
   1.4684291659676822, 1.2758594433236743, 1.4681456606264724},
}

describe("recurrent layers", function()
  for i, case in ipairs(cases) do
    it(("%s computes and goes backward (%d)"):format(case[1], i), function()
      local layer = known(nn[case[1]](3, 4, case[2]))
      local x = fill({5, 2, 3}, 0):requires_grad_(true)
      local y, h = layer(x)
      local value = (y * fill(y.shape, 3)):sum()
      near(value:detach(), {case[3]}, 1e-9)
      near(h:detach():sum(), {case[4]}, 1e-9)
      value:backward()
      near(x.grad:abs():sum(), {case[5]}, 1e-9)
      near(layer.weight_hh_l1.grad:abs():sum(), {case[6]}, 1e-9)
      near(layer.bias_ih_l1.grad:abs():sum(), {case[7]}, 1e-9)
    end)
  end

  it("take all steps in one call where the device has a kernel for them", function()
    assert.is_true(core.has_kernel("gru", "cpu"))
    for _, device in ipairs(rows.devices) do
      assert.is_true(core.has_kernel("lstm", device))
      for _, name in ipairs{"LSTM", core.has_kernel("gru", device) and "GRU" or nil} do
        local layer = known(nn[name](3, 4)):to(device)
        local function launches(time)
          local before = core.launches(1):match "#(%d+)"
          local y = layer(fill({time, 2, 3}, 0):to(device))
          y:sum():backward()
          return core.launches(1):match "#(%d+)" - before
        end
        launches(10)
        assert.equal(launches(10), launches(40))
      end
    end
    assert.is_false(core.has_kernel("channel_shuffle", "cpu"))
    assert.has_error(function() core.has_kernel("lstn", "cpu") end)
  end)

  it("go on from given states", function()
    local layer = known(nn.LSTM(3, 4, {layers = 2, bidirectional = false}))
    local x = fill({6, 2, 3}, 0)
    local y, h, c = layer(x)
    local y1, h1, c1 = layer(x:narrow(1, 1, 4))
    local y2, h2, c2 = layer(x:narrow(1, 5, 2), h1, c1)
    near(flare.cat({y1, y2}, 1):detach(), y:detach():reshape(-1):tolist(), 1e-12)
    near(h2:detach(), h:detach():reshape(-1):tolist(), 1e-12)
    near(c2:detach(), c:detach():reshape(-1):tolist(), 1e-12)
  end)

  it("give the same in one call and step by step", function()
    for _, bias in ipairs{true, false} do
      local layer = known(nn.GRU(3, 4, {layers = 2, bidirectional = true, bias = bias})):double()
      local function run(opts)
        local x = fill({9, 2, 3}, 0):requires_grad_(true)
        local y, h = layer(x, fill({4, 2, 4}, 1), opts)
        local dx = flare.grad({(y * fill({9, 2, 8}, 2)):sum() + h:square():sum()},
                              {x, table.unpack(layer:parameters())})
        return {y:detach(), h:detach(), table.unpack(dx)}
      end
      local steps = run{lengths = {9, 9}}
      for i, v in ipairs(run()) do near(v, steps[i]:reshape(-1):tolist(), 1e-12) end
    end
  end)

  it("take the batch first if asked, and long sequences", function()
    local layer = nn.GRU(3, 4, {batch_first = true, dropout = 0.1, layers = 2})
    local x = flare.rand(2, 450, 3, {requires_grad = true})
    local y, h = layer(x)
    assert.same({2, 450, 4}, {table.unpack(y.shape)})
    assert.same({2, 2, 4}, {table.unpack(h.shape)})
    y:sum():backward()
    assert.same({2, 450, 3}, {table.unpack(x.grad.shape)})
  end)

  it("take one sequence without a batch", function()
    for _, first in ipairs{true, false} do
      local layer = known(nn.LSTM(3, 4, {layers = 2, bidirectional = true, batch_first = first}))
      local x, state = fill({5, 3}, 0), fill({4, 4}, 1)
      local at = first and 1 or 2
      local y, h, c = layer(x, state, state)
      local all = {layer(x:unsqueeze(at), state:unsqueeze(2), state:unsqueeze(2))}
      assert.same({5, 8}, {table.unpack(y.shape)})
      for i, one in ipairs{y, h, c} do
        near(one:detach(), all[i]:detach():reshape(-1):tolist(), 0)
      end
    end
  end)

  it("end each sequence where it ends, in both directions", function()
    local lengths = {5, 2, 0, 4}
    for name, states in pairs{RNN = 1, GRU = 1, LSTM = 2} do
      local layer = known(nn[name](3, 4, {layers = 2, bidirectional = true}))
      local x = fill({5, 4, 3}, 0):requires_grad_(true)
      local h0 = fill({4, 4, 4}, 1)
      local given = {h0, states == 2 and h0 or nil}
      local all = {layer(x, given[1], states == 2 and h0 or {lengths = lengths},
                         states == 2 and {lengths = flare.tensor(lengths, {dtype = "i64"})} or nil)}
      for k, length in ipairs(lengths) do
        local own = {narrow = h0:narrow(2, k, 1)}
        if length > 0 then
          local alone = {layer(x:narrow(1, 1, length):narrow(2, k, 1), own.narrow,
                               states == 2 and own.narrow or nil)}
          near(all[1][{{1, length}, k}]:detach(), alone[1]:detach():reshape(-1):tolist(), 1e-12)
          for s = 2, 1 + states do
            near(all[s][{{}, k}]:detach(), alone[s]:detach():reshape(-1):tolist(), 1e-12)
          end
        else
          near(all[2][{{}, k}]:detach(), own.narrow:reshape(-1):tolist(), 0)
        end
        if length < 5 then
          near(all[1][{{length + 1, 5}, k}]:abs():sum():detach(), {0}, 0)
        end
      end
      all[1]:sum():backward()
      near(x.grad[{{3, 5}, 2}]:abs():sum(), {0}, 0)
    end
    local y = nn.GRU(3, 4, {batch_first = true})(flare.ones(2, 5, 3), {lengths = {5, 1}})
    near(y[{2, {2, 5}}]:abs():sum():detach(), {0}, 0)
  end)

  it("step by step, as cells", function()
    for name, states in pairs{RNN = 1, GRU = 1, LSTM = 2} do
      local layer = known(nn[name](3, 4))
      local cell = nn[name .. "Cell"](3, 4):double()
      local state = {}
      for key, value in pairs(layer:state_dict()) do state[key:gsub("_l1", "")] = value end
      cell:load_state_dict(state)
      local x, h, c = fill({5, 2, 3}, 0), nil, nil
      for t = 1, 5 do h, c = cell(x[t], h, c) end
      local all = {layer(x)}
      near(h:detach(), all[2]:detach():reshape(-1):tolist(), 1e-12)
      if states == 2 then near(c:detach(), all[3]:detach():reshape(-1):tolist(), 1e-12) end
    end
  end)

  it("go through all steps at once as one by one", function()
    local layer = known(nn.LSTM(3, 4, {layers = 2, bidirectional = true}))
    local function run(opts)
      layer:zero_grad()
      local x = fill({9, 2, 3}, 0):requires_grad_(true)
      local all = {layer(x, opts)}
      local sum = 0
      for k, y in ipairs(all) do sum = sum + (y * fill(y.shape, k)):sum() end
      sum:backward()
      all[4] = x.grad
      for _, p in layer:named_parameters() do all[#all + 1] = p.grad:clone() end
      return all
    end
    local one_by_one = run{lengths = {9, 9}} -- which are cut nowhere
    for k, y in ipairs(run()) do
      near(y:detach(), one_by_one[k]:detach():reshape(-1):tolist(), 1e-12)
    end
  end)

  it("report errors", function()
    local layer = nn.LSTM(3, 4)
    local function message(...)
      local ok, text = pcall(layer, ...)
      assert.is_false(ok)
      return text
    end
    assert.match("LSTM: the input must be %(time, batch, 3%), got %(2, 5%)",
                 message(flare.ones(2, 5)))
    assert.match("h0 must be %(1, 2, 4%), got %(1, 3, 4%)",
                 message(flare.ones(5, 2, 3), flare.ones(1, 3, 4)))
    assert.match("lengths must be 2 numbers", message(flare.ones(5, 2, 3), {lengths = {1}}))
    assert.match("a length of 6, but there are 5 time steps",
                 message(flare.ones(5, 2, 3), {lengths = {1, 6}}))
    assert.match("did you mean 'lengths'", message(flare.ones(5, 2, 3), {lenghts = {1, 6}}))
    assert.has_error(function() nn.RNN(3, 4, {act = "gelu"}) end)
  end)
end)
