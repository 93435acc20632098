--- Several ranks at one prompt: rank 0 has it, the others run what it sends them. Texts go through
-- the job's rendezvous, to those who know its secret; binary chunks are refused, and only jobs that
-- `flare launch -i` has started listen at all.
local Channel = require "flare.dist.channel"
local dist = require "flare.dist"
local env = require "flare.dist.env"
local fail = require "flare.fail"

local M = {}

local most = 60000 -- bytes of a text

local function connect()
  if not os.getenv "FLARE_PROMPT" then fail "ranks: this job was not started with -i" end
  local rank, size = dist.init()
  local channel, message = Channel.connect(os.getenv "MASTER_ADDR",
    math.tointeger(tonumber(os.getenv "MASTER_PORT")), env.read().secret, 20)
  if not channel then fail("ranks: %s", message) end
  _G.flare, _G.dist, _G.rank, _G.size = require "flare", dist, rank, size
  return channel
end

local function send(channel, ...)
  channel:send(...)
  channel:flush()
end

-- What a text gives, as text.
local function run(text)
  local chunk = load("return " .. text, "=ranks", "t")
  local message
  if not chunk then chunk, message = load(text, "=ranks", "t") end
  if not chunk then return message end
  local function show(...)
    local words = table.pack(...)
    for k = 1, words.n do words[k] = tostring(words[k]) end
    return table.concat(words, "  ")
  end
  local ok, result = pcall(function() return show(chunk()) end)
  if not ok then result = "error: " .. select(2, pcall(tostring, result)) end
  return result:sub(1, most)
end

-- The value of a name, as soon as there is one.
local function get(channel, name)
  send(channel, "get", name)
  while true do
    local words, why = channel:next(3600)
    if words then return words[2] end
    if why ~= "no answer" then return nil, why end
  end
end

--- Of ranks other than 0: runs what comes until the job ends.
function M.follow()
  local channel, k = connect(), 0
  while true do
    k = k + 1
    local text = get(channel, "run " .. k)
    if not text then return end
    send(channel, "set", ("result %d %d"):format(k, _G.rank), run(text))
  end
end

--- Of rank 0: makes the global `ranks`, so that ranks[[ x:sum() ]] runs on all.
function M.lead()
  local channel, k = connect(), 0
  function _G.ranks(text)
    if type(text) ~= "string" then fail("ranks: a text is expected, got %s", type(text)) end
    if #text > most then fail("ranks: a text of %d bytes at most", most) end
    if text:byte(1) == 27 then fail "ranks: binary chunks are refused" end
    k = k + 1
    send(channel, "set", "run " .. k, text)
    print(("%4d  %s"):format(0, run(text)))
    for other = 1, _G.size - 1 do
      local name = ("result %d %d"):format(k, other)
      local result, why = get(channel, name)
      if not result then fail("ranks: %s", why) end
      print(("%4d  %s"):format(other, result))
      send(channel, "drop", name)
    end
    send(channel, "drop", "run " .. k)
  end
end

return M
