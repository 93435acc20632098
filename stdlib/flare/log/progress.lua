--- A progress bar: rate, time left, and values such as the loss.
--
-- On a terminal the bar redraws one line, at most ten times a second; otherwise it writes a plain
-- line at every tenth of the steps. Values may be tensors: the bar reads them only when it draws a
-- line, so it does not synchronize with a device at every step.
local class = require "flare.class"
local clock = require "flare.log.clock"
local core = require "flare.core"
local fail = require "flare.fail"
local options = require "flare.options"

local Progress = class("Progress")

local PERIOD = 0.1 -- seconds between drawings

--- flare.log.progress{total = steps, label = "", start = 0, width = columns,
--   terminal = whether to draw over a line, out = io.stderr, curve = nil, height = 8}
-- `start`: the number of steps done before, in a resumed run. `curve`: the name of a value, such as
-- "loss", whose curve is drawn above the bar where there is a terminal, `height` lines high.
function Progress:init(opts)
  local none = options.none
  local o = options.check("log.progress", opts,
                          {total = none, label = "", start = 0, width = none, terminal = none,
                           out = none, curve = none, height = 8})
  if o.total and type(o.total) ~= "number" then
    fail("log.progress: option 'total' must be a number, got %s", options.kind(o.total))
  end
  self.total, self.label, self.start, self.done = o.total, o.label, o.start, o.start
  self.out = o.out or io.stderr
  self.terminal = o.terminal
  if self.terminal == nil then self.terminal = not o.out and clock.terminal() end
  self.width = o.width or tonumber(os.getenv("COLUMNS") or "") or 80
  if o.curve then
    options.text("log.progress", "curve", o.curve)
    self.curve = {name = o.curve, height = o.height, x = {}, y = {}, every = 1, seen = 0}
  end
  self.began = clock.now()
  self.drawn, self.mark = self.began - 1, 0
  self.last_length = 0
  self.rate = nil
  self.rate_at, self.rate_done = self.began, o.start
end

--- "1:05" or "2:03:04".
local function duration(seconds)
  if seconds ~= seconds or seconds == math.huge or seconds < 0 then return "?" end
  local s = math.floor(seconds + 0.5)
  local h, m = s // 3600, s // 60 % 60
  if h > 0 then return ("%d:%02d:%02d"):format(h, m, s % 60) end
  return ("%d:%02d"):format(m, s % 60)
end

-- Names and values in alphabetical order, numbers to four digits.
local function figures(values)
  local keys, parts = {}, {}
  for key in pairs(values or {}) do keys[#keys + 1] = key end
  table.sort(keys)
  for _, key in ipairs(keys) do
    local value = values[key]
    if core.is_tensor(value) then value = value:item() end
    local text = type(value) == "number" and math.type(value) == "float" and "%.4g" or "%s"
    parts[#parts + 1] = ("%s " .. text):format(key, value)
  end
  return table.concat(parts, "  ")
end

-- Steps per second: a smoothed rate of the last seconds, in which a slow start counts little.
function Progress:measure(now)
  local elapsed = now - self.rate_at
  if elapsed >= 0.5 or not self.rate then
    local rate = (self.done - self.rate_done) / math.max(elapsed, 1e-9)
    self.rate = self.rate and 0.7 * self.rate + 0.3 * rate or rate
    self.rate_at, self.rate_done = now, self.done
  end
  return self.rate
end

function Progress:line(values, now)
  local rate = self:measure(now)
  local parts = {}
  if self.label ~= "" then parts[1] = self.label end
  if self.total then
    parts[#parts + 1] = ("%d/%d"):format(self.done, self.total)
    parts[#parts + 1] = ("%3d%%"):format(math.floor(100 * self.done / math.max(self.total, 1)))
  else
    parts[#parts + 1] = tostring(self.done)
  end
  parts[#parts + 1] = rate >= 1 and ("%.1f/s"):format(rate)
                      or rate > 0 and ("%.1f s each"):format(1 / rate) or "-/s"
  if self.total and self.done < self.total then
    parts[#parts + 1] = "left " .. duration((self.total - self.done) / rate)
  else
    parts[#parts + 1] = "in " .. duration(now - self.began)
  end
  local shown = figures(values)
  if shown ~= "" then parts[#parts + 1] = shown end
  return table.concat(parts, "  ")
end

local function bar(share, width)
  local full = math.floor(share * width + 0.5)
  return "[" .. ("="):rep(full) .. (" "):rep(width - full) .. "]"
end

local POINTS = 400 -- of a curve; from then on every other one goes

-- Takes the value of the curve at this step, a number by now.
local function add_point(curve, step, values)
  local y = values and values[curve.name]
  if core.is_tensor(y) then y = y:item() end
  if type(y) ~= "number" then return end
  curve.seen = curve.seen + 1
  if (curve.seen - 1) % curve.every ~= 0 then return end
  curve.x[#curve.x + 1], curve.y[#curve.y + 1] = step, y
  if #curve.x < POINTS then return end
  for k = 1, POINTS // 2 do
    curve.x[k], curve.y[k] = curve.x[2 * k - 1], curve.y[2 * k - 1]
  end
  for k = POINTS // 2 + 1, POINTS do curve.x[k], curve.y[k] = nil, nil end
  curve.every = 2 * curve.every
end

-- Draws the curve over the one before; the cursor stays below it, where the bar begins.
function Progress:draw_curve()
  local curve = self.curve
  if #curve.x < 2 then return end
  local text = require "flare.log.plot"({{name = curve.name, x = curve.x, y = curve.y}},
    {title = curve.name, width = math.max(self.width - 14, 10), height = curve.height})
  local lines = curve.lines and {("\27[%dA"):format(curve.lines)} or {}
  local _, count = text:gsub("\n", "")
  curve.lines = count + 1
  for line in (text .. "\n"):gmatch "([^\n]*)\n" do lines[#lines + 1] = line .. "\27[K\n" end
  self.out:write("\r", table.concat(lines))
end

function Progress:draw(values, now)
  if self.curve then
    add_point(self.curve, self.done, values)
    self:draw_curve()
  end
  local text = self:line(values, now)
  if self.total then
    local room = math.min(self.width - #text - 5, 30)
    if room >= 5 then
      text = bar(math.min(self.done / math.max(self.total, 1), 1), room) .. " " .. text
    end
  end
  text = text:sub(1, self.width - 1)
  local wipe = (" "):rep(self.last_length - #text)
  self.out:write("\r", text, wipe)
  self.out:flush()
  self.last_length = #text
  self.drawn = now
end

--- Updates the bar.
-- @param done the number of steps done; by default one more than before
-- @param values a table of names and numbers, strings or one-element tensors
function Progress:update(done, values)
  if type(done) == "table" then done, values = nil, done end
  self.done = done or self.done + 1
  local now = clock.now()
  if self.terminal then
    if now - self.drawn >= PERIOD then self:draw(values, now) end
  else
    local tenth = self.total and (self.done - self.start) * 10
                  // math.max(self.total - self.start, 1) or (now - self.began) // 10
    if tenth > self.mark then
      self.mark = tenth
      self.out:write(self:line(values, now), "\n")
      self.out:flush()
    end
  end
  self.values = values
end

--- Writes a line of text without disturbing the bar.
function Progress:print(...)
  local parts = table.pack(...)
  for i = 1, parts.n do parts[i] = tostring(parts[i]) end
  if self.terminal and self.last_length > 0 then
    self.out:write("\r", (" "):rep(self.last_length), "\r")
    self.last_length = 0
  end
  if self.curve and self.curve.lines then -- the line takes its place, the next one is below
    self.out:write(("\27[%dA\27[J"):format(self.curve.lines))
    self.curve.lines = nil
  end
  self.out:write(table.concat(parts, "\t"), "\n")
  self.out:flush()
  self.drawn = self.drawn - PERIOD
end

--- Draws the last state and ends the line.
function Progress:finish(values)
  if self.finished then return end
  self.finished = true
  local now = clock.now()
  values = values or self.values
  if self.terminal then
    self:draw(values, now)
    self.out:write("\n")
  elseif self.mark < 10 then
    self.out:write(self:line(values, now), "\n")
  end
  self.out:flush()
end

return Progress
