--- Arguments for the collectives in a process that is alone; spec/dist_spec.lua has many ranks.
local A = require "spec.support.array"

local S = {}
local f = A.fill
local no_group = {x = f{2}, group = 3, _refused = "no group 3"}

local function reductions(rooted)
  local list = {}
  for _, reduce in ipairs {"sum", "mean", "min", "max"} do
    local whole = reduce == "mean" and "f64 f32 f16 bf16" or reduce == "sum"
      and "f64 f32 f16 bf16 i64 i32 i16 i8 u8" or nil
    list[#list + 1] = {x = f{2, 3}, reduce = reduce, _dtypes = whole}
  end
  for _, x in ipairs {f{}, f{0, 3}, f{300}} do
    list[#list + 1] = {x = x, reduce = "max"}
  end
  list[#list + 1] = {x = A.whole({2}, 0, 9), reduce = "mean", _refused = "no mean"}
  list[#list + 1] = {x = A.full({2}, 1, "bool"), _refused = "any"}
  list[#list + 1] = no_group
  if rooted then list[#list + 1] = {x = f{2}, root = 1, _refused = "no rank 1"} end
  return list
end

S.comm_all_reduce = reductions(false)
S.comm_reduce = reductions(true)
S.comm_broadcast = {
  {x = f{2, 3}}, {x = f{}}, {x = f{0, 3}}, {x = f{2}, root = -1, _refused = "no rank"}, no_group,
}
S.comm_all_gather = {{x = f{2, 3}}, {x = f{}}, {x = f{0, 3}}, no_group}
S.comm_gather = {
  {x = f{2, 3}}, {x = f{}}, {x = f{0, 3}}, {x = f{2}, root = 1, _refused = "no rank 1"}, no_group,
}
local split = {{x = f{2, 3}}, {x = f{4}}, {x = f{0, 3}}, {x = f{}, _refused = "no parts"}, no_group}
S.comm_all_to_all = split
S.comm_reduce_scatter = {
  {x = f{2, 3}, reduce = "mean", _dtypes = "f64 f32 f16 bf16"}, {x = f{4}, reduce = "min"},
  {x = f{0, 3}, reduce = "max"}, {x = f{}, reduce = "max", _refused = "no parts"},
  {x = f{2}, group = 3, reduce = "max", _refused = "no group 3"},
}
S.comm_scatter = {
  {x = f{2, 3}}, {x = f{2, 3}, shape = {2, 3}}, {x = f{0, 3}}, {x = f{}, _refused = "no parts"},
  {x = f{4}, shape = {2}, _refused = "but the parts of x"}, no_group,
}
S.comm_send = {
  {x = f{2}, peer = 0, _refused = "this rank itself"}, {x = f{}, peer = 1, _refused = "no rank 1"},
  {x = f{0}, peer = -1, _refused = "no rank"},
}
S.comm_recv = {
  {shape = {2}, peer = 0, _refused = "this rank itself"},
  {shape = {}, peer = 1, _refused = "no rank 1"},
  {shape = {0}, peer = -1, _refused = "no rank"},
}
S.comm_barrier = {{}, {group = 1, _refused = "no group 1"}}

return S
