--- Regular expressions as nodes of a grammar: the part of the notation that describes a set of
-- texts. Look-around, back-references and word borders are refused by name.
local build = require "flare.text.grammar.build"
local fail = require "flare.fail"
local scan = require "flare.text.grammar.scan"

local M = {}

local ALL = 0x10ffff
local sets = {d = {{48, 57}}, w = {{48, 57}, {65, 90}, {95, 95}, {97, 122}},
  s = {{9, 13}, {32, 32}, {0xa0, 0xa0}, {0x2028, 0x2029}, {0xfeff, 0xfeff}}}
local controls = {n = 10, r = 13, t = 9, f = 12, v = 11, ["0"] = 0}

local function wrong(p, format, ...)
  fail("regular expression '%s', byte %d: %s", p.text, p.at, format:format(...))
end

local function copies(ranges)
  local out = {}
  for k, range in ipairs(ranges) do out[k] = {range[1], range[2]} end
  return out
end

local function plain(p)
  local ok, code = pcall(utf8.codepoint, p.text, p.at)
  if not ok then wrong(p, "it is not UTF-8") end
  p.at = p.at + #utf8.char(code)
  return code
end

-- What an escape at p.at stands for: a character, or ranges.
local function escape(p)
  local c = p.text:sub(p.at + 1, p.at + 1)
  local set = sets[c:lower()]
  if set then
    p.at = p.at + 2
    return nil, build.ranges(copies(set), c ~= c:lower())
  elseif controls[c] then
    p.at = p.at + 2
    return controls[c]
  elseif c == "x" or c == "u" then
    local hex, behind = p.text:match(c == "x" and "^(%x%x)()" or "^(%x%x%x%x)()", p.at + 2)
    if not hex then hex, behind = p.text:match("^{(%x+)}()", p.at + 2) end
    if not hex then wrong(p, "\\%s needs hexadecimal digits", c) end
    p.at = behind
    return tonumber(hex, 16)
  elseif c:find "^%w" or c == "" then
    wrong(p, "\\%s is not supported", c)
  end
  p.at = p.at + 1
  return plain(p)
end

local function class_node(p)
  local negated = p.text:sub(p.at + 1, p.at + 1) == "^"
  p.at = p.at + (negated and 2 or 1)
  local ranges = {}
  local function one()
    if p.at > #p.text then wrong(p, "a class does not end") end
    if p.text:sub(p.at, p.at) == "\\" then return escape(p) end
    return plain(p)
  end
  while p.text:sub(p.at, p.at) ~= "]" do
    local first, set = one()
    if set then
      table.move(set, 1, #set, #ranges + 1, ranges)
    else
      local last = first
      if p.text:find("^%-[^%]]", p.at) then
        p.at = p.at + 1
        last = one()
        if not last or last < first then wrong(p, "a range of a class is wrong") end
      end
      ranges[#ranges + 1] = {first, last}
    end
  end
  p.at = p.at + 1
  return {chars = build.ranges(ranges, negated)}
end

local alternatives

local function group(p)
  local kind = p.text:match("^%(%?(<?[=!:]?)", p.at)
  if kind == ":" then
    p.at = p.at + 3
  elseif kind and kind ~= "<" and kind ~= "" then
    wrong(p, "(?%s is not supported", kind)
  elseif kind then
    local behind = p.text:match("^%(%?P?<[%w_]+>()", p.at)
    if not behind then wrong(p, "(? is not supported") end
    p.at = behind
  else
    p.at = p.at + 1
  end
  local node = alternatives(p)
  if p.text:sub(p.at, p.at) ~= ")" then wrong(p, "a ')' is missing") end
  p.at = p.at + 1
  return node
end

local function item(p)
  local c = p.text:sub(p.at, p.at)
  if c == "" or c == "|" or c == ")" then return nil end
  if c == "(" then return group(p) end
  if c == "[" then return class_node(p) end
  if c == "*" or c == "+" or c == "?" then wrong(p, "nothing to repeat") end
  if c == "^" or c == "$" then wrong(p, "%s is supported at the ends only", c) end
  if c == "." then
    p.at = p.at + 1
    return {chars = build.ranges({{10, 10}, {13, 13}}, true)}
  end
  local code, set
  if c == "\\" then code, set = escape(p) else code = plain(p) end
  return {chars = set or {{code, code}}}
end

local function count_of(p) return scan.count(p, "^{(%d+)(,?)(%d*)}()", wrong) end

local function sequence(p)
  local seq = {}
  while true do
    local node = item(p)
    if not node then break end
    local count = count_of(p)
    if count then
      node = {rep = node, min = count[1], max = count[2]}
      -- a lazy or possessive repetition matches the same texts, or fewer
      p.at = p.text:match("^%?()", p.at) or p.at
      if count_of(p) then wrong(p, "nothing to repeat") end
    end
    seq[#seq + 1] = node
  end
  return #seq == 1 and seq[1] or {seq = seq}
end

function alternatives(p) return scan.alternatives(p, sequence) end

--- The node of an expression.
-- @param text the expression
-- @param search whether it may match a part of a text, unless it has ^ and $
function M.node(text, search)
  -- ^ and $ around the whole expression; within alternatives they would mean something else
  local from = text:find "^%^" and 2 or 1
  local to = text:find "%$$" and not text:find "\\%$$" and #text - 1 or #text
  local p = {text = text:sub(1, to), at = from}
  local node = alternatives(p)
  if p.at <= #p.text then wrong(p, "a ')' too many") end
  if (from > 1 or to < #text) and node.alt then
    wrong(p, "^ and $ belong around a group: ^(?:...)$")
  end
  if not search then return node end
  local any = {rep = {chars = {{0, ALL}}}}
  return {seq = {from == 1 and any or {seq = {}}, node, to == #text and any or {seq = {}}}}
end

--- The rules of a grammar whose texts match an expression as a whole.
function M.rules(text) return {root = M.node(text, false)}, "root" end

return M
