--- flare serve FOLDER: a published model behind HTTP, with the interface of OpenAI's.
local core = require "flare.core"
local process = require "flare.repl.process"
local words = require "flare.repl.words"

local usage = [[
usage: flare serve FOLDER [options]
  --host ADDRESS   where to listen, 127.0.0.1 by default
  --port NUMBER    8000 by default; 0 takes a free one
  --name NAME      what clients call the model; by default the folder's name
  --device NAME    cpu, cuda or cuda:1
  --dtype NAME     f32, bf16 or f16; by default that of the files
  --memory SIZE    of the key/value cache, 1GiB by default
  --batch NUMBER   how many texts are generated at a time, 64 by default
  --queue NUMBER   how many requests may wait, 256 by default
  --chunk NUMBER   how many tokens of prompts a step reads, 512 by default
The environment's FLARE_API_KEY, if it is set, is the key that clients must send.]]

local texts = {host = true, name = true, device = true, dtype = true, memory = true}
local numbers = {port = true, batch = true, queue = true, chunk = true}

local function fail(format, ...)
  io.stderr:write("flare serve: ", format:format(...), "\n")
  return 1
end

-- What the signals so far ask for: the first one ends the server once its answers are sent, a
-- second one at once.
local function listener()
  local file, count = process.signals(), 0
  return function()
    for byte in (core.net.read(file) or ""):gmatch "." do
      local number = byte:byte()
      if number == 2 or number == 15 then count = count + 1 end
    end
    return count == 1 and "drain" or count > 1 and "now" or nil
  end
end

return function(arguments)
  if words.asks_help(arguments) then
    print(usage)
    return 0
  end
  local o, folder = words.read(arguments, texts, numbers)
  if not o then return fail("%s\n%s", folder, usage) end
  local model, tokenizer = words.load(folder, o)
  if not model then return fail("%s", tokenizer) end
  local name = o.name or folder:gsub("/+$", ""):match "[^/]+$" or "model"
  local key = os.getenv "FLARE_API_KEY"
  local server, message = require "flare.serve"{model = model, tokenizer = tokenizer, name = name,
    host = o.host, port = o.port, memory = o.memory or "1GiB", batch = o.batch, queue = o.queue,
    chunk = o.chunk, key = key ~= "" and key or nil}
  if not server then return fail("%s", message) end
  local stop = listener()
  print(("%s at http://%s:%d, cache for %d tokens"):format(name, o.host or "127.0.0.1",
        server:port(), server.engine.pages.count * server.engine.pages.block))
  io.stdout:flush()
  server:run(stop, function(problem) io.stderr:write("flare serve: ", problem, "\n") end)
  return 0
end
