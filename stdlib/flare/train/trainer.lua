--- The training loop: `fit` is the outline, `update` a step, `measure` a validation; files.lua has
-- the checkpoints, checks.lua the refusals. Take what you need into a loop of your own.
local checks = require "flare.train.checks"
local class = require "flare.class"
local core = require "flare.core"
local files = require "flare.train.files"
local fail = require "flare.fail"
local flare = require "flare"
local nest = require "flare.nest"
local options = require "flare.options"

local dist, metrics = flare.dist, flare.metrics

local defaults = {accumulate = 1, schedule_by = "step", mode = "min", keep = 2, resume = true,
                  log_every = 50, progress = true, parallel = true}
for name in ([[model optimizer train loss step epochs steps device clip autocast scaler compile
    schedule validate metrics monitor patience folder save_every parts log callbacks curve]])
  :gmatch "%S+" do
  defaults[name] = options.none
end

--- train.Trainer{model =, optimizer =, train = loader, loss = f, epochs = n, ...}
-- `loss`: a loss layer or function, called with model(x) and y of a batch; or `step`: a function of
-- the model and a batch, which returns the loss, and for metrics predictions and targets.
-- `epochs`, `steps`: how long; `device`: where batches go, by default that of the model.
-- `accumulate`: batches of a step of the optimizer; `clip`: the greatest norm of the gradients;
-- `autocast`: "bf16" or "f16", which gets a `scaler` (optim.GradScaler) if none is given;
-- `compile`: true, for {exact = true}, or options of flare.compile. `schedule` steps each "step",
-- or each "epoch" with schedule_by = "epoch".
-- `validate`: a loader that is measured after each epoch, with `metrics`, a table of them by name.
-- `monitor`: the figure that decides what is best, by default "val_loss", or "loss" without
-- validation; `mode`: whether "min" or "max" is better; `patience`: epochs without a better one
-- after which to stop.
-- `folder`: of checkpoints; the newest `keep` are kept, one for each epoch and, with `save_every`,
-- after so many steps; best.flare has the best model. With `resume`, fit continues from the newest.
-- `parts`: further objects with a state_dict, by name.
-- `log`: the path of a metrics file, or an object with write{step =, ...}, for each `log_every`-th
-- step and each epoch; `progress`: whether to draw a bar; `curve`: "loss" draws it above the bar.
-- `callbacks`: a list of tables with functions start, step, epoch and finish, which get the trainer
-- and the figures, before they are logged.
-- In a job, `parallel` puts the model into DataParallel, unless `optimizer` is a dist.ZeRO of it.
local Trainer = class("Trainer")
Trainer.__keeps = true

local function is_a(object, name) return (getmetatable(object) or {}).__name == name end

-- How ranks work together: self.model is what batches go through.
local function share(self, o)
  local zero = is_a(o.optimizer, "dist.ZeRO") and o.optimizer
  if zero and zero.model ~= o.model then fail "train.Trainer: dist.ZeRO is of another model" end
  self.zero, self.parallel = zero, is_a(o.model, "dist.DataParallel") and o.model
  if dist.size() > 1 and o.parallel and not self.parallel then
    if not zero then self.parallel = dist.DataParallel(o.model) end
    if o.train.ranks ~= dist.size() then
      fail("train.Trainer: the loader needs shard = dist.world: each rank reads its own rows")
    end
  end
  self.model = zero or self.parallel or o.model
end

function Trainer:init(given)
  local o = options.check("train.Trainer", given, defaults)
  checks.check(o)
  self.options, self.optimizer = o, o.optimizer
  self.device = o.device or (o.model:parameters()[1] or o.optimizer.groups[1].params[1]).device
  self.scaler = o.scaler or flare.optim.GradScaler{enabled = o.autocast == "f16"}
  self.measured = metrics.Collection(o.metrics or {})
  self.monitor = o.monitor or o.validate and "val_loss" or "loss"
  share(self, o)
  self.by_epoch = o.schedule and (o.schedule_by == "epoch"
                                  or is_a(o.schedule, "PlateauLR"))
  self.first = dist.rank() == 0 -- the rank that writes
  self.at, self.epoch, self.history, self.waited, self.loss = 0, 0, {}, 0, metrics.Mean()
  self.update = o.compile and flare.compile(Trainer.update,
    o.compile == true and {exact = true} or o.compile) or nil
end

function Trainer:state_dict()
  return {at = self.at, epoch = self.epoch, history = self.history, waited = self.waited,
          best = self.best, stopped = self.stopped}
end

function Trainer:load_state_dict(saved, message)
  options.state("Trainer", saved, message)
  for _, key in ipairs {"at", "epoch", "history", "waited", "best", "stopped"} do
    self[key] = saved[key]
  end
  return self
end

-- Loss, predictions and targets of a batch.
local function forward(self, batch)
  local o = self.options
  local function judged(name, loss, ...) return checks.loss(loss, name), ... end
  local function run(...)
    if o.step then return judged("step", o.step(self.model, ...)) end
    local x, y = ...
    local predicted = self.model(x)
    return judged("loss", o.loss(predicted, y), predicted, y)
  end
  if not o.autocast then return run(table.unpack(batch, 1, batch.n)) end
  return core.autocast(o.autocast, run, table.unpack(batch, 1, batch.n))
end

--- A step of the optimizer: the mean gradient of the batches, clipped.
-- @param batches a list of batches, each a list of what the loader gives
-- @return the loss of each batch, a list
function Trainer:update(batches)
  local losses, scaler, clip = {}, self.scaler, self.options.clip
  self.optimizer:zero_grad()
  for k, batch in ipairs(batches) do
    local function run()
      local loss = forward(self, batch)
      losses[k] = loss:detach()
      scaler:scale(loss / #batches):backward()
    end
    if k < #batches and self.parallel then self.parallel:no_sync(run) else run() end
  end
  scaler:unscale_(self.optimizer)
  if clip and self.zero then self.zero:clip_grad_norm_(clip)
  elseif clip then flare.optim.clip_grad_norm_(self.model:parameters(), clip) end
  scaler:step(self.optimizer)
  scaler:update()
  return losses
end

-- What a loader gave, on the device; and its number of rows.
local function batch_of(self, values)
  local tensors = {}
  local shape = nest.take(values, tensors)
  for k, x in ipairs(tensors) do tensors[k] = x:to(self.device) end
  return nest.give(shape, tensors), tensors[1] and tensors[1]:dim() > 0 and #tensors[1] or 1
end

-- The statistics of rank 0's rows on all ranks: those of the others are in no checkpoint.
local function share_statistics(self)
  if dist.size() == 1 or self.model == self.options.model then return end
  for _, buffer in ipairs(self.options.model:buffers()) do dist.broadcast_(buffer) end
end

--- The mean loss of a loader's rows, val_loss, and the metrics, over all ranks.
-- @return a table of figures
function Trainer:measure(loader)
  local _ <close>, loss = core.no_grad(), metrics.Mean()
  share_statistics(self)
  self.model:eval()
  self.measured:reset()
  local next_batch, batch, rows = loader:epoch(), nil, nil
  for _ = 1, loader:batches() do
    local values = table.pack(next_batch())
    local has = values[1] ~= nil -- else this rank has no row of the last batch
    if has then batch, rows = batch_of(self, values)
    elseif not self.zero or self.zero.stage < 3 then break
    elseif not batch then fail "train.Trainer: validate has fewer rows than there are ranks" end
    local value, predicted, targets = forward(self, batch) -- in stage 3 ranks compute together
    if has then loss:update(value, rows) end
    if has and predicted ~= nil then self.measured:update(predicted, targets) end
  end
  self.model:train()
  local figures = self.measured:compute()
  figures.val_loss = loss:compute()
  return figures
end

--- Writes a checkpoint; all ranks call it. Each has its own random numbers and losses.
function Trainer:save() return files.save(self) end

--- Continues from the newest checkpoint of the folder, if there is one.
-- @return whether there is
function Trainer:restore() return files.restore(self) end

--- Loads the best model of the folder into the model.
-- @return its figures, or nil and a message
function Trainer:load_best() return files.load_best(self) end

local function call(self, event, figures)
  for _, callback in ipairs(self.options.callbacks or {}) do
    if callback[event] then callback[event](self, figures or {}) end
  end
end

local function write(self, figures)
  if self.log then files.sure(self.log:write(figures)) end
end

--- Ends `fit` after this step, on all ranks that call it; the next `fit` continues.
function Trainer:stop() self.halted = true end

local function is_over(self)
  local o = self.options
  return self.stopped or self.halted or self.at >= (o.steps or math.huge)
    or self.epoch >= (o.epochs or math.huge)
end

local function end_epoch(self)
  local o, figures = self.options, {}
  if o.validate then figures = self:measure(o.validate) end
  self.epoch = self.epoch + 1
  figures.epoch, figures.step, figures.loss = self.epoch, self.at, self.loss:compute()
  self.loss:reset()
  local value = figures[self.monitor]
  if type(value) ~= "number" then
    fail("train.Trainer: monitor = '%s' is no figure%s", self.monitor,
         options.hint(self.monitor, figures))
  end
  if self.by_epoch then o.schedule:step(value) end
  local sign = o.mode == "max" and -1 or 1
  if value == value and (not self.best or sign * value < sign * self.best) then
    self.best, self.waited = value, 0
    if o.folder then files.save_best(self, figures) end
  else
    self.waited = self.waited + 1
    if o.patience and self.waited >= o.patience then self.stopped = true end
  end
  self.history[#self.history + 1] = figures
  call(self, "epoch", figures)
  write(self, figures)
  if self.checkpoints then self:save() end
end

-- One epoch, or the rest of one.
local function run_epoch(self, bar)
  local o, loader = self.options, self.options.train
  local next_batch = loader:epoch()
  repeat
    local batches, rows = {}, {}
    local left = loader:batches() - loader:state_dict().position
    for k = 1, math.min(o.accumulate, left) do
      batches[k], rows[k] = batch_of(self, table.pack(next_batch()))
    end
    local losses = self:update(batches)
    for k, loss in ipairs(losses) do self.loss:update(loss, rows[k]) end
    self.at, left = self.at + 1, left - #batches
    local figures = {step = self.at, epoch = self.epoch + 1, loss = losses[#losses],
                     lr = self.optimizer.groups[1].lr}
    if o.schedule and not self.by_epoch then o.schedule:step() end
    if bar then bar:update(self.at, {loss = figures.loss}) end
    call(self, "step", figures)
    if self.at % o.log_every == 0 then write(self, figures) end
    local due = o.save_every and self.at % o.save_every == 0 or is_over(self)
    if left > 0 and due and self.checkpoints then self:save() end
    if left == 0 then return end_epoch(self) end
  until is_over(self)
end

--- Trains until the end, from the newest checkpoint if there is one.
-- @return the figures of each epoch, a list
function Trainer:fit()
  local o = self.options
  if o.folder then
    files.open(self)
    if o.resume then self:restore() end
  end
  if self.first then
    self.log = files.log(self)
  end
  local total = o.steps or o.epochs * math.ceil(o.train:batches() / o.accumulate)
  local bar = o.progress and self.first
    and flare.log.progress{total = total, start = self.at, curve = o.curve}
  self.halted = false
  self.model:train()
  call(self, "start")
  while not is_over(self) do run_epoch(self, bar) end
  share_statistics(self)
  if bar then bar:finish() end
  call(self, "finish", self.history[#self.history])
  return self.history
end

return Trainer
