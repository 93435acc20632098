--- What was typed, over sessions: one file, a chunk a line (newlines written as \n). Another
-- session's lines stay, since each one is appended by itself.
local M = {most = 2000}

local function folder()
  local state = os.getenv "XDG_STATE_HOME"
  local home = os.getenv "HOME"
  if state and state ~= "" then return state .. "/flare" end
  return home and home ~= "" and home .. "/.local/state/flare" or nil
end

local function path()
  local set = os.getenv "FLARE_HISTORY"
  if set then return set ~= "" and set or nil end
  local dir = folder()
  return dir and dir .. "/history"
end

local function pack(text)
  return (text:gsub("\\", "\\\\"):gsub("\n", "\\n"))
end

local function unpack(text)
  return (text:gsub("\\(.)", function(c) return c == "n" and "\n" or c end))
end

--- Calls remember(chunk) for the last chunks of earlier sessions, oldest first.
function M.load(remember)
  local name = path()
  local file = name and io.open(name)
  if not file then return end
  local chunks = {}
  for text in file:lines() do
    if chunks[#chunks] ~= text then chunks[#chunks + 1] = text end
  end
  file:close()
  for i = math.max(1, #chunks - M.most + 1), #chunks do remember(unpack(chunks[i])) end
  M.last = chunks[#chunks]
end

--- Adds a chunk; where there is no place to write, history just ends with the session.
function M.append(text)
  local packed, name = pack(text), path()
  if not name or packed == M.last then return end
  local file = io.open(name, "a")
  if not file then
    local dir = folder()
    if dir then require("flare.core").file.mkdir(dir) end
    file = io.open(name, "a")
  end
  if not file then return end
  file:write(packed, "\n")
  file:close()
  M.last = packed
end

return M
