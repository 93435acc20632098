--- Patterns of tokenizer files, which are written for Oniguruma or for Rust's regex crates, as
-- patterns for PCRE2 that match the same.
local fail = require "flare.fail"

local M = {}

-- White_Space, word characters, and hexadecimal digits, as the inside of a class.
local space = [[\t-\r\x{85}\p{Z}]]
local word = [[\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc}\x{24b6}-\x{24e9}\x{1f130}-\x{1f149}]]
  .. [[\x{1f150}-\x{1f169}\x{1f170}-\x{1f189}]]
-- Outside of a class, Oniguruma's \w has these as well.
local numerals = [[\x{b2}\x{b3}\x{b9}\x{bc}-\x{be}]]
local shorthand = {s = space, w = word, h = "0-9a-fA-F"}

-- What is between the colons of [[:alpha:]].
local posix = {alpha = [[\p{Alphabetic}]], digit = [[\p{Nd}]], alnum = [[\p{Alphabetic}\p{Nd}]],
  upper = [[\p{Uppercase}]], lower = [[\p{Lowercase}]], punct = [[\p{P}\p{S}]], space = space,
  word = word, xdigit = "0-9a-fA-F"}

-- Long names of general categories, which PCRE2 knows by their short ones.
local categories = {}
for short, names in pairs {
  C = "other", Cc = "control cntrl", Cf = "format", Cn = "unassigned", Co = "privateuse",
  Cs = "surrogate", L = "letter", Ll = "lowercaseletter", Lm = "modifierletter",
  Lo = "otherletter", Lt = "titlecaseletter", Lu = "uppercaseletter", M = "mark combiningmark",
  Mc = "spacingmark", Me = "enclosingmark", Mn = "nonspacingmark", N = "number",
  Nd = "decimalnumber digit", Nl = "letternumber", No = "othernumber", P = "punctuation punct",
  Pc = "connectorpunctuation", Pd = "dashpunctuation", Pe = "closepunctuation",
  Pf = "finalpunctuation", Pi = "initialpunctuation", Po = "otherpunctuation",
  Ps = "openpunctuation", S = "symbol", Sc = "currencysymbol", Sk = "modifiersymbol",
  Sm = "mathsymbol", So = "othersymbol", Z = "separator", Zl = "lineseparator",
  Zp = "paragraphseparator", Zs = "spaceseparator", Any = "any", Alphabetic = "alpha alphabetic",
  White_Space = "space whitespace", Uppercase = "upper uppercase",
  Lowercase = "lower lowercase", Emoji = "emoji", Extended_Pictographic = "extendedpictographic",
} do
  categories[short:lower():gsub("_", "")] = short
  for name in names:gmatch "%S+" do categories[name] = short end
end

-- \p{...}: PCRE2's name of the property, with the sign of its negation.
local function property(letter, name)
  local negated, rest = name:match "^(%^?)(.*)$"
  rest = rest:gsub("^[Ii]s", ""):gsub("^[Ss]cript=", "")
  local plain = rest:lower():gsub("[%s_-]", "")
  local known = categories[plain]
  return ("\\%s{%s%s}"):format(letter, negated, known or "sc:" .. rest)
end

local Translator = {}
Translator.__index = Translator

function Translator:put(text) self.out[#self.out + 1] = text end

-- What a backslash at self.at begins: its text inside of a class, and whether it is a class.
function Translator:escape(inside)
  local p, at = self.pattern, self.at
  local letter = p:sub(at + 1, at + 1)
  local name, stop = p:match("^[pP]{([^}]*)}()", at + 1)
  if name then
    self.at = stop
    return property(letter, name)
  end
  local code = p:match("^u(%x%x%x%x)", at + 1)
  if code then
    self.at = at + 6
    return ("\\x{%s}"):format(code)
  end
  local braced = p:match("^x(%b{})", at + 1)
  if braced then
    self.at = at + 2 + #braced
    return "\\x" .. braced
  end
  local next_at = utf8.offset(p, 2, at + 1) or #p + 1
  self.at = next_at
  local set = shorthand[letter:lower()]
  if letter:lower() == "w" and not inside and not self.rust then set = set .. numerals end
  if set and (letter:lower() ~= "h" or not self.rust) then
    if letter == letter:lower() then return inside and set or "[" .. set .. "]" end
    if not inside then return "[^" .. set .. "]" end
  elseif letter == "b" and not inside then
    return ("(?:(?<=[%s])(?![%s])|(?<![%s])(?=[%s]))"):format(word, word, word, word)
  end
  return p:sub(at, next_at - 1)
end

-- A class, self.at behind its bracket. Nested classes and && become alternatives and lookaheads.
function Translator:class()
  local p, negated = self.pattern, false
  if p:sub(self.at, self.at) == "^" then
    negated = true
    self.at = self.at + 1
  end
  local operands, items, nested, first = {}, {}, {}, true
  local function close()
    local set = #items > 0 and "[" .. table.concat(items) .. "]" or nil
    if #nested > 0 then
      if set then table.insert(nested, 1, set) end
      set = "(?:" .. table.concat(nested, "|") .. ")"
    end
    operands[#operands + 1] = set
    items, nested = {}, {}
  end
  while true do
    local c = p:sub(self.at, self.at)
    if c == "" then
      fail("a pattern has a class without an end: %s", p)
    elseif c == "]" and not first then
      self.at = self.at + 1
      break
    elseif p:match("^%[:%^?%a+:%]", self.at) then
      local name = p:match("^%[:%^?%a+:%]", self.at)
      items[#items + 1] = posix[name:sub(3, -3)] or name
      self.at = self.at + #name
    elseif c == "[" then
      self.at = self.at + 1
      nested[#nested + 1] = self:class()
    elseif p:sub(self.at, self.at + 1) == "&&" then
      self.at = self.at + 2
      close()
    elseif c == "\\" then
      items[#items + 1] = self:escape(true)
    else
      local stop = utf8.offset(p, 2, self.at) or #p + 1
      items[#items + 1] = (c == "]" and "\\" or "") .. p:sub(self.at, stop - 1)
      self.at = stop
    end
    first = false
  end
  close()
  if #operands == 1 and operands[1]:sub(1, 1) == "[" then
    return negated and "[^" .. operands[1]:sub(2) or operands[1]
  elseif #operands == 0 then
    fail("a pattern has an empty class: %s", p)
  end
  local all = {}
  for i, operand in ipairs(operands) do all[i] = ("(?=%s)"):format(operand) end
  local test = table.concat(all)
  return negated and ("(?:(?!%s)(?s:.))"):format(test) or ("(?:%s(?s:.))"):format(test)
end

-- A quantifier at self.at, for what is in self.out from `start` on; false: there is none.
function Translator:quantifier(start)
  local p, at = self.pattern, self.at
  local sign = p:match("^[*+?]", at)
  local low, comma, high = p:match("^{(%d*)(,?)(%d*)}", at)
  if not sign and (not low or low .. high == "") then return false end
  local text = sign or ("{%s%s%s}"):format(low == "" and "0" or low, comma, high)
  self.at = at + (sign and 1 or #p:match("^%b{}", at))
  local after = p:match("^[+?]", self.at)
  if after then
    self.at = self.at + 1
    -- Oniguruma: a{1,3}+ repeats a{1,3}, and a{3}? is a{3} or nothing
    if not sign and not self.rust and (after == "+" or comma == "") then
      table.insert(self.out, start, "(?:")
      text = text .. ")"
    end
    text = text .. after
  end
  self:put(text)
  return true
end

-- The options of a group: (?m) is s in PCRE2, unless it is Rust's.
local function options_of(head, rust)
  return rust and head or head:gsub("m", "s")
end

function Translator:group()
  local p = self.pattern
  self.stack[#self.stack + 1] = #self.out + 1
  local options = p:match("^%(%?([imxs-]+)[:)]", self.at)
  if options then
    self:put("(?" .. options_of(options, self.rust))
    self.at = self.at + 2 + #options
    if p:sub(self.at, self.at) == ":" then
      self:put ":"
      self.at = self.at + 1
    end
    return
  end
  local head = p:match("^%(%?<?[=!:>]", self.at) or p:match("^%(%?P?<%w+>", self.at) or "("
  self:put(head)
  self.at = self.at + #head
end

function Translator:run()
  local p, start = self.pattern, nil -- where in self.out the last atom begins
  while self.at <= #p do
    local c = p:sub(self.at, self.at)
    if start and self:quantifier(start) then
      start = nil
    elseif c == "(" then
      self:group()
      start = nil
    elseif c == ")" then
      self:put ")"
      self.at = self.at + 1
      start = table.remove(self.stack) or #self.out
    else
      start = #self.out + 1
      if c == "\\" then
        self:put(self:escape(false))
      elseif c == "[" then
        self.at = self.at + 1
        self:put(self:class())
      elseif self.rust and (c == "^" or c == "$") then
        self:put(c == "^" and "\\A" or "\\z")
        self.at = self.at + 1
      else
        local stop = utf8.offset(p, 2, self.at) or #p + 1
        self:put(p:sub(self.at, stop - 1))
        self.at = stop
      end
      if c == "|" then start = nil end
    end
  end
  return table.concat(self.out)
end

--- Translates a pattern.
-- @param pattern as it stands in a file
-- @param flavour "oniguruma" (tokenizer.json) or "rust" (tiktoken)
function M.translate(pattern, flavour)
  if not utf8.len(pattern) then fail("a pattern is not UTF-8: %q", pattern) end
  local self = setmetatable({pattern = pattern, rust = flavour == "rust", at = 1, out = {},
                             stack = {}}, Translator)
  return self:run()
end

--- The pattern that GPT-2's tokenizer splits by.
M.gpt2 = [['s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+]]

return M
