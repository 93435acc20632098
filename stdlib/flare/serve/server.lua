--- The server: takes requests, lets the engine work on them step by step, and sends what it gives,
-- all in one thread. A step lasts as long as a forward pass; between steps requests are read and
-- answers are sent.
local answers = require "flare.serve.answers"
local class = require "flare.class"
local core = require "flare.core"
local embeddings = require "flare.serve.embeddings"
local fields = require "flare.serve.fields"
local jobs = require "flare.serve.jobs"
local metrics = require "flare.serve.metrics"
local options = require "flare.options"
local Engine = require "flare.models.engine"

local Server = class("Server")

--- flare.serve{model =, tokenizer =, name = "model", host = "127.0.0.1", port = 8000, key =,
-- queue = 256, connections = 512, body = "16MB", timeout = 60, ...}: a server that listens. `key`
-- is what clients must send; `queue`, how many requests may wait; `body`, the largest one;
-- `timeout`, how many seconds a client may be silent. Further options are those of models.Engine.
-- @return the server, or nil and a message
function Server:init(given)
  local none = options.none
  local o = options.check("serve", given, {model = none, tokenizer = none, name = "model",
    host = "127.0.0.1", port = 8000, key = none, queue = 256, connections = 512, body = "16MB",
    timeout = 60, tokens = none, memory = none, block = none, batch = none, chunk = none})
  self.engine = Engine(o.model, {tokenizer = o.tokenizer, tokens = o.tokens, memory = o.memory,
                                 block = o.block, batch = o.batch, chunk = o.chunk})
  self.tokenizer, self.name, self.key = o.tokenizer, o.name, o.key
  self.queue = options.count("serve", "queue", o.queue)
  self.vocabulary = o.model.config.vocab_size
  self.limit = math.min(self.engine.limit, self.engine.pages.count * self.engine.pages.block)
  self.jobs, self.serial, self.started = {}, 0, os.time()
  self.counts = metrics.new()
  self.http, self.problem = core.http.serve{host = o.host, port = o.port, timeout = o.timeout,
    connections = o.connections, body = options.bytes("serve", "body", o.body)}
end

--- The port that the server listens at.
function Server:port() return self.http:port() end

local JSON = {["Content-Type"] = "application/json"}
local STREAM = {["Content-Type"] = "text/event-stream", ["Cache-Control"] = "no-cache",
                ["X-Accel-Buffering"] = "no"}

local function respond(self, number, status, body, headers)
  metrics.answered(self.counts, status)
  self.http:respond(number, status, headers or JSON, body)
end

local function respond_error(self, number, e)
  local headers = {["Content-Type"] = "application/json"}
  if e.status == 429 or e.status == 503 then headers["Retry-After"] = "1" end
  if e.status == 401 then headers["WWW-Authenticate"] = "Bearer" end
  respond(self, number, e.status, answers.error(e), headers)
end

-- What a job's clients see where the engine has failed.
local failure = {status = 500, type = "server_error",
                 message = "The server failed to compute the answer."}

-- Ends a job all of whose answers are there.
local function complete(self, job)
  self.jobs[job.number] = nil
  metrics.finished(self.counts, job)
  if job.failed and job.stream then
    self.http:write(job.number, answers.error_event(failure))
    self.http:finish(job.number)
  elseif job.failed then
    respond_error(self, job.number, failure)
  elseif job.stream then
    self.http:write(job.number, answers.ending(job))
    self.http:finish(job.number)
  elseif not job.gone then
    respond(self, job.number, 200, answers.whole(job))
  end
end

local function index_of(job, r, answer) return (r - 1) * job.requests[r].n + answer.index - 1 end

-- Passes the texts of request r on.
local function listen(self, job, r, o)
  o.on_token = function(answer, piece)
    if not answer.begun then
      answer.begun = true
      metrics.began(self.counts, job)
      if job.stream and not job.gone then
        self.http:write(job.number, answers.opening(job, index_of(job, r, answer)))
      end
    end
    if not job.stream or job.gone then return end
    if job.tools then piece = require("flare.serve.tools").piece(answer, piece) end
    self.http:write(job.number, answers.piece(job, answer, index_of(job, r, answer), piece))
  end
  o.on_end = function(answer)
    if answer.reason == "error" then job.failed = true end
    if job.stream and not job.gone and not job.failed then
      self.http:write(job.number, answers.closing(job, answer, index_of(job, r, answer)))
    end
    job.left = job.left - 1
    if job.left == 0 and not job.gone then complete(self, job) end
  end
end

local function generate(self, event)
  if #self.engine.waiting >= self.queue then
    fields.refuse(429, ("%d requests are waiting; try again later."):format(self.queue), nil,
                  "queue_full")
  end
  local job, list = jobs.read(self, event.path, event.body)
  self.serial = self.serial + 1
  job.id = (job.chat and "chatcmpl-%x-%d" or "cmpl-%x-%d"):format(self.started, self.serial)
  job.number, job.requests, job.left, job.begun = event.request, {}, 0, core.clock()
  for r, o in ipairs(list) do
    listen(self, job, r, o)
    local request, message = self.engine:submit(o)
    if not request then
      for _, other in ipairs(job.requests) do self.engine:cancel(other) end
      fields.refuse(400, message)
    end
    job.requests[r], job.left = request, job.left + request.n
  end
  self.jobs[job.number] = job
  if job.stream then
    metrics.answered(self.counts, 200)
    self.http:respond(job.number, 200, STREAM)
  end
end

---------------------------------------------------------------- routes

local function model_card(self)
  return {id = self.name, object = "model", created = self.started, owned_by = "flare",
          max_model_len = self.limit}
end

local routes = {GET = {}, POST = {}}

routes.GET["/health"] = function(self, event)
  respond(self, event.request, self.draining and 503 or 200,
          core.json.encode{status = self.draining and "draining" or "ok"})
end

routes.GET["/metrics"] = function(self, event)
  respond(self, event.request, 200, metrics.text(self),
          {["Content-Type"] = "text/plain; version=0.0.4"})
end

routes.GET["/v1/models"] = function(self, event)
  respond(self, event.request, 200,
          core.json.encode{object = "list", data = core.json.array{model_card(self)}})
end

routes.POST["/v1/embeddings"] = function(self, event)
  respond(self, event.request, 200, embeddings.answer(self, jobs.body_of(self, event.body)))
end

routes.POST["/v1/completions"] = generate
routes.POST["/v1/chat/completions"] = generate

-- Two texts are compared in a time that does not depend on where they differ.
local function same(a, b)
  local differ = #a ~ #b
  for k = 1, #a do differ = differ | (a:byte(k) ~ (b:byte(k) or 0)) end
  return differ == 0
end

local function route(self, event)
  if event.too_large then fields.refuse(413, "The body is too large.") end
  local path, method = event.path, event.method == "HEAD" and "GET" or event.method
  local open = path == "/health" -- for what watches the server
  if self.key and not open then
    local given = self.http:header(event.request, "Authorization") or ""
    if not same(given, "Bearer " .. self.key) then
      fields.refuse(401, "Incorrect API key provided.", nil, "invalid_api_key")
    end
  end
  local handler = routes[method] and routes[method][path]
  if handler then
    if self.draining and handler == generate then
      fields.refuse(503, "The server is shutting down.")
    end
    return handler(self, event)
  end
  local model = method == "GET" and path:match "^/v1/models/(.+)$"
  if model == self.name then
    return respond(self, event.request, 200, core.json.encode(model_card(self)))
  elseif model then
    fields.refuse(404, ("The model '%s' does not exist."):format(model), "model",
                  "model_not_found")
  end
  for other, known in pairs(routes) do
    if known[path] then
      fields.refuse(405, ("%s is for %s, got %s."):format(path, other, method))
    end
  end
  fields.refuse(404, ("There is no %s; there are /v1/chat/completions, /v1/completions, "
    .. "/v1/embeddings, /v1/models, /health and /metrics."):format(path))
end

local function gone(self, number)
  local job = self.jobs[number]
  if not job then return end
  self.jobs[number], job.gone = nil, true
  self.counts.cancelled = self.counts.cancelled + 1
  for _, request in ipairs(job.requests) do self.engine:cancel(request) end
end

---------------------------------------------------------------- the loop

--- Reads requests, waiting for them if there is nothing to do, and works one step.
-- @param ms how long to wait
-- @return whether there is more to do
function Server:poll(ms)
  for _, event in ipairs(self.http:poll(self.engine:busy() and 0 or ms)) do
    if event.closed then
      gone(self, event.request)
    else
      local ok, e = pcall(route, self, event)
      if not ok then
        if type(e) ~= "table" or not e.refused then
          self.error = tostring(e)
          e = failure
        end
        respond_error(self, event.request, e)
      end
    end
  end
  if self.engine:busy() then
    local ok, e = pcall(self.engine.step, self.engine)
    if not ok then
      self.error = tostring(e)
      self.engine:abort("error")
    end
  end
  return self.engine:busy()
end

--- Accepts no more connections and requests; what runs goes on.
function Server:drain()
  if not self.draining then self.http:quiesce() end
  self.draining = true
end

--- Serves until `stop` says otherwise.
-- @param stop a function that is asked at least once a second: "drain" ends the server once its
--   answers are sent, "now" ends it at once, nil goes on
-- @param report a function that takes the message of an error of a computation
function Server:run(stop, report)
  while true do
    local how = stop()
    if how == "drain" then self:drain() end
    local idle = self.draining and not self.engine:busy() and self.http:answering() == 0
    if how == "now" or idle then break end
    self:poll(self.draining and 20 or 1000)
    if self.error then
      if report then report(self.error) end
      self.error = nil
    end
  end
  self:close()
end

--- Ends the server at once.
function Server:close()
  if self.http then self.http:close() end
  self.engine:abort()
end

--- Makes a server, or returns nil and a message.
local function serve(given)
  local server = Server(given)
  if not server.http then return nil, server.problem end
  return server
end

return serve
