-- The functions that the public headers declare, for specs and for the reference page.
local tree = require "spec.support.tree"

local M = {}

--- The public headers whose functions a host calls, in the order of the reference.
M.files = {"runtime/flare.h", "runtime/ranks.h", "runtime/program.h", "runtime/dlpack.h",
  "lua/flarelua.h"}

local function parameter(text)
  local name = text:match "%(%s*%*%s*([%w_]+)%s*%)" or text:match "([%w_]+)%s*$"
  return {name = name, pointer = text:find "[%*]" ~= nil, text = text}
end

-- Splits at commas that are in no parentheses.
local function parameters(text)
  local list, depth, from = {}, 0, 1
  for at = 1, #text + 1 do
    local c = text:sub(at, at)
    if c == "(" then depth = depth + 1 end
    if c == ")" then depth = depth - 1 end
    if c == "" or (c == "," and depth == 0) then
      local one = text:sub(from, at - 1):match "^%s*(.-)%s*$"
      if one ~= "" and one ~= "void" and one ~= "..." then list[#list + 1] = parameter(one) end
      from = at + 1
    end
  end
  return list
end

--- Functions of the public headers: name, header, and params, each with name and pointer.
function M.functions()
  local list = {}
  for _, path in ipairs(M.files) do
    local text = tree.read(path):gsub("/%*.-%*/", " ")
    for name, args in text:gmatch "FL_API%s[^;()]-([%w_]+)(%b())" do
      if not name:find "^fli_" then
        list[#list + 1] = {name = name, header = path, params = parameters(args:sub(2, -2))}
      end
    end
  end
  return list
end

return M
