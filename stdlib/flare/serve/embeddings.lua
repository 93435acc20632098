--- Embeddings: the features of a text's last token, of length 1.
local core = require "flare.core"
local encode = require "flare.base64".encode
local fields = require "flare.serve.fields"

local M = {}

-- The ids of each input: a text, ids, or a list of these.
local function inputs_of(self, body)
  local given = fields.get(body, "input")
  if type(given) == "string" then given = {given} end
  if type(given) ~= "table" or given[1] == nil then
    fields.wrong("input", "a string, or an array of strings or of ids, is expected")
  end
  if math.type(given[1]) == "integer" then given = {given} end
  if #given > 2048 then fields.wrong("input", "at most 2048 inputs are allowed") end
  local out = {}
  for k, input in ipairs(given) do
    local ids = input
    if type(input) == "string" then
      ids = self.tokenizer:encode(input, {truncate = false, pad = false})
    elseif type(input) ~= "table" then
      fields.wrong("input", "input %d is %s", k - 1, fields.kind(input))
    end
    if #ids == 0 then fields.wrong("input", "input %d has no tokens", k - 1) end
    if #ids > self.limit then
      fields.refuse(400, ("Input %d has %d tokens; the model takes %d."):format(k - 1, #ids,
                    self.limit), "input", "context_length_exceeded")
    end
    for _, id in ipairs(ids) do
      if math.type(id) ~= "integer" or id < 0 or id >= self.vocabulary then
        fields.wrong("input", "input %d has the id %s; ids are 0 to %d", k - 1, tostring(id),
                     self.vocabulary - 1)
      end
    end
    out[k] = ids
  end
  return out
end

-- Numbers as f32, little-endian, in base64.
local function base64(numbers)
  local bytes = {}
  for k, x in ipairs(numbers) do bytes[k] = string.pack("<f", x) end
  return encode(table.concat(bytes))
end

--- The answer to the body of a request.
function M.answer(self, body)
  local format = fields.get(body, "encoding_format", "float")
  if format ~= "float" and format ~= "base64" then
    fields.wrong("encoding_format", "float or base64 is expected, got %s", tostring(format))
  end
  local inputs, data, tokens = inputs_of(self, body), {}, 0
  local model, device = self.engine.model, self.engine.device
  local _ <close> = core.no_grad()
  for k, ids in ipairs(inputs) do
    local x = model:features(core.tensor({ids}, {dtype = "i64", device = device}))
    x = x:select(1, 1):select(1, #ids):to "f32"
    local numbers = (x / x:square():sum():sqrt()):totable()
    data[k] = {object = "embedding", index = k - 1,
               embedding = format == "base64" and base64(numbers) or core.json.array(numbers)}
    tokens = tokens + #ids
  end
  return core.json.encode{object = "list", model = self.name, data = core.json.array(data),
                          usage = {prompt_tokens = tokens, total_tokens = tokens}}
end

return M
