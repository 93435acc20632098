-- The server: requests over sockets, and answers in the form that clients of OpenAI's interface
-- read. The model is small, its tokenizer has bytes and a few words; what the texts should be, the
-- model says by itself.
local flare = require "flare"
local core = flare.core
local http = require "spec.support.http"
local serve = require "flare.serve"

if not core.http.here() then return end -- libmicrohttpd is absent

local END = 297

local function tokenizer_of()
  local vocab = {}
  for byte = 0, 255 do vocab[string.char(byte)] = byte end
  for k, piece in ipairs{"lo", "low", " the", "é", "\xe2\x82"} do vocab[piece] = 255 + k end
  return flare.text.Tokenizer {
    model = {kind = "bpe", vocab = vocab, bytes = "raw"}, decode = table.concat,
    added = {{id = 296, content = "<|start|>", special = true},
             {id = END, content = "<|end|>", special = true}},
    templates = {default = "{% for m in messages %}<|start|>{{ m.role }}:{{ m.content }}"
      .. "{% if m.role == 'bad' %}{{ raise_exception('no such role') }}{% endif %}<|end|>"
      .. "{% endfor %}{% if tools %}{{ tools | tojson }}{% endif %}<|start|>assistant:"}}
end

local model, tokenizer
lazy_setup(function()
  flare.manual_seed(3)
  model = flare.models.LlamaForCausalLM {vocab_size = 300, hidden_size = 32, intermediate_size = 48,
    num_hidden_layers = 2, num_attention_heads = 4, num_key_value_heads = 2,
    max_position_embeddings = 256, initializer_range = 0.3, eos_token_id = END}
  model:eval()
  tokenizer = tokenizer_of()
end)

local server
local function start(o)
  o = o or {}
  o.model, o.tokenizer, o.name, o.port = model, tokenizer, "small", 0
  server = assert(serve(o))
end
before_each(function() start() end)
after_each(function() server:close() end)

local function work() server:poll(5) end

local function send(path, body, headers)
  return http.open(server:port(), {path = path, headers = headers,
    body = type(body) == "table" and core.json.encode(body) or body})
end

-- The status and the decoded body of one request.
local function ask(path, body, headers)
  local client = send(path, body, headers)
  local status, text = http.wait({client}, work)
  client:close()
  return status, core.json.decode(text) or text
end

-- What the model continues a text with.
local function continued(ids, count, o)
  local all = {ids = ids, max_tokens = count, temperature = 0, tokenizer = tokenizer}
  for name, value in pairs(o or {}) do all[name] = value end
  return model:generate(all)
end

local function chat_ids(text)
  return tokenizer:chat({{role = "user", content = text}}, {ids = true})
end

describe("flare.serve", function()
  it("completes texts, of several prompts and several times", function()
    local status, got = ask("/v1/completions", {model = "small", prompt = {"low", "the lo"},
      max_tokens = 9, temperature = 0, n = 2})
    assert.equal(200, status)
    assert.equal("text_completion", got.object)
    for k, prompt in ipairs{"low", "the lo"} do
      local ids = tokenizer:encode(prompt)
      local want = continued(ids, 9)
      for i = 1, 2 do
        local choice = got.choices[2 * k - 2 + i]
        assert.equal(2 * k - 3 + i, choice.index)
        assert.equal(want.text, choice.text)
        assert.equal(want.reason, choice.finish_reason)
      end
    end
    assert.equal(#tokenizer:encode "low" + #tokenizer:encode "the lo", got.usage.prompt_tokens)
    assert.equal(got.usage.prompt_tokens + got.usage.completion_tokens, got.usage.total_tokens)
    status, got = ask("/v1/completions", {prompt = {108, 111}, max_tokens = 9, temperature = 0})
    assert.equal(200, status)
    assert.equal(continued({108, 111}, 9).text, got.choices[1].text)
  end)

  it("echoes prompts with their log-probabilities, as lm_eval asks for them", function()
    local ids = tokenizer:encode "low tée"
    local status, got = ask("/v1/completions", {prompt = {ids, "lo"}, max_tokens = 1, logprobs = 1,
                                                echo = true, temperature = 0})
    assert.equal(200, status)
    local one = got.choices[1].logprobs
    local logp = flare.no_grad(function()
      return model(flare.tensor({ids}, {dtype = "i64"}))[1]:log_softmax(-1)
    end)
    assert.equal(#ids + 1, #one.tokens)
    assert.equal(core.json.null, one.token_logprobs[1])
    for k = 2, #ids do
      assert.near(logp[{k - 1, ids[k] + 1}]:item(), one.token_logprobs[k], 1e-4)
      local best = logp[k - 1]:argmax{base = 0}:item()
      assert.near(logp[{k - 1, best + 1}]:item(), select(2, next(one.top_logprobs[k])), 1e-4)
    end
    assert.equal("low tée", got.choices[1].text:sub(1, #"low tée"))
    status, got = ask("/v1/completions", {prompt = "low", max_tokens = 0, echo = true})
    assert.equal(200, status)
    assert.equal("low", got.choices[1].text)
    assert.equal(0, got.usage.completion_tokens)
  end)

  it("answers messages, with log-probabilities", function()
    local status, got = ask("/v1/chat/completions", {messages = {{role = "user", content = {
      {type = "text", text = "lo"}, {type = "text", text = "w"}}}}, max_tokens = 7,
      temperature = 0, logprobs = true, top_logprobs = 2})
    assert.equal(200, status)
    local want = continued(chat_ids "lo\nw", 7, {logprobs = 2})
    local choice = got.choices[1]
    assert.equal(want.text, choice.message.content)
    assert.equal("assistant", choice.message.role)
    assert.equal(#want.ids, #choice.logprobs.content)
    for k, entry in ipairs(choice.logprobs.content) do
      assert.near(want.logprobs[k], entry.logprob, 1e-4)
      assert.equal(2, #entry.top_logprobs)
      assert.equal(tokenizer:bytes(want.ids[k]), string.char(table.unpack(entry.bytes)))
    end
  end)

  it("streams the same text in whole characters, and the usage if asked", function()
    local client = send("/v1/chat/completions", {messages = {{role = "user", content = "low"}},
      max_tokens = 60, temperature = 0, stream = true, ignore_eos = true,
      stream_options = {include_usage = true}})
    local status, body, whole, head = http.wait({client}, work)
    client:close()
    assert.equal(200, status)
    assert.truthy(whole)
    assert.truthy(head:find("Content-Type: text/event-stream", 1, true))
    local events, done = http.events(body)
    assert.truthy(done)
    local parts, reason = {}, nil
    for k, event in ipairs(events) do
      local choice = event.choices[1]
      if choice then
        assert.equal("chat.completion.chunk", event.object)
        assert.equal(k == 1 and "assistant" or nil, choice.delta.role)
        if choice.delta.content then
          assert.truthy(utf8.len(choice.delta.content))
          parts[#parts + 1] = choice.delta.content
        end
        if choice.finish_reason ~= core.json.null then reason = choice.finish_reason end
      end
    end
    local want = continued(chat_ids "low", 60, {ignore_eos = true})
    assert.equal(want.text, table.concat(parts))
    assert.equal("length", reason)
    assert.equal(60, events[#events].usage.completion_tokens)
    assert.equal(0, #events[#events].choices)
  end)

  it("ends at strings and at the end token", function()
    local text = continued(chat_ids "low", 60, {ignore_eos = true}).text
    local stop = text:sub(utf8.offset(text, 9), utf8.offset(text, 11) - 1)
    local _, got = ask("/v1/chat/completions", {messages = {{role = "user", content = "low"}},
      max_tokens = 60, temperature = 0, stop = stop, ignore_eos = true})
    assert.equal(text:sub(1, text:find(stop, 1, true) - 1), got.choices[1].message.content)
    assert.equal("stop", got.choices[1].finish_reason)
    _, got = ask("/v1/completions", {prompt = "low", max_tokens = 60, temperature = 0,
                                     logit_bias = {[tostring(END)] = 100}})
    assert.equal("", got.choices[1].text)
    assert.equal("stop", got.choices[1].finish_reason)
  end)

  it("draws the same with the same seed", function()
    local function draw(seed)
      local _, got = ask("/v1/completions", {prompt = "low", max_tokens = 20, seed = seed,
                                             ignore_eos = true})
      return got.choices[1].text
    end
    assert.equal(draw(1), draw(1))
    assert.not_equal(draw(1), draw(2))
  end)

  it("works on many requests at once", function()
    local clients, want = {}, {}
    for k = 1, 32 do
      local prompt = ("low"):rep(k % 5 + 1) .. k
      clients[k] = send("/v1/completions", {prompt = prompt, max_tokens = 10, temperature = 0,
                                            stream = k % 2 == 0})
      want[k] = continued((tokenizer:encode(prompt)), 10).text
    end
    local most = 0
    http.wait(clients, function()
      work()
      most = math.max(most, #server.engine.running)
    end)
    assert.truthy(most > 16)
    for k, client in ipairs(clients) do
      local status, body = client:answer()
      assert.equal(200, status)
      local text = {}
      local events = k % 2 == 0 and http.events(body) or {core.json.decode(body)}
      for i, event in ipairs(events) do text[i] = event.choices[1].text end
      assert.equal(want[k], table.concat(text))
      client:close()
    end
  end)

  it("cancels what a client has left, before and while it streams", function()
    local body = {prompt = "low", max_tokens = 200, ignore_eos = true, n = 2}
    for _, stream in ipairs{true, false} do
      body.stream = stream
      local client = send("/v1/completions", body)
      for _ = 1, 100 do
        client:pump()
        work()
        if #server.engine.running == 2 then break end
      end
      assert.equal(2, #server.engine.running)
      local before = server.engine.totals.generated
      client:close()
      for _ = 1, 5 do work() end
      assert.equal(0, #server.engine.running)
      assert.truthy(server.engine.totals.generated - before < 20)
      assert.equal(server.engine.pages.count, server.engine.pages:room())
    end
    assert.equal(2, server.counts.cancelled)
  end)

  it("says what is wrong with a request", function()
    local function refused(status, pattern, body, path)
      local code, got = ask(path or "/v1/chat/completions", body)
      assert.equal(status, code)
      assert.matches(pattern, got.error.message)
      assert.truthy(got.error.type)
      return got.error
    end
    local function chat(o)
      o.messages = o.messages or {{role = "user", content = "a"}}
      return o
    end
    refused(400, "no JSON object", "{")
    refused(400, "no JSON object", "[1]")
    refused(400, "no JSON object", "")
    local e = refused(404, "'gpt' does not exist; this server has 'small'", chat{model = "gpt"})
    assert.equal("model_not_found", e.code)
    e = refused(400, "temperature: a number from 0 to 2 is expected, got 3", chat{temperature = 3})
    assert.equal("temperature", e.param)
    refused(400, "max_tokens: a number from 1", chat{max_tokens = 0})
    refused(400, "n: a whole number", chat{n = 1.5})
    refused(400, "stop: string 0 is a number", chat{stop = {1}})
    refused(400, "top_logprobs: it needs logprobs", chat{top_logprobs = 2})
    refused(400, "logit_bias: '300' is no id", chat{logit_bias = {["300"] = 1}})
    refused(400, "messages: message 0 has no content", {messages = {{role = "user"}}})
    refused(400, "no text, and the model reads only texts",
            {messages = {{role = "user", content = {{type = "image_url"}}}}})
    refused(400, "no such role", {messages = {{role = "bad", content = "x"}}})
    refused(400, "prompt: prompt 0 has the id 300", {prompt = {300}}, "/v1/completions")
    refused(400, "tool_choice: 'auto' and 'none' are supported", chat{tool_choice = "required",
      tools = {{type = "function", ["function"] = {name = "f"}}}})
    refused(400, "response_format: 'xml'", chat{response_format = {type = "xml"}})
    e = refused(400, "has 300 tokens; the model takes 256", {prompt = ("z"):rep(300)},
                "/v1/completions")
    assert.equal("context_length_exceeded", e.code)
    refused(404, "There is no /v2; there are", {}, "/v2")
    refused(404, "There is no /\u{fffd}", {}, "/%ff")
    refused(405, "is for POST, got GET", nil, "/v1/completions")
    assert.equal(0, #server.engine.running + #server.engine.waiting)
  end)

  it("has limits: of bodies, of requests that wait, and a key", function()
    server:close()
    start{body = "1KB", key = "secret", queue = 2, batch = 1}
    local key = "Authorization: Bearer secret\r\n"
    local status, got = ask("/v1/models")
    assert.equal(401, status)
    assert.equal("invalid_api_key", got.error.code)
    assert.equal(401, (ask("/v1/models", nil, "Authorization: Bearer secre\r\n")))
    assert.equal(200, (ask("/v1/models", nil, key)))
    assert.equal(200, (ask "/health"))
    assert.equal(413, (ask("/v1/completions", {prompt = ("z"):rep(2000)}, key)))
    local clients = {}
    for k = 1, 6 do
      clients[k] = send("/v1/completions", {prompt = "a", max_tokens = 5, ignore_eos = true}, key)
    end
    http.wait(clients, work)
    local counts = {}
    for _, client in ipairs(clients) do
      status = client:answer()
      counts[status] = (counts[status] or 0) + 1
      client:close()
    end
    assert.truthy(counts[200] >= 2 and (counts[429] or 0) >= 1)
    assert.equal(6, counts[200] + counts[429])
  end)

  it("lists the model and shows its figures", function()
    local _, got = ask "/v1/models"
    assert.equal("small", got.data[1].id)
    assert.equal("small", select(2, ask "/v1/models/small").id)
    assert.equal(404, (ask "/v1/models/other"))
    ask("/v1/completions", {prompt = "lo", max_tokens = 3, ignore_eos = true})
    local _, text = ask "/metrics"
    assert.matches("\nflare_generated_tokens_total 3\n", text)
    assert.matches('\nflare_responses_total{status="404"} 1\n', text)
    assert.matches('\nflare_first_token_seconds_bucket{le="%+Inf"} 1\n', text)
  end)

  it("holds answers to JSON, to a schema, to GBNF and to an expression", function()
    local schema = {type = "object", required = {"n", "ok"}, properties = {
      n = {type = "integer", minimum = 10, maximum = 99}, ok = {type = "boolean"}}}
    local function held(format, more)
      local body = {messages = {{role = "user", content = "low"}}, max_tokens = 200, seed = 2,
                    response_format = format}
      for name, value in pairs(more or {}) do body[name] = value end
      local status, got = ask("/v1/chat/completions", body)
      assert.equal(200, status)
      assert.equal("stop", got.choices[1].finish_reason)
      return got.choices[1].message.content
    end
    local format = {type = "json_schema", json_schema = {name = "x", schema = schema}}
    for seed = 1, 4 do
      local value = assert(core.json.decode(held(format, {seed = seed})))
      assert.truthy(value.n >= 10 and value.n <= 99 and type(value.ok) == "boolean")
    end
    -- with what closes objects made likely, since a random model does not end
    local bias = {[tostring(("}"):byte())] = 30, [tostring(('"'):byte())] = 10}
    local any = held({type = "json_object"}, {logit_bias = bias})
    assert.equal("table", type(core.json.decode(any)))
    assert.matches("^%d%d%d%-[xy]$", held(nil, {regex = "\\d{3}-[xy]"}))
    assert.matches("^a+b$", held(nil, {gbnf = 'root ::= "a"+ "b"', logit_bias = {["98"] = 20}}))
    local function refused(pattern, o)
      local status, got = ask("/v1/completions", {prompt = "a", response_format = o})
      assert.equal(400, status)
      assert.matches(pattern, got.error.message)
      assert.equal("response_format", got.error.param)
    end
    refused("schema, #: 'not' is not supported",
            {type = "json_schema", json_schema = {schema = {["not"] = {type = "null"}}}})
    refused("json_schema needs a schema", {type = "json_schema"})
  end)

  it("says that a computation has failed, and serves on", function()
    local features = model.features
    rawset(model, "features", function() error "no memory left" end)
    local clients = {send("/v1/completions", {prompt = "low"}),
                     send("/v1/completions", {prompt = "lo", stream = true})}
    http.wait(clients, work)
    rawset(model, "features", nil)
    assert.equal(features, model.features)
    local status, body = clients[1]:answer()
    assert.equal(500, status)
    assert.equal("server_error", core.json.decode(body).error.type)
    status, body = clients[2]:answer()
    assert.equal(200, status)
    assert.matches('"type":"server_error"', body)
    assert.matches("no memory left", server.error)
    for _, client in ipairs(clients) do client:close() end
    assert.equal(server.engine.pages.count, server.engine.pages:room())
    assert.equal(200, (ask("/v1/completions", {prompt = "low", max_tokens = 2})))
  end)

  it("embeds texts, as numbers and in base64", function()
    local status, got = ask("/v1/embeddings", {input = {"low", "the"}, model = "small"})
    assert.equal(200, status)
    for k, word in ipairs{"low", "the"} do
      local ids = flare.tensor({(tokenizer:encode(word))}, {dtype = "i64"})
      local want = flare.no_grad(function() return model:features(ids)[{1, -1}] end)
      want = (want / want:norm()):totable()
      local numbers = got.data[k].embedding
      assert.equal(#want, #numbers)
      for i, x in ipairs(want) do assert.near(x, numbers[i], 1e-5) end
    end
    assert.equal(#tokenizer:encode "low" + #tokenizer:encode "the", got.usage.prompt_tokens)
    local _, again = ask("/v1/embeddings", {input = "low", encoding_format = "base64"})
    local bytes = require("flare.base64").decode(again.data[1].embedding)
    for i, x in ipairs(got.data[1].embedding) do
      assert.near(x, (string.unpack("<f", bytes, 4 * i - 3)), 1e-5)
    end
    status, got = ask("/v1/embeddings", {input = {}})
    assert.equal(400, status)
    assert.equal("input", got.error.param)
    assert.equal(400, (ask("/v1/embeddings", {input = "a", encoding_format = "hex"})))
    assert.equal(400, (ask("/v1/embeddings", {input = {300}})))
  end)

  it("shows tools to the template, and finds the calls in a text", function()
    local tools = '[{"type":"function","function":{"name":"f","parameters":{"z":1,"a":2}}}]'
    local _, got = ask("/v1/chat/completions",
      '{"messages":[{"role":"user","content":"a"}],"max_tokens":2,"tools":' .. tools .. "}")
    local text = tokenizer:chat({{role = "user", content = "a"}}, {tools = tools})
    assert.equal(#tokenizer:encode(text), got.usage.prompt_tokens)
    local split = require "flare.serve.tools"
    local answer = {reason = "stop", text = 'Now.\n<tool_call>\n{"name": "f", "arguments": '
      .. '{"a": [1, 2]}}\n</tool_call><tool_call>{"name": "g"}</tool_call>'}
    local choice = {message = {}}
    split.split({id = "x"}, choice, answer)
    assert.equal("Now.", choice.message.content)
    assert.equal("tool_calls", choice.finish_reason)
    assert.equal("f", choice.message.tool_calls[1]["function"].name)
    assert.same({a = {1, 2}},
                core.json.decode(choice.message.tool_calls[1]["function"].arguments))
    assert.equal("g", choice.message.tool_calls[2]["function"].name)
    local streamed, parts = {reason = "stop"}, {}
    for k = 1, #answer.text do
      parts[k] = split.piece(streamed, answer.text:sub(k, k))
    end
    assert.equal("Now.\n", table.concat(parts))
    assert.equal(2, #split.rest({id = "x"}, streamed).tool_calls)
    streamed = {reason = "stop"}
    assert.equal("a < b ", split.piece(streamed, "a < b <tool_"))
    assert.equal("<tool_box>", split.piece(streamed, "box>"))
  end)

  it("outlives bytes that are no HTTP, and clients that send half a request", function()
    for _, text in ipairs{"\0\1\2\r\n\r\n", "POST /v1/completions HTTP/1.1\r\nHost: x\r\n"
      .. "Content-Length: 999999999\r\n\r\n{", "GET / HTTP/9.9\r\n\r\n",
      "POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
      "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n"} do
      local client = http.open(server:port(), text)
      for _ = 1, 4 do
        client:pump()
        work()
      end
      client:close()
      work()
    end
    assert.equal(200, (ask "/health"))
  end)

  it("drains: what runs is finished, new requests are refused", function()
    local client = send("/v1/completions", {prompt = "low", max_tokens = 30, temperature = 0,
                                            stream = true, ignore_eos = true})
    for _ = 1, 100 do
      client:pump()
      work()
      if #server.engine.running == 1 then break end
    end
    local asked = 0
    server:run(function()
      asked = asked + 1
      client:pump()
      return "drain"
    end)
    client:pump()
    local _, body, whole = client:answer()
    assert.truthy(whole and asked > 1)
    assert.truthy(select(2, http.events(body)))
    client:close()
    start()
  end)

  it("says when it cannot listen", function()
    local other, message = serve{model = model, tokenizer = tokenizer, port = server:port()}
    assert.is_nil(other)
    assert.matches("127.0.0.1:%d+: Address already in use", message)
  end)
end)
