--- The fields of a request's JSON: their types and ranges, and errors in the form that clients of
-- OpenAI's interface know.
local core = require "flare.core"

local M = {}

--- Raises an error that becomes an answer.
-- @param status of HTTP
-- @param message what is wrong, for a person
-- @param param the field that is wrong, or nil
-- @param code a name for programs, or nil
function M.refuse(status, message, param, code)
  local kind = status == 401 and "authentication_error" or status == 404 and "not_found_error"
    or status == 429 and "rate_limit_error" or status >= 500 and "server_error"
    or "invalid_request_error"
  error({refused = true, status = status, message = message, type = kind, param = param,
         code = code}, 0)
end

local function wrong(name, format, ...)
  M.refuse(400, ("%s: %s"):format(name, format:format(...)), name, "invalid_value")
end
M.wrong = wrong

-- What a JSON value is, in JSON's words.
local function kind(value)
  if type(value) == "table" then
    return (value[1] ~= nil or getmetatable(value)) and "an array" or "an object"
  end
  return value == core.json.null and "null" or "a " .. type(value)
end
M.kind = kind

--- A field, or `other` if it is absent or null.
function M.get(body, name, other)
  local value = body[name]
  if value == nil or value == core.json.null then return other end
  return value
end

--- A number between two limits, or nil.
function M.number(body, name, least, most)
  local value = M.get(body, name)
  if value == nil then return nil end
  if type(value) ~= "number" then wrong(name, "a number is expected, got %s", kind(value)) end
  if value ~= value or value < least or value > most then
    wrong(name, "a number from %s to %s is expected, got %s", least, most, value)
  end
  return value
end

--- A whole number between two limits, or nil.
function M.integer(body, name, least, most)
  local value = M.number(body, name, least, most)
  if value == nil then return nil end
  return math.tointeger(value) or wrong(name, "a whole number is expected, got %s", value)
end

--- A value of a type of Lua, or nil.
function M.typed(body, name, type_name)
  local value = M.get(body, name)
  if value ~= nil and type(value) ~= type_name then
    local wanted = type_name == "table" and "an object or array" or "a " .. type_name
    wrong(name, "%s is expected, got %s", wanted, kind(value))
  end
  return value
end

--- A list of strings from a string or a list of them.
function M.strings(body, name, most)
  local value = M.get(body, name)
  if type(value) == "string" then value = {value} end
  if value == nil then return {} end
  if type(value) ~= "table" then
    wrong(name, "a string or an array of strings is expected, got %s", kind(value))
  end
  if #value > most then wrong(name, "at most %d strings are allowed, got %d", most, #value) end
  local out = {}
  for k, item in ipairs(value) do
    if type(item) ~= "string" then
      wrong(name, "string %d is %s", k - 1, kind(item))
    end
    if item ~= "" then out[#out + 1] = item end
  end
  return out
end

-- {id = number} from {"id" = number}.
local function bias_of(body, vocabulary)
  local given, out = M.typed(body, "logit_bias", "table"), nil
  for key, value in pairs(given or {}) do
    local id = math.tointeger(tonumber(key))
    if not id or id < 0 or id >= vocabulary then
      wrong("logit_bias", "'%s' is no id of a token, which are 0 to %d", key, vocabulary - 1)
    elseif type(value) ~= "number" or value < -100 or value > 100 then
      wrong("logit_bias", "a number from -100 to 100 is expected for token %d", id)
    end
    out = out or {}
    out[id] = value
  end
  return out
end

--- The options of sampling that a body has, for Engine:submit.
-- @param vocabulary how many ids the model has
function M.sampling(body, vocabulary)
  local o = {
    n = M.integer(body, "n", 1, 128),
    seed = M.integer(body, "seed", math.mininteger, math.maxinteger),
    temperature = M.number(body, "temperature", 0, 2), top_p = M.number(body, "top_p", 0, 1),
    min_p = M.number(body, "min_p", 0, 1), top_k = M.integer(body, "top_k", -1, math.maxinteger),
    presence_penalty = M.number(body, "presence_penalty", -2, 2),
    frequency_penalty = M.number(body, "frequency_penalty", -2, 2),
    repetition_penalty = M.number(body, "repetition_penalty", 1e-6, 1e6),
    stop = M.strings(body, "stop", 16), ignore_eos = M.typed(body, "ignore_eos", "boolean"),
    bias = bias_of(body, vocabulary),
  }
  if o.top_k and o.top_k <= 0 then o.top_k = nil end
  return o
end

return M
