--- A text that is held to a grammar while it is generated.
local class = require "flare.class"
local core = require "flare.core"
local fail = require "flare.fail"

local Matcher = class("Matcher")

--- @param o {grammar =, tokenizer =, ends = the ids that end a text}
function Matcher:init(o)
  self.grammar, self.tokenizer, self.ends = o.grammar, o.tokenizer, o.ends
  self.state = o.grammar.begin
end

--- Which tokens are not allowed next, (1, size); nil if none is allowed, which ends the text.
function Matcher:banned(size, device)
  local vocabulary = self.tokenizer:vocabulary(size)
  local ok, mask, any = pcall(self.grammar.mask, self.grammar, self.state, vocabulary, size,
                              self.ends, device)
  if not ok then mask, any, self.problem = nil, false, mask end -- one text's grammar is at fault
  self.stuck = not any
  return any and mask:unsqueeze(1) or nil
end

--- Logits (1, vocabulary) of which only those of allowed tokens are left.
function Matcher:apply(logits)
  local banned = self:banned(logits:size(2), logits.device)
  return banned and logits:masked_fill(banned, -math.huge) or logits
end

--- Takes a token.
-- @return whether the text goes on
function Matcher:push(id)
  if self.stuck or self.ends[id] then return false end
  local core_grammar = self.grammar.core
  local ok, state = pcall(core_grammar.advance, core_grammar, self.state,
                          self.tokenizer:bytes(id))
  if not ok then self.problem = state end
  if not ok or not state then return false end
  self.state = state
  local _, must = core_grammar:ends(self.state)
  return not must
end

--- Raises unless an option is a grammar, and there is a tokenizer.
function Matcher.check(where, grammar, tokenizer)
  local meta = getmetatable(grammar)
  if type(grammar) ~= "table" or not meta or meta.__name ~= "Grammar" then
    fail("%s: grammar is made by flare.text.grammar, got %s", where,
         core.is_tensor(grammar) and "a tensor" or type(grammar))
  elseif not tokenizer then
    fail("%s: grammar needs the option tokenizer", where)
  end
end

return Matcher
