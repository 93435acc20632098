--- Normalizers and pre-tokenizers of a tokenizer.json as lists for the core.
local base64 = require "flare.base64"
local fail = require "flare.fail"
local options = require "flare.options"
local pattern = require "flare.text.pattern"

local M = {}

local function absent(value) return value == nil or type(value) == "userdata" end

-- The description of a pattern, {String = ...} or {Regex = ...}, added to a stage.
local function with_pattern(stage, given, where)
  local text = type(given) == "table" and (given.String or given.Regex)
  if type(text) ~= "string" then fail("%s: a pattern is expected", where) end
  stage.text, stage.regex = text, given.Regex ~= nil
  if stage.regex then stage.text = pattern.translate(text, "oniguruma") end
  return stage
end

-- A flag of an object, with its default.
local function flag(object, name, default)
  if absent(object[name]) then return default end
  return object[name] and true or false
end

local function plain(kind)
  return function() return {{kind = kind}} end
end

local normalizers = {
  NFC = plain "nfc", NFD = plain "nfd", NFKC = plain "nfkc", NFKD = plain "nfkd",
  Lowercase = plain "lowercase", StripAccents = plain "stripaccents", Nmt = plain "nmt",
  ByteLevel = plain "bytelevel",
  Strip = function(o)
    return {{kind = "strip", left = flag(o, "strip_left", true),
             right = flag(o, "strip_right", true)}}
  end,
  Replace = function(o)
    return {with_pattern({kind = "replace", content = o.content}, o.pattern, "Replace")}
  end,
  Prepend = function(o) return {{kind = "prepend", content = o.prepend}} end,
  Precompiled = function(o)
    local map = base64.decode(o.precompiled_charsmap or "")
    if not map then fail("Precompiled: precompiled_charsmap is not base64") end
    return {{kind = "precompiled", text = map}}
  end,
  BertNormalizer = function(o)
    local list, lower = {}, flag(o, "lowercase", true)
    if flag(o, "clean_text", true) then list[#list + 1] = {kind = "clean"} end
    if flag(o, "handle_chinese_chars", true) then list[#list + 1] = {kind = "chinese"} end
    if flag(o, "strip_accents", lower) then
      list[#list + 1] = {kind = "nfd"}
      list[#list + 1] = {kind = "strip_nonspacing"}
    end
    if lower then list[#list + 1] = {kind = "lowercase"} end
    return list
  end,
}

local function behavior(o, default)
  return type(o.behavior) == "string" and o.behavior:lower() or default
end

local splitters = {
  ByteLevel = function(o)
    return {{kind = "bytelevel", prefix = flag(o, "add_prefix_space", true),
             regex = flag(o, "use_regex", true),
             text = pattern.translate(pattern.gpt2, "oniguruma")}}
  end,
  Metaspace = function(o)
    local scheme = absent(o.prepend_scheme) and "always" or o.prepend_scheme
    if o.add_prefix_space == false then scheme = "never" end
    return {{kind = "metaspace", text = o.replacement or "\u{2581}", prefix = scheme ~= "never",
             first = scheme == "first", split = flag(o, "split", true),
             behavior = "mergedwithnext"}}
  end,
  Whitespace = function() return {{kind = "whitespace", behavior = "removed", invert = true}} end,
  WhitespaceSplit = function() return {{kind = "whitespacesplit", behavior = "removed"}} end,
  Punctuation = function(o)
    return {{kind = "punctuation", behavior = behavior(o, "isolated")}}
  end,
  Digits = function(o)
    return {{kind = "digits",
             behavior = flag(o, "individual_digits", false) and "isolated" or "contiguous"}}
  end,
  Split = function(o)
    return {with_pattern({kind = "split", behavior = behavior(o, "isolated"),
                          invert = flag(o, "invert", false)}, o.pattern, "Split")}
  end,
  BertPreTokenizer = function()
    return {{kind = "whitespacesplit", behavior = "removed"},
            {kind = "punctuation", behavior = "isolated"}}
  end,
  CharDelimiterSplit = function(o)
    return {{kind = "split", text = o.delimiter, behavior = "removed"}}
  end,
  FixedLength = function(o) return {{kind = "fixedlength", length = o.length or 5}} end,
}

-- Adds what an object of the file means to a list; a Sequence is its parts.
local function add(list, object, makers, parts, what)
  if absent(object) then return list end
  if type(object) ~= "table" or type(object.type) ~= "string" then
    fail("the %s is not an object with a type", what)
  end
  if object.type == "Sequence" then
    for _, part in ipairs(object[parts] or {}) do add(list, part, makers, parts, what) end
    return list
  end
  local make = makers[object.type]
  if not make then
    fail("the %s '%s' is unknown%s", what, object.type, options.hint(object.type, makers))
  end
  for _, stage in ipairs(make(object)) do list[#list + 1] = stage end
  return list
end

function M.normalizers(object) return add({}, object, normalizers, "normalizers", "normalizer") end

function M.splitters(object)
  return add({}, object, splitters, "pretokenizers", "pre-tokenizer")
end

return M
