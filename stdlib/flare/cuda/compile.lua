--- Compiles a kernel from CUDA source; the compiler's messages refer to lines of the script.
local core = require "flare.core"
local fail = require "flare.fail"

-- The position of `source`: the chunk that calls the library, and the line at which the text
-- begins.
local function place(source)
  local level, info = 2
  repeat
    level = level + 1
    info = debug.getinfo(level, "Sl")
  until not info or info.what ~= "C" and not info.source:find "flare>?/cuda/%w+%.lua$"
        and not info.source:find "flare>?/op%.lua$"
  if not info then return {file = "?"} end
  local text = info.source
  if text:sub(1, 1) == "@" then
    local file = io.open(text:sub(2), "rb")
    text = file and file:read "a" or ""
    if file then file:close() end
  end
  local at = text:find(source, 1, true)
  local line
  if at then line = select(2, text:sub(1, at - 1):gsub("\n", "")) + 1 end
  return {file = info.short_src, line = line, defined = info.currentline}
end

local function with_lines(log, where)
  local kept = {}
  for line in (log .. "\n"):gmatch "(.-)\n" do
    if not line:find "^ptxas info" and not line:find "detected in the compilation of"
       and line:find "%S" then
      kept[#kept + 1] = line:gsub("^kernel%((%d+)%)", function(n)
        if not where.line then
          return ("%s:%d (kernel line %d)"):format(where.file, where.defined, n)
        end
        return ("%s:%d (kernel line %d)"):format(where.file, where.line + n - 1, n)
      end)
    end
  end
  return table.concat(kept, "\n")
end

--- @param who the function that was called, for messages
-- @param options a list for the compiler
-- @return the kernel; raises the compiler's messages
return function(who, source, name, options, arch)
  local raw, message, log = core.raw_new(source, name, table.concat(options, "\n"), arch)
  if raw then return raw end
  if log == "" then fail("%s: %s", who, message) end
  local extra = ""
  if log:find "could not open source file" or log:find "cannot open source file" then
    extra = "\nheaders of CUDA are found by themselves (cuda_fp16.h, cub/block/..., "
      .. "cuda/std/...); those of the host's C and C++ are not there; other folders: "
      .. "options = {\"-I...\"}"
  end
  fail("%s: %s%s:\n%s%s", who, message,
       #options > 0 and " with " .. table.concat(options, " ") or "",
       with_lines(log, place(source)), extra)
end
