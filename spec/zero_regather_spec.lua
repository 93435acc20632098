-- ZeRO's third stage with a tape that keeps no parameters: backward gathers them again.
local launch = require "spec.support.launch"

local tools = [[
  local nn, optim = flare.nn, flare.optim
  flare.manual_seed(9)
  local x = flare.randn({8 * size, 64}, {dtype = "f64"})
  local a = x:narrow(1, rank * 8 + 1, 8)
  -- k layers, each a unit, that are used as `use` says
  local function make(k, use, dtype)
    flare.manual_seed(3)
    local model = nn.Module()
    model.parts = nn.ModuleList()
    for _ = 1, k do model.parts:append(nn.Sequential(nn.Linear(64, 64), nn.Tanh())) end
    model.forward = use or function(self, input)
      for k = 1, #self.parts do input = self.parts[k](input) end
      return input
    end
    return model:to(dtype or "f64")
  end
  local function zero_of(model, o)
    o = o or {}
    o.stage, o.units = 3, {}
    for k = 1, #model.parts do o.units[k] = model.parts[k] end
    return dist.ZeRO(model, function(p) return optim.SGD(p, {lr = 0.1, momentum = 0.9}) end, o)
  end
  local function sgd(model) return optim.SGD(model:parameters(), {lr = 0.1, momentum = 0.9}) end
  local function same(zero, model)
    local state = zero:state_dict()
    for name, p in model:named_parameters() do
      local far = (state[name] - p:detach()):abs():max():item()
      assert(far < 1e-13, name .. " is off by " .. far)
    end
  end
]]

local function good(n, text) launch.good(n, tools .. text) end

describe("ZeRO that gathers again", function()
  it("has no weights on the tape, nor their casts", function()
    good(2, [[
      local layers <const>, mib <const> = 8, 2 ^ 20
      local function measure(o, autocast)
        local model = nn.Sequential()
        for k = 1, layers do model:append(nn.Linear(512, 512, {bias = false})) end
        local zero = dist.ZeRO(model, optim.SGD, o)
        local input = flare.randn(2, 512)
        local kept
        for _ = 1, 2 do
          zero:zero_grad()
          flare.core.collect()
          local before = flare.memory.stats().live
          local loss = flare.autocast(autocast, function() return zero(input):square():mean() end)
          flare.core.collect()
          kept = (flare.memory.stats().live - before) / mib
          loss:backward()
          zero:step()
        end
        return kept
      end
      for _, autocast in ipairs {false, "bf16"} do
        local of = autocast and 0.5 or 1 -- MiB of a layer
        -- the last layer stays where it is; the first one is on its way at each step's start
        local again = measure({stage = 3}, autocast)
        assert(again < of + 0.2, again)
        local keeps = measure({stage = 3, regather = false}, autocast)
        assert(keeps > (layers - 1) * of - 1.1, keeps)
      end
    ]])
  end)

  it("gathers in the dtype of use, one call ahead", function()
    good(2, [[
      local model = make(4, nil, "f32")
      local zero, seen = zero_of(model), {}
      local plain = dist.world.all_gather
      dist.world.all_gather = function(group, t, ...)
        seen[#seen + 1] = t.dtype
        return plain(group, t, ...)
      end
      for _ = 1, 2 do
        seen = {}
        local loss = flare.autocast("bf16", function() return zero(a:to "f32"):square():sum() end)
        loss:backward()
        assert(zero.late and #zero.late == 0)
        zero:step()
      end
      -- the first unit's has been sent for by the step before, and is for the next one
      -- and the last one's is there still; the first one's input needs no gradient
      assert(table.concat(seen, " ") == "f32 f32 f32 bf16 bf16 f32", table.concat(seen, " "))
    ]])
  end)

  it("is one process where units are used twice, or one after another's backward", function()
    good(2, [[
      local function twice(self, input)
        local h = self.parts[1](input)
        for _ = 1, 2 do h = self.parts[2](h) + self.parts[1](h) end
        self.aside = h:square():mean() -- of the second call of the last unit
        return self.parts[3](h)
      end
      local one, other = make(3, twice), make(3, twice)
      local zero, o = zero_of(other), sgd(one)
      for _ = 1, 4 do
        o:zero_grad()
        zero:zero_grad()
        for part = 1, 2 do
          (one(x):square():mean() + one.aside * part):backward();
          (zero(a):square():mean() + other.aside * part):backward()
        end
        local first, second = zero(a), zero(a * 0.5) -- the older one goes first
        first:square():mean():backward()
        second:square():mean():backward()
        one(x):square():mean():backward()
        one(x * 0.5):square():mean():backward()
        o:step()
        zero:step()
        same(zero, one)
      end
    ]])
  end)

  it("goes through a graph again, and through gradients of gradients", function()
    good(2, [[
      local one, other = make(3), make(3)
      local zero, o = zero_of(other), sgd(one)
      local function go(model, input)
        local loss = model(input):square():mean()
        loss:backward{retain_graph = true}
        loss:backward()
        input = input:clone():requires_grad_(true)
        local value = model(input):square():sum() / size
        local g = flare.grad(value, input, {create_graph = true})
        if type(g) == "table" then g = g[1] end
        (g:square():sum() * (model == one and 1 or size)):backward()
      end
      for _ = 1, 3 do
        o:zero_grad()
        zero:zero_grad()
        go(one, x)
        go(zero, a)
        o:step()
        zero:step()
        same(zero, one)
      end
    ]])
  end)

  it("says so when parameters have changed between forward and backward", function()
    good(2, [[
      local zero = zero_of(make(3))
      local late = zero(a):square():mean()
      zero(a):square():mean():backward()
      zero:step()
      local ok, why = pcall(late.backward, late)
      assert(not ok and why:find("parameters as they were in forward, and they have changed since",
        1, true), why)
      zero:zero_grad()
      zero(a):square():mean():backward() -- nothing is left of it
      zero:step()
    ]])
  end)

  it("keeps nothing of a forward that has no backward", function()
    good(2, [[
      local zero = zero_of(make(3))
      for _ = 1, 5 do
        zero(a)
        flare.core.collect()
      end
      assert(#zero.calls <= 6, #zero.calls)
    ]])
  end)

  it("works alone", function()
    good(1, [[
      local one, zero = make(3), zero_of(make(3))
      local o = sgd(one)
      for _ = 1, 3 do
        o:zero_grad()
        zero:zero_grad()
        one(x):square():mean():backward()
        zero(x):square():mean():backward()
        o:step()
        zero:step()
      end
      same(zero, one)
    ]])
  end)
end)
