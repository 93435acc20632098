--- Parses the expressions of a chat template by recursive descent, in Jinja's order of operators. A
-- node is {kind, line, ...}. The parser of statements (parser.lua) is made of it.
local lexer = require "flare.text.template.lexer"

local Parser = {}
Parser.__index = Parser

local DEEPEST = 100 -- nesting of expressions and blocks

function Parser:peek() return self.tokens[self.at] end

function Parser:line()
  local token = self:peek() or self.tokens[#self.tokens]
  return token and token[3] or self.block_line
end

function Parser:fail(format, ...) lexer.fail(self:line(), format, ...) end

function Parser:is(kind, value)
  local token = self:peek()
  return token and token[1] == kind and (value == nil or token[2] == value)
end

function Parser:accept(kind, value)
  if not self:is(kind, value) then return nil end
  self.at = self.at + 1
  return self.tokens[self.at - 1][2]
end

function Parser:expect(kind, value)
  local got = self:accept(kind, value)
  if got == nil then
    local token = self:peek()
    self:fail("expected %s, got %s", value and "'" .. value .. "'" or "a " .. kind,
      token and "'" .. tostring(token[2]) .. "'" or "the end of the block")
  end
  return got
end

function Parser:deeper()
  self.depth = self.depth + 1
  if self.depth > DEEPEST then self:fail("nested deeper than %d", DEEPEST) end
end

local constants = {["true"] = true, True = true, ["false"] = false, False = false}

function Parser:list(closer)
  local items = {}
  while not self:accept("operator", closer) do
    items[#items + 1] = self:expression()
    if not self:is("operator", closer) then self:expect("operator", ",") end
  end
  return items
end

function Parser:dict(line)
  local keys, values = {}, {}
  while not self:accept("operator", "}") do
    keys[#keys + 1] = self:expression()
    self:expect("operator", ":")
    values[#values + 1] = self:expression()
    if not self:is("operator", "}") then self:expect("operator", ",") end
  end
  return {"dict", line, keys, values}
end

-- Arguments up to the closing parenthesis: by position, by name.
function Parser:arguments()
  local list, named = {}, {}
  while not self:accept("operator", ")") do
    local name = self:is "name" and self.tokens[self.at + 1]
    if name and name[1] == "operator" and name[2] == "=" then
      local key = self:expect "name"
      self:expect("operator", "=")
      named[key] = self:expression()
    else
      list[#list + 1] = self:expression()
    end
    if not self:is("operator", ")") then self:expect("operator", ",") end
  end
  return list, named
end

function Parser:primary()
  local line = self:line()
  local token = self:peek()
  if not token then self:fail "an expression is expected" end
  self.at = self.at + 1
  local kind, value = token[1], token[2]
  if kind == "string" then
    while self:is "string" do value = value .. self:expect "string" end
    return {"value", line, value}
  elseif kind == "number" then
    return {"value", line, value}
  elseif kind == "name" then
    if constants[value] ~= nil then return {"value", line, constants[value]} end
    if value == "none" or value == "None" then return {"none", line} end
    return {"name", line, value}
  elseif value == "(" then
    if self:accept("operator", ")") then return {"list", line, {}} end
    local first = self:expression()
    if self:accept("operator", ")") then return first end
    self:expect("operator", ",")
    local items = self:list ")"
    table.insert(items, 1, first)
    return {"list", line, items}
  elseif value == "[" then
    return {"list", line, self:list "]"}
  elseif value == "{" then
    return self:dict(line)
  end
  self.at = self.at - 1
  self:fail("unexpected '%s'", tostring(value))
end

-- [index] or [first:last:step]
function Parser:subscript(object, line)
  local parts, n = {}, 1
  while not self:is("operator", "]") do
    if self:accept("operator", ":") then
      n = n + 1
    else
      parts[n] = self:expression()
    end
  end
  self:expect("operator", "]")
  if n > 1 then return {"slice", line, object, parts[1], parts[2], parts[3]} end
  if not parts[1] then self:fail "an index is expected" end
  return {"index", line, object, parts[1]}
end

function Parser:filter(input)
  local line, name = self:line(), self:expect "name"
  local list, named = {}, {}
  if self:accept("operator", "(") then list, named = self:arguments() end
  return {"filter", line, input, name, list, named}
end

function Parser:postfix()
  local object = self:primary()
  while true do
    local line = self:line()
    if self:accept("operator", ".") then
      local name = self:accept "name" or self:accept "number"
      if name == nil then self:fail "a name is expected after '.'" end
      object = {"attribute", line, object, name}
    elseif self:accept("operator", "[") then
      object = self:subscript(object, line)
    elseif self:accept("operator", "(") then
      local list, named = self:arguments()
      object = {"call", line, object, list, named}
    else
      return object
    end
  end
end

function Parser:filtered(object)
  while self:accept("operator", "|") do object = self:filter(object) end
  return object
end

function Parser:unary()
  local line = self:line()
  self:deeper()
  local node
  if self:accept("operator", "-") then
    node = {"negate", line, self:unary()}
  elseif self:accept("operator", "+") then
    node = self:unary()
  else
    node = self:postfix()
    if self:accept("operator", "**") then node = {"binary", line, "**", node, self:unary()} end
    node = self:filtered(node)
  end
  self.depth = self.depth - 1
  return node
end

local levels = {{"~"}, {"+", "-"}, {"*", "/", "//", "%"}}

function Parser:binary(level)
  if level > #levels then return self:unary() end
  local left = self:binary(level + 1)
  while true do
    local line, found = self:line(), nil
    for _, operator in ipairs(levels[level]) do
      found = found or self:accept("operator", operator)
    end
    if not found then return left end
    left = {"binary", line, found, left, self:binary(level + 1)}
  end
end

-- A test after `is`: its argument may stand without parentheses.
function Parser:test(input)
  local line, negated = self:line(), self:accept("name", "not") ~= nil
  local name, list = self:expect "name", {}
  if self:accept("operator", "(") then
    list = self:arguments()
  elseif (self:is "string" or self:is "number" or self:is "name")
    and not (self:is("name", "and") or self:is("name", "or") or self:is("name", "else")
      or self:is("name", "if") or self:is("name", "is") or self:is("name", "not")
      or self:is("name", "in") or self:is("name", "recursive")) then
    list = {self:postfix()}
  end
  local node = {"test", line, input, name, list}
  return negated and {"not", line, node} or node
end

function Parser:comparison()
  local left = self:binary(1)
  local operands, operators_ = {left}, {}
  while true do
    local line, found = self:line(), nil
    for _, operator in ipairs {"==", "!=", "<=", ">=", "<", ">"} do
      found = found or self:accept("operator", operator)
    end
    if not found and self:accept("name", "in") then found = "in" end
    local following = self.tokens[self.at + 1]
    if not found and self:is("name", "not") and following and following[2] == "in" then
      self.at = self.at + 2
      found = "not in"
    end
    if found then
      operands[#operands + 1], operators_[#operators_ + 1] = self:binary(1), found
    elseif self:accept("name", "is") then
      if #operators_ > 0 then
        local last = self:test(operands[#operands])
        operands[#operands] = last
      else
        operands[1] = self:test(operands[1])
      end
    else
      if #operators_ == 0 then return operands[1] end
      return {"compare", line, operands, operators_}
    end
  end
end

function Parser:negation()
  local line = self:line()
  if self:accept("name", "not") then
    self:deeper()
    local node = {"not", line, self:negation()}
    self.depth = self.depth - 1
    return node
  end
  return self:comparison()
end

function Parser:conjunction()
  local left = self:negation()
  while self:is("name", "and") do
    local line = self:line()
    self.at = self.at + 1
    left = {"and", line, left, self:negation()}
  end
  return left
end

function Parser:disjunction()
  local left = self:conjunction()
  while self:is("name", "or") do
    local line = self:line()
    self.at = self.at + 1
    left = {"or", line, left, self:conjunction()}
  end
  return left
end

function Parser:expression()
  self:deeper()
  local node = self:disjunction()
  while self:is("name", "if") and not self.plain do
    local line = self:line()
    self.at = self.at + 1
    local condition, other = self:disjunction(), nil
    if self:accept("name", "else") then other = self:expression() end
    node = {"choose", line, condition, node, other}
  end
  self.depth = self.depth - 1
  return node
end

-- An expression, or several with commas between them, as a list.
function Parser:tuple()
  local line, first = self:line(), self:expression()
  if not self:is("operator", ",") then return first end
  local items = {first}
  while self:accept("operator", ",") and self:peek() do items[#items + 1] = self:expression() end
  return {"list", line, items}
end

return Parser
