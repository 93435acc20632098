--- Lines that are no Lua: what Python's and JavaScript's words are in Lua. The message of a syntax
-- error names a token; these hints come from the line that it stands in.
local core = require "flare.core"

local M = {}

-- Patterns of lines, and what to write. The first that matches counts.
local habits = {
  {"^%s*def%s", "a function is: function name(x) ... end"},
  {"^%s*class%s", 'a class is: local Net = flare.class("Net", nn.Module)'},
  {"^%s*elif%s", "it is elseif condition then"},
  {"^%s*except%f[^%w_]", "errors are caught by: local ok, message = pcall(f)"},
  {"^%s*try%s*[:{]", "errors are caught by: local ok, message = pcall(f)"},
  {"^%s*catch%f[^%w_]", "errors are caught by: local ok, message = pcall(f)"},
  {"^%s*raise%s", 'an error is raised by error("message")'},
  {"^%s*throw%s", 'an error is raised by error("message")'},
  {"^%s*import%s", 'a module is read by: local flare = require "flare"'},
  {"^%s*from%s.*import%s", 'a module is read by: local flare = require "flare"'},
  {"^%s*with%s", "Lua has no with: local _ <close> = flare.no_grad(), or flare.no_grad(f)"},
  {"^%s*let%s", "a variable is: local x = 1"},
  {"^%s*var%s", "a variable is: local x = 1"},
  {"^%s*const%s", "a variable is: local x <const> = 1"},
  {"^%s*int%s", "a variable is: local x = 1"},
  {"^%s*float%s", "a variable is: local x = 1"},
  {"^%s*assert%s+[^%s(\"']", "assert is a function: assert(condition, \"message\")"},
  {"^%s*print%s+[^%s(\"'%[{]", "print is a function: print(x)"},
  {"^%s*del%s", "a variable is given up by: x = nil"},
  {"^%s*pass%s*$", "an empty block needs no word"},
  {"^%s*continue%s*;?%s*$", "a loop goes on by: goto continue, with ::continue:: before its end"},
  {"^%s*global%s", "a name without local is global"},
  {"^%s*nonlocal%s", "a function may assign the locals around it"},
  {"^%s*yield%s", "it is coroutine.yield(x), in a coroutine.wrap(f)"},
  {"^%s*async%s", "Lua has coroutines: coroutine.wrap(f)"},
  {"^%s*await%s", "Lua has coroutines: coroutine.wrap(f)"},
  {"^%s*switch%f[^%w_]", "Lua has if ... elseif ... else ... end"},
  {"^%s*match%s.*:%s*$", "Lua has if ... elseif ... else ... end"},
  {"^%s*@%a", "a decorator is a call: f = flare.compile(f)"},
  {"^%s*for%s*%(", "Lua counts by: for i = 1, n do ... end"},
  {"%f[%w_]lambda%f[^%w_]", "a function is: function(x) return x end"},
  {"%)%s*=>", "a function is: function(x) return x end"},
  {"[%w_]%s*=>", "a function is: function(x) return x end"},
  {"%f[%w_]is%s+not%s", "Lua compares by == and ~="},
  {"%f[%w_]is%s+[%w_]", "Lua compares by == and ~="},
  {"%f[%w_]not%s+in%s", "a key is in a table if t[key] ~= nil"},
  {"^%s*if%s.*%sin%s", "a key is in a table if t[key] ~= nil"},
  {"=%s*%[.*%sfor%s.*%sin%s", "a list is filled in a loop: for i = 1, n do list[i] = i * i end"},
  {"=.*%sif%s.*%selse%s", "Lua chooses by: condition and x or y"},
  {"^%s*return%s.*%sif%s.*%selse%s", "Lua chooses by: condition and x or y"},
  {"^%s*[%w_.]+%s*=[^=~<>{(]*[%w_)]%s*=[^=]", "each assignment is a statement: x = 1; y = 1"},
  {"[{,]%s*[%w_\"']+%s*:%s*[%d\"'{%[]", "a table is {name = value, [key] = value}"},
  {"^%s*[\"'][\"']%s*:%s", "a table is {name = value, [key] = value}"},
  {"/%*", "a comment is -- to the end of the line, or --[[ ... ]]"},
  {"\\%s*$", "a statement goes on on the next line by itself"},
  {"[%w_]%s*:%s*[%w_.]+%s*=[^=]", "variables have no types in Lua: local x = 1"},
  {"%)%s*%->", "functions have no types in Lua: function name(x) ... end"},
  {"%f[%w_]f[\"'][\"']", 'for f"{x}" write ("%g"):format(x)'},
}

-- Lines that open a block of Python; the error is seen in the line behind it.
local blocks = {
  {"^%s*while%s.*:%s*$", "a block is: while condition do ... end"},
  {"^%s*for%s.*:%s*$", "a block is: for i = 1, n do ... end"},
  {"^%s*if%s.*:%s*$", "a block is: if condition then ... end"},
  {"^%s*else%s*:%s*$", "a block is: if condition then ... else ... end"},
}

-- The line without comments and what is in strings.
local function bare(line)
  return (line:gsub("%-%-.*$", ""):gsub('"[^"]*"', '""'):gsub("'[^']*'", "''"))
end

-- The lines of a text or, without one, of a file.
local function lines_of(text, path)
  if not text then
    local stat = path and core.file.stat(path)
    text = stat and stat.kind == "file" and core.file.read(path) -- a pipe is read once
  end
  local lines = {}
  for line in ((text or "") .. "\n"):gmatch "([^\n]*)\n" do lines[#lines + 1] = bare(line) end
  return lines
end

local function find(line, list)
  for _, habit in ipairs(list) do
    if line and line:find(habit[1]) then return habit[2] end
  end
end

-- What is known of the lines that a message names, and of the one before.
local function known(problem, text, path)
  local number = problem:match "^[^\n]-:(%d+): [^\n]* near [^\n]*$"
  if not number then return nil end
  local lines = lines_of(text, path)
  number = math.tointeger(tonumber(number))
  local opened = math.tointeger(tonumber(problem:match "%(to close '.-' at line (%d+)%)"))
  for at = problem:find("'end' expected", 1, true) and opened or number, number do
    if lines[at] and lines[at]:find "%f[%w_]else%s+if%f[^%w_].-%f[%w_]then%f[^%w_]" then
      return "elseif is one word; else if needs one more end"
    end
  end
  local before = number - 1
  while lines[before] and not lines[before]:find "%S" do before = before - 1 end
  return find(lines[number], habits) or opened and find(lines[opened], habits)
         or find(lines[before], blocks) or find(lines[before], habits)
end

--- The message of a failed load, with a hint if one is known.
-- @param problem what load said
-- @param text what it read; nil: the file at path
function M.hint(problem, text, path)
  local hint = known(problem, text, path)
  return hint and ("%s (%s)"):format(problem, hint) or core.hint(problem)
end

return M
