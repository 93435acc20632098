--- What is typed at the prompt as functions: expressions whose values are printed, statements
-- whose top-level locals stay, and pasted text cut into both.
local M = {}

local load, ipairs = load, ipairs

-- --- top-level locals ---

local opening = {["function"] = true, ["do"] = true, ["if"] = true, ["repeat"] = true}
local closing = {["end"] = true, ["until"] = true}

-- The position after a string or comment that begins at `at`; nil if none does.
local function skip(text, at)
  local level = text:match("^%-%-%[(=*)%[", at) or text:match("^%[(=*)%[", at)
  if level then
    local _, stop = text:find("]" .. level .. "]", at, true)
    return (stop or #text) + 1
  end
  if text:find("^%-%-", at) then return (text:find("\n", at, true) or #text + 1) end
  local quote = text:match("^[\"']", at)
  if not quote then return nil end
  local i = at + 1
  while i <= #text and text:sub(i, i) ~= quote do
    i = i + (text:sub(i, i) == "\\" and 2 or 1)
  end
  return i + 1
end

-- The text without <close> at its top level, and the names of the top-level locals that are
-- <const> and <close>. A block would close its values at the end of the line.
local function read_locals(text)
  local constants, closed, depth, at = {}, {}, 0, 1
  while at <= #text do
    local after = skip(text, at)
    local word = not after and text:match("^[%a_][%w_]*", at)
    if after then
      at = after
    elseif not word then
      at = at + 1
    else
      at = at + #word
      if opening[word] then depth = depth + 1 elseif closing[word] then depth = depth - 1 end
      if word == "local" and depth == 0 then
        local from, list, stop = text:match("^%s+()([%a_][%w_]*%s*<[^=\n]*)()", at)
        if not from then -- an attribute may come behind the second name
          from, list, stop = text:match("^%s+()([%a_][%w_,%s]*<[^=\n]*)()", at)
        end
        if from then
          local attribute = "([%a_][%w_]*)(%s*)(<%s*(%a+)%s*>)"
          local plain = list:gsub(attribute, function(name, gap, mark, kind)
            if kind == "const" then constants[#constants + 1] = name end
            if kind ~= "close" then return nil end
            closed[#closed + 1] = name
            return name .. gap .. (" "):rep(#mark)
          end)
          text = text:sub(1, from - 1) .. plain .. text:sub(stop)
          at = stop
        end
      end
    end
  end
  return text, constants, closed
end

-- The last statement of a chunk: its locals become names of the environment. Constants have no
-- place on the stack and are passed.
local function keep_call(constants, closed)
  local parts = {("%q"):format(table.concat(closed, " "))}
  for _, name in ipairs(constants) do parts[#parts + 1] = ("{%q, %s}"):format(name, name) end
  return ("__keep(%s)"):format(table.concat(parts, ", "))
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

-- Statements that end with an expression: "x = 3; x".
local function split(text, keep, env)
  for at = #text, 1, -1 do
    if text:find("^[;\n]", at) and text:find("%S", at + 1) then
      local head, tail = text:sub(1, at - 1), text:sub(at + 1)
      local body = tail:gsub(";%s*$", "")
      local run = load("return " .. body) and load(head)
                  and load(head .. text:sub(at, at) .. " " .. keep .. " " .. wrapped(body),
                           "=prompt", "t", env)
      if run then return run, body ~= tail end
    end
  end
end

--- text -> {run = function, quiet =, closed = names}, or nil and the problem; quiet: no results
-- are printed.
function M.compile(text, env)
  local asked = text:match "^%s*=%s*([^=%s].*)$" -- as in Lua 5.1: = x
  if asked then text = asked end
  local body = text:gsub(";%s*$", ""):gsub(";%s*%-%-[^\n]*$", "")
  local expression, open = load("return " .. body, "=prompt", "t", env)
  if expression then
    local run = load(wrapped(body), "=prompt", "t", env)
    if run then return {run = run, quiet = body ~= text, closed = {}} end
  end
  local plain, constants, closed = read_locals(text)
  local keep = keep_call(constants, closed)
  local run, problem = load(plain .. "\n;" .. keep, "=prompt", "t", env)
  if run then return {run = run, quiet = true, closed = closed} end
  run = load(text, "=prompt", "t", env) -- it ends with return
  if run then return {run = run, quiet = false, closed = {}} end
  local last, quiet = split(plain, keep, env)
  if last then return {run = last, quiet = quiet, closed = closed} end
  local _, direct = load(text, "=prompt", "t", env)
  return nil, is_unfinished(open) and open or direct or problem
end

-- --- several lines ---

--- Whether a line goes on with the expression of the line before: a method, a field, an operator.
function M.continues(line)
  return line:find "^%s*:%s*[%a_][%w_]*%s*[%({\"'%[]" or line:find "^%s*%.[%a_]"
         or line:find "^%s*%.%." or line:find "^%s*[%+%*/%%%^&|<>]" or line:find "^%s*%-[^%-]"
         or line:find "^%s*[~=]=" or line:find "^%s*and%f[^%w_]" or line:find "^%s*or%f[^%w_]"
end

--- Whether `more` goes on with the text before it, which is whole by itself.
function M.goes_on(text, more, env)
  if not M.continues(more) then return false end
  local chunk, problem = M.compile(text .. "\n" .. more, env)
  return chunk ~= nil or is_unfinished(problem)
end

--- Pasted text as a list of texts that are run one after another.
-- @param alone whether a line is a command of the prompt
function M.units(text, env, alone)
  local lines, units, at = {}, {}, 1
  for line in (text .. "\n"):gmatch "([^\n]*)\n" do
    lines[#lines + 1] = line:gsub("^f?>>? ", "")
  end
  while lines[at] do
    local unit = lines[at]
    at = at + 1
    if not alone(unit) then
      while lines[at] do
        local chunk, problem = M.compile(unit, env)
        if chunk and not M.goes_on(unit, lines[at], env) then break end
        if not chunk and not is_unfinished(problem) then break end
        if chunk and alone(lines[at]) then break end
        unit, at = unit .. "\n" .. lines[at], at + 1
      end
    end
    if unit:find "%S" then units[#units + 1] = unit end
  end
  return units
end

return M
