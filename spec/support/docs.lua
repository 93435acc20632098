--- Takes pages of the documentation apart and runs their blocks.
--
--   lua     runs in an environment of its own; a block `output` behind it is what it prints
--   flare   a session at the prompt: lines from "> " or "debug> " are typed, others are answers
--   c       compiles against the installed headers
--   sh      begins every line with a command that exists; short ones are run
--
-- In expected text `...` stands for anything in its line, alone for any lines.
local tree = require "spec.support.tree"

local M = {}

M.pages = tree.files("README.md docs", ".md")

--- Blocks of a page: {path, line, kind, text, output}; line is that of the first text line.
function M.blocks(path)
  local blocks, open, number = {}, nil, 0
  for line in (tree.read(path) .. "\n"):gmatch "([^\n]*)\n" do
    number = number + 1
    local kind = line:match "^```(%w*)$"
    if open and line == "```" then
      open.text = table.concat(open.lines, "\n")
      local before = blocks[#blocks]
      if open.kind == "output" and before then before.output = open.text
      else blocks[#blocks + 1] = open end
      open = nil
    elseif open then
      open.lines[#open.lines + 1] = line
    elseif kind then
      open = {path = path, line = number + 1, kind = kind, lines = {}}
    end
  end
  assert(not open, path .. ": a block is not closed")
  return blocks
end

local function pattern_of(line)
  return (line:gsub("%s+$", ""):gsub("[%^%$%(%)%%%.%[%]%*%+%-%?]", "%%%0")
    :gsub("%%%.%%%.%%%.", "[^\n]*"))
end

--- Whether a text is what a block expects.
function M.fits(actual, expected)
  local parts = {}
  for line in (expected .. "\n"):gmatch "([^\n]*)\n" do
    parts[#parts + 1] = line == "..." and ".-" or pattern_of(line)
  end
  actual = actual:gsub("[ \t]+\n", "\n"):gsub("%s+$", "")
  return actual:find("^" .. table.concat(parts, "\n"):gsub("%s+$", "") .. "$") ~= nil
end

local function expect(block, actual, expected)
  if not M.fits(actual, expected) then
    error(("%s:%d: expected\n%s\ngot\n%s"):format(block.path, block.line, expected, actual), 0)
  end
end

function M.lua(block)
  local out = {}
  local function emit(...)
    local parts = table.pack(...)
    for i = 1, parts.n do parts[i] = tostring(parts[i]) end
    out[#out + 1] = table.concat(parts, "\t")
  end
  local name = ("@%s:%d"):format(block.path, block.line)
  local chunk = assert(load(block.text, name, "t", setmetatable({print = emit}, {__index = _G})))
  chunk()
  if block.output then expect(block, table.concat(out, "\n"), block.output) end
end

local MARK = "\1"

function M.flare(block)
  local typed, expected = {}, {}
  for line in (block.text .. "\n"):gmatch "([^\n]*)\n" do
    local more, text = line:gsub("^debug> ", "> "):match "^>(>?) (.*)$"
    if more == "" then
      typed[#typed + 1], expected[#expected + 1] = text, {}
    elseif more then
      typed[#typed] = typed[#typed] .. "\n" .. text
    else
      table.insert(expected[#expected], line)
    end
  end
  local name = os.tmpname()
  local file = assert(io.open(name, "w"))
  for _, text in ipairs(typed) do
    file:write(text, "\ndo io.write '", MARK, "' io.flush() end\n")
  end
  file:close()
  local out = tree.output(("FLARE_HISTORY= timeout 60 '%s/flare' -i < '%s' 2>&1"):format(
    tree.build, name))
  os.remove(name)
  local k = 0
  for answer in out:gmatch("([^" .. MARK .. "]*)" .. MARK) do
    k = k + 1
    -- prompts are shown for a pipe, too
    answer = ("\n" .. answer):gsub("debug> ", "> "):gsub("\n[> ]*> ", "\n"):gsub("^\n", "")
    expect({path = block.path, line = block.line}, answer, table.concat(expected[k], "\n"))
  end
  assert(k == #typed, ("%s:%d: the prompt ended early\n%s"):format(block.path, block.line, out))
end

-- The rows of operators that a page adds, for the blocks that belong to them.
local function rows_of(path)
  local rows = {}
  for _, block in ipairs(M.blocks(path)) do
    if block.kind == "text" and block.text:find "^FL_" then rows[#rows + 1] = block.text end
  end
  return table.concat(rows, "\n") .. "\n"
end

-- A copy of the sources with a page's rows in it.
local function with_rows(path)
  local place = os.tmpname() .. ".d"
  tree.output(("mkdir '%s' && cp -r runtime kernels '%s'"):format(place, place))
  local file = assert(io.open(place .. "/runtime/ops/norm.def", "a"))
  file:write(rows_of(path))
  file:close()
  tree.name_slots(place)
  return place
end

function M.c(block)
  local lua = tree.output "pkg-config --cflags lua5.4 || pkg-config --cflags lua":gsub("%s+", " ")
  local folder = block.text:find '#include "env.h"' and "/runtime/rules/"
    or block.text:find '#include "cpu.h"' and "/kernels/cpu/"
  local place = folder and with_rows(block.path) or os.tmpname()
  local slots = folder and ("-I '%s/generated' "):format(place) or ""
  local name = place .. (folder or "") .. "block.c"
  local file = assert(io.open(name, "w"))
  file:write(block.text, "\n")
  file:close()
  local command = "%s -std=gnu11 -Wall -Wextra -fsyntax-only %s-I '%s/include' %s '%s' 2>&1"
  local out = tree.output(command
    :format(os.getenv "CC" or "cc", slots, tree.build, lua, name))
  tree.output(("rm -rf '%s' '%s' '%s'"):format(place, name, (place:gsub("%.d$", ""))))
  assert(out == "", ("%s:%d:\n%s"):format(block.path, block.line, out))
end

-- --- commands ---

local function run(block, command)
  local out = tree.output(("PATH='%s/%s':\"$PATH\" timeout 60 %s </dev/null 2>&1; echo status=$?")
    :format(tree.output "pwd":match "[^\n]+", tree.build, command))
  assert(out:find "status=0\n$", ("%s:%d: %s\n%s"):format(block.path, block.line, command, out))
end

local checks = {export = true, cmake = true, cc = true, git = true, cd = true, lua5 = true,
                sudo = true}
checks["apt-get"] = true

checks["./bootstrap"] = function(block, command)
  local word = command:match "^%S+ (%S+)"
  local found
  for known in tree.read "bootstrap":gmatch "#   %./bootstrap ([%a-]+)" do
    found = found or known == word
  end
  assert(found, ("%s:%d: there is no ./bootstrap %s"):format(block.path, block.line, word))
end

function checks.flare(block, command)
  local script = command:match "^flare (%a+/%S+)"
  assert(not script or tree.exists(script), ("%s:%d: %s is not there"):format(
    block.path, block.line, tostring(script)))
  if command:find "^flare %-e " or command:find "^flare help "
      or command:find "^flare examples/%d" then
    run(block, command)
  end
end

checks["build/flare"] = function(block, command) checks.flare(block, command:match "/(.*)") end
checks["lua5.4"] = true

function checks.env(block, command) -- a stock Lua has no sanitizer inside
  if not tree.instrumented() then run(block, (command:gsub("build/", tree.build .. "/"))) end
end

function M.sh(block)
  for line in (block.text .. "\n"):gmatch "([^\n]*)\n" do
    local command = line:gsub("%s+#.*$", "")
    if command ~= "" and not line:find "^#" then
      local check = checks[command:match "^%S+"]
      assert(check, ("%s:%d: not a known command: %s"):format(block.path, block.line, command))
      if check ~= true then check(block, command) end
    end
  end
end

-- --- text ---

--- Links of a page that lead nowhere in the repository.
function M.broken_links(path)
  local broken, folder = {}, path:match "^(.*/)" or ""
  local text = tree.read(path):gsub("\n```.-\n```", "\n")
  for target in text:gmatch "%]%(([^)%s]+)%)" do
    local file = target:gsub("#.*$", "")
    if not target:find "^%a+:" and file ~= "" then
      local there = tree.output(("ls -d '%s%s' 2>/dev/null"):format(folder, file))
      if there == "" then broken[#broken + 1] = path .. ": " .. target end
    end
  end
  return broken
end

return M
