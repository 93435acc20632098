-- Times of collectives, back to back, by algorithm and size: "flare NAME WAY BYTES us". all_reduce
-- by the algorithm WAY; the others, with WAY nccl or auto, as FLARE_PEERS says. BYTES are those of
-- the largest tensor. Under flare launch. times.lua [auto,nccl,...] [DEVICE]
-- [BYTES,...]
local flare = require "flare"
local dist = flare.dist

local rank, size = dist.init()
local device = arg[2] and arg[2] ~= "" and arg[2] or "cuda:" .. dist.local_rank()
local clock = flare.clock

local function seconds(f, bytes)
  local count = bytes > 1 << 26 and 10 or bytes > 1 << 20 and 100 or 1000
  for _ = 1, math.max(3, count // 5) do f() end
  local all = {}
  for round = 1, 5 do
    dist.barrier()
    flare.synchronize(device)
    local start = clock()
    for _ = 1, count do f() end
    flare.synchronize(device)
    all[round] = (clock() - start) / count
  end
  table.sort(all)
  return all[3]
end

local function tell(name, way, bytes, f)
  local t = seconds(f, bytes)
  if rank == 0 then print(("flare %s %s %d %.2f"):format(name, way, bytes, t * 1e6)) end
end

-- The sizes that the command line has, or those.
local function sizes(those)
  if not arg[3] then return those end
  local list = {}
  for n in arg[3]:gmatch "%d+" do list[#list + 1] = math.tointeger(n) end
  return list
end

local others = {
  all_gather = function(n)
    local x = flare.randn({n // size}, {device = device})
    return function() dist.all_gather(x) end
  end,
  reduce_scatter = function(n)
    local x = flare.randn({n}, {device = device})
    return function() dist.reduce_scatter(x) end
  end,
  broadcast = function(n)
    local x = flare.randn({n}, {device = device})
    return function() dist.broadcast_(x) end
  end,
}

for way in (arg[1] or "auto"):gmatch "[^,]+" do
  for _, bytes in ipairs(sizes {8, 1 << 10, 1 << 14, 1 << 16, 1 << 18, 1 << 20, 1 << 22, 1 << 24,
      1 << 26, 1 << 30}) do
    local x = flare.randn({math.max(1, bytes // 4)}, {device = device})
    local o = {algorithm = way, reduce = "mean"}
    local ok, why = pcall(dist.all_reduce_, x, o)
    if not ok then
      if rank == 0 then print("not here: " .. way .. ": " .. tostring(why):match "^[^\n]*") end
      break
    end
    tell("all_reduce", way, bytes, function() dist.all_reduce_(x, o) end)
    x:close()
  end
  for _, name in ipairs(way:find "^[an]" and {"all_gather", "reduce_scatter", "broadcast"} or {}) do
    for _, bytes in ipairs(sizes {1 << 10, 1 << 16, 1 << 18, 1 << 20, 1 << 22, 1 << 24, 1 << 26}) do
      tell(name, way, bytes, others[name](bytes // 4))
    end
  end
end
