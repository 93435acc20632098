--- The files of one model: its own, and the external files with tensors' data. Each is opened once,
-- so that files that replace them meanwhile are not mixed in. External files must be in the model's
-- folder, also after symbolic links are resolved.
local class = require "flare.class"
local core = require "flare.core"
local kind = require "flare.io.kind"
local refuse = require "flare.onnx.refuse"

local Files = class("Files")

local MOST = 64 -- files open at once

--- Opens the model's own file.
-- @return the files, with the fields path and main, or nil and a message
function Files.open(path)
  local main, message = core.file.open(path)
  if not main then return nil, message end
  local self = Files()
  self.path, self.main, self.others, self.count = path, main, {}, 0
  return self
end

--- The message for a file that is not a model, with the file's format.
function Files:explain(message)
  local head = self.main:read(0, kind.BYTES)
  local what = head and kind.describe(head, self.path)
  if not what or what:find "^an ONNX model" then return message end
  return ("%s; the file is %s"):format(message, what)
end

-- The folders that may contain data: that of the model's path and, if the path is a link, that of
-- its target.
local function folders(self)
  if not self.below then
    self.below = {}
    local named = core.file.real(self.path:match "^(.*/)" or ".")
    local own = self.main:real()
    for _, folder in ipairs {named or false, own and own:match "^(.*)/" or false} do
      if folder then self.below[#self.below + 1] = folder:match "^(.-)/*$" .. "/" end
    end
  end
  return self.below
end

local function check_place(self, file, what, name)
  local real, message = file:real()
  if not real then refuse.raise("%s: %s", what, message) end
  for _, folder in ipairs(folders(self)) do
    if real:sub(1, #folder) == folder then return end
  end
  refuse.raise("%s is in the file '%s', which is not below the model's folder: it is a link to %s",
               what, name, real)
end

--- An external file, by the name in the model; raises a refusal.
-- @param what the tensor whose data it has, for messages
function Files:beside(name, what)
  if self.others[name] then return self.others[name] end
  if name:find "\0" then
    refuse.raise("%s is in a file whose name has a zero byte: '%s'", what,
                 (name:gsub("%z", "\\0")))
  elseif name == "" or name:sub(1, 1) == "/"
         or ("/" .. name .. "/"):find("/../", 1, true) then
    refuse.raise("%s is in the file '%s', which is not below the model's folder", what, name)
  end
  local file, message = core.file.open((self.path:match "^(.*/)" or "") .. name)
  if not file then refuse.raise("%s: %s", what, message) end
  local ok, problem = pcall(check_place, self, file, what, name)
  if not ok then
    file:close()
    error(problem, 0)
  end
  if self.count == MOST then self:close_others() end
  self.others[name], self.count = file, self.count + 1
  return file
end

function Files:close_others()
  for _, file in pairs(self.others) do file:close() end
  self.others, self.count = {}, 0
end

function Files:close()
  self:close_others()
  self.main:close()
end
Files.__close = Files.close

return Files
