--- Metrics of texts by their longest common subsequence and by edit distance.
local class = require "flare.class"
local core = require "flare.core"
local fail = require "flare.fail"
local Metric = require "flare.metrics.metric"
local options = require "flare.options"
local words = require "flare.metrics.words"

local M = {}

local function characters(text)
  local list = {}
  if utf8.len(text) then
    for _, code in utf8.codes(text) do list[#list + 1] = code end
  else
    for k = 1, #text do list[k] = text:byte(k) end
  end
  return list
end

local function split_words(text)
  local list = {}
  for word in text:gmatch "%S+" do list[#list + 1] = word end
  return list
end

-- Letters of the alphabet and digits, in lower case: the words that ROUGE counts.
local function plain_words(text)
  local list = {}
  for word in words.lower(text):gmatch "[a-z0-9]+" do list[#list + 1] = word end
  return list
end

local function split(where, x, how)
  if type(x) == "table" then return x end
  return how(options.text(where, "each sequence", x))
end

-- The least number of insertions, deletions and replacements that make b of a.
local function edits(a, b)
  local row = {}
  for k = 0, #b do row[k] = k end
  for i = 1, #a do
    local corner, own = row[0], a[i]
    row[0] = i
    for k = 1, #b do
      local best = own == b[k] and corner or corner + 1
      corner = row[k]
      if corner + 1 < best then best = corner + 1 end
      if row[k - 1] + 1 < best then best = row[k - 1] + 1 end
      row[k] = best
    end
  end
  return row[#b]
end

-- The length of the longest common subsequence.
local function common(a, b)
  local row = {}
  for k = 0, #b do row[k] = 0 end
  for i = 1, #a do
    local corner, own = 0, a[i]
    for k = 1, #b do
      local above = row[k]
      if own == b[k] then row[k] = corner + 1
      elseif row[k - 1] > above then row[k] = row[k - 1] end
      corner = above
    end
  end
  return row[#b]
end

--- The edit distance of Levenshtein: how many insertions, deletions and replacements make one
-- sequence of the other: metrics.edit_distance("kitten", "sitting") is 3.
-- @param a a text, whose characters are compared, or a list
-- @param b a text or a list
-- @return an integer
function M.edit_distance(a, b)
  local where = "metrics.edit_distance"
  return edits(split(where, a, characters), split(where, b, characters))
end

-- A class whose update calls each(own, reference) for pairs of sequences and adds the numbers that
-- it returns to the sums.
local function define(name, call, text, how, each, value)
  local cls = class(name, Metric)
  cls.about = {call, text}
  cls.sums = {"counts"}
  function cls:update(predictions, references)
    if type(predictions) == "string" then predictions, references = {predictions}, {references} end
    if type(predictions) ~= "table" or type(references) ~= "table"
       or #predictions ~= #references then
      fail("%s:update: two lists of as many sequences are expected", self.where)
    end
    local sums = {}
    for k, own in ipairs(predictions) do
      local numbers = {each(split(self.where, own, how), split(self.where, references[k], how))}
      for i, number in ipairs(numbers) do sums[i] = (sums[i] or 0) + number end
    end
    if sums[1] then self:add("counts", core.tensor(sums, {dtype = "f64"})) end
  end
  function cls.value(_, states) return value(table.unpack(states.counts:totable())) end
  M[name] = cls
end

local function ratio(a, b) return a / b end

define("EditDistance", "metrics.EditDistance()",
  "The mean edit distance of predictions and references: texts, by characters, or lists.",
  characters, function(own, reference) return edits(own, reference), 1 end, ratio)

define("WordErrorRate", "metrics.WordErrorRate()",
  "The word error rate of transcripts: edits of words, divided by the words of the references.",
  split_words, function(own, reference) return edits(own, reference), #reference end, ratio)

define("CharacterErrorRate", "metrics.CharacterErrorRate()",
  "The character error rate of transcripts: edits of characters, divided by the characters of the "
  .. "references, without spaces at the ends of texts.",
  function(text) return characters(text:match "^%s*(.-)%s*$") end,
  function(own, reference) return edits(own, reference), #reference end, ratio)

define("RougeL", "metrics.RougeL()",
  "ROUGE-L (Lin, 2004): the mean F1 of the longest common subsequence, by words of letters and "
    .. "digits in lower case. `compute` returns it, the mean precision and the mean recall.",
  plain_words,
  function(own, reference)
    local length = common(own, reference)
    if length == 0 then return 0, 0, 0, 1 end
    local precision, recall = length / #own, length / #reference
    return 2 * precision * recall / (precision + recall), precision, recall, 1
  end,
  function(f1, precision, recall, count) return f1 / count, precision / count, recall / count end)

return M
