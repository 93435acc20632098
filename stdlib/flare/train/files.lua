--- The checkpoints of a train.Trainer: files step-N.flare, each with all that a run needs to go on
-- with the same bits, and best.flare. Where dist.ZeRO divides the model and the state of the
-- optimizer, each rank writes its part into a folder beside the file, before the file.
local core = require "flare.core"
local fail = require "flare.fail"
local flare = require "flare"
local parts_of_zero = require "flare.dist.zero.file"

local dist, tree = flare.dist, flare.io.tree

local M = {}

--- The values of a call that did not fail, or an error at the user's line.
function M.sure(value, message, ...)
  if not value then fail("train.Trainer: %s", tostring(message)) end
  return value, message, ...
end

local sure = M.sure

function M.open(trainer)
  local o = trainer.options
  trainer.checkpoints = sure(flare.io.Checkpoint(o.folder, {keep = o.keep}))
end

--- What figures are written to, without what an interrupted run wrote after the checkpoint.
function M.log(trainer)
  local o = trainer.options
  if type(o.log) == "string" then return sure(flare.log.metrics(o.log, {after = trainer.at})) end
  if o.log and o.folder and o.log.resume then sure(o.log:resume(trainer.at)) end
  return o.log
end

local function folder_of(trainer, what)
  return trainer.options.folder or fail("train.Trainer: %s needs a folder", what)
end

-- What a file has: objects with a state_dict, by name.
local function parts_of(trainer)
  local o = trainer.options
  local parts = {trainer = trainer, train = o.train, validate = o.validate, schedule = o.schedule,
                 scaler = trainer.scaler}
  if not trainer.zero then parts.model, parts.optimizer = o.model, o.optimizer end
  for name, part in pairs(o.parts or {}) do parts[name] = part end
  return parts
end

-- --- the parts of dist.ZeRO: step-N.RUN.zero ---

local function name_of(run, step) return ("step-%08d.%s.zero"):format(step, run) end

-- A name for the folders of this run, the same on all ranks.
local function run_of(trainer)
  if not trainer.run then
    local stamp = ("%x-%x"):format(os.time(), core.net.pid())
    trainer.run = dist.size() > 1 and dist.share(trainer.first and stamp or nil, 0) or stamp
  end
  return trainer.run
end

-- Removes the folders of this run whose files are gone.
local function sweep(trainer)
  local folder, kept = trainer.options.folder, {}
  for _, step in ipairs(trainer.checkpoints:steps() or {}) do
    kept[name_of(trainer.run, step)] = true
  end
  for _, name in ipairs(core.file.list(folder) or {}) do
    local run = name:match "^step%-%d+%.(.*)%.zero$"
    if run == trainer.run and not kept[name] then parts_of_zero.clear(folder .. "/" .. name) end
  end
end

-- --- all of it ---

--- Writes a checkpoint; all ranks call it.
function M.save(trainer)
  local folder, zero = folder_of(trainer, "save"), trainer.zero
  if not trainer.checkpoints then M.open(trainer) end
  local seed, offset = core.default_generator():state()
  local generators = dist.all_gather(core.tensor({{seed, offset}}, {dtype = "i64"})):totable()
  local loss, none = trainer.loss:state_dict(), core.zeros({}, {dtype = "f64"})
  local sums = core.stack({(loss.sum or none):cpu(), (loss.count or none):cpu()}, 1)
  local own = {generators = generators, losses = dist.all_gather(sums:unsqueeze(1))}
  if zero then
    own.zero = run_of(trainer)
    sure(zero:save(folder .. "/" .. name_of(own.zero, trainer.at)))
  end
  if trainer.first then
    sure(trainer.checkpoints:save(trainer.at, parts_of(trainer), own))
    if zero then sweep(trainer) end
  end
end

--- Continues from the newest checkpoint of the folder.
-- @return whether there is one
function M.restore(trainer)
  local folder, zero = folder_of(trainer, "restore"), trainer.zero
  if not trainer.checkpoints then M.open(trainer) end
  if #sure(trainer.checkpoints:steps()) == 0 then return false end
  local saved = sure(trainer.checkpoints:load())
  if (zero ~= false) ~= (saved.zero ~= nil) then
    fail("train.Trainer: %s was saved %s dist.ZeRO", trainer.checkpoints:path(saved.step),
         zero and "without" or "with")
  end
  trainer.checkpoints:restore(saved, parts_of(trainer))
  if zero then
    trainer.run = saved.zero
    sure(zero:load(folder .. "/" .. name_of(saved.zero, saved.step)))
  end
  local rank = math.min(dist.rank() + 1, #saved.losses)
  core.default_generator():set_state(table.unpack(saved.generators[rank]))
  local losses = saved.losses[rank]
  if #saved.losses ~= dist.size() then -- rank 0 has what all of them had
    losses = saved.losses:sum{dims = {1}} * (trainer.first and 1 or 0)
  end
  trainer.loss:load_state_dict{sum = losses[1], count = losses[2]}
  dist.barrier()
  return true
end

--- Writes the model and its figures; all ranks call it.
function M.save_best(trainer, figures)
  local o = trainer.options
  local state = (trainer.zero or o.model):state_dict()
  if not trainer.first then return end
  sure(tree.save(o.folder .. "/best.flare", {model = state, figures = figures}))
end

--- Loads the best model.
-- @return its figures, or nil and a message
function M.load_best(trainer)
  local saved, message = tree.load(folder_of(trainer, "load_best") .. "/best.flare")
  if saved then (trainer.zero or trainer.options.model):load_state_dict(saved.model) end
  return saved and saved.figures, message
end

return M
