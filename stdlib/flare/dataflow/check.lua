--- Checks of a schedule: names, circles, and the lives of buffers. Which task comes before which is
-- read from vector clocks with an entry for each stream (Fidge and Mattern, 1988).
local fail = require "flare.fail"
local options = require "flare.options"

-- The tasks that each task needs, as a list of tasks, into t.after; and those that need it.
local function resolve(s)
  for _, t in ipairs(s.tasks) do t.after, t.before = {}, {} end
  for _, t in ipairs(s.tasks) do
    for k, name in ipairs(t.needs) do
      local needed = s.by_name[name]
      if not needed then
        fail("dataflow: task '%s' needs '%s', but no task has that name%s", t.name, name,
          options.hint(name, s.by_name))
      end
      t.after[k] = needed
      needed.before[#needed.before + 1] = t
    end
  end
end

local function previous(t) return t.of.tasks[t.position - 1] end

-- Why tasks of `left`, which is not empty, wait for each other: a circle as text.
local function circle(left)
  local at, place, path = left[1], {}, {}
  while not place[at] do
    local to, why
    for _, needed in ipairs(at.after) do
      if left[needed] then to, why = needed, "'%s' needs '%s'" end
    end
    if not to then
      to = previous(at)
      why = ("'%%s' follows '%%s' on stream %s of device %d"):format(at.stream, at.device)
    end
    path[#path + 1] = why:format(at.name, to.name)
    place[at] = #path
    at = to
  end
  return table.concat(path, ", ", place[at])
end

-- The tasks in an order in which they could run.
local function sorted(s)
  local waiting, order, ready = {}, {}, {}
  for _, t in ipairs(s.tasks) do
    waiting[t] = #t.after + (t.position > 1 and 1 or 0)
    if waiting[t] == 0 then ready[#ready + 1] = t end
  end
  local function ended(t)
    waiting[t] = waiting[t] - 1
    if waiting[t] == 0 then ready[#ready + 1] = t end
  end
  local k = 1
  while ready[k] do
    local t = ready[k]
    order[k], waiting[t] = t, nil
    for _, later in ipairs(t.before) do ended(later) end
    local later = t.of.tasks[t.position + 1]
    if later then ended(later) end
    k = k + 1
  end
  if #order < #s.tasks then
    local left = {}
    for _, t in ipairs(s.tasks) do
      if waiting[t] then left[#left + 1], left[t] = t, true end
    end
    fail("dataflow: tasks wait for each other: %s", circle(left))
  end
  return order
end

-- Sets t.clock, whose entry n says how many tasks of stream n have started when t ends. Clocks of
-- tasks that no later one reads any more are dropped, or become that of the next task.
local function set_clock(t, n)
  local earlier, clock = previous(t), {}
  if earlier then
    earlier.readers = earlier.readers - 1
    if earlier.readers > 0 then
      table.move(earlier.clock, 1, n, 1, clock)
    else
      clock, earlier.clock = earlier.clock, nil
    end
  else
    for k = 1, n do clock[k] = 0 end
  end
  for _, needed in ipairs(t.after) do
    -- what comes before a task that clock has is in clock already
    if clock[needed.of.number] < needed.position then
      local other = needed.clock
      for k = 1, n do
        if other[k] > clock[k] then clock[k] = other[k] end
      end
    end
    needed.readers = needed.readers - 1
    if needed.readers == 0 then needed.clock = nil end
  end
  clock[t.of.number] = t.position
  t.clock, t.readers = clock, #t.before + (t.of.tasks[t.position + 1] and 1 or 0)
end

-- Whether task a has ended when b starts. A resident buffer's "task" nil is before all.
local function comes_before(a, b)
  return not a or a ~= b and b.clock[a.of.number] >= a.position
end

local function unordered(a, b, what, buffer)
  fail("dataflow: task '%s' %s buffer '%s', but nothing makes it run after '%s': add "
    .. "needs = {\"%s\"}", b.name, what, buffer, a.name, a.name)
end

local function not_held(s, t, verb, name, state)
  if state then
    fail("dataflow: task '%s' %s buffer '%s', which '%s' has freed", t.name, verb, name,
      state.freed.name)
  end
  local all = {}
  for _, other in ipairs(s.tasks) do
    for _, b in ipairs(other.holds) do
      all[b.name] = true
      if b.name == name then
        fail("dataflow: task '%s' %s buffer '%s', but '%s', which holds it, does not come before: "
          .. "add needs = {\"%s\"}", t.name, verb, name, other.name, other.name)
      end
    end
  end
  for _, b in ipairs(s.residents) do all[b.name] = true end
  fail("dataflow: task '%s' %s buffer '%s', which no task holds%s", t.name, verb, name,
    next(all) and options.hint(name, all) or "")
end

-- A task holds a buffer that no other task holds then.
local function hold(state, t, b)
  if state and not state.freed then
    fail("dataflow: task '%s' holds buffer '%s', which %s already; it must be freed first, or have "
      .. "another name", t.name, b.name,
      state.holder and ("'%s' holds"):format(state.holder.name) or "is resident")
  end
  if state and not comes_before(state.freed, t) then
    unordered(state.freed, t, "holds again", b.name)
  end
  return {holder = t, users = {}, bytes = b.bytes}
end

-- The lives of buffers, task by task in an order in which they could run.
local function check_buffers(s, order)
  local states = {}
  for _, b in ipairs(s.residents) do
    if states[b.name] then fail("dataflow: two resident buffers have the name '%s'", b.name) end
    states[b.name] = {users = {}, bytes = b.bytes}
  end
  local function held(t, name, verb)
    local state = states[name]
    if not state or state.freed then not_held(s, t, verb, name, state) end
    if state.holder ~= t and not comes_before(state.holder, t) then
      unordered(state.holder, t, verb, name)
    end
    return state
  end
  for _, t in ipairs(order) do
    set_clock(t, #s.streams)
    for _, b in ipairs(t.holds) do states[b.name] = hold(states[b.name], t, b) end
    for _, name in ipairs(t.uses) do
      local state = held(t, name, "uses")
      state.users[#state.users + 1] = t
    end
    for _, name in ipairs(t.frees) do
      local state = held(t, name, "frees")
      for _, user in ipairs(state.users) do
        if user ~= t and not comes_before(user, t) then
          fail("dataflow: task '%s' frees buffer '%s' while '%s' may use it: add needs = {\"%s\"}",
            t.name, name, user.name, user.name)
        end
      end
      state.freed, state.users = t, nil
    end
  end
end

return function(s)
  if not s.tasks[1] then fail("dataflow: schedule '%s' has no task", s.name) end
  resolve(s)
  local order = sorted(s)
  check_buffers(s, order)
  for _, t in ipairs(order) do t.clock, t.readers = nil, nil end
end
