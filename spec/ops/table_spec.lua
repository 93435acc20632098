-- The op table as a whole: every row has samples, a reference and the shapes at the edges.
local A = require "spec.support.array"
local core = require "flare.core"
local families = require "spec.support.families"

local samples, references = {}, {}
for _, family in ipairs(families) do
  for name, list in pairs(require("spec.support.samples." .. family)) do
    assert(not samples[name], name .. " has samples in two files")
    samples[name] = list
  end
  for name, f in pairs(require("spec.support.reference." .. family)) do references[name] = f end
end

-- Covered by the second order of the unary row they belong to.
local function is_hidden(row) return row.family == "backward" end

local function arrays(sample)
  local list = {}
  for name, v in pairs(sample) do
    if name:sub(1, 1) ~= "_" and A.is(v) then list[#list + 1] = v end
    if type(v) == "table" and not v.shape then
      for _, x in ipairs(v) do if A.is(x) then list[#list + 1] = x end end
    end
  end
  return list
end

local function some(list, wanted)
  for _, sample in ipairs(list) do
    local all = arrays(sample)
    for _, x in ipairs(all) do if wanted(x, sample) then return true end end
    if #all == 0 and sample.shape and wanted({shape = sample.shape}, sample) then return true end
  end
  return false
end

local function missing(check)
  local names = {}
  for _, row in ipairs(core.ops()) do
    if not is_hidden(row) and not check(row,
      samples[row.name] or {}) then names[#names + 1] = row.name end
  end
  return names
end

-- Rows without tensors and without a shape.
local function shapeless(row)
  for _, p in ipairs(row.params) do
    if p.kind == "tensor" or p.type == "shape" then return false end
  end
  return true
end

-- Rows that refuse 0-d inputs: fused gradients, and products of groups of rows.
local no_0d = {}
for name in ("embedding_backward layer_norm_backward rms_norm_backward group_norm_backward "
  .. "batch_norm_backward conv_input_grad conv_weight_grad max_pool_backward avg_pool_backward "
  .. "adaptive_avg_pool_backward attention_backward lstm_cell_backward gru_cell_backward "
  .. "attention_varlen attention_varlen_backward grouped_mm"
  ):gmatch "%S+" do no_0d[name] = true end

describe("every row of the op table", function()
  it("has samples", function()
    assert.same({}, missing(function(_, list) return #list > 0 end))
  end)

  it("has a reference", function()
    assert.same({}, missing(function(row) return references[row.name] end))
  end)

  it("is tried with nothing in it", function()
    assert.same({}, missing(function(row, list)
      return shapeless(row) or some(list, function(x) return A.count(x.shape) == 0 end)
    end))
  end)

  it("is tried without dims", function()
    assert.same({}, missing(function(row, list)
      return shapeless(row) or no_0d[row.name] or some(list, function(x) return #x.shape == 0 end)
    end))
  end)

  it("has a description", function()
    assert.same({}, missing(function(row) return row.doc and #row.doc > 4 end))
  end)

  it("is broadcast where it is elementwise", function()
    assert.same({}, missing(function(row, list)
      local wide = row.family == "binary" or row.family == "compare" or row.family == "ternary"
      if not wide then return true end
      for _, sample in ipairs(list) do
        local all = arrays(sample)
        local two = #all > 1 and not sample._refused
        if two and #all[1].shape ~= #all[2].shape then return true end
      end
      return false
    end))
  end)
end)

-- Differentiated elsewhere, by igamma or in random_spec.lua; histc counts.
local elsewhere = {gamma = true, gamma_da = true, gamma_daa = true, histc = true}

describe("samples", function()
  it("belong to existing operators", function()
    local rows = {}
    for _, row in ipairs(core.ops()) do rows[row.name] = true end
    for name in pairs(samples) do assert(rows[name], name .. " is no row") end
  end)

  it("differentiate every row that can be", function()
    local gradients = require "spec.support.gradients"
    assert.same({}, missing(function(row, list)
      if not row.differentiable or elsewhere[row.name] then return true end
      local floats = false
      for _, p in ipairs(row.params) do
        floats = floats or p.kind == "tensor" and (p.type == "float" or p.type == "any"
          or p.type == "num")
      end
      for _, sample in ipairs(list) do
        if not sample._refused and #gradients.wanted(row, sample) > 0 then return true end
      end
      return not floats
    end))
  end)
end)
