--- Parses a chat template into a tree of statements, {kind, line, ...}.
local lexer = require "flare.text.template.lexer"
local Parser = require "flare.text.template.expression_parser"

-- What is assigned to: a name, an attribute of one, or names.
function Parser:targets()
  local names = {}
  repeat
    self:accept("operator", "(")
    names[#names + 1] = self:expect "name"
    if self:accept("operator", ".") then names[#names] = {names[#names], self:expect "name"} end
    self:accept("operator", ")")
  until not self:accept("operator", ",")
  return names
end

local statements = {}

statements["if"] = function(self, line)
  local branches, other = {}, nil
  local condition = self:tuple()
  while true do
    local body, ended = self:body {"elif", "else", "endif"}
    branches[#branches + 1] = {condition, body}
    if ended == "elif" then
      condition = self:tuple()
    elseif ended == "else" then
      other = self:body {"endif"}
      break
    else
      break
    end
  end
  return {"if", line, branches, other}
end

statements["for"] = function(self, line)
  local names = self:targets()
  self:expect("name", "in")
  self.plain = true
  local list, condition = self:tuple(), nil
  self.plain = false
  if self:accept("name", "if") then condition = self:tuple() end
  local recursive = self:accept("name", "recursive") ~= nil
  local body, ended = self:body {"else", "endfor"}
  local other = ended == "else" and self:body {"endfor"} or nil
  return {"for", line, names, list, condition, body, other, recursive}
end

function statements.set(self, line)
  local names = self:targets()
  if self:accept("operator", "=") then return {"set", line, names, self:tuple()} end
  local wrap = self:is("operator", "|") and self:filtered {"captured", line} or nil
  return {"capture", line, names, (self:body {"endset"}), wrap}
end

-- Parameters of a macro: {name, default}.
function Parser:parameters()
  local list = {}
  self:expect("operator", "(")
  while not self:accept("operator", ")") do
    local name, default = self:expect "name", nil
    if self:accept("operator", "=") then default = self:expression() end
    list[#list + 1] = {name, default}
    if not self:is("operator", ")") then self:expect("operator", ",") end
  end
  return list
end

function statements.macro(self, line)
  local name = self:expect "name"
  return {"macro", line, name, self:parameters(), (self:body {"endmacro"})}
end

function statements.call(self, line)
  local parameters = self:is("operator", "(") and self:parameters() or {}
  local call = self:postfix()
  return {"call_block", line, call, parameters, (self:body {"endcall"})}
end

function statements.filter(self, line)
  local node = self:filter {"captured", line}
  return {"filter_block", line, self:filtered(node), (self:body {"endfilter"})}
end

-- Parts of transformers' templates that render as what is inside.
function statements.generation(self, line)
  return {"group", line, (self:body {"endgeneration"})}
end

function statements.with(self, line)
  local sets = {}
  while self:peek() do
    local names = self:targets()
    self:expect("operator", "=")
    sets[#sets + 1] = {"set", line, names, self:expression()}
    self:accept("operator", ",")
  end
  return {"with", line, sets, (self:body {"endwith"})}
end

statements["break"] = function(_, line) return {"break", line} end
statements["continue"] = function(_, line) return {"continue", line} end
statements["do"] = function(self, line) return {"do", line, self:tuple()} end

-- Statements up to a block with one of these names: the list, and the name.
function Parser:body(endings)
  local opened, nodes = self.block_line, {}
  if endings then -- what opened the body ends here
    if self:peek() then self:fail("unexpected '%s'", tostring(self:peek()[2])) end
    self:deeper()
  end
  while true do
    local part = self.parts[self.part]
    if not part then
      if endings then lexer.fail(opened, "'%s' is missing", endings[#endings]) end
      return nodes
    end
    self.part = self.part + 1
    if part[1] == "text" then
      nodes[#nodes + 1] = part
    else
      self.tokens, self.at, self.block_line = part[2], 1, part[3]
      if part[1] == "print" then
        nodes[#nodes + 1] = {"print", part[3], self:tuple()}
      else
        local name = self:expect "name"
        for _, ending in ipairs(endings or {}) do
          if name == ending then
            self.depth = self.depth - 1
            return nodes, name
          end
        end
        if not statements[name] then
          lexer.fail(part[3], name:find "^end" and "'%s' ends nothing" or "unknown block '%s'",
            name)
        end
        nodes[#nodes + 1] = statements[name](self, part[3])
      end
      if self:peek() then self:fail("unexpected '%s'", tostring(self:peek()[2])) end
    end
  end
end

--- The tree of a template; raises {template = true, line =, message =}.
return function(source)
  local self = setmetatable({parts = lexer.split(source), part = 1, tokens = {}, at = 1,
                             depth = 0, block_line = 1}, Parser)
  return (self:body())
end
