--- flare.dataflow.sweep: simulations over ranges of figures, and the least figure that suffices.
local class = require "flare.class"
local fail = require "flare.fail"
local machines = require "flare.dataflow.machine"
local options = require "flare.options"
local simulate = require "flare.dataflow.simulate".simulate

local Sweep = class "Sweep"

local STEPS = 12 -- halvings in the search for the least figure

local figures = {link = true, peer = true, net = true, memory = true, host = true, bandwidth = true,
                 latency = true, compute = true, matrix = true}

-- What can be aimed at: 1 where more is better, -1 where less is.
local goals = {useful = 1, utilisation = 1, tokens_per_second = 1, joules_per_token = -1,
  energy = -1}

local function check_axes(axes)
  if type(axes) ~= "table" or #axes < 1 or #axes > 2 then
    fail("dataflow.sweep: one or two axes {{name, values}, ...} are expected, got %s",
      type(axes) == "table" and tostring(#axes) or options.kind(axes))
  end
  for k, axis in ipairs(axes) do
    if type(axis) ~= "table" or type(axis[1]) ~= "string" or type(axis[2]) ~= "table"
      or not axis[2][1] then
      fail("dataflow.sweep: axis %d must be {name, {value, ...}}", k)
    end
    for _, value in ipairs(axis[2]) do
      if type(value) ~= "number" then
        fail("dataflow.sweep: values of axis '%s' must be numbers, got %s", axis[1],
          options.kind(value))
      end
    end
  end
end

-- A schedule that is given is the same for all values, so only figures of the machine are ranges.
local function check_figures(self)
  if type(self.make) == "function" then return end
  for _, axis in ipairs(self.axes) do
    if not self.of_machine(axis[1]) then
      fail("dataflow.sweep: '%s' is no figure of a machine%s; for an option of a scheme, pass a "
        .. "function that makes the schedule", axis[1], options.hint(axis[1], figures))
    end
  end
end

-- The simulation at a point {link = 32, ...}.
local function run(self, point)
  local change, rest = {}, {}
  for key, value in pairs(point) do
    if self.of_machine(key) then change[key] = value else rest[key] = value end
  end
  local schedule = self.make
  if type(schedule) == "function" then schedule = schedule(rest) end
  local result, message = simulate(schedule, self.machine, change)
  local value = result and result[self.goal]
  if result and not value and self.goal == "joules_per_token" then
    fail("dataflow.sweep: the schedule does not say how many tokens it has: goal = 'energy' takes "
      .. "the joules of the step")
  end
  return {point = point, result = result, message = message,
    value = value or (self.sign > 0 and 0 or math.huge)}
end

local function reaches(self, value) return self.sign * value >= self.sign * self.want end

-- The least figure of the first axis at which the goal is reached, between two values of it.
local function refine(self, low, high, other)
  local axis, second = self.axes[1][1], self.axes[2]
  if math.type(low) == "integer" and not self.of_machine(axis) then return high end
  for _ = 1, STEPS do
    local middle = (low + high) / 2
    local point = {[axis] = middle}
    if second then point[second[1]] = other end
    if reaches(self, run(self, point).value) then high = middle else low = middle end
  end
  return high
end

local function search(self, column)
  local values = self.axes[1][2]
  local other = self.axes[2] and self.axes[2][2][column]
  for row, value in ipairs(values) do
    if reaches(self, self.rows[row][column].value) then
      local least = row > 1 and refine(self, values[row - 1], value, other) or value
      return {other = other, least = least, first = row == 1}
    end
  end
  return {other = other}
end

function Sweep:init(make, machine, axes, o)
  self.make, self.machine, self.axes = make, machine, axes
  self.goal, self.want, self.rows = o.goal, o.want, {}
  self.sign = goals[o.goal]
  if self.sign < 0 and machine.power.busy == 0 then
    fail("dataflow.sweep: %s has no power = {idle = watts, busy = watts}, which %s needs",
      machine.name, o.goal)
  end
  self.of_machine = function(name) return figures[name] or false end
  check_figures(self)
  local second = axes[2] or {nil, {false}}
  for i, value in ipairs(axes[1][2]) do
    self.rows[i] = {}
    for j, other in ipairs(second[2]) do
      local point = {[axes[1][1]] = value}
      if axes[2] then point[second[1]] = other end
      local cell = run(self, point)
      self.rows[i][j] = cell
      local best = self.best and self.sign * self.best.value or -math.huge
      if cell.result and self.sign * cell.value > best then
        self.best = cell
      end
    end
  end
  if self.want then
    self.least = {}
    for j = 1, #second[2] do self.least[j] = search(self, j) end
  end
end

local function cell_text(self, cell)
  if not cell.result then return "no memory" end
  if self.goal:find "_per_" or self.goal == "energy" then return ("%.4g"):format(cell.value) end
  return ("%.1f %%"):format(100 * cell.value)
end

--- A table: the first axis down, the second across; and what suffices.
function Sweep:__tostring()
  local first, second = self.axes[1], self.axes[2]
  local head = {("%-12s"):format(first[1])}
  for _, value in ipairs(second and second[2] or {self.goal}) do
    head[#head + 1] = ("%12s"):format(second and ("%s %g"):format(second[1], value) or value)
  end
  local out = {table.concat(head, " ")}
  for i, value in ipairs(first[2]) do
    local line = {("%-12s"):format(("%g"):format(value))}
    for _, cell in ipairs(self.rows[i]) do
      line[#line + 1] = ("%12s"):format(cell_text(self, cell))
    end
    out[#out + 1] = table.concat(line, " ")
  end
  for _, found in ipairs(self.least or {}) do
    local where = second and ("%s %g: "):format(second[1], found.other) or ""
    local goal = ("%s of %g"):format(self.goal, self.want)
    out[#out + 1] = found.least
      and ("%s%s %s %.4g suffices for %s"):format(where, first[1],
        found.first and "of at most" or "of", found.least, goal)
      or ("%sno %s up to %g reaches %s"):format(where, first[1], first[2][#first[2]], goal)
  end
  if self.sign < 0 and self.best then
    local at = {}
    for k, axis in ipairs(self.axes) do
      at[k] = ("%s %g"):format(axis[1], self.best.point[axis[1]])
    end
    out[#out + 1] = ("least %s: %.4g, at %s"):format(self.goal, self.best.value,
      table.concat(at, ", "))
  end
  return table.concat(out, "\n")
end

local M = {}

--- Simulates a schedule over ranges of figures.
-- @param make a schedule, or a function that makes one from a table of those figures that are not
--   the machine's
-- @param machine a name, a table or a Machine
-- @param axes one or two of {name, {value, ...}}, in rising order: figures of Machine:with, such
--   as {"link", {8, 16, 32}}, or options that `make` knows
-- @param opts {goal = "useful" (the share of time in which devices compute what is not repeated),
--   "utilisation" (of the peak), "tokens_per_second", or, of which less is better,
--   "joules_per_token" or "energy" (joules of the step), want = a value of the goal: for each value
--   of the second axis the least one of the first that reaches it is searched for}
-- @return a Sweep: print it; rows[i][j] is {point, value, result, message}, best the best of them,
--   least[j] {other, least}
function M.sweep(make, machine, axes, opts)
  local o = options.check("dataflow.sweep", opts, {goal = "useful", want = options.none})
  if not goals[o.goal] then
    fail("dataflow.sweep: unknown goal '%s'%s", o.goal, options.hint(o.goal, goals))
  end
  check_axes(axes)
  return Sweep(make, machines.machine(machine), axes, o)
end

return M
