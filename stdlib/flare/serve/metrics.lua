--- What a server counts, in the text format of Prometheus.
local core = require "flare.core"

local M = {}

local bounds = {0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60}

local function histogram()
  local h = {sum = 0, count = 0}
  for k = 1, #bounds do h[k] = 0 end
  return h
end

local function observe(h, value)
  h.sum, h.count = h.sum + value, h.count + 1
  for k, bound in ipairs(bounds) do
    if value <= bound then h[k] = h[k] + 1 end
  end
end

function M.new()
  return {status = {}, cancelled = 0, first = histogram(), whole = histogram()}
end

--- An answer with this status has begun.
function M.answered(counts, status)
  counts.status[status] = (counts.status[status] or 0) + 1
end

--- The first token of a job is there.
function M.began(counts, job)
  if job.first then return end
  job.first = true
  observe(counts.first, core.clock() - job.begun)
end

--- The last token of a job is there.
function M.finished(counts, job) observe(counts.whole, core.clock() - job.begun) end

--- All figures of a server.
function M.text(server)
  local out, engine, counts = {}, server.engine, server.counts
  local function add(name, kind, help, value)
    out[#out + 1] = ("# HELP flare_%s %s\n# TYPE flare_%s %s"):format(name, help, name, kind)
    if value then out[#out + 1] = ("flare_%s %s"):format(name, value) end
  end
  local function add_histogram(name, help, h)
    add(name, "histogram", help)
    for k, bound in ipairs(bounds) do
      out[#out + 1] = ('flare_%s_bucket{le="%g"} %d'):format(name, bound, h[k])
    end
    out[#out + 1] = ('flare_%s_bucket{le="+Inf"} %d'):format(name, h.count)
    out[#out + 1] = ("flare_%s_sum %.6f\nflare_%s_count %d"):format(name, h.sum, name, h.count)
  end
  add("requests_running", "gauge", "Texts that are generated now.", #engine.running)
  add("requests_waiting", "gauge", "Texts that wait.", #engine.waiting)
  add("cache_blocks", "gauge", "Blocks of the key/value cache.", engine.pages.count)
  add("cache_blocks_free", "gauge", "Blocks that no text has.", engine.pages:room())
  add("prompt_tokens_total", "counter", "Tokens of prompts.", engine.totals.prompt)
  add("cached_tokens_total", "counter", "Tokens of prompts that the cache had.",
      engine.totals.cached)
  add("generated_tokens_total", "counter", "Tokens that were generated.", engine.totals.generated)
  add("preempted_total", "counter", "Texts that waited again for memory.",
      engine.totals.preempted)
  add("cancelled_total", "counter", "Requests whose client has left.", counts.cancelled)
  add("responses_total", "counter", "Answers by status.")
  local codes = {}
  for status in pairs(counts.status) do codes[#codes + 1] = status end
  table.sort(codes)
  for _, status in ipairs(codes) do
    out[#out + 1] = ('flare_responses_total{status="%d"} %d'):format(status, counts.status[status])
  end
  add_histogram("first_token_seconds", "From a request to its first token.", counts.first)
  add_histogram("request_seconds", "From a request to its last token.", counts.whole)
  return table.concat(out, "\n") .. "\n"
end

return M
