--- flare.log.report: a page about a run, with its curves, samples, profile, memory, configuration
-- and energy, as one file of HTML that loads nothing. `flare --report FILE script.lua` makes one.
local class = require "flare.class"
local core = require "flare.core"
local observers = require "flare.log.observers"
local options = require "flare.options"

local Report = class "Report"

local MOST = 200000 -- launches of the profile
local LINES = 200 -- of the output
local SAMPLES = 40 -- texts and images, the last ones

--- flare.log.report{title = "", period = 0.5, profile = true}
-- Collects, from now on, what log.metrics and log.tensorboard write, the options that flare.args
-- reads, a profile of the first 200,000 launches, and the samples of a flare.monitor, taken each
-- `period` seconds. `profile`: false if another profile runs. `gpus`, `library` and `root` are for
-- the monitor.
function Report:init(opts)
  local none = options.none
  local o = options.check("log.report", opts, {title = "", period = 0.5, profile = true,
                                               gpus = none, library = none, root = none})
  self.title, self.began, self.date = o.title, core.clock(), os.date "%Y-%m-%d %H:%M:%S"
  self.series, self.names, self.rows = {}, {}, 0
  self.samples, self.configuration, self.output = {}, {}, {}
  self.monitor = require "flare.monitor" {period = o.period, most = 20000, gpus = o.gpus,
                                          library = o.library, root = o.root}
  if o.profile then
    self.stop = require("flare.profile").start {most = MOST, energy = self.monitor}
  end
  observers.add(self)
end

-- --- what it hears ---

function Report:row(row)
  self.rows = self.rows + 1
  local step = tonumber(row.step) or self.rows
  for name, y in pairs(row) do
    if type(y) == "number" and name ~= "step" and name ~= "seconds" and name ~= "epoch" then
      local s = self.series[name]
      if not s then
        s = {name = name, x = {}, y = {}}
        self.series[name] = s
        self.names[#self.names + 1] = name
      end
      -- two writers of one row
      local k = s.x[#s.x] == step and #s.x or #s.x + 1
      s.x[k], s.y[k] = step, y
    end
  end
end

local function keep(list, most, item)
  if #list == most then table.remove(list, 1) end
  list[#list + 1] = item
end

--- Adds a text, such as what a model has written, to the page's samples.
function Report:text(name, text, step)
  options.text("log.report", "the name", name)
  keep(self.samples, SAMPLES, {name = name, step = step,
                               text = options.text("log.report", name, text)})
end

function Report:image(name, png, step)
  keep(self.samples, SAMPLES, {name = name, step = step, png = png})
end

--- Adds names and values to the page's configuration.
function Report:options(o)
  for name, value in pairs(o) do self.configuration[tostring(name)] = value end
end

--- Adds a line of output.
function Report:print(line) keep(self.output, LINES, line) end

-- --- the page ---

--- Ends the collection and gives the text of the page.
-- @param problem nil, or the error that ended the run
function Report:page(problem)
  if not self.text_of_page then
    observers.remove(self)
    self.seconds = core.clock() - self.began
    self.profile = self.stop and self.stop()
    self.monitor:sample()
    self.machine = self.monitor:samples()
    self.energy, self.sources = self.monitor:energy()
    self.gpus, self.missing = self.monitor.gpus, self.monitor.missing
    self.monitor:close()
    self.text_of_page = require "flare.log.report.page"(self, problem)
  end
  return self.text_of_page
end

--- Ends the collection and writes the page.
-- @param problem nil, or the error that ended the run
-- @return true, or nil and a message
function Report:save(path, problem)
  options.text("log.report", "path", path)
  return core.file.write_atomic(path, self:page(problem))
end

return Report
