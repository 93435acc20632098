--- The reference pages of the library's parts, out of the comments of their Lua files, and of the C
-- interface, out of the comments of its headers. Writes all of them:
--   build/flare spec/support/reference_pages.lua [folder]
local flare = require "flare"

local parts = {
  {"nn", "Layers, containers and losses", "nn.md", "Layers, optimizers, data"},
  {"optim", "Optimizers and schedules", "nn.md", "Layers, optimizers, data"},
  {"data", "Data sets and loaders", "data.md", "Data"},
  {"io", "Files", "files.md", "Files"},
  {"log", "Progress, metrics and plots", "training.md", "Training"},
  {"train", "The training loop", "training.md", "Training"},
  {"metrics", "Metrics", "metrics.md", "Metrics"},
  {"models", "Published models", "models.md", "Published models"},
  {"dist", "Several processes", "distributed.md", "Distributed training"},
  {"dataflow", "Schedules and their simulator", "dataflow.md", "Schedules of training steps"},
}

local function sorted(part)
  local names = {}
  for name in pairs(part) do
    if not name:find "^_" then names[#names + 1] = name end
  end
  table.sort(names, function(a, b)
    if a:lower() ~= b:lower() then return a:lower() < b:lower() end
    return a < b
  end)
  return names
end

-- What help says, cut to the width of a page.
local function entry(path)
  local lines = {}
  for line in (flare.help(path) .. "\n"):gmatch "([^\n]*)\n" do
    if #line > 110 then line = require "flare.help.source".wrapped(line:match "^%s*", line) end
    lines[#lines + 1] = line:gsub("%s+$", "")
  end
  return ("## %s\n\n```text\n%s\n```\n"):format(path, table.concat(lines, "\n"):gsub("%s+$", ""))
end

local function part_page(name, title, guide, guide_title)
  local out = {("# %s: flare.%s\n"):format(title, name),
    ("Every name in `flare.%s`, as `?%s.NAME` at the prompt and `flare help %s.NAME` explain it.\n"
     .. "Made by `build/flare spec/support/reference_pages.lua` from the comments of the Lua files "
     .. "in `stdlib/flare`; do\nnot edit. The guide is [%s](../%s).\n")
      :format(name, name, name, guide_title, guide)}
  for _, key in ipairs(sorted(flare[name])) do
    out[#out + 1] = entry(name .. "." .. key)
    local inner = flare[name][key]
    local is_part = type(inner) == "table" and not rawget(inner, "__index")
    if is_part and not rawget(inner, "class") then
      for _, deeper in ipairs(sorted(inner)) do
        local shown = type(inner[deeper]) == "function" and deeper ~= "open"
        if shown and (name ~= "nn" or key == "init") then
          out[#out + 1] = entry(name .. "." .. key .. "." .. deeper)
        end
      end
    end
  end
  return table.concat(out, "\n")
end

-- Enumerators that a header takes from a table: FL_F64 ... of dtype.def.
local function enumerators(file)
  local names, lines = {}, {}
  for name in io.open(file):read "a":gmatch "\nFL_%u[%u_]*%((%u%w+)," do
    names[#names + 1] = "FL_" .. name
  end
  for k = 1, #names, 7 do
    lines[#lines + 1] = "  " .. table.concat(names, ", ", k, math.min(k + 6, #names)) .. ","
  end
  return lines
end

-- A header's lines as its reader needs them: without macros but numbers, bodies of inline functions
-- and sets that are made by macros.
local function readable_lines(path)
  local lines, skipping = {}, nil
  for line in io.lines(path) do
    local include = line:match '^#include "(%l+%.def)"$'
    if skipping then
      if line:find(skipping) then skipping = nil end
    elseif line:find "^#define .*\\$" then
      skipping = "[^\\]$"
    elseif line:find "^enum {$" and path:find "types%.h" then
      skipping = "^};"
    elseif line:find "^%S.*%) {" or line:find "^%s.*%) {$" then
      lines[#lines + 1] = (line:gsub(" {", ";"))
      skipping = "^}"
    elseif include and path:find "types%.h" then
      for _, names in ipairs(enumerators("runtime/" .. include)) do lines[#lines + 1] = names end
    elseif not line:find "^#" or line:find '^#define FL_[%u_]+%s+["%d]' then
      lines[#lines + 1] = line
    end
  end
  return lines
end

-- Blocks of a header: a comment with the declarations under it, up to an empty line or the next
-- comment at the left edge; marks of sections are headings.
local function header_sections(path, out)
  local declared, comment = {}, {}
  local function flush()
    while declared[#declared] == "" do declared[#declared] = nil end
    if #declared > 0 then
      for _, line in ipairs(comment) do out[#out + 1] = line end
      if #comment > 0 then out[#out + 1] = "" end
      out[#out + 1] = "```text\n" .. table.concat(declared, "\n") .. "\n```\n"
    end
    declared, comment = {}, {}
  end
  local inside, depth, top = false, 0, true
  for _, line in ipairs(readable_lines(path)) do
    local section = line:match "^/%* %-%-%- (.-) %-%-%- %*/$"
    local first = line:match "^/%*%s?(.*)$"
    if section then
      flush()
      out[#out + 1] = "### " .. section:gsub("^%l", string.upper) .. "\n"
    elseif inside or first then
      if first then flush() end
      inside = not line:find "%*/"
      local text = first or (line:find "^%s*%*/$" and "*/" or line:gsub("^%s*%*?%s?", ""))
      text = text:gsub("%s*%*/%s*$", "")
      if inside or text ~= "" then comment[#comment + 1] = text end
      if not inside and top then -- the file's own comment
        for _, words in ipairs(comment) do out[#out + 1] = words end
        out[#out + 1] = ""
        comment, top = {}, false
      end
    elseif line == "" and depth == 0 then
      flush()
    elseif not line:find '^extern "C"' and not line:find "^}$" then
      declared[#declared + 1] = line
      depth = depth + select(2, line:gsub("{", "")) - select(2, line:gsub("}", ""))
    end
  end
  flush()
end

local function c_page()
  local out = {[[
# The C interface: flare.h and flarelua.h

Every declaration of the public headers, with the comment above it: `flare.h` and the headers that
it includes, `dlpack.h`, `flarelua.h`. Made by
`build/flare spec/support/reference_pages.lua`; do not edit. The guide is
[embedding](../embedding.md).
]]}
  for _, header in ipairs(require "spec.support.headers".files) do
    out[#out + 1] = ("## %s\n"):format(header:match "[^/]+$")
    header_sections(header, out)
  end
  return (table.concat(out, "\n"):gsub("\n+$", "\n"))
end

local function pages()
  local list = {}
  for _, part in ipairs(parts) do
    list[#list + 1] = {part[1] .. ".md", part_page(table.unpack(part))}
  end
  list[#list + 1] = {"c.md", c_page()}
  return list
end

local folder = (...) or "docs/reference"
for _, page in ipairs(pages()) do
  local file = assert(io.open(folder .. "/" .. page[1], "w"))
  file:write(page[2])
  file:close()
end
