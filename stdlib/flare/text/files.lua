--- Finds out what the files of a tokenizer are, and reads them.
local core = require "flare.core"
local fail = require "flare.fail"
local options = require "flare.options"
local Tokenizer = require "flare.text.tokenizer"

local M = {}

-- Keys with a zero byte, which the JSON library refuses, are read with a noncharacter in its place.
local stand_in = "\u{10ffff}"

local function with_zeros(value)
  if type(value) == "string" then return (value:gsub(stand_in, "\0")) end
  if type(value) ~= "table" then return value end
  local out = {}
  for key, inner in pairs(value) do out[with_zeros(key)] = with_zeros(inner) end
  return out
end

-- A JSON file; nil and a message.
local function read_json(path)
  local text, message = core.file.read(path)
  if not text then return nil, message end
  local count = 0
  text = text:gsub("(\\+)u0000", function(slashes)
    if #slashes % 2 == 0 then return nil end
    count = count + 1
    return slashes .. "udbff\\udfff"
  end)
  local value
  value, message = core.json.decode(text)
  if value == nil then return nil, ("%s: %s"):format(path, message) end
  return count > 0 and with_zeros(value) or value
end

local function value_or(value, default)
  if value == nil or type(value) == "userdata" then return default end
  return value
end

-- The text of a special token in a configuration, which may be an object.
local function content_of(token)
  if type(token) == "table" then token = token.content end
  return type(token) == "string" and token or nil
end

-- vocab.json and merges.txt: byte-level BPE as GPT-2 has it.
local function read_pair(vocab, merges_path)
  local text, message = core.file.read(merges_path)
  if not text then return nil, message end
  local merges, special = {}, {}
  for line in text:gmatch "[^\r\n]+" do
    if not line:find "^#version" then merges[#merges + 1] = line end
  end
  for token in pairs(vocab) do
    if type(token) == "string" and token:find "^<.+>$" then
      special[#special + 1] = {content = token, normalized = false, special = true}
    end
  end
  return require("flare.text.json").read {
    model = {type = "BPE", vocab = vocab, merges = merges}, added_tokens = special,
    pre_tokenizer = {type = "ByteLevel", add_prefix_space = false},
    decoder = {type = "ByteLevel"},
  }
end

-- vocab.txt: WordPiece as BERT has it.
local function read_words(path, config)
  local text, message = core.file.read(path)
  if not text then return nil, message end
  local vocab, n, special = {}, 0, {}
  for line in (text:sub(-1) == "\n" and text or text .. "\n"):gmatch "([^\n]*)\n" do
    vocab[line:gsub("%s+$", "")] = n
    n = n + 1
  end
  for _, token in ipairs {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"} do
    if vocab[token] then
      special[#special + 1] = {content = token, normalized = false, special = true}
    end
  end
  local around = vocab["[CLS]"] and vocab["[SEP]"] and {type = "BertProcessing",
    sep = {"[SEP]", vocab["[SEP]"]}, cls = {"[CLS]", vocab["[CLS]"]}}
  return require("flare.text.json").read {
    model = {type = "WordPiece", vocab = vocab}, added_tokens = special, post_processor = around,
    normalizer = {type = "BertNormalizer", lowercase = value_or(config.do_lower_case, true)},
    pre_tokenizer = {type = "BertPreTokenizer"}, decoder = {type = "WordPiece"},
  }
end

local function folder_of(path) return path:match "^(.*/)" or "" end

-- A JSON file may be any of three.
local function read_any_json(path)
  local file, message = read_json(path)
  if not file then return nil, message end
  if type(file) ~= "table" then fail "not a JSON object" end
  if file.model or file.added_tokens then return require("flare.text.json").read(file) end
  if type(file.config) == "table" and type(file.vocab) == "table" then
    return require("flare.text.tiktoken").tekken(file)
  end
  local merges = folder_of(path) .. "merges.txt"
  if core.file.exists(merges) then return read_pair(file, merges) end
  fail "neither a tokenizer.json nor a tekken.json, and there is no merges.txt beside it"
end

local function read_file(path, o, config)
  if path:find "%.json$" or path:find "%.json%." then return read_any_json(path) end
  if path:find "%.tiktoken$" or o.pattern then
    return require("flare.text.tiktoken").read(path, o)
  end
  if path:find "%.txt$" then return read_words(path, config) end
  return require("flare.text.sentencepiece").read(path)
end

local names = {"tokenizer.json", "tekken.json", "tokenizer.model", "spiece.model",
  "sentencepiece.bpe.model", "vocab.json", "vocab.txt"}

-- The file of a folder that describes its tokenizer.
local function find_file(folder)
  for _, name in ipairs(names) do
    if core.file.exists(folder .. "/" .. name) then return folder .. "/" .. name end
  end
  for _, name in ipairs(core.file.list(folder) or {}) do
    if name:find "%.tiktoken$" or name:find "%.model%f[%.\0]" then return folder .. "/" .. name end
  end
end

-- The special tokens by their use, {bos = "<s>"}, and the chat templates, by name.
local function add_config(description, config, folder)
  description.names = {}
  for _, use in ipairs {"bos", "eos", "unk", "pad", "sep", "cls", "mask"} do
    description.names[use] = content_of(config[use .. "_token"])
  end
  local templates, given = {}, config.chat_template
  if type(given) == "string" then templates.default = given end
  if type(given) == "table" then
    for _, one in ipairs(given) do
      if type(one) == "table" and one.name then templates[one.name] = one.template end
    end
  end
  if folder then
    templates.default = core.file.exists(folder .. "/chat_template.jinja")
      and core.file.read(folder .. "/chat_template.jinja") or templates.default
  end
  description.templates = templates
  return description
end

local function read_all(path, o)
  local folder = core.file.exists(path) == "directory" and path
  local config = {}
  if folder then
    path = find_file(folder)
    if not path then
      return nil, ("%s: there is no tokenizer in this folder: none of %s"):format(folder,
        table.concat(names, ", "))
    end
    if core.file.exists(folder .. "/tokenizer_config.json") then
      local message
      config, message = read_json(folder .. "/tokenizer_config.json")
      if not config then return nil, message end
    end
  end
  local description, message = read_file(path, o, config)
  if not description then return nil, message end
  return add_config(description, config, folder)
end

--- Loads a tokenizer from the files that a model is published with.
-- @param path a folder, or a file: tokenizer.json (Hugging Face), tokenizer.model (SentencePiece),
-- tekken.json, .tiktoken, vocab.json with merges.txt beside it, or vocab.txt
-- @param o for a .tiktoken file: pattern, what it splits by, and special, its special tokens
-- ({token = id}); both are known for the published encodings
-- @return a Tokenizer, or nil and a message
function M.load(path, o)
  o = options.check("text.load", o, {pattern = options.none, special = options.none})
  if type(path) ~= "string" then
    fail("text.load: a path is expected, got %s", options.kind(path))
  end
  local made
  local ok, description, message = pcall(read_all, path, o)
  if ok and not description then return nil, message end
  if ok then ok, made = pcall(Tokenizer, description) end
  if ok then return made end
  local said = tostring(made or description)
  return nil, ("%s: %s"):format(path, (said:gsub("^[^\n]-:%d+: ", ""):gsub("\n.*", "")))
end

return M
