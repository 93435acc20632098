-- Wrong arguments of every public function and class: the error says what is wrong at the caller's
-- line, so it never begins with a line of the library.
local flare = require "flare"
local layers = require "spec.support.nn_classes"

local function nothing() end

-- Lists of arguments, at most three each; the texts are paths below a folder.
local function lists(folder)
  local x, layer, path = flare.ones(2, 3), flare.nn.Linear(2, 2), folder .. "/x"
  return {
    {}, {3}, {path}, {{}}, {x}, {x, x}, {x, 3}, {x, path}, {x, {}}, {nothing}, {true, false},
    {x, x, x}, {x, {}, {}}, {path, folder .. "/y"}, {3, 3}, {{}, {}}, {layer}, {layer, 3},
    {{1, 2}}, {x, nil, 3}, {layer, nothing}, {nothing, 3}, {nothing, x}, {{a = 1}}, {0 / 0}, {-1},
    {1, -1}, {x, x, 3}, {layer, x}, {{x, 3}}, {{x}, path}, {layer, {a = 1}}, {path, {a = 1}},
    {x, true, true}, {3, x}, {nil, x}, {path, x}, {nothing, x, x}, {x, nothing}, {{x}, {x}},
    {x, path, path}, {3, 3, 3}, {nil, nil, x},
  }
end

-- Parts of the library, and functions beside them that are written in Lua.
local parts = {"nn", "optim", "distributions", "log", "io", "data", "onnx", "profile", "cuda",
               "metrics", "train"}
local functions = {
  "grad", "hessian", "jacobian", "vjp", "jvp", "vmap", "checkpoint", "gradcheck", "func", "kernel",
  "elementwise", "reduce", "einsum", "meshgrid", "tensordot", "explain", "compile", "compile_stats",
  "help", "pad_sequence", "scope", "autocast", "no_grad", "load", "class", "hstack", "vstack",
  "stack", "cat", "split", "tensor_split", "atleast_1d", "atleast_2d", "atleast_3d",
  "broadcast_tensors",
}
-- They change the process, or are for one purpose inside the library.
local without = {core = true, memory = true, file = true, save = true, encode = true, start = true}

-- All functions and classes of a table and of the tables in it, by name.
local function collect(t, name, found, seen)
  if seen[t] then return end
  seen[t] = true
  for key, value in pairs(t) do
    if type(key) == "string" and not key:find "^_" and not without[key] then
      local meta = getmetatable(value)
      local full = name .. "." .. key
      if type(value) == "function" or type(value) == "table" and meta and meta.__call then
        found[full] = value
      elseif type(value) == "table" then
        collect(value, full, found, seen)
      end
    end
  end
end

-- Calls f with each list, after `self` if it is given; notes errors at a line of the library.
local function try(name, f, folder, bad, self)
  for k, list in ipairs(lists(folder)) do
    if self then table.insert(list, 1, self) end
    local ok, value = pcall(f, table.unpack(list, 1, 4))
    if ok and type(value) == "table" then ok, value = pcall(tostring, value) end
    if not ok and tostring(value):find "^<flare>/" then
      bad[#bad + 1] = ("%s, list %d: %s"):format(name, k, tostring(value):match "[^\n]*")
    end
  end
end

describe("wrong arguments", function()
  local folder = os.tmpname()
  setup(function() assert(os.remove(folder) and flare.core.file.mkdir(folder)) end)
  teardown(function() os.execute(("rm -rf '%s'"):format(folder)) end)

  it("are an error at the caller's line, never at one of the library", function()
    local found, names, bad = {}, {}, {}
    for _, part in ipairs(parts) do collect(flare[part], part, found, {}) end
    for _, name in ipairs(functions) do found["flare." .. name] = flare[name] end
    for name in pairs(found) do names[#names + 1] = name end
    table.sort(names)
    assert.is_true(#names > 250, #names .. " functions")
    for _, name in ipairs(names) do try(name, found[name], folder, bad) end
    assert(#bad == 0, "\n  " .. table.concat(bad, "\n  "))
  end)

  it("of layers are, too", function()
    local bad = {}
    for name, layer in pairs(layers) do
      if layer.make then try(name, layer.make(flare.nn), folder, bad) end -- some are functions
    end
    table.sort(bad)
    assert(#bad == 0, "\n  " .. table.concat(bad, "\n  "))
  end)

  it("of methods that training calls are, too", function()
    local nn, optim, bad = flare.nn, flare.optim, {}
    local objects = {
      {nn.Linear(2, 2), "apply", "load_state_dict", "to", "freeze", "train"},
      {optim.Adam(nn.Linear(2, 2)), "add_group", "load_state_dict", "step"},
      {optim.GradScaler(), "scale", "step", "unscale_", "update", "load_state_dict"},
      {optim.EMA(nn.Linear(2, 2)), "update", "load_state_dict"},
      {flare.distributions.Normal(0, 1), "sample", "log_prob", "cdf", "icdf"},
      {flare.distributions.Categorical{logits = flare.zeros(3)}, "sample", "log_prob"},
      {flare.data.Loader(flare.data.Tensors(flare.ones(4, 2)), {batch = 2}), "load_state_dict"},
      {flare.data.Tensors(flare.ones(4, 2)), "fetch"},
      {flare.data.Subset(flare.data.Tensors(flare.ones(4, 2)), {1, 3}), "fetch"},
      {flare.data.Concat(flare.data.Tensors(flare.ones(4, 2))), "fetch"},
      {flare.data.Windows(flare.arange(1, 9), 3), "fetch"},
      {flare.train.Packed{{ids = {1, 2, 3}}}, "fetch"},
    }
    for name, metric in pairs(flare.metrics) do
      if type(metric) == "table" and metric.sums and name ~= "Metric" then
        objects[#objects + 1] = {metric(), "update", "load_state_dict"}
      end
    end
    for _, object in ipairs(objects) do
      for k = 2, #object do
        local name = object[k]
        try(getmetatable(object[1]).__name .. ":" .. name, object[1][name], folder, bad, object[1])
      end
    end
    assert(#bad == 0, "\n  " .. table.concat(bad, "\n  "))
  end)
end)
