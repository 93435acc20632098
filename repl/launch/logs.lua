--- The folder with the output of each rank: the one that --logs names, or a temporary one, which is
-- removed if the job ends well and named if it fails.
local core = require "flare.core"
local process = require "flare.repl.process"

local Logs = {}
Logs.__index = Logs

--- @param folder what --logs says, or nil
-- @param dry only names the folder
-- @return the logs; nil and a message
function Logs.open(folder, dry)
  local self = setmetatable({folder = folder, files = {}}, Logs)
  if not folder then
    self.temporary = true
    if dry then
      self.folder = "(a temporary folder)"
      return self
    end
    local parent, message = os.getenv "TMPDIR" or "/tmp"
    self.folder, message = process.temporary(parent .. "/flare-launch-XXXXXX")
    if not self.folder then
      return nil, message .. ": cannot make a temporary folder for logs: give one with --logs"
    end
    return self
  end
  if not dry then
    local ok, message = core.file.mkdir(folder)
    if not ok then return nil, "--logs " .. message end
  end
  return self
end

--- The path of a rank's log, which belongs to the folder from now on.
function Logs:path(rank)
  local path = ("%s/rank-%d.log"):format(self.folder, rank)
  self.files[path] = true
  return path
end

--- After a failure: tells the user where a temporary folder is.
function Logs:tell()
  if not self.temporary or self.told then return end
  self.told = true
  io.stderr:write(("flare launch: the output of all ranks is in %s\n"):format(self.folder))
end

--- Removes a temporary folder.
-- @param well whether the job succeeded; otherwise the folder is kept
function Logs:close(well)
  if not self.temporary or not well then return end
  for path in pairs(self.files) do os.remove(path) end
  os.remove(self.folder)
end

return Logs
