--- The prompt of `flare launch -i`: rank 0 reads lines, and ranks[[ text ]] sends a text to the
-- other ranks, which run it and return its result. Messages pass through the job's rendezvous,
-- which authenticates them by the job's secret; binary chunks are refused. Other jobs do not
-- listen.
local Channel = require "flare.dist.channel"
local core = require "flare.core"
local dist = require "flare.dist"
local env = require "flare.dist.env"
local fail = require "flare.fail"
local options = require "flare.options"

local M = {}

local most = 60000 -- bytes of a text
-- Commands of rank 0. They begin with the byte of binary chunks, so no text can be one.
local COUNT, RESET = "\27count", "\27reset "

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

local function show(...)
  local words = table.pack(...)
  for k = 1, words.n do words[k] = tostring(words[k]) end
  return table.concat(words, "  ")
end

-- Runs a text, an expression or statements. @return its results as text, or its error
local function run(text)
  local expression, message = load("return " .. text, "=ranks", "t"), nil
  local chunk
  -- as an argument the expression is not a tail call, so errors in it have its line
  if expression then chunk = load("return (...)(" .. text .. "\n)", "=ranks", "t")
  else chunk, message = load(text, "=ranks", "t") end
  if not chunk then return message end
  local ok, result = pcall(function()
    if expression then return chunk(show) end
    return show(chunk())
  end)
  if not ok then
    local why = select(2, pcall(tostring, result))
    core.comm.fail(why) -- ranks that wait for this one in a collective end it
    result = "error: " .. why
  end
  return result:sub(1, most)
end

-- Waits for the value of a name.
local function get(channel, name)
  send(channel, "get", name)
  while true do
    local words, why = channel:next(3600)
    if words then return words[2] end
    if why ~= "no answer" then return nil, why end
  end
end

local function reset(count, lead)
  core.comm.reset(count, lead)
  dist.Group.reset()
end

-- The answer of a rank to a text or a command.
local function answer(text)
  if text == COUNT then return tostring(core.comm.groups()) end
  if text:sub(1, #RESET) == RESET then
    reset(math.tointeger(tonumber(text:sub(#RESET + 1))), false)
    return "ready"
  end
  return run(text)
end

--- On ranks other than 0: runs texts until the job ends.
function M.follow()
  local channel, k = connect(), 0
  while true do
    k = k + 1
    local text = get(channel, "run " .. k)
    if not text then return end
    send(channel, "set", ("result %d %d"):format(k, _G.rank), answer(text))
  end
end

-- Sends a text to all other ranks, calls f and then each(rank, answer).
local function ask(channel, number, text, f, each)
  send(channel, "set", "run " .. number, text)
  f()
  for other = 1, _G.size - 1 do
    local name = ("result %d %d"):format(number, other)
    local result, why = get(channel, name)
    if not result then fail("ranks: %s", why) end
    each(other, result)
    send(channel, "drop", name)
  end
  send(channel, "drop", "run " .. number)
end

local function nothing() end

--- On rank 0: defines the global `ranks`, so that ranks[[ x:sum() ]] runs on all ranks. After a
-- failure of the line before (ranks that called different collectives, an error on one of them) all
-- ranks first reset the sequence numbers of their calls, and keep the groups that all of them have.
function M.lead()
  local channel, k = connect(), 0
  local function heal()
    local count = core.comm.groups()
    k = k + 1
    ask(channel, k, COUNT, nothing, function(_, n) count = math.min(count, math.tointeger(n)) end)
    k = k + 1
    ask(channel, k, RESET .. count, nothing, nothing)
    reset(count, true)
  end
  function _G.ranks(text)
    if type(text) ~= "string" then fail("ranks: a text is expected, got %s", options.kind(text)) end
    if #text > most then fail("ranks: a text of %d bytes at most", most) end
    if text:byte(1) == 27 then fail "ranks: binary chunks are refused" end
    if core.comm.verdict() ~= "" then heal() end
    k = k + 1
    ask(channel, k, text, function() print(("%4d  %s"):format(0, run(text))) end,
      function(other, result) print(("%4d  %s"):format(other, result)) end)
  end
end

return M
