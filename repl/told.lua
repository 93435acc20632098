--- The options of functions and classes that are written in Lua, read from their help: names, a
-- line about each, and the texts that it may be.
local help = require "flare.help"

local core = require "flare.core"

local M = {}

-- Options between braces, with their defaults.
local function add_list(inside, list, known)
  inside = inside:gsub("%b{}", function(t) return (t:gsub(",", "\0")) end)
  for part in inside:gmatch "[^,]+" do
    local name = part:match "^%s*([%a_][%w_]*)"
    local shown = part:gsub("%z", ","):match "^%s*(.-)[%s=]*$"
    if name and not known[name] then
      known[name] = true
      list[#list + 1] = {name = name, text = shown}
    end
  end
end

-- Options that a text names as `name`: with the words behind them.
local function add_named(text, list, known)
  for names, said in text:gmatch "(`[%a_][%w_`, ]*`): ([^`;]*)" do
    for name in names:gmatch "`([%a_][%w_]*)`" do
      if not known[name] then
        known[name] = true
        list[#list + 1] = {name = name, text = name .. ": " .. said:match "^(.-)[%s.,]*$"}
      end
    end
  end
end

--- The options of what is called, as {name, text}.
-- @param what a function or a class
-- @param name how it is called
function M.options(what, name)
  local list, known = {}, {}
  local text = help.help(what)
  local main = text:match "^(.-)\n\n?  :[%a_]+%(" or text -- before the methods of a class
  local flat = main:gsub("%s*\n%s*", " ")
  for arguments in flat:gmatch("%f[%w_]" .. name .. "(%b())") do
    for inside in arguments:sub(2, -2):gmatch "%b{}" do add_list(inside:sub(2, -2), list, known) end
    if list[1] then return list end
  end
  local braces = flat:match("%f[%w_]" .. name .. "(%b{})")
  local said = main:match "\n%s*opt[%w]*  (.-)\n%s*gives" or main:match "\n%s*opt[%w]*  (.*)$"
  if said then
    said = said:gsub("%s*\n%s*", " ")
    braces = said:match "^%b{}"
  end
  if braces then add_list(braces:sub(2, -2), list, known) end
  if said then add_named(said, list, known) end
  if not said and braces and braces:find("...", 1, true) then -- the text below names more
    local below = flat:sub(select(2, flat:find(braces, 1, true)))
    add_named(below, list, known)
    for option in below:gmatch "`([%a_][%w_]*)`" do
      if not known[option] then
        known[option] = true
        list[#list + 1] = {name = option, text = option}
      end
    end
  end
  return list
end

-- The words of an option with this name in the op table: those of the operator that the class is
-- named for, or those of the most operators.
local function of_rows(class, option)
  local best, count = nil, {}
  local plain = class:lower():gsub("%d+d$", "")
  for _, row in ipairs(core.ops()) do
    for _, p in ipairs(row.params) do
      if p.name == option and p.kind == "enum" then
        count[p.choices] = (count[p.choices] or 0) + 1
        if plain == row.name:gsub("_", "") or plain == row.name:gsub("_", "") .. "loss" then
          return p.choices
        end
      end
    end
  end
  for choices, n in pairs(count) do
    if not best or n > count[best] or n == count[best] and choices < best then best = choices end
  end
  return best
end

--- The texts that an option may be, as "a|b", or nil.
-- @param call {value =, name =}
-- @param option {name =, text =}
function M.choices(call, option)
  if not option.text:find '= "' and not option.text:find '"[%w_]+" or "' then
    local text = call.value ~= nil and help.help(call.value):gsub("%s*\n%s*", " ") or ""
    if not text:find("`" .. option.name .. '`:[^`;]*"[%w_]+" or "[%w_]+"') then return nil end
  end
  local text = help.help(call.value):gsub("%s*\n%s*", " ")
  local list, known = {}, {}
  local function add(word)
    if not known[word] then
      known[word] = true
      list[#list + 1] = word
    end
  end
  -- `mode`: whether "min" or "max" is better; act = "tanh" or "relu"
  local said = text:match("`" .. option.name .. '`:([^`;]*"[%w_]+" or "[%w_]+")')
               or text:match(option.name .. ' = ("[%w_]+" or "[%w_]+")')
  for word in (said or ""):gmatch '"([%w_]+)"' do add(word) end
  for word in text:gmatch("%f[%w_]" .. option.name .. ' = "([%w_]+)"') do add(word) end
  -- padding_mode: zeros, reflect, replicate, circular.
  for words in text:gmatch("%f[%w_]" .. option.name .. "`?: ([%w_]+, [%w_, ]+)%.") do
    for word in words:gmatch "[%w_]+" do add(word) end
  end
  if #list > 1 then return table.concat(list, "|") end
  return of_rows(call.name, option.name)
end

return M
