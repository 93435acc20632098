--- Stops a script and lets a front end, such as the prompt's or an editor's, look at it: at
-- flare.breakpoint(), at lines, after errors, where a result has NaN or a shape. The front end runs
-- in a coroutine of its own while the script waits, with the script's modes.
local core = require "flare.core"
local frames = require "flare.debugger.frames"

local M = {
  lines = {},      -- line number -> list of points, see add
  off = false,     -- breakpoint() does nothing
  errors = false,  -- "uncaught" or "all": stop where an error is raised
  values = {nan = false, shapes = {}}, -- what the results of operators are compared with
}

local front -- function(stop) -> action, values
local inside = false -- a front end runs
local stepping -- {mode =, thread =, depth =, reason =, front =, ready =}
local threads = setmetatable({}, {__mode = "k"}) -- coroutines made while the hook was wanted
local poll -- called at lines, if there is a hook
local reported -- the last error that the front end was shown
local root = function() end -- gives the script's outermost function
local forget -- forgets a Ctrl-C

--- Sets what is shown when the script stops.
-- @param f function(stop) -> action ("continue", "step", "next", "finish" or "quit"), and a list of
-- values that an interrupted call returns. stop has reason, text, thread, level, and `replace`, if
-- the call that stopped can return other values.
-- @param outermost function() -> the function that the script began with
-- @param resume forgets a Ctrl-C, which then stops the script at its next line
function M.attach(f, outermost, resume)
  front, root, forget = f, outermost, resume
end

--- Whether the script can be stopped here.
function M.attached() return front ~= nil and not inside end

--- Whether the script is stopped: a front end runs, which reads what its client sends.
function M.stopped() return inside end

--- The function that the script began with: what called it is left out of stacks.
function M.root() return root() end

-- --- stopping ---

local quit = setmetatable({}, {__tostring = function() return "ended in the debugger" end})

--- Whether an error is that of :quit.
function M.is_quit(problem) return rawequal(problem, quit) end

-- Runs f in a coroutine, from which the script's stack can be read: the first result of resume, and
-- what f returned.
local function aside(f, ...)
  inside = true
  local results = table.pack(coroutine.resume(coroutine.create(f), ...))
  inside = false
  return table.unpack(results, 1, results.n)
end

-- How deep the innermost function of the script's own is, seen from another coroutine.
local function depth_of(thread, level)
  local frame = frames.at(thread, level)
  while frame and frame.library do
    level = level + 1
    frame = frames.at(thread, level)
  end
  return frames.depth(thread, level)
end

-- Shows the front end. `level` counts from the caller, as for error().
-- @return the values that the call that stopped is to return, or nil; whether to end the script
local function show(reason, level, about)
  local opens = about.front or front
  if not opens or inside then return nil end
  local thread, depth = coroutine.running(), nil
  about.reason, about.thread, about.level, about.root = reason, thread, level + 2, root
  stepping = nil
  local ok, action, values = aside(function()
    depth = depth_of(thread, about.level)
    return opens(about)
  end)
  if not ok then
    io.stderr:write("flare: the debugger failed: ", tostring(action), "\n")
    action = "continue"
  end
  if action == "quit" then
    M.clear()
    return nil, true
  elseif action ~= "continue" then
    stepping = {mode = action, thread = thread, front = about.front,
                depth = depth - (action == "finish" and 1 or 0)}
  end
  M.update()
  return values
end

-- The same, and :quit ends the script by an error.
local function stop(reason, level, about)
  local values, ended = show(reason, level + 1, about or {})
  if ended then error(quit, 0) end
  return values
end

-- --- lines ---

local function simple(path)
  return (path:gsub("/%./", "/"):gsub("^%./", ""):gsub("[^/]+/%.%./", ""))
end

--- Whether two paths are of one file: by their ends, so that one or both may be relative.
function M.same_file(one, other)
  local a, b = "/" .. simple(one), "/" .. simple(other)
  if #a < #b then a, b = b, a end
  return a:sub(-#b) == b
end

-- What stops at this line, if it is this file.
local function reached(list, source)
  for _, one in ipairs(list) do
    if M.same_file(source:sub(2), one.path) then return one end
  end
end

-- Calls f(frame) for the frame at a level, as for error().
local function look(level, f)
  local thread = coroutine.running()
  local ok, value = aside(function() return f(frames.at(thread, level + 2)) end)
  return ok, value
end

-- Whether a breakpoint stops here, by its condition and the number of times that it was reached.
local function holds(point, level)
  if point.condition then
    local ok, value = look(level + 1, function(frame)
      return require("flare.debugger.world").value(frame, point.condition)
    end)
    if ok and not value then return false end -- one that fails stops, so that it is seen
  end
  point.hits = (point.hits or 0) + 1
  return not point.counts or point.counts(point.hits)
end

-- Whether stepping ends in the function at level 2 of the caller.
local function arrived()
  local s = stepping
  if s.mode ~= "step" then
    local mine = s.thread == coroutine.running()
    if mine and debug.getinfo(3 + s.depth, "l") then return false end
    if not mine and coroutine.status(s.thread) ~= "dead" then return false end
  end
  return not frames.is_library(debug.getinfo(3, "S").source) and (not s.ready or s.ready())
end

local function on_line(_, line)
  if inside then return end
  local reason, point
  if poll then poll() end
  if forget and core.interrupted() then
    forget()
    reason = "interrupt"
  end
  local here = M.lines[line]
  if here and not reason then
    local source = debug.getinfo(2, "S").source
    point = source:byte() == 64 and reached(here, source)
    if point and holds(point, 2) then
      if point.log then look(2, point.log) else reason = "breakpoint" end
    end
  end
  if not reason and stepping and arrived() then reason = stepping.reason or "step" end
  local opens = stepping and reason == stepping.reason and stepping.front or nil
  if reason then stop(reason, 2, {point = point, front = opens}) end
end

local counted = false -- core.interruptible has a hook of its own, which comes back

local function set_hook(thread, on)
  local hook, _, count = debug.gethook(thread)
  if on then
    counted = counted or hook == "external hook" and count > 1
    debug.sethook(thread, on_line, "l")
  elseif hook == on_line then
    debug.sethook(thread)
    if counted then core.interruptible(true) end
  end
end

-- Coroutines have a hook each.
local followed, hooked = false, false
local function follow_coroutines()
  if followed then return end
  followed = true
  local create, wrap = coroutine.create, coroutine.wrap
  local function follow(thread)
    threads[thread] = true
    if hooked and not inside then set_hook(thread, true) end
  end
  function coroutine.create(f) -- luacheck: ignore
    local thread = create(f)
    follow(thread)
    return thread
  end
  function coroutine.wrap(f) -- luacheck: ignore
    local resume = wrap(f)
    local _, thread = debug.getupvalue(resume, 1)
    follow(thread)
    return resume
  end
end

--- Sets the hook of all coroutines if anything waits for a line, and removes it otherwise, since a
-- hook makes every line slower.
function M.update()
  if inside then return end -- it is called again when the script goes on
  hooked = stepping ~= nil or front ~= nil and next(M.lines) ~= nil
  if hooked then follow_coroutines() end
  threads[coroutine.running()] = true
  for thread in pairs(threads) do set_hook(thread, hooked) end
  if poll and not hooked then poll() end -- what came while there was a hook
end

--- Calls f at every line for which there is a hook, and when the hook is removed.
function M.poll(f) poll = f end

--- Stops the script at its next line.
-- @param reason for the front end
-- @param other a front end in place of the one that is attached, or nil
-- @param ready function() -> whether it stops at this line, or goes on; nil: it stops
function M.pause(reason, other, ready)
  stepping = {mode = "step", reason = reason, front = other, ready = ready}
  M.update()
end

--- Takes back a pause, or a step, that was to open this front end.
function M.unpause(other)
  if stepping and stepping.front == other then
    stepping = nil
    M.update()
  end
end

--- Adds a breakpoint at a line of a file.
-- @param point {path =, line =, condition = an expression, counts = function(how often the line
-- was reached) -> whether that counts, log = function(frame) in place of stopping}
function M.add(point)
  local list = M.lines[point.line] or {}
  M.lines[point.line] = list
  list[#list + 1] = point
  M.update()
  return point
end

--- Removes a breakpoint, or all of a file.
-- @param which a point that was added, or a path
function M.remove(which)
  for line, list in pairs(M.lines) do
    for i = #list, 1, -1 do
      if list[i] == which or list[i].path == which then table.remove(list, i) end
    end
    if not list[1] then M.lines[line] = nil end
  end
  M.update()
end

--- Removes all places where the script stops; it still stops at errors.
function M.clear_breaks()
  M.lines, M.values.nan, M.values.shapes = {}, false, {}
  M.update()
end

--- Removes everything that stops the script.
function M.clear()
  stepping, M.errors, front = nil, false, nil
  M.clear_breaks()
end

-- --- errors ---

--- Called by the handler of an error that nothing catches: shows it, unless that was done before it
-- was raised.
-- @param level of the function that raised it, as for error()
function M.failed(problem, level)
  local known = rawequal(problem, reported)
  reported = nil
  if not M.errors or known or M.is_quit(problem) then return end
  show("exception", level + 1, {problem = problem})
end

--- Stops at an error before it is raised.
-- @return the values with which its call returns instead, or nil
function M.raised(problem, level)
  reported = problem
  local values = stop("exception", level + 1, {problem = problem, replace = true})
  if values then reported = nil end
  return values
end

--- Stops at a result.
-- @return the values that replace it, or nil
function M.result(text, level)
  local values = stop("value", level + 1, {text = text, replace = true})
  return values
end

--- Stops the script, as a breakpoint does, and opens the debugger of the program flare, or of the
-- editor that runs the script.
-- @param ... what it returns, unless the debugger gives other values
M.breakpoint = core.framed(function(...)
  if M.off then return ... end
  if not front then
    local open = package.loaded["flare.repl.main"] and require "flare.repl.debug"
    if not open then
      require "flare.fail" "breakpoint: there is no debugger; run the script by the program flare"
    end
    open.attach()
  end
  local values = stop("breakpoint", 3, {replace = true})
  if values then return table.unpack(values, 1, values.n) end
  return ...
end)

return M
