--- Training that goes on when the number of ranks changes: what is needed to go on is written after
-- every step, and read when the launcher has started the job again.
--
--     local run = dist.Elastic({model = model, optimizer = optimizer}, {folder = "run"})
--     for step in run:steps(1000) do
--       ...                                   -- a step of data parallel training
--     end
local class = require "flare.class"
local core = require "flare.core"
local dist = require "flare.dist"
local fail = require "flare.fail"
local options = require "flare.options"

local Elastic = class "dist.Elastic"
Elastic.__keeps = true

local FORMAT = 1

--- dist.Elastic(parts, {folder = "elastic"}): goes on from the last step in the folder, if there is
-- one. All ranks have the same state, as in data parallel training; rank 0 writes it.
-- @param parts objects with state_dict and load_state_dict, by name: the model, the optimizer, a
--   schedule, a loader
-- @param o.folder where the state is kept; default "elastic"
-- @param o.every how many steps lie between two states, default 1
function Elastic:init(parts, o)
  o = options.check("Elastic", o, {folder = "elastic", every = 1})
  if type(parts) ~= "table" or next(parts) == nil then
    fail("Elastic: a table of objects with state_dict is expected, as in {model = model}, got %s",
      type(parts) == "table" and "an empty one" or options.kind(parts))
  end
  for name, part in pairs(parts) do
    local ok = type(part) == "table"
      and pcall(function() assert(part.state_dict and part.load_state_dict) end)
    if not ok then fail("Elastic: '%s' has no state_dict and load_state_dict", tostring(name)) end
  end
  self.rank, self.size = dist.init()
  self.parts, self.folder = parts, options.text("Elastic", "folder", o.folder)
  self.every = options.count("Elastic", "every", o.every)
  self.step, self.history = 0, {}
  if self.rank == 0 and not core.file.exists(self.folder) then
    local ok, message = core.file.mkdir(self.folder)
    if not ok then fail("Elastic: %s: %s", self.folder, message) end
  end
  self:_load()
  local last = self.history[#self.history]
  if not last or last.size ~= self.size then
    if last and last.first == self.step + 1 then self.history[#self.history] = nil end
    self.history[#self.history + 1] = {first = self.step + 1, size = self.size}
  end
end

local function path_of(self) return self.folder .. "/state.flare" end

function Elastic:_load()
  local flare = require "flare"
  local there = self.rank == 0 and core.file.exists(path_of(self)) and "yes" or "no"
  if dist.share(there) == "no" then return end
  local saved, message = flare.load(path_of(self))
  if not saved then fail("Elastic: %s: %s", path_of(self), message) end
  if saved.format ~= FORMAT then
    fail("Elastic: %s has the format %s, this version reads %d", path_of(self),
      tostring(saved.format), FORMAT)
  end
  for name, part in pairs(self.parts) do
    if saved.parts[name] == nil then fail("Elastic: %s has no '%s'", path_of(self), name) end
    part:load_state_dict(saved.parts[name])
  end
  core.default_generator():set_state(saved.seed, saved.offset)
  self.step, self.history = saved.step, saved.history
end

--- Writes the state of the step that has ended. `steps` calls it.
function Elastic:commit()
  if self.step % self.every ~= 0 then return end
  dist.barrier() -- the step has ended on all ranks
  if self.rank ~= 0 then return end
  local seed, offset = core.default_generator():state()
  local state = {format = FORMAT, step = self.step, history = self.history, seed = seed,
    offset = offset, parts = {}}
  for name, part in pairs(self.parts) do state.parts[name] = part:state_dict() end
  local ok, message = require("flare").save(path_of(self), state)
  if not ok then fail("Elastic: %s: %s", path_of(self), message) end
end

--- Iterates over the numbers of the steps that remain, and commits each that has ended.
-- @param total the number of the last step
function Elastic:steps(total)
  options.count("Elastic:steps", "total", total)
  return function(_, before)
    if before then
      self.step = before
      self:commit()
    end
    if self.step < total then return self.step + 1 end
  end
end

function Elastic:__tostring()
  return ("dist.Elastic(%s, step %d, %d ranks)"):format(self.folder, self.step, self.size)
end

return Elastic
