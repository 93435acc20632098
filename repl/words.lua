--- The arguments of commands that read a folder: options by name, --name value or --name=value.
local core = require "flare.core"

local M = {}

--- Whether help is asked for.
function M.asks_help(arguments)
  for _, word in ipairs(arguments) do
    if word == "--help" or word == "-h" then return true end
  end
  return false
end

local function unknown(word, ...)
  local all = {}
  for _, list in ipairs{...} do
    for name in pairs(list) do all[#all + 1] = name end
  end
  local near = core.nearest(word, all)
  local hint = near and (" (did you mean --%s?)"):format(near) or ""
  return ("unknown option --%s%s"):format(word, hint)
end

--- The options, and the other words; nil and what is wrong.
-- @param texts, numbers sets of the names of options
function M.options(arguments, texts, numbers)
  local o, others, k = {}, {}, 1
  while arguments[k] do
    local word, value = arguments[k]:match "^%-%-([%a%-]+)=?(.*)$"
    if not word then
      others[#others + 1] = arguments[k]
    elseif not texts[word] and not numbers[word] then
      return nil, unknown(word, texts, numbers)
    else
      if value == "" then
        k = k + 1
        value = arguments[k]
      end
      if numbers[word] then value = math.tointeger(tonumber(value)) end
      if not value then
        return nil, ("--%s needs a %s"):format(word, numbers[word] and "number" or "value")
      end
      o[word] = value
    end
    k = k + 1
  end
  return o, others
end

--- The options and the folder; nil and what is wrong.
-- @param texts, numbers sets of the names of options
function M.read(arguments, texts, numbers)
  local o, others = M.options(arguments, texts, numbers)
  if not o then return nil, others end
  if others[2] then return nil, ("one folder is expected, got %s, too"):format(others[2]) end
  if not others[1] then return nil, "the folder of a model is missing" end
  return o, others[1]
end

--- The model and the tokenizer of a folder; nil and a message.
-- @param o {device =, dtype =}
function M.load(folder, o)
  local flare = require "flare"
  local model, message = flare.models.load(folder, {device = o.device, dtype = o.dtype})
  if not model then return nil, message end
  local tokenizer
  tokenizer, message = flare.text.load(folder)
  if not tokenizer then return nil, message end
  return model, tokenizer
end

return M
