--- Chat templates: a conversation as the text that a model was trained on.
local fail = require "flare.fail"
local options = require "flare.options"

local M = {}

--- Compiles a template.
-- @param source the template's text
-- @return a function of a table of variables that returns the text, or nil and a message with the
-- template's line; nil and a message if the template is wrong
function M.template(source)
  if type(source) ~= "string" then
    fail("text.template: a template is expected, got %s", options.kind(source))
  end
  local function explain(problem)
    if type(problem) ~= "table" or not problem.template then error(problem, 0) end
    return ("the template, line %d: %s"):format(problem.line, problem.message)
  end
  local ok, tree = pcall(require "flare.text.template.parser", source)
  if not ok then return nil, explain(tree) end
  return function(variables, now)
    local text
    ok, text = pcall(require "flare.text.template.eval", tree, variables, now)
    if ok then return text end
    return nil, explain(text)
  end
end

-- A list, or the JSON of one, whose keys keep their order.
local function read_list(what, given)
  if type(given) == "string" then
    local ok, value = pcall(require "flare.text.template.ordered", given)
    if not ok then fail("chat: %s: not JSON: %s", what, tostring(value)) end
    given = value
  end
  if type(given) ~= "table" then
    fail("chat: %s: a list or its JSON is expected, got %s", what, options.kind(given))
  end
  for i, item in ipairs(given) do
    if type(item) == "string" then given[i] = read_list(what, item) end
  end
  return given
end

-- The template to use: text, the name of one, or that of the tokenizer.
local function choose(self, o)
  local templates = self.description.templates or {}
  if o.template then return templates[o.template] or o.template end
  return o.tools and templates.tool_use or templates.default
end

--- What Tokenizer:chat does.
function M.render(self, messages, o)
  o = options.check("chat", o, {tools = options.none, documents = options.none,
    generation_prompt = false, template = options.none, variables = options.none, ids = false,
    now = options.none})
  messages = read_list("messages", messages)
  local source = choose(self, o)
  if not source then return nil, "chat: the tokenizer has no chat template: give one" end
  self.compiled = self.compiled or {}
  local render, message = self.compiled[source]
  if not render then
    render, message = M.template(source)
    if not render then return nil, message end
    self.compiled[source] = render
  end
  local variables = {messages = messages, add_generation_prompt = o.generation_prompt,
    tools = o.tools and read_list("tools", o.tools),
    documents = o.documents and read_list("documents", o.documents)}
  local none = require "flare.text.template.values".none
  variables.tools, variables.documents = variables.tools or none, variables.documents or none
  for use, token in pairs(self.description.names or {}) do variables[use .. "_token"] = token end
  for name, value in pairs(o.variables or {}) do variables[name] = value end
  local text
  text, message = render(variables, o.now)
  if not text then return nil, message end
  return o.ids and self:encode(text, {special = false}) or text
end

return M
