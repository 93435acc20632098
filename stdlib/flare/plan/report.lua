--- A plan as text, and what is missing where there is none.
local units = require "flare.explain.units"
local Model = require "flare.plan.model"

local function rounds_text(config)
  return config.rounds == 1 and "at once" or ("in %d rounds"):format(config.rounds)
end

-- How a block is treated, as a row.
local function row_of(self, k)
  local how = self.config.blocks[k]
  return ("%-10s  %-9s  %-6s  %-11s  %s"):format(how.parameters,
    Model.sums(self.config) and how.gradients or "-", how.states, how.saved,
    how.saved == "keep" and "-" or how.input)
end

-- Rows for runs of blocks that are treated alike.
local function rows(self, out)
  local list, first, width = {}, 1, 6
  local n = #self.config.blocks
  for k = 1, n do
    if k == n or row_of(self, k + 1) ~= row_of(self, first) then
      local from, to = self.found.blocks[first].name, self.found.blocks[k].name
      list[#list + 1] = {first == k and from or ("%s to %s"):format(from, to), row_of(self, first)}
      width, first = math.max(width, #list[#list][1]), k + 1
    end
  end
  out[#out + 1] = ("%-" .. width .. "s  parameters  gradients  states  activations  input"):format
    "blocks"
  for _, entry in ipairs(list) do
    out[#out + 1] = ("%-" .. width .. "s  %s"):format(entry[1], entry[2])
  end
end

local function of_host(self)
  return self.host < math.huge and (" of %s"):format(units.bytes(self.host)) or ""
end

local function fitting(self)
  local figures = self.figures(self.step.rows / self.config.rounds)
  local _, sums = Model.time(figures, self.config, self.link)
  local out = {("it fits: at most %s of %s on the device, %s%s on the host"):format(
    units.bytes(self.peak), units.bytes(self.cap), units.bytes(self.host_bytes), of_host(self))}
  out[2] = ("a batch of %d %s: %s on %s, computing %s, to the device %s, from it %s"):format(
    self.step.rows, rounds_text(self.config), units.time(self.seconds * 1e6), self.machine.name,
    units.time(sums[1] * 1e6), units.time(sums[2] * 1e6), units.time(sums[3] * 1e6))
  rows(self, out)
  out[#out + 1] = ("outside of blocks: parameters %s, gradients %s, states %s%s"):format(
    units.bytes(figures.rest_parameters), units.bytes(figures.rest_gradients),
    units.bytes(figures.rest_states), self.config.rest.states == "host" and " on the host" or "")
  return out
end

-- What the least config has on the device at its peak, the largest first.
local function holders(self, config)
  local f = self.figures(self.step.rows / config.rounds)
  local block, list = nil, {}
  for _, b in ipairs(f.blocks) do
    if not block or b.parameters + b.forward_peak > block.parameters + block.forward_peak then
      block = b
    end
  end
  list[1] = {"parameters and buffers outside of blocks, and inputs", f.base}
  list[2] = {"gradients outside of blocks", f.rest_gradients}
  list[3] = {"the loss and what is around it", f.loss_peak}
  if block then
    list[4] = {("block '%s' while it computes"):format(block.name),
               math.max(block.forward_peak, block.recompute_peak)}
    list[5] = {("parameters of '%s', and of its neighbours"):format(block.name),
               (2 + config.ahead) * block.parameters}
    list[6] = {("states of '%s' while it is updated"):format(block.name), 2 * block.states}
  end
  table.sort(list, function(a, b) return a[2] > b[2] end)
  return list
end

local function lacking(self)
  local short, out = self.short, {}
  if short.host then
    out[1] = ("it does not fit: the host needs %s, %s more than its %s, with %s of the device")
      :format(units.bytes(short.host), units.bytes(short.host - self.host), units.bytes(self.host),
      units.bytes(self.cap))
    out[2] = ("it would fit with host = \"%dMiB\", or with more of the device"):format(
      (short.host >> 20) + 1)
    return out
  end
  out[1] = ("it does not fit: with all on the host that can be, the device needs %s, %s more than "
    .. "its %s"):format(units.bytes(short.need), units.bytes(short.need - self.cap),
    units.bytes(self.cap))
  out[2] = ("a batch of %d %s holds on the device:"):format(self.step.rows,
    rounds_text(short.config))
  for _, entry in ipairs(holders(self, short.config)) do
    out[#out + 1] = ("  %-9s  %s"):format(units.bytes(entry[2]), entry[1])
  end
  local lines = tostring(short.failed.message):match "held most: ([^\n]*)"
  if lines then out[#out + 1] = "lines that held most: " .. lines end
  local wish = ("it would fit with device = \"%dMiB\""):format((short.need >> 20) + 1)
  if #self.rounds == 1 and self.step.rows > self.rounds[1] then
    wish = wish .. ", or perhaps in more rounds"
  elseif self.step.rows > 1 or #self.rounds > 1 then
    wish = wish .. "; the rounds have one row each already, so a smaller batch would not help"
  end
  out[#out + 1] = wish
  return out
end

return function(self)
  return table.concat(self.fits and fitting(self) or lacking(self), "\n")
end
