-- Random kills of a rank, at any moment of its life: every survivor ends within 5 seconds with the
-- same verdict, and no process is left.  limit: 10 min.
--   dist_kills.lua [TURNS] [SEED] [RANKS] [cpu|cuda]
package.path = "./?.lua;./stdlib/?.lua;./stdlib/?/init.lua;" .. package.path
local launch = require "spec.support.launch"

local turns, seed = tonumber(arg[1] or 100), tonumber(arg[2] or os.time())
local ranks, device = tonumber(arg[3] or 4), arg[4] or "cpu"
local first, last = 0.05, 1.55 -- seconds until a kill
if device == "cuda" then first, last = 0.3, 4.5 end
math.randomseed(seed)
print(("%d kills of one of %d ranks on %s, seed %d"):format(turns, ranks, device, seed))

local text = ("local device = %q\n"):format(device) .. [[
  print("pid", flare.core.net.pid())
  if device == "cuda" then device = "cuda:" .. dist.local_rank() end
  local model = dist.DataParallel(flare.nn.Sequential(flare.nn.Linear(64, 300), flare.nn.Tanh(),
    flare.nn.Linear(300, 64)):to(device), {bucket_mb = 0.05})
  local x = flare.randn(16, 64):to(device)
  local o = flare.optim.Adam(model:parameters())
  while true do
    o:zero_grad()
    model(x):square():mean():backward()
    o:step()
    dist.all_gather(x):sum():item()
  end
]]

local worst, bad = 0, 0
for turn = 1, turns do
  local folder, rank = launch.folder(text), math.random(0, ranks - 1)
  local wait = first + math.random() * (last - first)
  local status, out, took = launch.shell(folder, ([[
    $F launch -n %d --timeout 20 script.lua & L=$!
    sleep %.3f
    pid=$(pgrep -P $L | sort -n | sed -n %dp)
    [ -n "$pid" ] && kill -KILL $pid || kill -KILL $L
    s=$(date +%%s%%N)
    wait $L; r=$?
    e=$(date +%%s%%N)
    echo "took $(( (e - s) / 1000000 )) ms"
    exit $r]]):format(ranks, wait, rank + 2), 60)
  local ms = tonumber(out:match "took (%d+) ms") or 99999
  worst = math.max(worst, ms)
  local verdicts, n = {}, 0
  for k = 0, ranks - 1 do
    local ok, log = pcall(launch.read, folder, ("logs/rank-%d.log"):format(k))
    local verdict = ok and k ~= rank and log:match "flare: [^\n]*(rank %d[^\n]*)"
    if verdict and not verdicts[verdict] then
      verdicts[verdict], n = true, n + 1
    end
  end
  local left = pcall(launch.gone, folder)
  if status == 0 or ms > 5000 or n > 1 or not left then
    bad = bad + 1
    print(("turn %d, rank %d after %.3f s: status %d, %s ms, %d verdicts, left %s (%.1f s)\n%s")
      :format(turn, rank, wait, status, ms, n, not left, took, out))
    for verdict in pairs(verdicts) do print("  " .. verdict) end
  end
  launch.remove(folder)
end
print(("figure: slowest end %d ms; %d of %d bad"):format(worst, bad, turns))
os.exit(bad == 0)
