--- Files of events for TensorBoard: scalars, histograms, images, texts and graphs of models.
local class = require "flare.class"
local core = require "flare.core"
local events = require "flare.log.events"
local fail = require "flare.fail"
local observers = require "flare.log.observers"
local options = require "flare.options"

local TensorBoard = class("TensorBoard")

--- flare.log.tensorboard(folder, {after = nil, name = nil, now = nil})
-- Writes a new file of events to the folder, which `tensorboard --logdir` shows. `after`: the step
-- from which a resumed run continues; TensorBoard then drops later steps of the earlier files.
-- `name`: of the file, events.out.tfevents.SECONDS.NAME; `now`: a function that gives the time in
-- seconds, by default the system's.
-- @return the writer, or nil and a message
function TensorBoard.open(folder, opts)
  local o = options.check("log.tensorboard", opts, {after = options.none, name = options.none,
                                                    now = options.none})
  options.text("log.tensorboard", "folder", folder)
  local ok, message = core.file.mkdir(folder)
  if not ok then return nil, message end
  local self = TensorBoard()
  local from = os.time() - core.clock()
  self.now = o.now or function() return from + core.clock() end
  self.began = self.now()
  local name = ("%s/events.out.tfevents.%010d.%s"):format(folder, self.began // 1 | 0,
                                                          o.name or "flare")
  self.path = name
  local count = 1
  while core.file.exists(self.path) do -- of a run that began in the same second
    count = count + 1
    self.path = name .. "." .. count
  end
  self.file, message = io.open(self.path, "wb")
  if not self.file then return nil, message end
  ok, message = self:add(0, events.version())
  if ok and o.after then ok, message = self:add(o.after + 1, events.start()) end
  if not ok then return nil, message end
  return self
end

--- Continues a run after a step: TensorBoard drops later steps of the earlier files, as by the
-- option `after`. A train.Trainer with a folder calls it.
-- @return true, or nil and a message
function TensorBoard:resume(step) return self:add(step + 1, events.start()) end

-- Appends an event.
function TensorBoard:add(step, what)
  if not self.file then fail("log.tensorboard: %s is closed", self.path) end
  step = math.tointeger(step)
  if not step then fail("log.tensorboard: the step must be an integer") end
  local ok, message = self.file:write(events.record(events.event(self.now(), step, what)))
  if ok then ok, message = self.file:flush() end
  if not ok then return nil, ("%s: %s"):format(self.path, message) end
  return true
end

local function number(x)
  if core.is_tensor(x) then x = x:item() end
  return type(x) == "number" and x or nil
end

--- A number at a step.
-- @param tag its name; a / makes groups
-- @param x a number or a tensor of one element
-- @return true, or nil and a message
function TensorBoard:scalar(tag, x, step)
  options.text("log.tensorboard", "the tag", tag)
  local value = number(x)
  if not value then fail("log.tensorboard: '%s' must be a number, got %s", tag, options.kind(x)) end
  observers.tell("row", {step = step, [tag] = value})
  return self:add(step, events.scalar(tag, value))
end

--- The numbers of a table as scalars at its `step`, as log.metrics writes them.
-- @return true, or nil and a message
function TensorBoard:write(row)
  if type(row) ~= "table" or not math.tointeger(row.step) then
    fail("log.tensorboard:write needs a table with a step, as in board:write{step = 1, loss = 0.5}")
  end
  local names = {}
  for name, value in pairs(row) do
    local one = type(value) == "number" or core.is_tensor(value) and value:numel() == 1
    if name ~= "step" and one then names[#names + 1] = name end
  end
  table.sort(names)
  for _, name in ipairs(names) do
    local ok, message = self:scalar(name, row[name], row.step)
    if not ok then return nil, message end
  end
  return true
end

--- How the finite elements of a tensor are distributed.
-- @return true, or nil and a message
function TensorBoard:histogram(tag, x, step, opts)
  options.text("log.tensorboard", "the tag", tag)
  options.tensor("log.tensorboard", tag, x)
  local o = options.check("log.tensorboard", opts, {bins = 64})
  local _ <close> = core.no_grad()
  x = x:detach():to("f64"):cpu():reshape(-1)
  x = x:masked_select(x:isfinite())
  if #x == 0 then x = core.zeros({1}, {dtype = "f64"}):narrow(1, 1, 0) end
  local h = {count = #x, sum = x:sum():item(), squares = x:square():sum():item()}
  h.min, h.max = #x > 0 and x:amin():item() or 0, #x > 0 and x:amax():item() or 0
  local width = (h.max - h.min) / o.bins
  h.limits, h.counts = {h.min}, {0} -- a bin ends at its limit; this one is empty
  if width > 0 and width < math.huge then
    local counts = x:histc{bins = o.bins, min = h.min, max = h.max}:tolist()
    for k = 1, o.bins do
      h.limits[k + 1] = k == o.bins and h.max or h.min + k * width
      h.counts[k + 1] = counts[k]
    end
  else
    h.limits[2], h.counts[2] = h.max + 1e-12, h.count
  end
  return self:add(step, events.histogram(tag, h))
end

--- An image: (H, W), (C, H, W) with 1, 3 or 4 channels, or several, (N, C, H, W), as a grid; floats
-- from 0 to 1, or u8.
-- @return true, or nil and a message
function TensorBoard:image(tag, x, step)
  options.text("log.tensorboard", "the tag", tag)
  x = require "flare.log.pixels"(x)
  local png = require "flare.log.png"(x)
  observers.tell("image", tag, png, step)
  return self:add(step, events.image(tag, x:size(1), x:size(2), x:size(3), png))
end

--- A text, which may be Markdown.
-- @return true, or nil and a message
function TensorBoard:text(tag, text, step)
  options.text("log.tensorboard", "the tag", tag)
  observers.tell("text", tag, options.text("log.tensorboard", tag, text), step)
  return self:add(step, events.text(tag, text))
end

--- The modules of a model and the tensors between them, from one call in evaluation mode. A node is
-- a module without modules inside, or an operator whose result a module gets.
-- @param model a module
-- @param ... what it is called with
-- @return true, or nil and a message
function TensorBoard:graph(model, ...)
  if type(model) ~= "table" or not model.named_modules then
    fail("log.tensorboard: a module is expected, got %s", options.kind(model))
  end
  return self:add(0, events.graph(require "flare.log.graph"(model, ...)))
end

function TensorBoard:__tostring()
  return ("TensorBoard: %s%s"):format(self.path, self.file and "" or ", closed")
end

function TensorBoard:close()
  if self.file then self.file:close() end
  self.file = nil
end
TensorBoard.__close = TensorBoard.close

return setmetatable({open = TensorBoard.open}, {
  __call = function(_, ...) return TensorBoard.open(...) end,
})
