-- lua op_slots.lua RUNTIME OUTPUT
-- Reads the op table, RUNTIME/ops.def, and writes OUTPUT, a C header with the position of every
-- parameter and result by name:
--
--   FL_IN_<name>_<input>        in fl_launch.in, fl_infer.in, fli_grad.in, dx, need, ...
--   FL_ATTR_<name>_<attribute>  in fl_attrs.v
--   FL_WHOLE_<name>_<attribute> in fl_attrs.v: the integer of a `number` (fl_attr_whole)
--   FL_OUT_<name>_<result>      in fl_launch.out, fli_grad.y, dy, ...
--   FL_INS_<row>                how many inputs a row has, without the elements of a list
--   FL_ATTRS_<name>             a number for the list of attributes: equal lists, equal numbers
--   FL_PARAMS_<row>             what the attributes of an elementwise row are: FL_PARAMS_NONE,
--                               FL_PARAMS_NUMBERS or FL_PARAMS_CHOICE, of an enum
--
-- <name> is a row, a shape or gradient rule, or a family that FL_ALIKE marks. The rows of one name
-- are that row, all that have it as their rule, and all that the mark stands under. A position has
-- a name only if these rows agree: those that have the parameter have it there, the others have
-- nothing there. Otherwise the name is a macro for an undeclared one that says which rows differ,
-- so that code that uses it does not compile.
local runtime, output = ...

local function read(path)
  local file = assert(io.open(path))
  local text = file:read "*a"
  file:close()
  return text
end

local function set(words)
  local found = {}
  for word in words:gmatch "%S+" do found[word] = true end
  return found
end

local row_macros = set "UNARY TEST BINARY COMPARE TERNARY OP FUSED VIEW COMPOSE"
local elementwise = set "UNARY TEST BINARY COMPARE TERNARY" -- their `int` is an input
local input_types = set "any num float bool index id complex rng"
local no_rule = set "none once"
local kinds = {"IN", "ATTR", "WHOLE", "OUT"}

-- A row: for each kind of position, its names (false: a result without a name) and where a name is.
local function new_row(name, rules)
  local row = {name = name, rules = rules, inputs = 0, attributes = {}}
  for _, kind in ipairs(kinds) do row[kind] = {names = {}, at = {}} end
  return row
end

local function add(row, kind, name)
  local names = row[kind].names
  names[#names + 1] = name
  if name then row[kind].at[name] = #names - 1 end
end

local function read_signature(row, signature, int_is_input)
  local params, results = signature:match "^(.-)%s*%->%s*(.*)$"
  local numbers = {}
  for param in params:gmatch "[^,]+" do
    local name, kind = param:match "^%s*([%w_]+)%s*:%s*(%a+)"
    if input_types[kind] or kind == "int" and int_is_input then
      add(row, "IN", name)
      if not param:find "^[^=]*%*" then row.inputs = row.inputs + 1 end
    else
      add(row, "ATTR", name)
      row.attributes[#row.attributes + 1] = name .. ":" .. kind
      local sort = kind == "enum" and "CHOICE" or "NUMBERS"
      row.params = row.params and row.params ~= sort and "MIXED" or sort
      if kind == "number" then numbers[#numbers + 1] = name end
    end
  end
  for k, name in ipairs(numbers) do -- behind the last attribute
    row.WHOLE.names[k] = name
    row.WHOLE.at[name] = #row.ATTR.names + k - 1
  end
  for result in results:gsub("%b()", ""):gmatch "[^,;]+" do
    local name = result:match "^%s*([%w_]+)%s*:"
    if name or result:match "[%w_]+" ~= "none" then add(row, "OUT", name or false) end
  end
end

-- The shape and the gradient rule, from the columns behind a signature. Cost rules are shared by
-- rows that have little in common.
local function rules_of(macro, columns)
  local words, rules = {}, {}
  for word in columns:gmatch "[^,%s]+" do words[#words + 1] = word end
  if macro == "VIEW" then rules.grad = words[2] end
  if macro == "OP" or macro == "FUSED" then rules.shape, rules.grad = words[3], words[4] end
  if no_rule[rules.grad] then rules.grad = nil end
  return rules
end

local function read_rows()
  local rows, alike = {}, {}
  local function take(name, signature, macro, rules)
    local row = new_row(name, rules)
    read_signature(row, signature, elementwise[macro])
    rows[#rows + 1] = row
    row.elementwise = elementwise[macro]
    local inputs = row.IN.at
    if inputs.seed and inputs.offset ~= inputs.seed + 1 then
      error(("%s: offset does not follow seed, as FL_IN_OFFSET has it"):format(name))
    end
  end
  for path in read(runtime .. "/ops.def"):gmatch '#include "(ops/.-)"' do
    local text = "\n" .. read(runtime .. "/" .. path)
    for macro, at in text:gmatch "\nFL_(%u+)%s*()%(" do
      if row_macros[macro] then
        local name, signature, columns =
          text:match("^%b()", at):match '^%(%s*([%w_]+)[^"]*"(.-)"(.*)%)$'
        take(name, signature, macro, rules_of(macro, columns))
        if macro == "UNARY" then -- as backward_signature of runtime/ops/op.c
          local attributes = signature:match "^[^,]*(,.-)%s*%->" or ""
          take(name .. "_backward", "dy:float, saved:float" .. attributes .. " -> dy", "OP", {})
          take(name .. "_backward2", "ddx:float, dy:float, saved:float" .. attributes .. " -> dy",
            "OP", {})
        end
      end
    end
    for row, family in text:gmatch "\nFL_ALIKE%(([%w_]+), ([%w_]+)%)" do
      alike[row] = alike[row] or {}
      table.insert(alike[row], family)
    end
  end
  for _, row in ipairs(rows) do row.rules.alike = alike[row.name] end
  return rows
end

-- The rows that must agree, by name: each row and those that have it as one of these rules.
local function group(rows, ...)
  local groups = {}
  local function join(name, row)
    local members = groups[name] or {}
    groups[name] = members
    if members[#members] ~= row then members[#members + 1] = row end
  end
  for _, row in ipairs(rows) do join(row.name, row) end
  for _, row in ipairs(rows) do
    for _, kind in ipairs {...} do
      if row.rules[kind] and row.rules[kind] ~= row.name then join(row.rules[kind], row) end
    end
    for _, name in ipairs(row.rules.alike or {}) do join(name, row) end
  end
  return groups
end

local function sorted(groups)
  local names = {}
  for name in pairs(groups) do names[#names + 1] = name end
  table.sort(names)
  return names
end

-- A row of the group that has something else at this position, nil if all agree.
local function disagrees(group_rows, kind, name, at)
  for _, row in ipairs(group_rows) do
    local here = row[kind].at[name]
    local taken = kind == "WHOLE" or row[kind].names[at + 1] ~= nil
    if here ~= at and (here or taken) then return row end
  end
end

-- Numbers for the different lists of attributes; 0: none.
local function number_lists(rows)
  local numbers, count = {[""] = 0}, 0
  for _, row in ipairs(rows) do
    local list = table.concat(row.attributes, ",")
    if not numbers[list] then
      count = count + 1
      numbers[list] = count
    end
    row.list = numbers[list]
  end
end

local lines, values, refusals = {}, {}, {}

local function define(slot, value)
  if values[slot] and values[slot] ~= value then
    error(("%s would be two positions: rename a parameter"):format(slot))
  end
  if not values[slot] then lines[#lines + 1] = ("  %s = %d,"):format(slot, value) end
  values[slot] = value
end

local function refuse(slot, one, other)
  refusals[#refusals + 1] = ("#define %s %s__differs_in_%s_and_%s"):format(slot, slot, one.name,
    other.name)
end

local function write_positions(name, members)
  for _, kind in ipairs(kinds) do
    local seen = {}
    for _, row in ipairs(members) do
      for _, param in ipairs(row[kind].names) do
        if param and not seen[param] then
          seen[param] = true
          local slot, at = ("FL_%s_%s_%s"):format(kind, name, param), row[kind].at[param]
          local other = disagrees(members, kind, param, at)
          if other then refuse(slot, row, other) else define(slot, at) end
        end
      end
    end
  end
end

local function write_list(name, members)
  local slot = "FL_ATTRS_" .. name
  for _, row in ipairs(members) do
    if row.list ~= members[1].list then return refuse(slot, members[1], row) end
  end
  define(slot, members[1].list)
end

local rows = read_rows()
number_lists(rows)
for _, row in ipairs(rows) do define("FL_INS_" .. row.name, row.inputs) end
for k, sort in ipairs {"NONE", "NUMBERS", "CHOICE"} do
  define("FL_PARAMS_" .. sort, k - 1)
  for _, row in ipairs(rows) do
    if row.elementwise and (row.params or "NONE") == sort then
      define("FL_PARAMS_" .. row.name, k - 1)
    end
  end
end
local groups = group(rows, "shape", "grad")
for _, name in ipairs(sorted(groups)) do write_positions(name, groups[name]) end
groups = group(rows, "grad") -- shape rules pass no attributes on
for _, name in ipairs(sorted(groups)) do write_list(name, groups[name]) end

local text = table.concat {[[
/* The positions of the parameters and results of operators, by name. Made by
 * cmake/op_slots.lua from runtime/ops.def; that script explains the names. */
#ifndef FL_OP_SLOTS_H
#define FL_OP_SLOTS_H

enum {
]], table.concat(lines, "\n"), "\n};\n\n", table.concat(refusals, "\n"), [[


/* Whether input b of a row stands right behind input a: for code that reads
 * several from the position of the first on. */
#define FL_IN_FOLLOWS(row, a, b) (FL_IN_##row##_##b == FL_IN_##row##_##a + 1)
/* Where a row's `offset` is, given its `seed`: so in every row. */
#define FL_IN_OFFSET(seed) ((seed) + 1)

#endif
]]}
local before = io.open(output)
if not before or before:read "*a" ~= text then -- else what includes it stays compiled
  local file = assert(io.open(output, "w"))
  file:write(text)
  file:close()
end
