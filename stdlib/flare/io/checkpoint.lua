--- Checkpoints of a training: a folder of files step-00000100.flare, each complete in itself.
--
--     local checkpoints = assert(flare.io.Checkpoint("run"))
--     local saved = checkpoints:load()                 -- the newest that is whole
--     if saved then checkpoints:restore(saved, {model = model, optimizer = opt}) end
--     assert(checkpoints:save(step, {model = model, optimizer = opt, loader = loader}))
--
-- A part is anything with state_dict and load_state_dict, or a generator. A file appears
-- under its name only when all of it is on the disk; the one before stays until then.
--
-- A folder can have several runs. A program that has loaded a checkpoint continues its run. One
-- that saves without having loaded, or goes back to an earlier step, begins a new run, whose files
-- are step-00000100.run-2.flare. A program deletes only files that it wrote or continued from.
local class = require "flare.class"
local core = require "flare.core"
local fail = require "flare.fail"
local options = require "flare.options"
local tree = require "flare.io.tree"

local Checkpoint = class("Checkpoint")

-- A save that was killed leaves its unfinished file; its name has the process in it.
local function sweep(folder)
  for _, name in ipairs(core.file.list(folder) or {}) do
    local process = name:match("^step%-%d+[%w.-]*%.flare%.tmp%-(%d+)%-%d+$")
    if process and core.file.exists("/proc/self") and not core.file.exists("/proc/" .. process) then
      core.file.remove(folder .. "/" .. name)
    end
  end
end

-- Step and run of a file's name.
local function parse_name(name)
  local digits, rest = name:match "^step%-(%d+)(.*)%.flare$"
  local run = rest == "" and "1" or rest and rest:match "^%.run%-(%d+)$"
  return digits and run and math.tointeger(digits), math.tointeger(run)
end

local function path_of(folder, run, step)
  return ("%s/step-%08d%s.flare"):format(folder, step, run > 1 and ".run-" .. run or "")
end

-- The runs in a folder, each a list of steps in ascending order, and the number of the newest run
-- (0: there is none); nil and a message.
local function scan(folder)
  local names, message = core.file.list(folder)
  if not names then return nil, message end
  local runs, newest = {}, 0
  for _, name in ipairs(names) do
    local step, run = parse_name(name)
    if step and run then
      runs[run] = runs[run] or {}
      table.insert(runs[run], step)
      newest = math.max(newest, run)
    end
  end
  for _, steps in pairs(runs) do table.sort(steps) end
  return runs, newest
end

--- flare.io.Checkpoint(folder, {keep = 2, run = nil})
-- `keep`: how many files of its run it keeps; `run`: the run to continue, by default the newest
-- @return the object, or nil and a message if the folder cannot be made or has no such run
function Checkpoint.open(folder, opts)
  local o = options.check("io.Checkpoint", opts, {keep = 2, run = options.none})
  if type(folder) ~= "string" then
    fail("io.Checkpoint: the folder must be a string, got %s", options.kind(folder))
  end
  options.count("io.Checkpoint", "keep", o.keep)
  local ok, message = core.file.mkdir(folder)
  if not ok then return nil, message end
  sweep(folder)
  local self = Checkpoint()
  self.folder, self.keep = folder, o.keep
  -- `run`, `last`: where a save goes on, if anything was loaded or saved; `own`: the files that it
  -- wrote or goes on from, the oldest first
  self.own, self.damaged = {}, {}
  if o.run ~= nil then
    local runs
    options.count("io.Checkpoint", "run", o.run)
    runs, message = scan(folder)
    if not runs then return nil, message end
    if not runs[o.run] then return nil, ("%s: there is no run %d"):format(folder, o.run) end
    self.chosen = o.run
  end
  return self
end

-- The run that load reads: this program's, once it has saved, else the newest.
local function current(self, newest)
  return self.saved and self.run or self.chosen or newest
end

function Checkpoint:__tostring()
  return ("Checkpoint: %s, steps {%s}, keeps %d"):format(
    self.folder, table.concat(self:steps() or {}, ", "), self.keep)
end

--- The file of a step: of this run, or of the newest before anything is saved.
function Checkpoint:path(step)
  local runs, newest = scan(self.folder)
  return path_of(self.folder, current(self, runs and math.max(newest, 1) or 1), step)
end

--- The steps that have files, in ascending order: of this run, or of the newest before anything is
-- saved.
-- @return a list, or nil and a message
function Checkpoint:steps()
  local runs, newest = scan(self.folder)
  if not runs then return nil, newest end
  return runs[current(self, newest)] or {}
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

-- Which run the next file belongs to: the one that goes on if nothing in it is later than what this
-- program loaded or saved last, else a new one.
local function choose_run(self, step, runs, newest)
  local run = self.run
  if not run or not self.last then return newest + 1 end
  if step < self.last then return newest + 1 end
  for _, other in ipairs(runs[run] or {}) do
    if other > self.last and not self.damaged[path_of(self.folder, run, other)] then
      return newest + 1
    end
  end
  return run
end

-- Puts a file at the end of the own ones and removes the oldest of them.
local function keep_newest(self, path)
  for i, own in ipairs(self.own) do
    if own == path then table.remove(self.own, i) break end
  end
  table.insert(self.own, path)
  while #self.own > self.keep do
    -- what cannot be removed now is tried again after the next save
    if not core.file.remove(self.own[1]) and core.file.exists(self.own[1]) then break end
    table.remove(self.own, 1)
  end
end

-- Names that the table of load has for itself.
local function check_extra(extra, step)
  if type(extra) ~= "table" then
    fail("Checkpoint:save: the plain values must be a table with names, got %s",
      options.kind(extra))
  end
  for _, name in ipairs {"step", "parts", "skipped"} do
    if extra[name] ~= nil and not (name == "step" and extra.step == step) then
      fail("Checkpoint:save: load gives its own '%s'; another name is needed for the value", name)
    end
  end
end

--- Writes the state of all parts under a step's name, reads it back, then removes the oldest files
-- of its own.
-- @param step a whole number
-- @param parts names and objects with state_dict
-- @param extra a table of plain values to go with them (optional)
-- @return true, or nil and a message; the files before are untouched then
function Checkpoint:save(step, parts, extra)
  if math.type(step) ~= "integer" or step < 0 then
    fail("Checkpoint:save: the step must be a whole number, got %s", tostring(step))
  elseif type(parts) ~= "table" then
    fail("Checkpoint:save: the parts must be a table of names and objects, got %s",
      options.kind(parts))
  end
  check_extra(extra or {}, step)
  local runs, newest = scan(self.folder)
  if not runs then return nil, newest end
  local run = choose_run(self, step, runs, newest)
  local path = path_of(self.folder, run, step)
  local ok, message = tree.save(path, {parts = states(parts), extra = extra or {}, step = step})
  if ok then ok, message = tree.verify(path) end
  self.damaged[path] = not ok or nil
  if not ok then return nil, message end
  self.run, self.last, self.saved = run, step, true
  keep_newest(self, path)
  return true
end

-- The tree of a step's file, or nil and a message.
local function read(path, step)
  local saved, problem = tree.load(path)
  if saved and (type(saved.parts) ~= "table" or saved.step ~= step) then
    return nil, ("%s: not a checkpoint of step %d"):format(path, step)
  end
  return saved, problem
end

-- Goes on from a step of a run: what is there up to it is this program's now.
local function adopt(self, run, steps, step)
  local known = {}
  for _, path in ipairs(self.own) do known[path] = true end
  local own = {}
  for _, other in ipairs(steps) do
    local path = path_of(self.folder, run, other)
    if other <= step and not known[path] and not self.damaged[path] then own[#own + 1] = path end
  end
  self.own = table.move(self.own, 1, #self.own, #own + 1, own)
  self.run, self.last = run, step
end

-- What load gives for a file's tree.
local function present(saved, skipped)
  local out = {step = saved.step, parts = saved.parts, skipped = skipped}
  for key, value in pairs(saved.extra or {}) do
    if out[key] == nil then out[key] = value end
  end
  return out
end

local function load_step(self, step, run, steps)
  local saved, problem = read(path_of(self.folder, run, step), step)
  if saved then
    adopt(self, run, steps, step)
    return present(saved, {})
  end
  local others = {}
  for _, other in ipairs(steps) do
    if other ~= step then others[#others + 1] = tostring(other) end
  end
  return nil, ("%s (other steps here: %s)"):format(
    problem, #others > 0 and table.concat(others, ", ") or "none")
end

local function load_newest(self, run, steps)
  local skipped = {}
  for i = #steps, 1, -1 do
    local path = path_of(self.folder, run, steps[i])
    local saved, problem = read(path, steps[i])
    if saved then
      self.damaged[path] = nil
      adopt(self, run, steps, steps[i])
      return present(saved, skipped)
    end
    skipped[#skipped + 1], self.damaged[path] = problem, true
  end
  return nil, table.concat(skipped, "\n")
end

--- Reads the newest checkpoint that is whole, or that of a given step: of this program's run, or of
-- the newest one if it has neither saved nor loaded. A later save continues that run.
-- @return a table with step, parts (trees) and the extra values by their names; its field
--   `skipped` lists messages about newer files that were damaged. Or nil and a message.
function Checkpoint:load(step)
  if step ~= nil and math.type(step) ~= "integer" then
    fail("Checkpoint:load: the step must be a whole number, or nil for the newest, got %s; the "
      .. "parts are given to Checkpoint:restore", tostring(step))
  end
  local saved, message
  for _ = 1, 5 do -- another program may replace the files meanwhile
    local runs, newest = scan(self.folder)
    if not runs then return nil, newest end
    local run = current(self, newest)
    local steps = runs[run] or {}
    if #steps == 0 then
      message = ("%s: there is no checkpoint"):format(self.folder)
      break
    elseif step then
      saved, message = load_step(self, step, run, steps)
    else
      saved, message = load_newest(self, run, steps)
    end
    local now = scan(self.folder)
    if saved or table.concat(now and now[run] or {}, " ") == table.concat(steps, " ") then break end
  end
  self.problem = message
  return saved, message
end

--- Restores the saved states of the parts. All names must exist.
function Checkpoint:restore(saved, parts)
  if type(saved) ~= "table" or type(saved.parts) ~= "table" then
    fail("Checkpoint:restore: what load gave is expected, got %s%s", options.kind(saved),
         options.reason(saved, self.problem))
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
