-- Encoding speed beside Hugging Face's tokenizers, both on one thread, in turn, in
-- seconds of the processor:
--
--     build/flare bench/text.lua FOLDER TEXT [PYTHON]
--
-- FOLDER has tokenizer files (spec/data/tokenizers/train.py makes some), TEXT is a file that is
-- encoded line by line. "full" is encode_batch, which finds offsets; "fast" is encode_batch_fast,
-- which does not.
local flare = require "flare"

local folder, text_path, python = arg[1], arg[2], arg[3] or "python3"
local repeats = 3
local text = assert(flare.core.file.read(text_path))
local lines = {}
for line in (text .. "\n"):gmatch "([^\n]*)\n" do lines[#lines + 1] = line end

local function measure(tokenizer, o)
  local best, n = math.huge, 0
  for _ = 1, repeats do
    local start = os.clock()
    n = 0
    for _, line in ipairs(lines) do n = n + #tokenizer:encode(line, o) end
    best = math.min(best, os.clock() - start)
  end
  return best, n
end

local peer = arg[0]:gsub("[^/]*$", "peers/text.py")
print(("%-22s %10s %12s %12s %8s %8s"):format("file", "tokens", "flare MB/s", "peer MB/s", "fast",
  "full"))
for _, name in ipairs(assert(flare.core.file.list(folder))) do
  local path = folder .. "/" .. name
  if name:find "%.json$" then
    local tokenizer = assert(flare.text.load(path))
    local plain, n = measure(tokenizer)
    local full = measure(tokenizer, {offsets = true})
    local command = ("%s %s %s %s %d"):format(python, peer, path, text_path, repeats)
    local pipe = assert(io.popen(command))
    local times, counts = {}, {}
    for kind, seconds, count in pipe:read "a":gmatch "(%a+) (%S+) (%d+)" do
      times[kind], counts[kind] = tonumber(seconds), math.tointeger(count)
    end
    pipe:close()
    assert(counts.full == n, name .. ": other tokens")
    local mb = #text / 1e6
    print(("%-22s %10d %12.1f %12.1f %7.2fx %7.2fx"):format(name, n, mb / plain, mb / times.fast,
      times.fast / plain, times.full / full))
  end
end
