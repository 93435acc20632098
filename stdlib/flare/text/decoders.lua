--- Decoders: from the tokens of a text, a list, to the text. Each is a function of a list of
-- strings that returns one; the text is what they make, joined.
local core = require "flare.core"
local fail = require "flare.fail"
local options = require "flare.options"
local pattern = require "flare.text.pattern"

local M = {}

local function map(tokens, f)
  local out = {}
  for i, token in ipairs(tokens) do out[i] = f(token, i) end
  return out
end

-- Replaces a text, not a pattern.
local function replace(token, from, to)
  if from == "" then return token end
  return (token:gsub(from:gsub("%p", "%%%0"), (to:gsub("%%", "%%%%"))))
end

local untidy = {{" .", "."}, {" ?", "?"}, {" !", "!"}, {" ,", ","}, {" ' ", "'"}, {" n't", "n't"},
  {" 'm", "'m"}, {" do not", " don't"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}}

local function cleanup(text)
  for _, pair in ipairs(untidy) do text = replace(text, pair[1], pair[2]) end
  return text
end

local makers = {}

function makers.ByteLevel()
  return function(tokens)
    return {table.concat(map(tokens, function(token) return core.text.unmap(token) or token end))}
  end
end

function makers.ByteFallback()
  return function(tokens)
    local out, bytes = {}, {}
    local function flush()
      if #bytes == 0 then return end
      local text = table.concat(bytes)
      local valid = core.text.repair(text) == text
      out[#out + 1] = valid and text or ("\u{fffd}"):rep(#bytes)
      bytes = {}
    end
    for _, token in ipairs(tokens) do
      local hex = token:match "^<0x(%x%x)>$"
      if hex then
        bytes[#bytes + 1] = string.char(tonumber(hex, 16))
      else
        flush()
        out[#out + 1] = token
      end
    end
    flush()
    return out
  end
end

function makers.Fuse()
  return function(tokens) return {table.concat(tokens)} end
end

function makers.Strip(o)
  local content, start, stop = o.content or " ", o.start or 0, o.stop or 0
  return function(tokens)
    return map(tokens, function(token)
      for _ = 1, start do
        if token:sub(1, #content) ~= content then break end
        token = token:sub(#content + 1)
      end
      for _ = 1, stop do
        if token == "" or token:sub(-#content) ~= content then break end
        token = token:sub(1, -#content - 1)
      end
      return token
    end)
  end
end

function makers.Replace(o)
  local given = type(o.pattern) == "table" and o.pattern or {}
  if given.Regex then
    local t = core.text.new {model = {kind = "wordlevel", vocab = {}}, normalizers = {{
      kind = "replace", regex = true, text = pattern.translate(given.Regex, "oniguruma"),
      content = o.content}}}
    return function(tokens)
      return map(tokens, function(token) return t:normalize(token) end)
    end
  end
  return function(tokens)
    return map(tokens, function(token) return replace(token, given.String or "", o.content) end)
  end
end

function makers.Metaspace(o)
  local mark, scheme = o.replacement or "\u{2581}", o.prepend_scheme
  local keep = scheme == "never" or o.add_prefix_space == false
  return function(tokens)
    return map(tokens, function(token, i)
      return replace(token, mark, i == 1 and not keep and "" or " ")
    end)
  end
end

function makers.WordPiece(o)
  local prefix, tidy = o.prefix or "##", o.cleanup ~= false
  return function(tokens)
    return map(tokens, function(token, i)
      if i > 1 then
        token = token:sub(1, #prefix) == prefix and token:sub(#prefix + 1) or " " .. token
      end
      return tidy and cleanup(token) or token
    end)
  end
end

function makers.BPEDecoder(o)
  local suffix = o.suffix or "</w>"
  return function(tokens)
    return map(tokens, function(token, i)
      return replace(token, suffix, i == #tokens and "" or " ")
    end)
  end
end

function makers.CTC(o)
  local pad, bar = o.pad_token or "<pad>", o.word_delimiter_token or "|"
  return function(tokens)
    local out, last = {}, nil
    for _, token in ipairs(tokens) do
      if token ~= last then
        local text = replace(token, pad, "")
        if o.cleanup ~= false then text = replace(cleanup(text), bar, " ") end
        if text ~= "" then out[#out + 1] = text end
      end
      last = token
    end
    return out
  end
end

--- The decoder of a tokenizer.json.
-- @return a function from a list of tokens to a text, and whether the text may have pieces of
-- characters: it is bytes
function M.make(object)
  if object == nil or type(object) == "userdata" then
    return function(tokens) return table.concat(tokens, " ") end
  end
  local list = {}
  local function add(part)
    if type(part) ~= "table" or type(part.type) ~= "string" then
      fail("the decoder is not an object with a type")
    elseif part.type == "Sequence" then
      for _, inner in ipairs(part.decoders or {}) do add(inner) end
    elseif not makers[part.type] then
      fail("the decoder '%s' is unknown%s", part.type, options.hint(part.type, makers))
    else
      list[#list + 1] = makers[part.type](part)
    end
  end
  add(object)
  return function(tokens)
    for _, decode in ipairs(list) do tokens = decode(tokens) end
    return table.concat(tokens)
  end
end

return M
