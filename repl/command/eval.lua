--- flare eval FOLDER: how well a published model predicts texts.
local core = require "flare.core"
local words = require "flare.repl.words"

local usage = [[
usage: flare eval FOLDER --text FILE | --choices FILE [options]
  --text FILE      the perplexity of a text
  --choices FILE   which of several continuations is the likeliest: a JSON object in each line,
                   as HellaSwag and MMLU have them, or {"context", "choices", "answer"}
  --length NUMBER  tokens of a window, for texts
  --stride NUMBER  tokens that a window scores, for texts
  --batch NUMBER   texts at a time, for choices; 8 by default
  --limit NUMBER   no more questions than these
  --device NAME    cpu, cuda or cuda:1
  --dtype NAME     f32, bf16 or f16; by default that of the files]]

local texts = {text = true, choices = true, device = true, dtype = true}
local numbers = {length = true, stride = true, batch = true, limit = true}

local function fail(format, ...)
  io.stderr:write("flare eval: ", format:format(...), "\n")
  return 1
end

local function run_text(flare, model, tokenizer, o)
  local text, message = core.file.read(o.text)
  if not text then return fail("%s", message) end
  local ids = tokenizer:encode(text, {truncate = false, pad = false})
  if #ids < 2 then return fail("%s has no two tokens", o.text) end
  local r = flare.models.perplexity(model, ids, {length = o.length, stride = o.stride})
  print(("tokens      %d\nloss        %.4f nats\nbits/byte   %.4f\nperplexity  %.4f"):format(
    r.tokens, r.loss, r.loss * r.tokens / math.log(2) / #text, r.perplexity))
  return 0
end

local function run_choices(flare, model, tokenizer, o)
  local items, message = flare.models.read_choices(o.choices)
  if not items then return fail("%s", message) end
  if o.limit then items = table.move(items, 1, math.min(o.limit, #items), 1, {}) end
  local r = flare.models.choices(model, tokenizer, items, {batch = o.batch})
  print(("questions   %d\nacc         %.4f +- %.4f\nacc_norm    %.4f"):format(r.count, r.accuracy,
        r.error, r.normalised))
  return 0
end

return function(arguments)
  if words.asks_help(arguments) then
    print(usage)
    return 0
  end
  local o, folder = words.read(arguments, texts, numbers)
  if not o then return fail("%s\n%s", folder, usage) end
  if (o.text == nil) == (o.choices == nil) then
    return fail("one of --text and --choices is needed\n%s", usage)
  end
  local model, tokenizer = words.load(folder, o)
  if not model then return fail("%s", tokenizer) end
  return (o.text and run_text or run_choices)(require "flare", model, tokenizer, o)
end
