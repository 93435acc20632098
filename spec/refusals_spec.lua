-- What gradients are refused: every input of every sample is tried, to the third order, and what
-- comes is compared with the table in docs/refusals.md, which this file writes anew when run
-- with FLARE_WRITE=1. No more than 12 are allowed.
local flare = require "flare"
local A = require "spec.support.array"
local families = require "spec.support.families"
local gradients = require "spec.support.gradients"
local rows = require "spec.support.rows"

local path = "docs/refusals.md"
local heading = [[
# What cannot be differentiated

After this page you know which gradients flare does not have, and what to use instead.

Every operator with a gradient has second and higher derivatives too. The table lists all
exceptions. Each of them raises an error that names the operator; no gradient is missing silently.

```lua
local flare = require "flare"
local x = flare.tensor({{1, 2}, {3, 4}}, {requires_grad = true})
print(pcall(function() return x:geqrf():sum():backward() end))
local q = x:qr()                                   -- has a gradient
q:sum():backward()
print(x.grad.shape)
```
```output
false	...geqrf: its results cannot be differentiated
(2, 2)
```

| operator | derivative | message | use instead |
|---|---|---|---|
]]
local footer = [[

See also: [autograd](autograd.md), [custom functions](autograd.md#custom-functions-and-hooks),
[every operator](ops.md).
]]

-- What to do about each; a refusal that is not here fails.
local instead = {
  ["gamma, igamma, igammac by a"] = "derivatives by the other input",
  attention_backward = "`attention`, whose gradient is differentiable",
  batch_norm_backward = "`batch_norm`, whose gradient is differentiable",
  cross_entropy_backward = "`cross_entropy`, whose gradient is differentiable",
  geqrf = "`qr`, which has a gradient",
  group_norm_backward = "`group_norm`, whose gradient is differentiable",
  gru_cell_backward = "`gru_cell`, whose gradient is differentiable",
  layer_norm_backward = "`layer_norm`, whose gradient is differentiable",
  lstm_cell_backward = "`lstm_cell`, whose gradient is differentiable",
  rms_norm_backward = "`rms_norm`, whose gradient is differentiable",
  zeta = "an `s` that does not require a gradient",
  checkpoint = "call the function itself",
}

local found = {}

-- A singular matrix has no derivative there: that is of the sample, not of the operator.
local function note(name, order, message)
  if tostring(message):find "is singular" then return end
  message = tostring(message):gsub("^[^:]*:%d+: ", ""):gsub("\n.*", "")
  if message:find "gamma_daa" then name, order = "gamma, igamma, igammac by a", 3 end
  found[name] = found[name] or {}
  found[name][order] = message
end

-- One more derivative of a scalar: its gradients' sum, nil when there are none. Refusals noted.
local function derive(name, order, y, leaves)
  local ok, grads = pcall(function()
    return table.pack(flare.grad(y, leaves, {create_graph = true, allow_unused = true}))
  end)
  if not ok then
    note(name, order, grads)
    return
  end
  local sum
  for k = 1, #leaves do
    local g = grads[k]
    if g and g.requires_grad then sum = sum and sum + g:square():sum() or g:square():sum() end
  end
  return sum
end

-- Every float input alone, also those that samples leave out.
local function try(row, sample)
  for _, p in ipairs(row.params) do
    local v = sample[p.name]
    local few = A.is(v) and A.is_float(v.dtype) and #v > 0 and #v < 100
    local list = type(v) == "table" and not v.shape and A.is(v[1]) and #v[1] > 0 and #v[1] < 100
    if few or list then
      local one = setmetatable({_grad = {p.name}}, {__index = sample})
      for key, value in pairs(sample) do if key ~= "_grad" then one[key] = value end end
      local f, inputs = gradients.prepared(row, one)
      local leaves, y = {}, nil
      for k, x in ipairs(inputs) do leaves[k] = x:detach():requires_grad_(true) end
      local results = table.pack(pcall(f, table.unpack(leaves)))
      -- An input that the call writes, such as running_mean, cannot require a gradient.
      local is_written = p.written and not results[1] and
        tostring(results[2]):find "is written, so it cannot require a gradient"
      assert(results[1] or is_written, results[2])
      for _, r in ipairs(results[1] and table.pack(table.unpack(results, 2)) or {}) do
        if flare.is_tensor(r) and r.requires_grad then
          y = y and y + r:square():sum() or r:square():sum()
        end
      end
      for order = 1, y and 3 or 0 do
        y = y and derive(row.name, order, y, leaves)
      end
    end
  end
end

local function try_all()
  for _, family in ipairs(families) do
    for name, list in pairs(require("spec.support.samples." .. family)) do
      local row = rows.rows[name]
      for _, sample in ipairs(list) do
        if not sample._refused and not name:find "_step$" then try(row, sample) end
      end
    end
  end
  local x = flare.tensor({1, 2}, {dtype = "f64", requires_grad = true})
  derive("checkpoint", 2, flare.checkpoint(function(t) return t * t end, x):sum(), {x})
end

local orders = {"the gradient", "the second derivative", "the third derivative"}

local function written()
  local names, lines = {}, {heading}
  for name in pairs(found) do names[#names + 1] = name end
  table.sort(names)
  for _, name in ipairs(names) do
    for order, message in pairs(found[name]) do
      lines[#lines + 1] = ("| %s | %s | %s | %s |\n"):format(
        name:find " " and name or "`" .. name .. "`", orders[order], message, instead[name] or "?")
    end
  end
  lines[#lines + 1] = footer
  return table.concat(lines), names
end

describe("refusals of gradients", function()
  setup(try_all)

  it("are at most 12", function()
    local _, names = written()
    assert.is_true(#names > 0 and #names <= 12, #names .. ": " .. table.concat(names, " "))
  end)

  it("name the operator and have a way out", function()
    for name, list in pairs(found) do
      assert(instead[name], name .. " has no way out: " .. (next(list) and select(2, next(list))))
      for _, message in pairs(list) do
        local named = name:find " " or message:find(name, 1, true)
        assert(named, name .. " is not named in: " .. message)
      end
    end
    for name in pairs(instead) do assert(found[name], name .. " is not refused any more") end
  end)

  it("are those of docs/refusals.md", function()
    local text = written()
    if os.getenv "FLARE_WRITE" then
      local file = assert(io.open(path, "w"))
      file:write(text)
      file:close()
    end
    local file = assert(io.open(path))
    local have = file:read "a"
    file:close()
    assert(have == text, path .. " is out of date: FLARE_WRITE=1 busted spec/refusals_spec.lua")
  end)
end)
