--- x:rearrange("b (h d) t -> b h t d", {h = 4}) splits, merges, permutes and repeats dims by name,
-- as einops does; x:reduce("b c h w -> b c", "mean") reduces the dims that the right side lacks.
-- Words are names of dims; parentheses hold dims that are merged into one; 1 is a dim of size 1;
-- "..." is all further dims. Names on the right side only are new dims, whose size must be given.
local core = require "flare.core"
local fail = require "flare.fail"
local options = require "flare.options"

local M = {}

-- One side as a list of groups of names; single names are groups of one, `1` an empty one.
local function side(where, text)
  local groups, group = {}, nil
  for word in text:gsub("[()]", " %0 "):gmatch "%S+" do
    if word == "(" then
      if group then fail("%s: parentheses within parentheses", where) end
      group = {}
    elseif word == ")" then
      if not group then fail("%s: ')' without '('", where) end
      groups[#groups + 1], group = group, nil
    elseif word == "1" then
      if not group then groups[#groups + 1] = {} end
    elseif word == "..." or word:find "^[%a_][%w_]*$" then
      if group then group[#group + 1] = word
      else groups[#groups + 1] = {word, spread = word == "..."} end
    else
      fail("%s: '%s' is no name, 1 or ...", where, word)
    end
  end
  if group then fail("%s: '(' without ')'", where) end
  return groups
end

local function each_name(groups, f)
  for _, group in ipairs(groups) do
    for _, name in ipairs(group) do f(name, group) end
  end
end

local parsed = {rearrange = {}, reduce = {}}
local parsed_count = 0

local function parse(what, pattern)
  local p = parsed[what][pattern]
  if p then return p end
  if type(pattern) ~= "string" then
    fail('%s: expected a pattern like "b t d -> t b d", got %s', what, options.kind(pattern))
  end
  local where = ('%s "%s"'):format(what, pattern)
  local left, right = pattern:match "^(.-)%->(.*)$"
  if not left or right:find("->", 1, true) then fail("%s: one -> is between the sides", where) end
  p = {where = where, left = side(where, left), right = side(where, right), on_left = {},
    on_right = {}}
  for _, name in ipairs {"left", "right"} do
    local on = p["on_" .. name]
    each_name(p[name], function(word, group)
      if on[word] then fail("%s: %s occurs twice on the %s", where, word, name) end
      if word == "..." and name == "left" and not group.spread then
        fail("%s: on the left ... stands alone", where)
      end
      on[word] = true
    end)
  end
  if p.on_right["..."] and not p.on_left["..."] then
    fail("%s: ... is on the right only", where)
  elseif what == "rearrange" and p.on_left["..."] and not p.on_right["..."] then
    fail("%s: ... is on the left only; x:reduce takes dims away", where)
  end
  if parsed_count > 500 then parsed, parsed_count = {rearrange = {}, reduce = {}}, 0 end
  parsed[what][pattern], parsed_count = p, parsed_count + 1
  return p
end

-- Fills in sizes[name] for a group that is merged into a dim of size n.
local function split(where, group, n, dim, sizes)
  local known, open = 1, nil
  for _, name in ipairs(group) do
    if sizes[name] then known = known * sizes[name]
    elseif open then
      fail("%s: dim %d is %d: give the size of %s or of %s", where, dim, n, open, name)
    else open = name end
  end
  if open and known > 0 and n % known == 0 then
    sizes[open] = n // known
  elseif open or known ~= n then
    local list = {}
    for k, name in ipairs(group) do
      list[k] = sizes[name] and name .. " = " .. sizes[name] or name
    end
    fail("%s: dim %d is %d, which %s", where, dim, n,
      #group == 0 and "should be 1" or "does not fit " .. table.concat(list, ", "))
  end
end

-- The sizes of all names, and the names along x, with a name for each dim of the ellipsis.
local function measure(where, p, x, given)
  local sizes, names, dots = {}, {}, {}
  for name, n in pairs(given) do
    if math.type(n) ~= "integer" or n < 0 then
      fail("%s: the size of %s should be an integer, got %s", where, tostring(name), tostring(n))
    end
    if not p.on_left[name] and not p.on_right[name] then
      fail("%s: there is no %s in it", where, tostring(name))
    end
    sizes[name] = n
  end
  local more = x:dim() - #p.left + (p.on_left["..."] and 1 or 0)
  if p.on_left["..."] and more < 0 or not p.on_left["..."] and more ~= 0 then
    fail("%s: %s has %d dims, the left side %s%d", where, tostring(x.shape), x:dim(),
      p.on_left["..."] and "at least " or "", #p.left - (p.on_left["..."] and 1 or 0))
  end
  local dim = 0
  for _, group in ipairs(p.left) do
    if group[1] == "..." then
      for k = 1, more do
        dim = dim + 1
        dots[k] = "..." .. k
        sizes[dots[k]] = x:size(dim)
        names[#names + 1] = dots[k]
      end
    else
      dim = dim + 1
      split(where, group, x:size(dim), dim, sizes)
      table.move(group, 1, #group, #names + 1, names)
    end
  end
  return sizes, names, dots
end

-- The right side: its names one by one, and the shape that they make.
local function target(where, p, sizes, dots)
  local names, shape = {}, {}
  for _, group in ipairs(p.right) do
    local n = 1
    for _, name in ipairs(group) do
      local list = name == "..." and dots or {name}
      for _, each in ipairs(list) do
        if not sizes[each] then
          fail("%s: %s is on the right only: give its size", where, each)
        end
        names[#names + 1], n = each, n * sizes[each]
        if group.spread then shape[#shape + 1] = sizes[each] end
      end
    end
    if not group.spread then shape[#shape + 1] = n end
  end
  return names, shape
end

local function shaped(x, names, sizes)
  local shape = {}
  for k, name in ipairs(names) do shape[k] = sizes[name] end
  return x:reshape(shape)
end

-- x with dims `names` in the order of `to`, which may have new ones.
local function ordered(x, names, to, sizes)
  local at, order, moved, new = {}, {}, false, false
  for k, name in ipairs(names) do at[name] = k end
  local ones, full = {}, {}
  for k, name in ipairs(to) do
    full[k] = sizes[name]
    ones[k] = at[name] and sizes[name] or 1
    if at[name] then
      order[#order + 1] = at[name]
      moved = moved or at[name] ~= #order
    else
      new = true
    end
  end
  if moved then x = x:permute(order) end
  return new and x:reshape(ones):expand(full) or x
end

local reductions = {
  sum = function(x, dims) return x:sum(dims) end,
  mean = function(x, dims) return x:mean(dims) end,
  prod = function(x, dims) return x:prod(dims) end,
  max = function(x, dims) return x:amax(dims) end,
  min = function(x, dims) return x:amin(dims) end,
  any = function(x, dims) return x:any(dims) end,
  all = function(x, dims) return x:all(dims) end,
}

-- Where every dim has a name and none is new, a plan is made once for each pattern: for each dim of
-- x the slots of its names, the permutation of the slots, and the slots of each dim of the result.
local function prepare(p)
  if p.on_left["..."] or p.on_right["..."] then return false end
  local f = {slot = {}, left = {}, right = {}, order = {}, n = 0, split = false, join = false}
  for d, group in ipairs(p.left) do
    f.left[d] = {}
    f.split = f.split or #group ~= 1
    for k, name in ipairs(group) do
      if not p.on_right[name] then return false end
      f.n = f.n + 1
      f.slot[name], f.left[d][k] = f.n, f.n
    end
  end
  for d, group in ipairs(p.right) do
    f.right[d] = {}
    f.join = f.join or #group ~= 1
    for k, name in ipairs(group) do
      if not f.slot[name] then return false end
      f.order[#f.order + 1] = f.slot[name]
      f.right[d][k] = f.slot[name]
    end
  end
  f.moves = false
  for k, slot in ipairs(f.order) do f.moves = f.moves or k ~= slot end
  return f
end

-- The fast form of `run`; nil if there is an error, which `run` then raises.
local function quick(f, x, given)
  if x:dim() ~= #f.left then return end
  local sizes, shape = {}, {}
  for name, n in next, given or shape do
    local slot = f.slot[name]
    if not slot or math.type(n) ~= "integer" or n < 1 then return end
    sizes[slot] = n
  end
  for d, slots in ipairs(f.left) do
    local n, open = x:size(d), nil
    for _, slot in ipairs(slots) do
      local known = sizes[slot]
      if not known then
        if open then return end
        open = slot
      elseif n % known ~= 0 then return
      else n = n // known end
    end
    if open then sizes[open] = n elseif n ~= 1 then return end
  end
  if f.split then x = x:reshape(sizes) end
  if f.moves then x = x:permute(f.order) end
  if not f.join then return x end
  for d, slots in ipairs(f.right) do
    local n = 1
    for _, slot in ipairs(slots) do n = n * sizes[slot] end
    shape[d] = n
  end
  return x:reshape(shape)
end

local function run(what, x, pattern, how, given)
  local ready = parsed[what][pattern]
  if ready and not how and core.is_tensor(x) and (given == nil or type(given) == "table") then
    if ready.quick == nil then ready.quick = prepare(ready) end
    local y = ready.quick and quick(ready.quick, x, given)
    if y then return y end
  end
  if not core.is_tensor(x) then fail("%s: x: expected a tensor, got %s", what, options.kind(x)) end
  local p = parse(what, pattern)
  local where = p.where
  if given ~= nil and type(given) ~= "table" then
    fail("%s: sizes: expected a table like {h = 4}, got %s", where, options.kind(given))
  end
  local sizes, names, dots = measure(where, p, x, given or {})
  local to, shape = target(where, p, sizes, dots)
  local stays, gone, left = {}, {}, {}
  for _, name in ipairs(to) do stays[name] = true end
  x = shaped(x, names, sizes)
  for k, name in ipairs(names) do
    if stays[name] then left[#left + 1] = name else gone[#gone + 1] = k end
  end
  if #gone > 0 then
    if not how then
      fail("%s: %s is on the left only; x:reduce takes dims away", where, names[gone[1]])
    end
    x = how(x, gone)
  end
  return ordered(x, left, to, sizes):reshape(shape)
end

--- Splits, permutes, merges and repeats dims, as einops.rearrange and einops.repeat do.
-- @param pattern such as "b (h d) t -> b h t d"
-- @param sizes {h = 4}: sizes that do not follow from x's shape
function M.rearrange(x, pattern, sizes)
  return run("rearrange", x, pattern, nil, sizes)
end

--- Rearranges dims, and reduces those that are on the left side only, as einops.reduce does.
-- @param how "sum", "mean", "prod", "max", "min", "any", "all", or a function of x and dims
function M.reduce(x, pattern, how, sizes)
  local f = type(how) == "function" and how or reductions[how]
  if not f then
    fail("reduce: how is sum, mean, prod, max, min, any, all or a function, got %s", tostring(how))
  end
  return run("reduce", x, pattern, f, sizes)
end

return M
