--- flare launch: runs a script as several processes (ranks) that work together.
local core = require "flare.core"
local Elastic = require "flare.repl.launch.elastic"
local Job = require "flare.repl.launch.job"
local process = require "flare.repl.process"

local usage = [=[
usage: flare launch [options] script [arguments]
  -n N                 ranks on this machine (default: its GPUs, or else its cores)
  --nnodes N           launchers that work together, each started with ...
  --node-rank K        ... its number, from 0 ...
  --rdzv host:port     ... where that of node 0 listens (default 127.0.0.1, any port) ...
  --secret file        ... and a file only you can read, with the job's secret; node 0 makes it
  --tee LIST           also show the output of these ranks, as in 1,3, or of all
  --logs folder        keep the output of each rank there, as rank-N.log (default: a temporary
                       folder, which is kept and named if the job fails)
  --timeout seconds    how long ranks wait for each other in a collective (default 120; 0: without
                       limit), and launchers for each other (default 300)
  --max-restarts K     start again at most K times when a rank fails, after a pause of 1 s, 2 s,
                       4 s ... 60 s; FLARE_RESTART counts, node 0 decides
  --elastic MIN:MAX    start again at once with the ranks that are left when some die ...
  --ranks file         ... or when the number in this file changes
  -i                   no script: a prompt on rank 0, where ranks[[ text ]] runs text on all
  --dry-run            show what would be started
  --verbose            show what is started]=]

local most = 1024 -- ranks of a job, as the core has them

-- The ranks that --tee lists. @return a set; nil and a message
local function shown(text, size)
  local set = {}
  for word in text:gmatch "[^,%s]+" do
    local rank = math.tointeger(tonumber(word))
    if word ~= "all" and not (rank and rank >= 0 and rank < size) then
      return nil, ("--tee %s: the job has the ranks 0 to %d"):format(word, size - 1)
    end
    set[word] = true
  end
  return set
end

local valued = {["-n"] = "n", ["--nnodes"] = "nnodes", ["--node-rank"] = "node",
  ["--rdzv"] = "rdzv", ["--secret"] = "secret", ["--tee"] = "tee", ["--logs"] = "logs",
  ["--timeout"] = "timeout", ["--max-restarts"] = "restarts",
  ["--elastic"] = "elastic", ["--ranks"] = "ranks"}
-- What other launchers call them.
local others = {["--nproc-per-node"] = "-n", ["--nproc"] = "-n", ["-np"] = "-n",
  ["--log-dir"] = "--logs", ["--rdzv-endpoint"] = "--rdzv", ["--master-port"] = "--rdzv host:port",
  ["--master-addr"] = "--rdzv host:port"}
local whole = {n = 1, nnodes = 1, node = 0, restarts = 0}
local limits = {n = most, nnodes = most, node = most, timeout = 1e9}

-- The number that an option is given. @return it; nil and a message
local function number_of(name, text, key)
  local least, highest, number = whole[key] or 0, limits[key], tonumber(text)
  if whole[key] then number = math.tointeger(number) end
  if not number or number < least then
    return nil, ("%s %s: expected a number of at least %d%s"):format(name, text,
      least, whole[key] and ", without a fraction" or "")
  end
  if highest and number > highest then
    if key == "n" or key == "nnodes" then
      return nil, ("%s %s: too many ranks: a job has %d at most"):format(name, text, most)
    end
    return nil, ("%s %s: expected %d at most"):format(name, text, highest)
  end
  return number
end

local function read(args)
  local o, k = {}, 1
  while args[k] and args[k]:sub(1, 1) == "-" do
    local name, value = args[k]:match "^(%-%-[%w_-]+)=(.*)$"
    if not name then name, value = args[k]:match "^(%-n)=?(%-?%d.*)$" end
    name = name or args[k]
    local key = valued[name]
    if key then
      if not value then
        k = k + 1
        value = args[k]
        if (value or ""):find "^%-%-" then value = nil end -- the next option
      end
      if not value or value == "" then return nil, name .. " needs a value" end
      if whole[key] or key == "timeout" then
        local message
        value, message = number_of(name, value, key)
        if not value then return nil, message end
      end
      o[key] = value
    elseif name == "--dry-run" then o.dry = true
    elseif name == "-i" then o.prompt = true
    elseif name == "--verbose" then o.verbose = true
    elseif name == "--help" or name == "-h" then o.help = true
    else
      local dashed = name:gsub("_", "-")
      local here = others[dashed] or valued[dashed] and dashed
      return nil, ("unknown option '%s'%s"):format(args[k], here and "; it is " .. here or "")
    end
    k = k + 1
  end
  o.command = table.move(args, k, #args, 1, {})
  return o
end

-- GPUs that this process may use.
local function gpus()
  local visible = os.getenv "CUDA_VISIBLE_DEVICES"
  local n = 0
  if visible then
    for _ in visible:gmatch "[^,]+" do n = n + 1 end
    return n
  end
  while n < 64 do
    local file = io.open("/dev/nvidia" .. n)
    if not file then break end
    file:close()
    n = n + 1
  end
  return n
end

local function hex(bytes)
  return (bytes:gsub(".", function(c) return ("%02x"):format(c:byte()) end))
end

-- Reads the secret that several launchers share; node 0 creates the file if there is none. The
-- others wait for it for --timeout seconds, 0 for no limit.
local function shared_secret(path, node, timeout)
  local patience = timeout == 0 and math.huge or timeout or 60
  local deadline = core.clock() + patience
  repeat
    local file <close> = io.open(path)
    local text = file and file:read "l"
    if file then
      local mode = core.file.stat(path).mode
      if mode & tonumber("077", 8) ~= 0 then
        return nil, path .. ": others may read it: chmod 600"
      end
      if text and #text >= 32 then return text end
      if text then return nil, path .. ": a secret has 32 characters at least" end
      core.net.poll({}, {}, 20) -- node 0 is about to write it
    elseif node == 0 then
      local ok, message = process.private(path, hex(core.secret.random(32)) .. "\n")
      if not ok then return nil, message end
    else
      core.net.poll({}, {}, 100)
    end
  until core.clock() > deadline
  return nil, ("%s: node 0 has not written the secret within %g s"):format(path, patience)
end

local function complain(text)
  io.stderr:write("flare launch: ", text, "\n")
  return 2
end

return function(args)
  local o, message = read(args)
  if not o then return complain(message .. "\n" .. usage) end
  if o.help then
    print(usage)
    return 0
  end
  if #o.command == 0 and not o.prompt then return complain("a script is missing\n" .. usage) end
  if o.prompt and (#o.command > 0 or (o.nnodes or 1) > 1 or o.restarts) then
    return complain "-i is for one node, without a script and without restarts"
  end
  local cpus = process.cpus()
  o.cpus, o.nnodes, o.node = cpus, o.nnodes or 1, o.node or 0
  if not o.n then
    local n = gpus()
    o.n = n > 0 and n or #cpus
  end
  if o.node >= o.nnodes then
    return complain(("--node-rank is %d, but there are %d nodes"):format(o.node, o.nnodes))
  end
  if o.elastic then
    if o.nnodes > 1 or o.prompt then return complain "--elastic is for one node and a script" end
    o.elastic, message = Elastic.read(o.elastic, o.n)
    if not o.elastic then return complain(message) end
    o.restarts = o.restarts or 1000
  elseif o.ranks then
    return complain "--ranks needs --elastic MIN:MAX"
  end
  o.host, o.port = "127.0.0.1", 0
  if o.rdzv then
    o.host, o.port = o.rdzv:match "^%[?(.-)%]?:(%d+)$"
    o.port = math.tointeger(tonumber(o.port or ""))
    if not o.port or o.host == "" then
      return complain("--rdzv must be host:port, not " .. o.rdzv)
    end
    if o.port > 65535 then
      return complain(("--rdzv %s: a port is at most 65535"):format(o.rdzv))
    end
  elseif o.nnodes > 1 then
    return complain "several nodes need --rdzv host:port"
  end
  if o.nnodes > 1 and not o.secret then return complain "several nodes need --secret file" end
  if o.n * o.nnodes > most then
    return complain(("%d ranks are too many: a job has %d at most"):format(o.n * o.nnodes, most))
  end
  o.tee, message = shown(o.tee or "", o.n * o.nnodes)
  if not o.tee then return complain(message) end
  local script = o.command[1]
  if script and not o.dry and not core.file.stat(script) then
    return complain(("there is no script %s"):format(script))
  end
  if o.secret then
    o.secret, message = shared_secret(o.secret, o.node, o.timeout)
    if not o.secret then return complain(message) end
  else
    o.secret = hex(core.secret.random(32))
  end
  return Job.run(o)
end
