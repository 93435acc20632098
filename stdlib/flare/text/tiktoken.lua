--- Rank files: .tiktoken (a line for each token: its bytes in base64, its rank) and tekken.json.
local base64 = require "flare.base64"
local core = require "flare.core"
local fail = require "flare.fail"
local pattern = require "flare.text.pattern"
local post = require "flare.text.post"

local M = {}

local letters = [[\p{Ll}\p{Lm}\p{Lo}\p{M}]]
local capitals = [[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]]
local suffix = [[(?i:'s|'t|'re|'ve|'m|'ll|'d)?]]

--- Patterns of the published encodings, and their special tokens.
local gpt4 = [['(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+|]]
  .. [[ ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s]]
local gpt4o = table.concat({
  ([[[^\r\n\p{L}\p{N}]?[%s]*[%s]+%s]]):format(capitals, letters, suffix),
  ([[[^\r\n\p{L}\p{N}]?[%s]+[%s]*%s]]):format(capitals, letters, suffix),
  [[\p{N}{1,3}]], [[ ?[^\s\p{L}\p{N}]+[\r\n/]*]], [[\s*[\r\n]+]], [[\s+(?!\S)]], [[\s+]],
}, "|")
local gpt2 = [['(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s]]
local fill = {["<|fim_prefix|>"] = 100258, ["<|fim_middle|>"] = 100259,
  ["<|fim_suffix|>"] = 100260, ["<|endoftext|>"] = 100257, ["<|endofprompt|>"] = 100276}
local published = {
  gpt2 = {gpt2, {["<|endoftext|>"] = 50256}}, r50k_base = {gpt2, {["<|endoftext|>"] = 50256}},
  p50k_base = {gpt2, {["<|endoftext|>"] = 50256}}, cl100k_base = {gpt4, fill},
  o200k_base = {gpt4o, {["<|endoftext|>"] = 199999, ["<|endofprompt|>"] = 200018}},
}

local function describe(vocab, split, special)
  local added = {}
  for content, id in pairs(special) do
    added[#added + 1] = {content = content, id = id, special = true, normalized = false}
  end
  table.sort(added, function(a, b) return a.id < b.id end)
  return {
    model = {kind = "bpe", vocab = vocab, bytes = "raw", ignore_merges = true}, added = added,
    splitters = {{kind = "split", regex = true, text = pattern.translate(split, "rust")}},
    decode = table.concat, processor = post.default,
  }
end

--- Reads a .tiktoken file.
-- @param o pattern and special ({token = id}); without them, those of the encoding that the file
-- is named for
function M.read(path, o)
  local text, message = core.file.read(path)
  if not text then return nil, message end
  local name = path:match "([^/]*)%.tiktoken$" or path:match "([^/]*)$"
  local known = published[name] or {}
  local split, special = o.pattern or known[1], o.special or known[2] or {}
  if not split then
    fail("the split pattern of '%s' is not known: give it, as {pattern = ...}", name)
  end
  local vocab, line_number = {}, 0
  for line in text:gmatch "[^\r\n]+" do
    line_number = line_number + 1
    local token, rank = line:match "^(%S+) (%d+)$"
    token = token and base64.decode(token)
    if not token then fail("line %d is not a token in base64 and a rank", line_number) end
    vocab[token] = math.tointeger(rank)
  end
  return describe(vocab, split, special)
end

--- The description of a decoded tekken.json.
function M.tekken(file)
  local config = file.config
  if type(config) ~= "table" or type(config.pattern) ~= "string" then
    fail "config.pattern is missing"
  end
  local first = config.default_num_special_tokens or 0
  local count = (config.default_vocab_size or #file.vocab + first) - first
  local vocab, special = {}, {}
  for i = 1, math.min(count, #file.vocab) do
    local entry = file.vocab[i]
    local token = type(entry) == "table" and base64.decode(entry.token_bytes or "")
    if not token or math.type(entry.rank) ~= "integer" then
      fail("token %d is not {token_bytes, rank}", i - 1)
    end
    vocab[token] = entry.rank + first
  end
  for i, token in ipairs(file.special_tokens or {}) do
    if type(token) == "table" then special[token.token_str or ""] = token.rank or i - 1 end
  end
  special[""] = nil
  if not next(special) then
    for i, name in ipairs {"<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]",
      "[/AVAILABLE_TOOLS]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]", "[TOOL_CALLS]", "[IMG]", "<pad>",
      "[IMG_BREAK]", "[IMG_END]", "[PREFIX]", "[MIDDLE]", "[SUFFIX]", "[SYSTEM_PROMPT]",
      "[/SYSTEM_PROMPT]", "[TOOL_CONTENT]"} do
      if i <= first then special[name] = i - 1 end
    end
  end
  for id = 0, first - 1 do
    local taken = false
    for _, other in pairs(special) do taken = taken or other == id end
    if not taken then special[("<SPECIAL_%d>"):format(id)] = id end
  end
  return describe(vocab, config.pattern, special)
end

return M
