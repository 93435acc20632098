--- Sharded checkpoints: a folder with a file of each rank and a file that describes them. Any
-- number of ranks can read them.
local core = require "flare.core"
local fail = require "flare.fail"
local options = require "flare.options"
local flare = require "flare"
local tree = require "flare.io.tree"

local M = {}

-- The same outcome on all ranks: nil and the message of the first rank that failed.
local function agree(group, ok, message)
  local bad = core.tensor({ok and group.size or group.rank}, {dtype = "i64"})
  local first = group:all_reduce(bad, {reduce = "min"}):item()
  if first == group.size then return true end
  return nil, group:share(group.rank == first and (message or "failed") or nil, first)
end

-- The folder's name without a slash at its end.
local function check(where, folder)
  if type(folder) ~= "string" then
    fail("ZeRO:%s: a folder's name is expected, got %s", where, options.kind(folder))
  end
  return folder:match "^(.*[^/])/*$" or folder
end

local function place(folder, name) return folder .. "/" .. name end

-- Removes a checkpoint, also an incomplete one that a killed process left.
-- @return true, or nil and a message
local function clear(folder)
  for _, name in ipairs(core.file.list(folder) or {}) do
    local whole = name:match "^(.*)%.tmp%-%d+%-%d+$" or name
    if whole == "about" or whole:find "^rank%-%d+$" then core.file.remove(place(folder, name)) end
  end
  core.file.remove(folder)
  if not core.file.exists(folder) then return true end
  return nil, folder .. ": there are other files than a checkpoint's"
end

-- Renames the new folder; the previous checkpoint is in .old until then.
local function rename(temp, folder)
  local old = folder .. ".old"
  local ok, message = true, nil
  if core.file.exists(folder) then -- else .old may be all that there is
    ok, message = clear(old)
    if ok then ok, message = core.file.rename(folder, old) end
  end
  if ok then ok, message = core.file.rename(temp, folder) end
  if ok then clear(old) end
  return ok, message
end

-- Saves and verifies: only then is the previous checkpoint removed.
local function write(path, part)
  local ok, message = flare.save(path, part)
  if ok then ok, message = tree.verify(path) end
  return ok, message
end

--- Removes a checkpoint.
-- @return true, or nil and a message
M.clear = clear

--- Saves a checkpoint. The folder is renamed when it is complete; until then the previous one is
-- there, or in .old.
function M.save(zero, folder)
  folder = check("save", folder)
  local group, temp = zero.group, folder .. ".tmp"
  local ok, message = true, nil
  if group.rank == 0 then
    ok, message = clear(temp)
    if ok then ok, message = core.file.mkdir(temp) end
  end
  ok, message = agree(group, ok, message)
  if not ok then return nil, message end
  local part = {parts = {}, optimizer = zero.optimizer:state_dict()}
  for s, shard in ipairs(zero.shards) do part.parts[s] = shard.part:detach() end
  ok, message = write(place(temp, ("rank-%d"):format(group.rank)), part)
  ok, message = agree(group, ok, message)
  if not ok then return nil, message end
  if group.rank == 0 then
    local about = {size = group.size, stage = zero.stage, shards = {}, buffers = {}}
    for s, shard in ipairs(zero.shards) do
      about.shards[s] = {numel = shard.numel, names = shard.names}
    end
    for name, t in zero.model:named_buffers() do about.buffers[name] = t end
    ok, message = write(place(temp, "about"), about)
    if ok then ok, message = rename(temp, folder) end
  end
  return agree(group, ok, message)
end

-- Joins the parts of a flat tensor and returns this rank's part of it.
local function mine(shard, parts)
  local flat = core.cat(parts, 1):narrow(1, 1, shard.numel)
  local whole = core.zeros({shard.length * shard.group.size}, {dtype = flat.dtype})
  whole:narrow(1, 1, shard.numel):copy_(flat)
  return shard:mine(whole):to(shard.dtype):to(shard.device)
end

local function fits(zero, about)
  if #about.shards ~= #zero.shards then
    return nil, ("the checkpoint, of stage %d, has %d parts, this model, of stage %d, %d: other "
      .. "units, kinds, bucket sizes or find_unused"):format(about.stage, #about.shards,
      zero.stage, #zero.shards)
  end
  for s, shard in ipairs(zero.shards) do
    if about.shards[s].numel ~= shard.numel
        or table.concat(about.shards[s].names, " ") ~= table.concat(shard.names, " ") then
      return nil, ("part %d of the checkpoint is not of these parameters"):format(s)
    end
  end
  return true
end

-- Whether moments are not by element, as those of 8 bits with their scales.
local function in_blocks(moments, part)
  for _, moment in ipairs(moments) do
    if moment:numel() ~= part:numel() then return true end
  end
end

local function read(zero, folder)
  if not core.file.exists(folder) and core.file.exists(folder .. ".old") then
    folder = folder .. ".old" -- a save was killed between two renames
  end
  local about, message = flare.load(place(folder, "about"))
  if not about then return nil, message end
  local files, misfit = {}, select(2, fits(zero, about))
  if misfit then return nil, misfit end
  for rank = 0, about.size - 1 do
    files[rank + 1], message = flare.load(place(folder, ("rank-%d"):format(rank)))
    if not files[rank + 1] then return nil, message end
  end
  local state, shard_of, shard_at = files[1].optimizer, {}, {}
  for s, shard in ipairs(zero.shards) do
    shard_of[shard.part.id], shard_at[shard.part.id] = shard, s
  end
  for g, group in ipairs(zero.optimizer.groups) do
    for i, part in ipairs(group.params) do
      local saved, shard = (state.groups[g] or {state = {}}).state[i], shard_of[part.id]
      local moments = saved and shard and saved.moments or {}
      if in_blocks(moments, files[1].parts[shard_at[part.id]]) then
        if about.size ~= zero.group.size then
          return nil, ("the states of the optimizer lie in blocks of a rank's part, and the "
            .. "checkpoint is of %d ranks, not of %d"):format(about.size, zero.group.size)
        end
        saved.moments = files[zero.group.rank + 1].optimizer.groups[g].state[i].moments
        moments = {}
      end
      for k in ipairs(moments) do
        local parts = {}
        for r, file in ipairs(files) do parts[r] = file.optimizer.groups[g].state[i].moments[k] end
        saved.moments[k] = mine(shard, parts)
      end
      if saved and shard and saved.master then
        local parts = {}
        for r, file in ipairs(files) do parts[r] = file.optimizer.groups[g].state[i].master end
        saved.master = mine(shard, parts)
      end
    end
  end
  local _ <close> = core.no_grad()
  zero.optimizer:load_state_dict(state)
  for s, shard in ipairs(zero.shards) do
    local parts = {}
    for r, file in ipairs(files) do parts[r] = file.parts[s] end
    shard.part:copy_(mine(shard, parts))
  end
  for name, t in zero.model:named_buffers() do
    if about.buffers[name] then t:copy_(about.buffers[name]) end
  end
  return true
end

function M.load(zero, folder)
  folder = check("load", folder)
  local ok, message = read(zero, folder)
  return agree(zero.group, ok, message)
end

return M
