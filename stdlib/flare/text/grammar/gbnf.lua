--- Grammars in GBNF, the notation of llama.cpp:
--
--     root ::= item ("," item)*
--     item ::= [a-z]+ | "\"" [^"]{0,9} "\""    # a comment
local build = require "flare.text.grammar.build"
local core = require "flare.core"
local fail = require "flare.fail"
local scan = require "flare.text.grammar.scan"

local M = {}

local escapes = {n = "\n", r = "\r", t = "\t"}

local function wrong(p, format, ...)
  local _, line = p.text:sub(1, p.at - 1):gsub("\n", "")
  fail("grammar, line %d: %s", line + 1, format:format(...))
end

local function skip(p)
  while true do
    local at = p.text:match("^%s*()", p.at)
    p.at = p.text:match("^#[^\n]*()", at) or at
    if p.at == at then return end
  end
end

-- The character that is written at p.at, in a string or a class.
local function character(p)
  local text, at = p.text, p.at
  if text:sub(at, at) ~= "\\" then
    local ok, code = pcall(utf8.codepoint, text, at)
    if not ok then wrong(p, "it is not UTF-8") end
    p.at = at + #utf8.char(code)
    return code
  end
  local kind = text:sub(at + 1, at + 1)
  local digits = ({x = 2, u = 4, U = 8})[kind]
  if digits then
    local hex = text:match("^" .. ("%x"):rep(digits), at + 2)
    if not hex then wrong(p, "\\%s needs %d hexadecimal digits", kind, digits) end
    p.at = at + 2 + digits
    return tonumber(hex, 16)
  end
  if kind == "" then wrong(p, "it ends with a backslash") end
  p.at = at + 2
  return (escapes[kind] or kind):byte()
end

local function literal(p)
  p.at = p.at + 1
  local out = {}
  while p.text:sub(p.at, p.at) ~= '"' do
    if p.at > #p.text then wrong(p, "a string does not end") end
    out[#out + 1] = utf8.char(character(p))
  end
  p.at = p.at + 1
  return {text = table.concat(out)}
end

local function class_node(p)
  local negated = p.text:sub(p.at + 1, p.at + 1) == "^"
  p.at = p.at + (negated and 2 or 1)
  local ranges = {}
  while p.text:sub(p.at, p.at) ~= "]" do
    if p.at > #p.text then wrong(p, "a class does not end") end
    local first = character(p)
    local last = first
    if p.text:find("^%-[^%]]", p.at) then
      p.at = p.at + 1
      last = character(p)
    end
    if last < first then wrong(p, "a range of a class ends before it begins") end
    ranges[#ranges + 1] = {first, last}
  end
  p.at = p.at + 1
  return {chars = build.ranges(ranges, negated)}
end

local alternatives

local function item(p)
  local c = p.text:sub(p.at, p.at)
  if c == '"' then return literal(p) end
  if c == "[" then return class_node(p) end
  if c == "." then
    p.at = p.at + 1
    return {chars = {{0, 0x10ffff}}}
  elseif c == "(" then
    p.at = p.at + 1
    local node = alternatives(p)
    if p.text:sub(p.at, p.at) ~= ")" then wrong(p, "a ')' is missing") end
    p.at = p.at + 1
    return node
  end
  local name, behind = p.text:match("^([%a][%w_%-]*)()", p.at)
  if not name or p.text:find("^%s*::=", behind) then return nil end
  p.at = behind
  p.called[name] = p.called[name] or p.at
  return {ref = name}
end

-- {min, max} of an operator behind an item, or nil.
local function count_of(p)
  local count = scan.count(p, "^{%s*(%d+)%s*(,?)%s*(%d*)%s*}()", wrong)
  if not count and p.text:sub(p.at, p.at) == "{" then wrong(p, "a count is {2}, {2,} or {2,5}") end
  return count
end

local function sequence(p)
  local seq = {}
  while true do
    skip(p)
    local node = item(p)
    if not node then break end
    skip(p)
    local count = count_of(p)
    while count do
      node = {rep = node, min = count[1], max = count[2]}
      skip(p)
      count = count_of(p)
    end
    seq[#seq + 1] = node
  end
  return #seq == 1 and seq[1] or {seq = seq}
end

function alternatives(p) return scan.alternatives(p, sequence) end

--- The rules of a text in GBNF; the rule 'root' is that of whole texts.
function M.rules(text)
  local p, rules = {text = text, at = 1, called = {}}, {}
  skip(p)
  while p.at <= #text do
    local name, behind = text:match("^([%a][%w_%-]*)%s*::=()", p.at)
    if not name then wrong(p, "a rule is expected, such as root ::= \"yes\" | \"no\"") end
    if rules[name] then wrong(p, "the rule '%s' is there twice", name) end
    p.at = behind
    rules[name] = alternatives(p)
    skip(p)
  end
  for name, at in pairs(p.called) do
    if not rules[name] then
      local known = {}
      for other in pairs(rules) do known[#known + 1] = other end
      local near = core.nearest(name, known)
      p.at = at
      wrong(p, "there is no rule '%s'%s", name,
            near and (" (did you mean '%s'?)"):format(near) or "")
    end
  end
  if not rules.root then fail "grammar: there is no rule 'root', which whole texts match" end
  return rules, "root"
end

return M
