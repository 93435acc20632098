--- What is typed at the prompt as functions: expressions whose values are printed, statements
-- whose top-level locals stay, and pasted text cut into both.
local lex = require "flare.repl.lex"

local M = {}

local load, ipairs, math, select = load, ipairs, math, select

-- --- top-level locals ---

local opening = {["function"] = true, ["do"] = true, ["if"] = true, ["repeat"] = true}
local closing = {["end"] = true, ["until"] = true}

-- What stands at the top level of a text: its locals as {name, kind} with kind "const", "close" or
-- "plain", the text without <close>, and the position of a last `return`. A block would close its
-- values at the end of the line.
local function read_locals(text)
  local tokens, found, depth, returns = lex.tokens(text), {}, 0, nil
  local words, plain = {}, text
  for i, token in ipairs(tokens) do words[i] = text:sub(token.from, token.to) end
  local function attribute(i)
    if words[i] == "<" and words[i + 2] == ">" then return words[i + 1] end
  end
  for i, word in ipairs(words) do
    local kind = tokens[i].kind
    if kind == "keyword" then
      if opening[word] then depth = depth + 1 elseif closing[word] then depth = depth - 1 end
      if depth == 0 and word == "return" then returns = tokens[i].from end
    end
    if kind == "keyword" and word == "local" and depth == 0 then
      if words[i + 1] == "function" then
        found[#found + 1] = {name = words[i + 2], kind = "plain"}
      else
        local j = i + 1
        while tokens[j] and tokens[j].kind == "name" do
          local mark = attribute(j + 1)
          found[#found + 1] = {name = words[j], kind = mark or "plain"}
          if mark == "close" then
            found[#found].line = 1 + select(2, text:sub(1, tokens[j].from):gsub("\n", ""))
            local from, to = tokens[j + 1].from, tokens[j + 3].to
            plain = plain:sub(1, from - 1) .. plain:sub(from, to):gsub("[^\n]", " ")
                    .. plain:sub(to + 1)
          end
          j = j + (mark and 4 or 1)
          if words[j] ~= "," then break end
          j = j + 1
        end
      end
    end
  end
  return plain, found, returns
end

-- The last statement of a chunk: its locals become names of the environment, by functions that
-- share the variables with the closures of the chunk.
local function keep_call(found)
  local parts, last = {}, {}
  for i, one in ipairs(found) do last[one.name] = i end
  for i, one in ipairs(found) do
    local access = "function(__s, __v) if __s then %s = __v end return %s end"
    if last[one.name] == i and (one.name ~= "_" or one.kind == "close") then
      local value = one.kind == "plain" and access:format(one.name, one.name) or one.name
      parts[#parts + 1] = ("{%q, %q, %s, %s}"):format(one.name, one.kind, value, one.line)
    end
  end
  return ("__keep({%s})"):format(table.concat(parts, ", "))
end

-- --- compiling ---

local function is_unfinished(problem)
  return problem:find("<eof>['\"]?$") ~= nil
end
M.is_unfinished = is_unfinished

local function wrapped(expression)
  -- a call around it keeps its line on the stack, for errors
  return "return __all(" .. expression .. (expression:find("--", 1, true) and "\n)" or ")")
end

-- Statements that end with an expression: "x = 3; x". One that begins with a bracket, a string or
-- a sign would belong to the statement before it, if that can go on.
local longest = 10000 -- bytes of such an expression; each of them costs a look

local function split(text, keep, env, first)
  for at = #text, math.max(1, #text - longest), -1 do
    if text:find("^[;\n]", at) and text:find("^%s*" .. first, at + 1) then
      local head, tail = text:sub(1, at - 1), text:sub(at + 1)
      local body = tail:gsub(";%s*$", "")
      local run = load("return " .. body) and load(head)
                  and load(head .. text:sub(at, at) .. " " .. keep .. " " .. wrapped(body),
                           "=prompt", "t", env)
      if run then return run, body ~= tail end
    end
  end
end

-- Statements that end with `return`: the locals are kept before it.
local function returning(text, at, keep, env)
  local head, tail = text:sub(1, at - 1), text:sub(at + #"return")
  local body = tail:gsub(";%s*$", "")
  return load(head .. keep .. " " .. wrapped(body), "=prompt", "t", env)
         or load(head .. keep .. " return " .. tail, "=prompt", "t", env)
end

--- text -> {run = function, quiet =, locals = {{name =, kind =}}}, or nil and the problem; quiet:
-- no results are printed.
function M.compile(text, env)
  local asked = text:match "^%s*=%s*([^=%s].*)$" -- as in Lua 5.1: = x
  if asked then text = asked end
  local body = text:gsub(";%s*$", ""):gsub(";%s*%-%-[^\n]*$", "")
  local expression, open = load("return " .. body, "=prompt", "t", env)
  if expression then
    local run = load(wrapped(body), "=prompt", "t", env)
    if run then return {run = run, quiet = body ~= text, locals = {}} end
  end
  local plain, found, returns = read_locals(text)
  if plain ~= text then -- without <close> the variable would not be constant
    local _, direct = load(text, "=prompt", "t", env)
    if direct and direct:find("const variable", 1, true) then return nil, direct end
  end
  local keep = keep_call(found)
  local last, quiet = split(plain, keep, env, "[%a_]")
  if last then return {run = last, quiet = quiet, locals = found} end
  local run, problem = load(plain .. "\n;" .. keep, "=prompt", "t", env)
  if run then return {run = run, quiet = true, locals = found} end
  last, quiet = split(plain, keep, env, "%S")
  if last then return {run = last, quiet = quiet, locals = found} end
  run = returns and returning(plain, returns, keep, env) or load(text, "=prompt", "t", env)
  if run then return {run = run, quiet = false, locals = found} end
  local _, direct = load(text, "=prompt", "t", env)
  return nil, is_unfinished(open) and open or direct or problem
end

-- --- several lines ---

--- Whether a text is `end` alone, which ends the block that the lines of the prompt are.
function M.is_end(text)
  return text:find "^%s*end%s*;?%s*$" or text:find "^%s*end%s*%-%-[^\n]*$"
end

--- Whether a line goes on with the expression of the line before: a method, a field, an operator.
function M.continues(line)
  return line:find "^%s*:%s*[%a_][%w_]*%s*[%({\"'%[]" or line:find "^%s*%.[%a_]"
         or line:find "^%s*%.%." or line:find "^%s*[%+%*/%%%^&|<>]" or line:find "^%s*%-[^%-]"
         or line:find "^%s*[~=]=" or line:find "^%s*and%f[^%w_]" or line:find "^%s*or%f[^%w_]"
end

-- Whether a text of the lines so far is "whole", "open" or "wrong". Long ones are only parsed,
-- since one line after another is added to them.
local function state_of(text, env)
  if #text > 2000 then
    local f, expression = load("return " .. text, "=prompt", "t", env)
    if f then return "whole" end
    local g, statements = load(text, "=prompt", "t", env)
    if g then return "whole" end
    return (is_unfinished(expression) or is_unfinished(statements)) and "open" or "wrong"
  end
  local chunk, problem = M.compile(text, env)
  return chunk and "whole" or is_unfinished(problem) and "open" or "wrong"
end

--- Whether `more` goes on with the text before it, which is whole by itself.
function M.goes_on(text, more, env)
  if not M.continues(more) then return false end
  local chunk, problem = M.compile(text .. "\n" .. more, env)
  return chunk ~= nil or is_unfinished(problem)
end

--- Text of several lines as a list of texts that are run one after another: the whole of it where
-- it is a chunk of Lua, so that it means what it means in a file; else its statements, and the
-- expressions and commands of the prompt between them.
-- @param alone whether a line is a command of the prompt
function M.units(text, env, alone)
  local whole = not alone(text:match "^[^\n]*") and M.compile(text, env)
  if whole then return {text} end
  local lines, units, at = {}, {}, 1
  for line in (text .. "\n"):gmatch "([^\n]*)\n" do lines[#lines + 1] = line end
  while lines[at] do
    local unit = lines[at]
    at = at + 1
    if not alone(unit) then
      while lines[at] do
        local state = state_of(unit, env)
        if state == "wrong" then break end
        if state == "whole" and (alone(lines[at]) or not M.goes_on(unit, lines[at], env)) then
          break
        end
        unit, at = unit .. "\n" .. lines[at], at + 1
      end
    end
    if unit:find "%S" then units[#units + 1] = unit end
  end
  return units
end

--- Whether a text ends where a statement, an expression or a command does: Enter runs it.
function M.is_whole(text, env, alone)
  if not text:find "%S" or not text:find "\n" and alone(text) then return true end
  local chunk, problem = M.compile(text, env)
  if chunk then return true end
  if not text:find "\n" then return not is_unfinished(problem) end
  local units = M.units(text, env, alone)
  local last = units[#units]
  if alone(last) and not last:find "\n" then return true end
  chunk, problem = M.compile(last, env)
  return chunk ~= nil or not is_unfinished(problem)
end

return M
