--- Tensor parallel training: the ranks of a group compute parts of every layer (arXiv:1909.08053),
-- with split sequences (arXiv:2205.05198) if asked for. A plan (plans.lua) says what becomes of
-- which layer; models of flare.models and the layers of nn have one.
local class = require "flare.class"
local core = require "flare.core"
local fail = require "flare.fail"
local layers = require "flare.dist.parallel.layers"
local options = require "flare.options"
local plans = require "flare.dist.parallel.plans"
local regions = require "flare.dist.parallel.regions"
local walk = require "flare.nn.walk"

local SEQUENCE = 2 -- the dim of positions, in (batch, time, width)

-- The boundaries of regions: {enter, leave}, from whole tensors or from split sequences.
local function boundaries(group, sequence)
  if sequence then
    return {enter = function(x) return regions.gather(x, group, SEQUENCE) end,
            leave = function(x) return regions.scatter(x, group, SEQUENCE) end}
  end
  return {enter = function(x) return regions.copy(x, group) end,
          leave = function(x) return regions.reduce(x, group) end}
end

local function expect(name, module, cls, what)
  if class.is(module, cls) then return end
  fail("tensor_parallel: %s is to be %s, which needs an nn.%s, but it is a %s", name, what,
    tostring(cls):match "%S+$", getmetatable(module).__name)
end

-- What becomes of a module, by the first word of its entry: f(p, module, name, entry, parent) ->
-- the module in its place, or nil.
local rules = {}

-- The module works on its part of what the fields count, and draws its own random numbers.
function rules.divide(p, module, name, entry)
  for _, field in ipairs(entry.divide or {}) do
    layers.divisible("tensor_parallel", ("%s has %%d %s"):format(name, field), module[field],
      p.group)
    module[field] = module[field] // p.group.size
  end
  local forward = module.forward
  rawset(module, "forward", function(self, ...)
    if not self.training then return forward(self, ...) end
    return regions.with_own_random(p.group, forward, self, ...)
  end)
end

function rules.enter(p, module, name, entry)
  rules.divide(p, module, name, entry)
  local edge = p.edge(name)
  module:register_forward_pre_hook(function(_, x, ...) return edge.enter(x), ... end)
  p.inside[#p.inside + 1] = name .. "."
end

function rules.column(p, module, name, entry, parent)
  expect(name, module, p.nn.Linear, "column")
  local enter = p.edge(name).enter
  for _, region in ipairs(p.inside) do
    if name:sub(1, #region) == region then enter = nil end
  end
  return layers.ColumnLinear(module, {group = p.group, name = name, parts = entry.parts,
    unit = entry.unit and parent[entry.unit], enter = enter, seen = p.seen})
end

function rules.row(p, module, name)
  expect(name, module, p.nn.Linear, "row")
  local edge = p.edge(name)
  return layers.RowLinear(module, {group = p.group, name = name, leave = edge.leave,
    shared = edge == p.outer and p.sequence, seen = p.seen})
end

function rules.vocabulary(p, module, name)
  expect(name, module, p.nn.Embedding, "vocabulary")
  return layers.VocabularyEmbedding(module, {group = p.group, name = name, leave = p.outer.leave,
    seen = p.seen})
end

function rules.head(p, module, name)
  expect(name, module, p.nn.Linear, "head")
  local head = layers.ColumnLinear(module, {group = p.group, name = name, uneven = true,
    enter = not p.sequence and p.outer.enter or nil, seen = p.seen})
  p.head = head
  return head
end

-- Every rank computes its features of the rows of each expert; their sums are whole again before
-- the results of experts are weighed, so the router works alike on all ranks.
function rules.experts(p, module, name)
  if not class.is(module, p.nn.MoE) then return rules.enter(p, module, name, {"enter"}) end
  local group, run_experts = p.group, module.run_experts
  layers.divisible("tensor_parallel", name .. " has %d features of an expert", module.hidden, group)
  layers.divide(module, {gate_proj = 2, up_proj = 2, down_proj = 3}, group)
  rawset(module, "run_experts", function(self, x, ends)
    return regions.reduce(run_experts(self, regions.copy(x, group), ends), group)
  end)
  if not p.sequence then return end
  p.whole[#p.whole + 1] = name .. "."
  module:register_forward_pre_hook(function(_, x) return regions.join(x, group, SEQUENCE) end)
  module:register_forward_hook(function(_, _, y) return regions.own(y, group, SEQUENCE) end)
end

function rules.shared(p, module) regions.share_parameters(module, p.group) end

function rules.norm(p, module)
  if p.sequence then regions.share_parameters(module, p.group) end
end

function rules.last(p, module)
  if not p.sequence then return end
  regions.share_parameters(module, p.group)
  module:register_forward_hook(function(_, _, y) return p.outer.enter(y) end)
end

function rules.dropout(p, module)
  if not p.sequence then return end
  local forward = module.forward
  rawset(module, "forward", function(self, x)
    if not self.training or self.p == 0 then return x end
    return regions.with_own_random(p.group, forward, self, x)
  end)
end

function rules.positions(p, module)
  if not p.sequence then return end
  regions.share_parameters(module, p.group)
  module:register_forward_pre_hook(function(_, at)
    local first, n = regions.range("tensor_parallel", "the sequence", at:size(-1), p.group)
    return at:narrow(-1, first, n)
  end)
end

-- The entry of a module: the model's plan, or that of a class above it.
local function entry_of(p, name)
  for _, line in ipairs(p.plan) do
    if name:find(line.pattern) then return line.entry end
  end
  for _, above in ipairs(p.above) do
    if name:sub(1, #above.name) == above.name then
      local entry = above.plan[name:sub(#above.name + 1)]
      if entry then return type(entry) == "table" and entry or {entry} end
    end
  end
end

-- Logits of all classes from each rank's.
local function joined(head, logits)
  local split = head._split.weight
  local dim, _, mine, most = logits:dim(), layers.rows(split.total, split.group)
  if mine < most then
    local shape = {table.unpack(logits.shape)}
    shape[dim] = most - mine
    logits = core.cat({logits, core.zeros(shape, {dtype = logits.dtype, device = logits.device})},
      dim)
  end
  return regions.join(logits, split.group, dim):narrow(dim, 1, split.total)
end

-- Callers get all logits; the loss of a decoder does not need them.
local function finish_head(model, head)
  local logits = model.logits
  if type(model.criterion) ~= "function" or type(logits) ~= "function" then
    head:register_forward_hook(function(_, _, y) return joined(head, y) end)
    return
  end
  rawset(model, "criterion", function(self, features, targets)
    return layers.cross_entropy(head, logits(self, features):flatten(1, 2), targets:flatten(1, 2))
  end)
  rawset(model, "logits", function(self, features) return joined(head, logits(self, features)) end)
end

--- Divides the layers of a model among the ranks of a mesh's axis, in place. All ranks start with
-- the same model; afterwards each has its part, computes its part, and gets the same results.
--
--     model = dist.tensor_parallel(models.GPT2LMHeadModel(config), dist.mesh{dp = 2, tp = 4})
--
-- @param model a module
-- @param mesh from dist.mesh, or a group
-- @param o.axis the mesh's axis, default "tp"
-- @param o.plan what becomes of which module, as in {["layers.*.attention.wq"] = "column"}; default
--   that of the model's kind. "column", "row", "vocabulary" (an embedding), "head", "experts",
--   "enter" (a region begins at the module's input), "shared"
-- @param o.sequence true: outside of regions each rank has its part of the sequence, which saves
--   memory; for decoders
-- @return the model
return function(model, mesh, o)
  o = options.check("tensor_parallel", o, {axis = "tp", plan = options.none, sequence = false})
  if not walk.is_module(model) then
    fail("tensor_parallel: a model is expected, got %s", options.kind(model))
  end
  local group = require "flare.dist.parallel.axis"("tensor_parallel", mesh, o.axis)
  local kind = getmetatable(model).model_type
  local p = {group = group, sequence = o.sequence, seen = {}, inside = {}, whole = {}, above = {},
    nn = require "flare.nn", plan = plans.list(o.plan or plans[kind] or {})}
  if o.sequence and not (o.plan or kind and plans[kind] and plans.list(plans[kind])[1]
      and (plans[kind].ln_f or plans[kind].norm)) then
    fail("tensor_parallel: sequence = true is for decoders, such as GPT-2 and Llama, or with a "
      .. "plan that has the norms; this is a %s", getmetatable(model).__name)
  end
  p.outer = boundaries(group, o.sequence)
  local plain = boundaries(group, false)
  function p.edge(name)
    for _, region in ipairs(p.whole) do
      if name:sub(1, #region) == region then return plain end
    end
    return p.outer
  end
  local found, count = {}, 0
  walk.visit(model, function(name, module, owner, key, holder)
    found[#found + 1] = {name = name, module = module, owner = owner, key = key, holder = holder}
  end, "module")
  for _, f in ipairs(found) do
    local of_class = plans.classes[getmetatable(f.module).__name]
    if of_class then
      p.above[#p.above + 1] = {name = f.name == "" and "" or f.name .. ".", plan = of_class}
    end
    local entry = entry_of(p, f.name) or of_class and of_class[""] and of_class[""]
    if entry then
      local rule = rules[entry[1]]
      if not rule then
        fail("tensor_parallel: the plan says '%s' for %s%s", tostring(entry[1]), f.name,
          options.hint(tostring(entry[1]), rules))
      end
      local new = rule(p, f.module, f.name, entry, f.owner)
      if new then
        new.training = f.module.training
        f.holder[f.key] = new
      end
      count = count + 1
    end
  end
  if count == 0 then
    fail("tensor_parallel: no layer of this %s is in a plan: pass plan = {[\"name\"] = \"column\", "
      .. "...}, with names of model:named_modules()", getmetatable(model).__name)
  end
  if p.head then finish_head(model, p.head) end
  if p.sequence then model.sequence_parts = group.size end
  require("flare.dist.parallel.state").replace_save(model)
  return model
end
