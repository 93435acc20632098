-- The functions that the public headers declare, for specs and for the reference page.
local tree = require "spec.support.tree"

local M = {}

--- The public headers whose functions a host calls, in the order of the reference.
M.files = {"runtime/flare.h", "runtime/devices.h", "runtime/tensors.h", "runtime/operators.h",
  "runtime/expressions.h", "runtime/modes.h", "runtime/gradients.h", "runtime/profile.h",
  "runtime/ranks.h", "runtime/compiled.h", "runtime/graphs.h", "runtime/types.h",
  "runtime/program.h", "runtime/dlpack.h", "lua/flarelua.h"}

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

-- The comment of each line of a header: the last one at the left edge since an empty line.
local function comments(text)
  local list, comment, inside = {}, nil, false
  for line in (text .. "\n"):gmatch "([^\n]*)\n" do
    if line == "" and not inside then comment = nil end
    if line:find "^/%*" then comment = nil end
    if line:find "^/%*" or inside then
      comment = (comment and comment .. "\n" or "") .. line
      inside = not line:find "%*/"
    end
    list[#list + 1] = comment or false
  end
  return list
end

--- Functions of the public headers: name, header, comment or nil, and params, each with name and
--- pointer.
function M.functions()
  local list = {}
  for _, path in ipairs(M.files) do
    local text = tree.read(path)
    local at_line = comments(text)
    -- without comments, but with their lines
    text = text:gsub("/%*.-%*/", function(comment) return comment:gsub("[^\n]", " ") end)
      :gsub("#define[^\n]*", "")
    for at, name, args in text:gmatch "()FL_API%s[^;()]-([%w_]+)(%b())" do
      local line = select(2, text:sub(1, at):gsub("\n", "")) + 1
      if name:find "^fl_" or name:find "^luaopen_" then
        list[#list + 1] = {name = name, header = path, comment = at_line[line] or nil,
          params = parameters(args:sub(2, -2))}
      end
    end
  end
  return list
end

return M
