--- Runs the tree of a chat template.
local fail = require "flare.text.template.lexer".fail
local library = require "flare.text.template.filters"
local nodes_of = require "flare.text.template.expressions"
local values = require "flare.text.template.values"

local undefined, truth, text_of = values.undefined, values.truth, values.text
local expressions, MOST_OUTPUT = nodes_of.expressions, nodes_of.MOST_OUTPUT
local Namespace, Loop, or_undefined = nodes_of.Namespace, nodes_of.Loop, nodes_of.or_undefined

local MOST_STEPS, DEEPEST = 1000000, 150

local State = {}
State.__index = State

local statements = {}

function State:count(n)
  self.steps = self.steps + n
  if self.steps > MOST_STEPS then fail(self.line, "the template takes too long") end
end

function State:value(node)
  self.line = node[2]
  self:count(1)
  return expressions[node[1]](self, node)
end

function State:write(text)
  self.size = self.size + #text
  if self.size > MOST_OUTPUT then fail(self.line, "the text is longer than 64 MiB") end
  self.out[#self.out + 1] = text
end

-- Scopes: a table with the outer one as its parent.
function State:push() self.scope = {vars = {}, parent = self.scope} end
function State:pop() self.scope = self.scope.parent end

function State:lookup(name)
  local scope = self.scope
  while scope do
    local value = scope.vars[name]
    if value ~= nil then return value end
    scope = scope.parent
  end
  return undefined
end

-- Binds the targets of an assignment to a value.
function State:bind(targets, value)
  local function one(target, item)
    if item == nil then item = values.none end
    if type(target) == "string" then
      self.scope.vars[target] = item
      return
    end
    local space = self:lookup(target[1])
    if getmetatable(space) ~= Namespace then
      fail(self.line, "'%s' is no namespace", target[1])
    end
    space.fields[target[2]] = item
  end
  if #targets == 1 then return one(targets[1], value) end
  local items = library.items(value, "assignment")
  if #items ~= #targets then
    fail(self.line, "%d values for %d names", #items, #targets)
  end
  for i, target in ipairs(targets) do one(target, items[i]) end
end

-- What `run` writes, as a string.
function State:captured(run)
  local out = self.out
  self.out = {}
  run()
  local text = table.concat(self.out)
  self.size = self.size - #text
  self.out = out
  return text
end

-- --- statements: each returns "break", "continue" or nothing ---

function State:run(nodes)
  self.depth = self.depth + 1
  if self.depth > DEEPEST then fail(self.line, "nested deeper than %d", DEEPEST) end
  for _, node in ipairs(nodes) do
    if node[1] == "text" then
      self:write(node[2])
    else
      self.line = node[2]
      local left = statements[node[1]](self, node)
      if left then
        self.depth = self.depth - 1
        return left
      end
    end
  end
  self.depth = self.depth - 1
end

function statements.print(self, node) self:write(text_of(self:value(node[3]))) end
statements["do"] = function(self, node) self:value(node[3]) end
statements["break"] = function() return "break" end
statements["continue"] = function() return "continue" end
function statements.group(self, node) return self:run(node[3]) end

statements["if"] = function(self, node)
  for _, branch in ipairs(node[3]) do
    if truth(self:value(branch[1])) then return self:run(branch[2]) end
  end
  if node[4] then return self:run(node[4]) end
end

local function loop_of(items, i, recurse, depth)
  local get_field = {
    index = function() return i() end, index0 = function() return i() - 1 end,
    revindex = function() return #items - i() + 1 end,
    revindex0 = function() return #items - i() end,
    first = function() return i() == 1 end, last = function() return i() == #items end,
    length = function() return #items end,
    previtem = function() return or_undefined(items[i() - 1]) end,
    nextitem = function() return or_undefined(items[i() + 1]) end,
    depth = function() return depth end, depth0 = function() return depth - 1 end,
    cycle = function()
      return function(...) return (select((i() - 1) % select("#", ...) + 1, ...)) end
    end,
  }
  return setmetatable({recurse = recurse, get = function(key)
    return get_field[key] and get_field[key]()
  end}, Loop)
end

local function run_loop(self, node, given, depth)
  local items = library.items(given, "for")
  local targets = node[3]
  if node[5] then
    local kept = {}
    for _, item in ipairs(items) do
      self:push()
      self:bind(targets, item)
      if truth(self:value(node[5])) then kept[#kept + 1] = item end
      self:pop()
    end
    items = kept
  end
  local i = 0
  local loop = loop_of(items, function() return i end, function(inner)
    return self:captured(function() run_loop(self, node, inner, depth + 1) end)
  end, depth)
  for place, item in ipairs(items) do
    i = place
    self:count(1)
    self:push()
    self.scope.vars.loop = loop
    self:bind(targets, item)
    local left = self:run(node[6])
    self:pop()
    if left == "break" then break end
  end
  if #items == 0 and node[7] then return self:run(node[7]) end
end

statements["for"] = function(self, node)
  local list = self:value(node[4])
  if values.is_none(list) then fail(node[2], "for: none has no items") end
  run_loop(self, node, list, 1)
end

function statements.set(self, node)
  local value = self:value(node[4])
  self:bind(node[3], value)
end

function statements.capture(self, node)
  local text = self:captured(function()
    self:push()
    self:run(node[4])
    self:pop()
  end)
  if node[5] then
    self.captured_text = text
    text = self:value(node[5])
  end
  self:bind(node[3], text)
end

function statements.with(self, node)
  self:push()
  for _, set in ipairs(node[3]) do statements.set(self, set) end
  local left = self:run(node[4])
  self:pop()
  return left
end

function statements.filter_block(self, node)
  self.captured_text = self:captured(function() self:run(node[4]) end)
  self:write(text_of(self:value(node[3])))
end

-- A function that renders a body with its parameters bound.
local function make_macro(self, list, body, caller)
  local defined_in = self.scope
  local function macro(by_name, ...)
    local scope, given = self.scope, {...}
    self.scope = {vars = {}, parent = defined_in}
    for i, parameter in ipairs(list) do
      local value = given[i]
      if by_name[parameter[1]] ~= nil then value = by_name[parameter[1]] end
      if value == nil and i <= select("#", ...) then value = values.none end
      if value == nil and parameter[2] then value = self:value(parameter[2]) end
      self.scope.vars[parameter[1]] = or_undefined(value)
    end
    if by_name.caller or caller then self.scope.vars.caller = by_name.caller or caller end
    local text = self:captured(function() self:run(body) end)
    self.scope = scope
    return text
  end
  self.takes_names[macro] = true
  return macro
end

function statements.macro(self, node)
  self.scope.vars[node[3]] = make_macro(self, node[4], node[5])
end

function statements.call_block(self, node)
  local call = node[3]
  local callee = self:value(call[3])
  local list, n, by_name = nodes_of.arguments(self, call[4], call[5])
  by_name = by_name or {}
  by_name.caller = make_macro(self, node[4], node[5])
  if not self.takes_names[callee] then fail(node[2], "call: a macro is expected") end
  self:write(text_of(callee(by_name, table.unpack(list, 1, n))))
end

-- --- globals ---

local function globals(self, now)
  local all = {
    raise_exception = function(message) fail(self.line, "%s", text_of(message)) end,
    strftime_now = function(format) return os.date(format, now) end,
    range = function(first, last, step)
      if last == nil then first, last = 0, first end
      local out = {}
      step = step or 1
      if step == 0 or (last - first) / step > 1000000 then fail(self.line, "range: too long") end
      for i = first, last + (step > 0 and -1 or 1), step do out[#out + 1] = i end
      self:count(#out)
      return out
    end,
    namespace = function(by_name, first)
      local space = setmetatable({fields = by_name}, Namespace)
      if values.is_dict(first) then
        for _, key in ipairs(values.keys(first)) do space.fields[key] = values.field(first, key) end
      end
      return space
    end,
    dict = function(by_name)
      local keys, items = {}, {}
      for key in pairs(by_name) do keys[#keys + 1] = key end
      table.sort(keys)
      for i, key in ipairs(keys) do items[i] = by_name[key] end
      return values.dict(keys, items)
    end,
  }
  self.takes_names[all.namespace], self.takes_names[all.dict] = true, true
  return all
end

--- Renders a tree.
-- @param tree what the parser returned
-- @param variables a table
-- @param now the time that strftime_now shows, as os.time gives it; nil: the present
-- @return the text; raises {template = true, line =, message =}
return function(tree, variables, now)
  local self = setmetatable({out = {}, size = 0, steps = 0, depth = 0, line = 1,
                             takes_names = setmetatable({}, {__mode = "k"})}, State)
  self.scope = {vars = globals(self, now)}
  self:push()
  for name, value in pairs(variables) do self.scope.vars[name] = value end
  self:push()
  local ok, problem = pcall(self.run, self, tree)
  if ok then return table.concat(self.out) end
  if type(problem) ~= "table" or not problem.template then
    local said = tostring(problem):gsub("^[^\n]-:%d+: ", ""):gsub("\n.*", "")
    if said:find "interrupted!" or said:find "memory" then error(problem, 0) end
    problem = {template = true, line = self.line, message = said}
  end
  if problem.line == 0 then problem.line = self.line end
  error(problem, 0)
end
