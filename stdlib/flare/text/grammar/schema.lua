--- JSON schemas as rules of a grammar: what a model writes is JSON that the schema accepts. Members
-- of objects come in the order of the schema. What a schema asks for and no grammar can hold is
-- refused by name.
local build = require "flare.text.grammar.build"
local core = require "flare.core"
local fail = require "flare.fail"
local numbers = require "flare.text.grammar.numbers"
local options = require "flare.options"
local strings = require "flare.text.grammar.strings"
local values = require "flare.text.template.values"

local M = {}

local field = values.field

local function text(s) return {text = s} end
local function seq(...) return {seq = {...}} end
local function alt(list) return {alt = list} end
local function ref(name) return {ref = name} end
local EMPTY = {seq = {}}

-- Words that restrict nothing.
local notes = {}
for word in ([[title description default examples deprecated readOnly writeOnly $schema $id
  $comment $defs definitions $anchor discriminator xml externalDocs example nullable strict
  contentMediaType contentEncoding format]]):gmatch "%S+" do notes[word] = true end

-- The words of each type; `enum`, `$ref` and the like are looked at before.
local words = {
  object = {"properties", "required", "additionalProperties"},
  array = {"items", "prefixItems", "minItems", "maxItems"},
  string = {"minLength", "maxLength", "pattern"},
  number = {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"},
  integer = {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"},
  boolean = {}, null = {},
}

local function wrong(path, format, ...)
  fail("schema, %s: %s", path == "" and "the root" or path, format:format(...))
end

-- Rules that all schemas share. Space is bounded, so that a text comes to an end.
local function basic_rules()
  local hex, d = {chars = {{48, 57}, {65, 70}, {97, 102}}}, {chars = {{68, 68}, {100, 100}}}
  local plain = {chars = build.ranges({{0, 31}, {34, 34}, {92, 92}}, true)}
  return {
    space = alt{EMPTY, text " ", seq(text "\n", {rep = {chars = {{9, 9}, {32, 32}}}, max = 20})},
    char = alt{plain, seq(text "\\", alt{{chars = {{34, 34}, {47, 47}, {92, 92}, {98, 98},
      {102, 102}, {110, 110}, {114, 114}, {116, 116}}},
      seq(text "u", alt{ -- surrogates in pairs only
        seq({chars = {{48, 57}, {65, 67}, {69, 70}, {97, 99}, {101, 102}}}, hex, hex, hex),
        seq(d, {chars = {{48, 55}}}, hex, hex),
        seq(d, {chars = {{56, 57}, {65, 66}, {97, 98}}}, hex, hex, text "\\u", d,
            {chars = {{67, 70}, {99, 102}}}, hex, hex)})})},
    string = seq(text '"', {rep = ref "char"}, text '"'),
    number = numbers.any(true), integer = numbers.any(false),
    boolean = alt{text "true", text "false"}, null = text "null",
    value = alt{ref "any object", ref "any array", ref "string", ref "number", ref "boolean",
                ref "null"},
    ["any array"] = seq(text "[", ref "space", alt{EMPTY, seq(ref "value",
      {rep = seq(text ",", ref "space", ref "value")}, ref "space")}, text "]"),
    ["any member"] = seq(ref "string", text ":", ref "space", ref "value"),
    ["any object"] = seq(text "{", ref "space", alt{EMPTY, seq(ref "any member",
      {rep = seq(text ",", ref "space", ref "any member")}, ref "space")}, text "}"),
  }
end

---------------------------------------------------------------- values of one type

local function count(schema, name, path)
  local n = field(schema, name)
  if n ~= nil and (math.type(n) ~= "integer" or n < 0 or n > 100000) then
    wrong(path, "%s is %s, a count up to 100000 is expected", name, tostring(n))
  end
  return n
end

local makers = {}

function makers.string(_, schema, path)
  local min, max = count(schema, "minLength", path), count(schema, "maxLength", path)
  local pattern, format = field(schema, "pattern"), strings.formats[field(schema, "format") or ""]
  if (pattern or format) and (min or max) or pattern and format then
    wrong(path, "pattern, format and lengths of a string are supported one at a time")
  end
  if pattern or format then return strings.node(pattern or format, pattern ~= nil) end
  if min and max and min > max then wrong(path, "minLength is above maxLength") end
  if not max and (min or 0) == 0 then return ref "string" end
  return seq(text '"', {rep = ref "char", min = min, max = max}, text '"')
end

function makers.number(_, schema, path)
  return numbers.bounded(schema, true, function(...) wrong(path, ...) end)
end

function makers.integer(_, schema, path)
  return numbers.bounded(schema, false, function(...) wrong(path, ...) end)
end

function makers.boolean() return ref "boolean" end
function makers.null() return ref "null" end

---------------------------------------------------------------- arrays and objects

local node_of

local function separated(node) return seq(text ",", ref "space", node) end

function makers.array(b, schema, path)
  local min, max = count(schema, "minItems", path) or 0, count(schema, "maxItems", path)
  local items, prefix = field(schema, "items"), field(schema, "prefixItems") or {}
  if max and min > max then wrong(path, "minItems is above maxItems") end
  local item = items ~= false and (not max or max > #prefix)
    and (items == nil and ref "value" or node_of(b, items, path .. "/items"))
  if not item and min > #prefix then wrong(path, "minItems is above the number of items") end
  -- what may stand behind the first k items, from the last on
  local function optional(k, node) return k >= min and alt{EMPTY, node} or node end
  local k = math.min(#prefix, max or #prefix)
  local more = EMPTY
  if item and k == 0 then
    more = optional(0, seq(item, {rep = separated(item), min = math.max(min - 1, 0),
                                  max = max and max - 1}))
  elseif item then
    more = {rep = separated(item), min = math.max(min - k, 0), max = max and max - k}
  end
  for i = k, 1, -1 do
    local one = node_of(b, prefix[i], ("%s/prefixItems/%d"):format(path, i - 1))
    more = optional(i - 1, seq(i > 1 and separated(one) or one, more))
  end
  return seq(text "[", ref "space", more, ref "space", text "]")
end

-- A string that is none of some names, without escapes.
local function other_name(names)
  local tree = {}
  for name in pairs(names) do
    local at = tree
    for _, code in utf8.codes(name) do
      at[code] = at[code] or {}
      at = at[code]
    end
    at.ends = true
  end
  local any = {chars = build.ranges({{0, 31}, {34, 34}, {92, 92}}, true)}
  local function rest(at)
    local list, holes = {}, {{0, 31}, {34, 34}, {92, 92}}
    if not at.ends then list[1] = EMPTY end
    for code, child in pairs(at) do
      if code ~= "ends" then
        holes[#holes + 1] = {code, code}
        if not strings.escapes[code] and code > 31 then
          list[#list + 1] = seq({chars = {{code, code}}}, rest(child))
        end
      end
    end
    list[#list + 1] = seq({chars = build.ranges(holes, true)}, {rep = any})
    return alt(list)
  end
  return seq(text '"', rest(tree), text '"')
end

-- The members of an object: {name =, node =, required =} each, in order, and the node of others.
local function members_of(b, schema, path)
  local properties, list, known = field(schema, "properties"), {}, {}
  local required, more = {}, field(schema, "additionalProperties")
  for _, name in ipairs(field(schema, "required") or {}) do required[name] = true end
  if more == nil and not properties and next(required) == nil then more = true end
  for _, name in ipairs(properties and values.keys(properties) or {}) do
    known[name] = true
    local one = field(properties, name)
    local node = node_of(b, one, path .. "/properties/" .. name)
    list[#list + 1] = {name = name, node = node, required = required[name]}
  end
  local other = more and node_of(b, more, path .. "/additionalProperties")
  for _, name in ipairs(field(schema, "required") or {}) do
    if not known[name] then
      known[name] = true
      list[#list + 1] = {name = name, node = other or ref "value", required = true}
    end
  end
  return list, other and seq(next(known) and other_name(known) or ref "string", text ":",
                             ref "space", other)
end

function makers.object(b, schema, path)
  local list, other = members_of(b, schema, path)
  -- a rule for what may stand from member k on, as the first one and behind another
  local function tail(k, first)
    local name = ("%s from %d%s"):format(path, k, first and "" or ",")
    if b.rules[name] then return ref(name) end
    local member = list[k]
    b.rules[name] = EMPTY
    if not member then
      local more = other and {rep = separated(other)} or EMPTY
      b.rules[name] = first and other and alt{EMPTY, seq(other, more)} or more
      return ref(name)
    end
    local one = seq(text(core.json.encode(member.name) .. ":"), ref "space", member.node)
    one = seq(first and one or separated(one), tail(k + 1, false))
    b.rules[name] = member.required and one or alt{one, tail(k + 1, first)}
    return ref(name)
  end
  return seq(text "{", ref "space", tail(1, true), ref "space", text "}")
end

---------------------------------------------------------------- schemas

-- What a reference points to.
local function resolve(b, pointer, path)
  if type(pointer) ~= "string" or not pointer:find "^#" then
    wrong(path, "$ref '%s' is outside of the schema", tostring(pointer))
  end
  local at = b.root
  for part in pointer:sub(2):gmatch "/([^/]*)" do
    part = part:gsub("%%(%x%x)", function(hex) return string.char(tonumber(hex, 16)) end)
      :gsub("~1", "/"):gsub("~0", "~")
    local list = type(at) == "table" and not values.is_dict(at)
    at = type(at) == "table" and (list and at[(tonumber(part) or -1) + 1] or field(at, part)) or nil
    if at == nil then wrong(path, "$ref '%s' points to nothing", pointer) end
  end
  return at
end

-- One schema of several that hold at once; their members are joined.
local function merge(b, schemas, path)
  local keys, map, seen = {}, {}, {}
  local function set(key, value)
    if map[key] == nil then keys[#keys + 1] = key end
    map[key] = value
  end
  local function add(schema)
    if not values.is_dict(schema) then wrong(path, "allOf joins objects only") end
    if seen[schema] then wrong(path, "allOf contains itself") end
    seen[schema] = true
    for _, key in ipairs(values.keys(schema)) do
      local value = field(schema, key)
      if key == "$ref" then
        add(resolve(b, value, path))
      elseif key == "allOf" then
        for _, inner in ipairs(value) do add(inner) end
      elseif key == "properties" then
        local all = map.properties or values.dict({}, {})
        for _, name in ipairs(values.keys(value)) do
          values.set_field(all, name, field(value, name))
        end
        set(key, all)
      elseif key == "required" and map.required then
        map.required = table.move(value, 1, #value, #map.required + 1,
                                  table.move(map.required, 1, #map.required, 1, {}))
      elseif not notes[key] and map[key] ~= nil
        and strings.literal(map[key]) ~= strings.literal(value) then
        wrong(path, "allOf has two of '%s', which cannot be joined", key)
      else
        set(key, value)
      end
    end
  end
  for _, schema in ipairs(schemas) do add(schema) end
  local items = {}
  for k, key in ipairs(keys) do items[k] = map[key] end
  return values.dict(keys, items)
end

-- Whether a schema has words that restrict, besides one.
local function has_more(schema, word)
  for _, key in ipairs(values.keys(schema)) do
    if key ~= word and not notes[key] then return key end
  end
end

-- The types that a schema allows, by its `type` or by its words.
local function types_of(schema, path)
  local given = field(schema, "type")
  if type(given) == "string" then given = {given} end
  if given == nil then
    for _, name in ipairs{"object", "array", "string", "number"} do
      for _, word in ipairs(words[name]) do
        if field(schema, word) ~= nil then return {name} end
      end
    end
    return nil
  end
  for _, name in ipairs(given) do
    if not makers[name] then wrong(path, "the type '%s' is unknown", tostring(name)) end
  end
  return given
end

-- Raises for words that no type of the list has.
local function check_words(schema, types, path)
  local known = {type = true}
  for _, name in ipairs(types) do
    for _, word in ipairs(words[name]) do known[word] = true end
  end
  for _, key in ipairs(values.keys(schema)) do
    local other = false
    for _, list in pairs(words) do
      for _, word in ipairs(list) do other = other or word == key end
    end
    -- a word of another type restricts nothing
    if not known[key] and not notes[key] and not other then
      wrong(path, "'%s' is not supported", key)
    end
  end
end

local function any_of(b, schema, word, path)
  local more = has_more(schema, word)
  if more and more ~= "type" then wrong(path, "'%s' beside %s is not supported", more, word) end
  local list = {}
  for k, one in ipairs(field(schema, word)) do
    list[k] = node_of(b, one, ("%s/%s/%d"):format(path, word, k - 1))
  end
  if #list == 0 then wrong(path, "%s is empty", word) end
  return alt(list)
end

function node_of(b, schema, path)
  if schema == true then return ref "value" end
  if schema == false then wrong(path, "false allows no value") end
  if type(schema) ~= "table" then
    wrong(path, "a schema is an object, got %s", options.kind(schema))
  end
  if next(schema) == nil or #values.keys(schema) == 0 then return ref "value" end
  local pointer = field(schema, "$ref")
  if pointer and not has_more(schema, "$ref") then
    local name = "$ref " .. tostring(pointer)
    if not b.rules[name] then
      b.rules[name] = EMPTY -- until it is known: schemas may contain themselves
      b.rules[name] = node_of(b, resolve(b, pointer, path), pointer)
    end
    return ref(name)
  end
  if pointer or field(schema, "allOf") then
    return node_of(b, merge(b, {schema}, path), path)
  end
  if field(schema, "const") ~= nil then return text(strings.literal(field(schema, "const"))) end
  if field(schema, "enum") then
    local list = {}
    for k, value in ipairs(field(schema, "enum")) do list[k] = text(strings.literal(value)) end
    if #list == 0 then wrong(path, "enum is empty") end
    return alt(list)
  end
  for _, word in ipairs{"anyOf", "oneOf"} do
    if field(schema, word) then return any_of(b, schema, word, path) end
  end
  local types = types_of(schema, path)
  check_words(schema, types or {}, path)
  if not types then return ref "value" end
  local list = {}
  for k, name in ipairs(types) do list[k] = makers[name](b, schema, path) end
  return #list == 1 and list[1] or alt(list)
end

--- The rules of a grammar for the JSON that a schema accepts.
-- @param schema a table, the text of one, which keeps the order of its keys, or true for any object
function M.rules(schema)
  local b = {rules = basic_rules()}
  if schema == true then return b.rules, "any object" end
  if type(schema) == "string" then
    local ok, value = pcall(require "flare.text.template.ordered", schema)
    if not ok then fail("schema: not JSON: %s", tostring(value)) end
    schema = value
  end
  b.root = schema
  b.rules.root = node_of(b, schema, "#")
  return b.rules, "root"
end

return M
