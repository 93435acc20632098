--- Grammars as networks: rules of nodes become states and edges over bytes, for core.text.grammar.
--
-- A node is {text = "bytes"}, {chars = a list of {first, last} code points}, {seq = nodes},
-- {alt = nodes}, {rep = node, min =, max = or nil} or {ref = the name of a rule}.
local fail = require "flare.fail"

local M = {}

local EPSILON, CALL = 256, 257
local MOST = 1 << 20 -- states

---------------------------------------------------------------- characters

-- Ranges of bytes for the characters lo to hi, whose encodings have n bytes.
local function add_same_length(out, lo, hi, n)
  for k = 1, n - 1 do
    local mask = (1 << 6 * k) - 1
    if lo & ~mask ~= hi & ~mask then
      local cut = lo & mask ~= 0 and (lo | mask) or hi & mask ~= mask and (hi & ~mask) - 1
      if cut then
        add_same_length(out, lo, cut, n)
        return add_same_length(out, cut + 1, hi, n)
      end
    end
  end
  local first, last, ranges = utf8.char(lo), utf8.char(hi), {}
  for k = 1, n do ranges[k] = {first:byte(k), last:byte(k)} end
  out[#out + 1] = ranges
end

-- Ranges of bytes for the characters lo to hi; those that UTF-8 does not have are left out.
local function sequences_of(lo, hi)
  local out = {}
  for n, range in ipairs{{0, 0x7f}, {0x80, 0x7ff}, {0x800, 0xd7ff}, {0xe000, 0xffff},
                         {0x10000, 0x10ffff}} do
    local from, to = math.max(lo, range[1]), math.min(hi, range[2])
    if from <= to then add_same_length(out, from, to, n > 3 and n - 1 or n) end
  end
  return out
end

--- Sorted ranges without overlaps, of the characters that are in some ranges, or in none of them.
function M.ranges(list, negated)
  table.sort(list, function(a, b) return a[1] < b[1] end)
  local out, behind = {}, 0
  for _, range in ipairs(list) do
    local last = out[#out]
    if negated then
      if range[1] > behind then out[#out + 1] = {behind, range[1] - 1} end
      behind = math.max(behind, range[2] + 1)
    elseif last and range[1] <= last[2] + 1 then
      last[2] = math.max(last[2], range[2])
    else
      out[#out + 1] = {range[1], range[2]}
    end
  end
  if negated and behind <= 0x10ffff then out[#out + 1] = {behind, 0x10ffff} end
  return out
end

---------------------------------------------------------------- the network

local function new_state(b)
  b.states = b.states + 1
  if b.states > MOST then fail("grammar: it has more than %d states", MOST) end
  return b.states - 1
end

local function edge(b, from, a, z, to)
  local e, n = b.edges, #b.edges
  e[n + 1], e[n + 2], e[n + 3], e[n + 4] = from, a, z, to
end

local function chain(b, from, ranges, to)
  for k, range in ipairs(ranges) do
    local next_state = k == #ranges and to or new_state(b)
    edge(b, from, range[1], range[2], next_state)
    from = next_state
  end
end

local emit

-- `node` from min to max times; parts that are long become rules of their own.
local function emit_rep(b, node, from, to)
  local part, min, max = node.rep, node.min or 0, node.max
  if not part.chars and not part.ref and math.max(min, max or 0) > 1 then
    local name = {} -- of no other rule
    b.rules[name], part = part, {ref = name}
  end
  for _ = 1, min do
    local next_state = new_state(b)
    emit(b, part, from, next_state)
    from = next_state
  end
  if not max then
    local loop = new_state(b)
    edge(b, from, EPSILON, 0, loop)
    emit(b, part, loop, loop)
    return edge(b, loop, EPSILON, 0, to)
  end
  for _ = min + 1, max do
    local next_state = new_state(b)
    edge(b, from, EPSILON, 0, to)
    emit(b, part, from, next_state)
    from = next_state
  end
  edge(b, from, EPSILON, 0, to)
end

local function rule_number(b, name)
  if not b.numbers[name] then
    b.order[#b.order + 1] = name
    b.numbers[name] = #b.order - 1
  end
  return b.numbers[name]
end

-- Edges for a node between two states.
function emit(b, node, from, to)
  if node.text then
    if node.text == "" then return edge(b, from, EPSILON, 0, to) end
    local ranges = {}
    for k = 1, #node.text do ranges[k] = {node.text:byte(k), node.text:byte(k)} end
    chain(b, from, ranges, to)
  elseif node.chars then
    for _, range in ipairs(node.chars) do
      for _, ranges in ipairs(sequences_of(range[1], range[2])) do chain(b, from, ranges, to) end
    end
  elseif node.seq then
    if #node.seq == 0 then return edge(b, from, EPSILON, 0, to) end
    for k, part in ipairs(node.seq) do
      local next_state = k == #node.seq and to or new_state(b)
      emit(b, part, from, next_state)
      from = next_state
    end
  elseif node.alt then
    for _, part in ipairs(node.alt) do emit(b, part, from, to) end
  elseif node.rep then
    emit_rep(b, node, from, to)
  else
    edge(b, from, CALL, rule_number(b, node.ref), to)
  end
end

---------------------------------------------------------------- left recursion

-- Whether a node may be empty, by what is known of rules.
local function nullable(node, known)
  if node.text then return node.text == "" end
  if node.chars then return false end
  if node.ref then return known[node.ref] end
  if node.rep then return (node.min or 0) == 0 or nullable(node.rep, known) end
  for _, part in ipairs(node.seq or node.alt) do
    local empty = nullable(part, known)
    if node.alt and empty then return true end
    if node.seq and not empty then return false end
  end
  return node.seq ~= nil
end

-- The rules that a node may begin with, into `out`.
local function begins(node, known, out)
  if node.ref then
    out[node.ref] = true
  elseif node.rep then
    begins(node.rep, known, out)
  elseif node.alt or node.seq then
    for _, part in ipairs(node.alt or node.seq) do
      begins(part, known, out)
      if node.seq and not nullable(part, known) then return end
    end
  end
end

local function check_recursion(rules)
  local known, changed = {}, true
  while changed do
    changed = false
    for name, node in pairs(rules) do
      if not known[name] and nullable(node, known) then known[name], changed = true, true end
    end
  end
  local state = {}
  local function visit(name)
    if state[name] == "open" then
      fail("grammar: the rule '%s' begins with itself; write a repetition", tostring(name))
    end
    if state[name] then return end
    state[name] = "open"
    local first = {}
    begins(rules[name], known, first)
    for other in pairs(first) do visit(other) end
    state[name] = "done"
  end
  for name in pairs(rules) do visit(name) end
end

--- The network of rules, for core.text.grammar.
-- @param rules {name = node}
-- @param root the name of the rule that whole texts match
function M.network(rules, root)
  check_recursion(rules)
  local b = {states = 0, starts = {}, ends = {}, edges = {}, rules = rules, order = {},
             numbers = {}}
  rule_number(b, root)
  local k = 0
  while k < #b.order do -- rules are numbered as they are first called
    k = k + 1
    local node = rules[b.order[k]]
    local from, to = new_state(b), new_state(b)
    b.starts[k], b.ends[k] = from, to
    emit(b, node, from, to)
  end
  return {states = b.states, starts = b.starts, ends = b.ends, edges = b.edges}
end

return M
