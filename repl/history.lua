--- What was typed, over sessions: a file for each project, a chunk a line (newlines written as \n).
-- Each line is appended by itself, so several prompts may write at once.
local terminal = require "flare.repl.terminal"

local M = {most = 2000}

local function folder()
  local state = os.getenv "XDG_STATE_HOME"
  local home = os.getenv "HOME"
  if state and state ~= "" then return state .. "/flare" end
  return home and home ~= "" and home .. "/.local/state/flare" or nil
end

local marks = {".git", ".hg", ".svn", ".flare"}

--- The folder of the project that the program runs in: the nearest one above that a version control
-- keeps, or that has a file or folder `.flare`; nil outside of projects.
function M.root()
  local file = require("flare.core").file
  local path = file.real "."
  local home = os.getenv "HOME"
  while path and path ~= "/" and path ~= "" and path ~= home do
    for _, mark in ipairs(marks) do
      if file.exists(path .. "/" .. mark) then return path end
    end
    path = path:match "^(.*)/[^/]*$"
  end
end

-- The name of a project's file: its path, which may be longer than a name can be.
local function name_of(root)
  local name = root:gsub("[/%%]", {["/"] = "%", ["%"] = "%%"})
  if #name <= 200 then return name end
  local sum = 0
  for i = 1, #name do sum = (sum * 31 + name:byte(i)) % 0xffffffff end
  return ("%08x%s"):format(sum, name:sub(-190))
end

local function path()
  local set = os.getenv "FLARE_HISTORY"
  if set then return set ~= "" and set or nil end
  local dir = folder()
  if not dir then return nil end
  local root = M.root()
  return root and dir .. "/projects/" .. name_of(root) or dir .. "/history"
end

local function folder_of(name) return name:match "^(.*)/[^/]*$" or "." end

local function pack(text)
  return (text:gsub("\\", "\\\\"):gsub("\n", "\\n"))
end

local function unpack(text)
  return (text:gsub("\\(.)", function(c) return c == "n" and "\n" or c end))
end

-- The lines of a file, each one where it was written last; how many there were.
local function read(name)
  local file <close> = io.open(name)
  local all, last, lines = {}, {}, {}
  if not file then return lines, 0 end
  for text in file:lines() do
    all[#all + 1] = text
    last[text] = #all
  end
  for i, text in ipairs(all) do
    if last[text] == i and text ~= "" then lines[#lines + 1] = text end
  end
  return table.move(lines, math.max(1, #lines - M.most + 1), #lines, 1, {}), #all
end

--- The chunks of earlier sessions, oldest first.
function M.load()
  local name, chunks = path(), {}
  if not name then return chunks end
  local lines, count = read(name)
  for i, text in ipairs(lines) do chunks[i] = unpack(text) end
  M.last = lines[#lines]
  if count > 3 * M.most then -- a file that has grown keeps what is still of use
    terminal.locked(folder_of(name), function()
      require("flare.core").file.write_atomic(name, table.concat(read(name), "\n") .. "\n")
    end)
  end
  return chunks
end

--- Adds a chunk; where there is no place to write, history just ends with the session.
function M.append(text)
  local packed, name = pack(text), path()
  if not name or packed == M.last then return end
  local file = io.open(name, "a")
  if not file then
    require("flare.core").file.mkdir(folder_of(name))
    file = io.open(name, "a")
  end
  if not file then return end
  file:setvbuf("full", #packed + 2) -- written at once
  terminal.locked(folder_of(name), function()
    file:write(packed, "\n")
    file:close()
  end)
  M.last = packed
end

return M
