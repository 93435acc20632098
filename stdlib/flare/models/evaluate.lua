--- How well a model predicts texts: perplexity, and which of several continuations it finds
-- likeliest, by the rules of lm-evaluation-harness.
local core = require "flare.core"
local fail = require "flare.fail"
local options = require "flare.options"

local M = {}

local function check_model(where, model)
  if type(model) ~= "table" or not model.features or not model.logits or model.encode then
    fail("%s: a model that predicts the next token is expected, got %s", where,
         options.kind(model))
  end
  return model:parameters()[1].device
end

-- The log-probabilities of tokens of several lists, by all tokens before in the same list; the
-- model does not read the last ones.
-- @param rows {ids =, first = the first token to score, from 2}
-- @return for each row a list of log-probabilities
local function score(model, rows, device)
  local time, ids = 0, {}
  for _, row in ipairs(rows) do time = math.max(time, #row.ids - 1) end
  for b, row in ipairs(rows) do
    ids[b] = table.move(row.ids, 1, #row.ids - 1, 1, {})
    for k = #row.ids, time do ids[b][k] = 0 end -- behind the text, which does not see it
  end
  local x = model:features(core.tensor(ids, {dtype = "i64", device = device}))
  local out = {}
  for b, row in ipairs(rows) do
    local count = #row.ids - row.first + 1
    local own = table.move(row.ids, row.first, #row.ids, 1, {})
    own = core.tensor(own, {dtype = "i64", device = device})
    local logits = model:logits(x:select(1, b):narrow(1, row.first - 1, count)):to "f32"
    local logp = logits:log_softmax(2):gather(2, own:unsqueeze(2), {base = 0}):squeeze(2)
    out[b] = logp:to("f64"):totable()
  end
  return out
end

-- Runs f with the model in evaluation mode and without recording.
local function evaluating(model, f)
  local was = model.training
  model:eval()
  local _ <close> = core.no_grad()
  local ok, result = pcall(f)
  if was then model:train() end
  if not ok then error(result, 0) end
  return result
end

--- The perplexity of a text: exp of the mean negative log-probability of its tokens but the first.
-- Each is scored once, by the tokens before it in a window.
-- @param model a model that predicts the next token
-- @param ids a list of token ids
-- @param opts `length` of a window, by default the model's limit, 2048 at most; `stride`, how many
--   tokens a window scores, by default all of it: with fewer, each has more tokens before it
-- @return {perplexity =, loss = the mean, in nats, tokens = how many were scored}
function M.perplexity(model, ids, opts)
  local device = check_model("models.perplexity", model)
  local limit = math.min(model.config.max_position_embeddings or 2048, 2048)
  local o = options.check("models.perplexity", opts, {length = limit, stride = options.none})
  options.count("models.perplexity", "length", o.length)
  local stride = options.count("models.perplexity", "stride", o.stride or o.length)
  if stride > o.length then fail("models.perplexity: stride is above length, %d", o.length) end
  if type(ids) ~= "table" or #ids < 2 then
    fail("models.perplexity: a list of at least two ids is expected")
  end
  return evaluating(model, function()
    local sum, done = 0, 1
    while done < #ids do
      local stop = math.min(done + (done == 1 and o.length or stride), #ids)
      local from = math.max(1, stop - o.length)
      local row = {ids = table.move(ids, from, stop, 1, {}), first = done - from + 2}
      for _, logp in ipairs(score(model, {row}, device)[1]) do sum = sum - logp end
      done = stop
    end
    local loss = sum / (#ids - 1)
    return {perplexity = math.exp(loss), loss = loss, tokens = #ids - 1}
  end)
end

-- The ids of a context and of what continues it: they are encoded together, and spaces at the end
-- of the context belong to the continuation.
local function pair_of(tokenizer, context, continuation)
  local trimmed = context:match "^(.-)%s*$"
  continuation = context:sub(#trimmed + 1) .. continuation
  local before = tokenizer:encode(trimmed, {truncate = false, pad = false})
  local whole = tokenizer:encode(trimmed .. continuation, {truncate = false, pad = false})
  return whole, math.min(#before, #whole - 1)
end

--- How often the continuation that is right is the likeliest.
-- @param model a model that predicts the next token
-- @param tokenizer its tokenizer
-- @param items a list of {context =, choices = texts, answer = the right one, from 1}
-- @param opts `batch`, how many texts at a time (8)
-- @return {accuracy = by the sum of log-probabilities, normalised = by that sum divided by the
--   number of characters, error = the standard error of accuracy, count =, scores = a list for
--   each item}
function M.choices(model, tokenizer, items, opts)
  local device = check_model("models.choices", model)
  local o = options.check("models.choices", opts, {batch = 8})
  local most, rows = model.config.max_position_embeddings or math.huge, {}
  for n, item in ipairs(items) do
    for k, choice in ipairs(item.choices) do
      local ids, before = pair_of(tokenizer, item.context, choice)
      if before == 0 then fail("models.choices: the context of item %d has no tokens", n) end
      local cut = #ids - 1 > most and math.min(#ids - 1 - most, before - 1) or 0
      ids = table.move(ids, cut + 1, #ids, 1, {})
      rows[#rows + 1] = {ids = ids, first = before - cut + 1, item = n, choice = k}
    end
  end
  local scores = {}
  evaluating(model, function()
    for first = 1, #rows, o.batch do
      local part = table.move(rows, first, math.min(first + o.batch - 1, #rows), 1, {})
      for b, result in ipairs(score(model, part, device)) do
        local sum = 0
        for _, logp in ipairs(result) do sum = sum + logp end
        scores[part[b].item] = scores[part[b].item] or {}
        scores[part[b].item][part[b].choice] = sum
      end
    end
  end)
  local right, normal = 0, 0
  for n, item in ipairs(items) do
    local best, shorter = 1, 1
    local function each(k) return scores[n][k] / utf8.len(item.choices[k]:match "^%s*(.*)$") end
    for k in ipairs(item.choices) do
      if scores[n][k] > scores[n][best] then best = k end
      if each(k) > each(shorter) then shorter = k end
    end
    if best == item.answer then right = right + 1 end
    if shorter == item.answer then normal = normal + 1 end
  end
  local p, count = right / #items, #items
  return {accuracy = p, normalised = normal / count, count = count, scores = scores,
          error = count > 1 and math.sqrt(p * (1 - p) / (count - 1)) or 0}
end

-- HellaSwag's cleaning of texts from WikiHow, as lm-evaluation-harness does it.
local function clean(text)
  text = text:match "^%s*(.-)%s*$":gsub(" %[title%]", ". "):gsub("%[.-%]", "")
  return (text:gsub("  ", " "))
end

-- An item of models.choices from a row of a file of questions; nil and what is missing.
local function item_of(row)
  local null = core.json.null
  local function get(...)
    for _, name in ipairs{...} do
      if row[name] ~= nil and row[name] ~= null then return row[name] end
    end
  end
  local answer = get("label", "answer", "gold")
  if row.endings then -- HellaSwag
    local context = row.ctx
    if row.ctx_a and row.ctx_b then
      context = row.ctx_a .. " " .. row.ctx_b:sub(1, 1):upper() .. row.ctx_b:sub(2):lower()
    end
    if not context then return nil, "ctx" end
    local choices = {}
    for k, ending in ipairs(row.endings) do choices[k] = " " .. clean(ending) end
    local topic = row.activity_label and row.activity_label .. ": " or ""
    return {context = clean(topic .. context), choices = choices,
            answer = math.tointeger(tonumber(answer)) + 1}
  elseif row.choices and row.question then -- MMLU
    local lines, letters, choices = {row.question:match "^%s*(.-)%s*$"}, "ABCDEFGHIJ", {}
    for k, choice in ipairs(row.choices) do
      lines[#lines + 1] = letters:sub(k, k) .. ". " .. choice
      choices[k] = " " .. letters:sub(k, k)
    end
    lines[#lines + 1] = "Answer:"
    local place = math.tointeger(tonumber(answer))
    place = place and place + 1 or letters:find(tostring(answer), 1, true)
    return {context = table.concat(lines, "\n"), choices = choices, answer = place}
  elseif row.choices and get("context", "query") then
    return {context = get("context", "query"), choices = row.choices,
            answer = math.tointeger(tonumber(answer)) and math.tointeger(tonumber(answer)) + 1}
  end
  return nil, "choices with question or context, or endings"
end

--- The questions of a file, a JSON object in each line: HellaSwag's (ctx, endings, label), MMLU's
-- (question, choices, answer), or {context, choices, answer}; answers count from 0 in files.
-- @return a list for models.choices, or nil and a message
function M.read_choices(path)
  local text, message = core.file.read(path)
  if not text then return nil, message end
  local items, number = {}, 0
  for line in text:gmatch "[^\n]+" do
    number = number + 1
    local row = core.json.decode(line)
    if type(row) ~= "table" then
      return nil, ("%s, line %d: no JSON object"):format(path, number)
    end
    local item, missing = item_of(row)
    if not item then return nil, ("%s, line %d: it has no %s"):format(path, number, missing) end
    if not item.answer or not item.choices[item.answer] then
      return nil, ("%s, line %d: the answer is none of the choices"):format(path, number)
    end
    items[#items + 1] = item
  end
  if #items == 0 then return nil, path .. ": it has no questions" end
  return items
end

return M
