--- Grammars that generated text is held to.
local build = require "flare.text.grammar.build"
local class = require "flare.class"
local core = require "flare.core"
local fail = require "flare.fail"
local options = require "flare.options"

local Grammar = class("Grammar")

local kinds = {json = "schema", gbnf = "gbnf", regex = "regex"}

--- flare.text.grammar{json = schema}, {gbnf = text} or {regex = text}: the texts that a JSON schema
-- accepts (a table, or the text of one, whose order of members is kept; true: any object), that a
-- grammar in the notation of llama.cpp derives, or that a regular expression matches as a whole.
function Grammar:init(given)
  local o = options.check("text.grammar", given, {json = options.none, gbnf = options.none,
                                                  regex = options.none})
  local kind = next(o)
  if not kind or next(o, kind) then
    fail("text.grammar: one of json, gbnf and regex is expected")
  end
  local source = o[kind]
  if kind ~= "json" and type(source) ~= "string" then
    fail("text.grammar: %s must be a text, got %s", kind, options.kind(source))
  elseif kind == "json" and source ~= true and type(source) ~= "string"
    and type(source) ~= "table" then
    fail("text.grammar: json must be a schema or true, got %s", options.kind(source))
  end
  local rules, root = require("flare.text.grammar." .. kinds[kind]).rules(source)
  self.core = core.text.grammar(build.network(rules, root))
  self.begin = self.core:start()
  if not self.begin then fail "text.grammar: it allows no text" end
  self._masks = setmetatable({}, {__mode = "k"}) -- by vocabulary
end

--- Whether a text as a whole is one of the grammar's.
function Grammar:matches(text)
  local state = self.core:advance(self.begin, text)
  return state ~= nil and (self.core:ends(state)) or false
end

--- Whether a text may be continued to one of the grammar's.
function Grammar:begins(text) return self.core:advance(self.begin, text) ~= nil end

local MOST = 256 -- masks that are kept

--- Which tokens may come next, for a state of the core.
-- @param vocabulary what tokenizer:vocabulary() returned
-- @param size how many ids the model has
-- @param ends a set of ids that end a text, which are allowed where the grammar ends
-- @param device where the mask is wanted
-- @return a tensor of bool (size), true for the tokens that are not allowed; and whether any is
function Grammar:mask(state, vocabulary, size, ends, device)
  local known = self._masks[vocabulary]
  if not known then
    known = {count = 0}
    self._masks[vocabulary] = known
  end
  local list = {}
  for id in pairs(ends) do list[#list + 1] = id end
  table.sort(list)
  local key = ("%s|%s|%d|"):format(table.concat(list, ","), device, size) .. state
  local entry = known[key]
  if not entry then
    local bytes, allowed = self.core:mask(state, vocabulary, size)
    if self.core:ends(state) then
      for _, id in ipairs(list) do
        if id < size then
          bytes, allowed = bytes:sub(1, id) .. "\0" .. bytes:sub(id + 2), allowed + 1
        end
      end
    end
    entry = {core.from_bytes(bytes, "bool", {size}):to(device), allowed > 0}
    if known.count >= MOST then
      known = {count = 0}
      self._masks[vocabulary] = known
    end
    known[key], known.count = entry, known.count + 1
  end
  return entry[1], entry[2]
end

return Grammar
