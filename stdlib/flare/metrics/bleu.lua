--- BLEU (Papineni and others, 2002) of a corpus, as sacreBLEU computes it.
local class = require "flare.class"
local core = require "flare.core"
local fail = require "flare.fail"
local Metric = require "flare.metrics.metric"
local options = require "flare.options"
local words = require "flare.metrics.words"

--- metrics.BLEU{order = 4, tokenize = "13a", smooth = "exp", lower = false}
-- `order`: the longest n-grams; `tokenize`: "13a", the tokenizer of the WMT campaigns, "none",
-- words between spaces, or a function from a text to a list; `smooth`: "exp" halves the count that
-- stands for no match each time one is missing, "none" gives 0 then. The figure is from 0 to 1.
local BLEU = class("BLEU", Metric)
BLEU.defaults = {order = 4, tokenize = options.none, smooth = "exp", lower = false}
BLEU.sums = {"counts"}

local known = {exp = true, none = true}

local entities = {["&quot;"] = '"', ["&amp;"] = "&", ["&lt;"] = "<", ["&gt;"] = ">"}

-- mteval-v13a.pl: punctuation is apart from words, but . and , within numbers are not.
local function tokenize_13a(text)
  text = text:gsub("<skipped>", ""):gsub("%-\n", ""):gsub("\n", " ")
  for _, entity in ipairs {"&quot;", "&amp;", "&lt;", "&gt;"} do
    text = text:gsub(entity, entities[entity])
  end
  text = " " .. text .. " "
  text = text:gsub("[{-~[-` -&(-+:-@/]", " %0 ")
  text = text:gsub("([^0-9])([%.,])", "%1 %2 "):gsub("([%.,])([^0-9])", " %1 %2")
  return words.split((text:gsub("([0-9])(%-)", "%1 %2 ")))
end

function BLEU:prepare(o)
  options.count(self.where, "order", o.order)
  if not known[o.smooth] then
    fail("%s: unknown smooth '%s'%s", self.where, o.smooth, options.hint(o.smooth, known))
  end
  local named = {["13a"] = tokenize_13a, none = words.split}
  self.tokenize = type(o.tokenize) == "function" and o.tokenize or named[o.tokenize or "13a"]
  if not self.tokenize then
    fail("%s: tokenize must be a function, \"13a\" or \"none\", got %s", self.where,
         tostring(o.tokenize))
  end
end

-- How often each n-gram of a length occurs.
local function grams(list, n)
  local out = {}
  for k = 1, #list - n + 1 do
    local gram = table.concat(list, "\0", k, k + n - 1)
    out[gram] = (out[gram] or 0) + 1
  end
  return out
end

-- The tokens of a text or of a list of tokens.
local function tokens_of(self, text)
  if type(text) == "table" then return text end
  options.text(self.where .. ":update", "each text", text)
  return self.tokenize(((self.options.lower and words.lower(text) or text):gsub("%s+$", "")))
end

-- Adds the n-grams of a candidate to `counts`: matches and n-grams for each length, then the
-- lengths of the candidate and of the reference that is nearest in length.
local function count(self, candidate, references, counts)
  local order = self.options.order
  local own, nearest = tokens_of(self, candidate), nil
  if type(references) ~= "table" then references = {references} end
  local lists = {}
  for k, text in ipairs(references) do
    lists[k] = tokens_of(self, text)
    local far = math.abs(#lists[k] - #own)
    local before = nearest and math.abs(nearest - #own)
    if not before or far < before or far == before and #lists[k] < nearest then
      nearest = #lists[k]
    end
  end
  if not nearest then fail("%s:update: a candidate has no reference", self.where) end
  for n = 1, order do
    local most = {}
    for _, list in ipairs(lists) do
      for gram, times in pairs(grams(list, n)) do most[gram] = math.max(most[gram] or 0, times) end
    end
    for gram, times in pairs(grams(own, n)) do
      counts[n] = counts[n] + math.min(times, most[gram] or 0)
    end
    counts[order + n] = counts[order + n] + math.max(0, #own - n + 1)
  end
  counts[2 * order + 1], counts[2 * order + 2] =
    counts[2 * order + 1] + #own, counts[2 * order + 2] + nearest
end

--- Adds a batch.
-- @param candidates a list of texts, or of lists of tokens
-- @param references for each a text, or a list of texts; for lists of tokens, a list of lists
function BLEU:update(candidates, references)
  if type(candidates) ~= "table" or type(references) ~= "table" or #candidates ~= #references then
    fail("%s:update: two lists of one length are expected", self.where)
  end
  local counts = {}
  for k = 1, 2 * self.options.order + 2 do counts[k] = 0 end
  for k, candidate in ipairs(candidates) do count(self, candidate, references[k], counts) end
  self:add("counts", core.tensor(counts, {dtype = "f64"}))
end

function BLEU:value(states)
  local order, counts = self.options.order, states.counts:totable()
  local sum, smooth = 0, 1
  for n = 1, order do
    local hits, all = counts[n], counts[order + n]
    if all == 0 then return 0 end
    if hits == 0 then
      if self.options.smooth == "none" or counts[1] == 0 then return 0 end
      smooth = smooth * 2
      hits = 1 / smooth
    end
    sum = sum + math.log(hits / all)
  end
  local own, reference = counts[2 * order + 1], counts[2 * order + 2]
  local brevity = own < reference and math.exp(1 - reference / own) or 1
  return brevity * math.exp(sum / order)
end

return BLEU
