--- Checkpoints of a training: a folder of files step-00000100.flare, each complete in itself.
--
--     local checkpoints = assert(flare.io.Checkpoint("run"))
--     assert(checkpoints:save(step, {model = model, optimizer = opt, loader = loader}))
--     local saved = checkpoints:load()                 -- the newest that is whole
--     if saved then checkpoints:restore(saved, {model = model, optimizer = opt}) end
--
-- A part is anything with state_dict and load_state_dict, or a generator. A file appears
-- under its name only when all of it is on the disk; the one before stays until then.
local class = require "flare.class"
local core = require "flare.core"
local fail = require "flare.fail"
local options = require "flare.options"
local tree = require "flare.io.tree"

local Checkpoint = class("Checkpoint")

local PATTERN = "^step%-(%d+)%.flare$"

-- A save that was killed leaves its unfinished file; its name has the process in it.
local function sweep(folder)
  for _, name in ipairs(core.file.list(folder) or {}) do
    local process = name:match("^step%-%d+%.flare%.tmp%-(%d+)%-%d+$")
    if process and core.file.exists("/proc/self") and not core.file.exists("/proc/" .. process) then
      core.file.remove(folder .. "/" .. name)
    end
  end
end

--- flare.io.Checkpoint(folder, {keep = 2}), `keep`: how many files stay
-- @return the object, or nil and a message if the folder cannot be made
function Checkpoint.open(folder, opts)
  local o = options.check("io.Checkpoint", opts, {keep = 2})
  if type(folder) ~= "string" then
    fail("io.Checkpoint: the folder must be a string, got %s", type(folder))
  end
  options.count("io.Checkpoint", "keep", o.keep)
  local ok, message = core.file.mkdir(folder)
  if not ok then return nil, message end
  sweep(folder)
  local self = Checkpoint()
  self.folder, self.keep = folder, o.keep
  return self
end

--- The file of a step.
function Checkpoint:path(step)
  return ("%s/step-%08d.flare"):format(self.folder, step)
end

--- The steps that have files, in ascending order.
-- @return a list, or nil and a message
function Checkpoint:steps()
  local names, message = core.file.list(self.folder)
  if not names then return nil, message end
  local steps = {}
  for _, name in ipairs(names) do
    local digits = name:match("[^/]*$"):match(PATTERN)
    if digits then steps[#steps + 1] = math.tointeger(digits) end
  end
  table.sort(steps)
  return steps
end

-- A generator of random numbers is two integers.
local function is_generator(part)
  return type(part) == "userdata" and not core.is_tensor(part) and part.set_state ~= nil
end

-- Parts as plain trees.
local function states(parts)
  local out = {}
  for name, part in pairs(parts) do
    if is_generator(part) then
      local seed, offset = part:state()
      out[name] = {seed = seed, offset = offset}
    elseif type(part) == "table" and part.state_dict then
      out[name] = part:state_dict()
    else
      fail("Checkpoint:save: '%s' has no state_dict; put plain values into the third argument",
           tostring(name))
    end
  end
  return out
end

--- Writes the state of all parts under a step's name, then removes the oldest files.
-- @param step a whole number
-- @param parts names and objects with state_dict
-- @param extra a table of plain values to go with them (optional)
-- @return true, or nil and a message; the files before are untouched then
function Checkpoint:save(step, parts, extra)
  if math.type(step) ~= "integer" or step < 0 then
    fail("Checkpoint:save: the step must be a whole number, got %s", tostring(step))
  elseif type(parts) ~= "table" then
    fail("Checkpoint:save: the parts must be a table of names and objects, got %s", type(parts))
  end
  local ok, message = tree.save(self:path(step), {parts = states(parts), extra = extra or {},
                                                  step = step})
  if not ok then return nil, message end
  local steps = self:steps() or {}
  for i = 1, #steps - self.keep do
    -- never the one just written, even if others have later steps
    if steps[i] ~= step then core.file.remove(self:path(steps[i])) end
  end
  return true
end

-- The tree of a step's file, or nil and a message.
local function read(self, step)
  local path = self:path(step)
  local saved, problem = tree.load(path)
  if saved and (type(saved.parts) ~= "table" or saved.step ~= step) then
    return nil, ("%s: not a checkpoint of step %d"):format(path, step)
  end
  return saved, problem
end

--- Reads the newest checkpoint that is whole, or that of a given step.
-- @return a table with step, parts (trees) and the extra values by their names; its field
--   `skipped` lists messages about newer files that were damaged. Or nil and a message.
function Checkpoint:load(step)
  local steps, message = self:steps()
  if not steps then return nil, message end
  if #steps == 0 then return nil, ("%s: there is no checkpoint"):format(self.folder) end
  if step then
    local saved, problem = read(self, step)
    if not saved then
      local others = {}
      for _, other in ipairs(steps) do
        if other ~= step then others[#others + 1] = tostring(other) end
      end
      return nil, ("%s (other steps here: %s)"):format(
        problem, #others > 0 and table.concat(others, ", ") or "none")
    end
    steps = {step}
  end
  local skipped = {}
  for i = #steps, 1, -1 do
    local saved, problem = read(self, steps[i])
    if saved then
      local out = {step = saved.step, parts = saved.parts, skipped = skipped}
      for key, value in pairs(saved.extra or {}) do
        if out[key] == nil then out[key] = value end
      end
      return out
    end
    skipped[#skipped + 1] = problem
  end
  return nil, table.concat(skipped, "\n")
end

--- Gives the saved states back to their parts. All names must be there.
function Checkpoint:restore(saved, parts)
  if type(saved) ~= "table" or type(saved.parts) ~= "table" then
    fail("Checkpoint:restore: what load gave is expected, got %s", type(saved))
  end
  for name in pairs(parts) do
    if saved.parts[name] == nil then
      fail("Checkpoint:restore: there is no '%s' in the checkpoint%s", tostring(name),
           options.hint(tostring(name), saved.parts))
    end
  end
  for name, part in pairs(parts) do
    local state = saved.parts[name]
    if is_generator(part) then
      part:set_state(state.seed, state.offset)
    else
      part:load_state_dict(state)
    end
  end
end

return setmetatable({open = Checkpoint.open, class = Checkpoint}, {
  __call = function(_, ...) return Checkpoint.open(...) end,
})
