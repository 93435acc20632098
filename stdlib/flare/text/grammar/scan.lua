--- What the notations of grammars share: counts behind an item, and alternatives. A scanner is
-- {text =, at = the next byte}.
local M = {}

local simple = {["*"] = {0}, ["+"] = {1}, ["?"] = {0, 1}}

--- {min, max} of the operator at p.at, without max if there is no bound; nil: there is none.
-- @param braces the pattern of a count such as {2,5}: captures min, the comma, max, and what
-- follows
-- @param wrong called with p and a message
function M.count(p, braces, wrong)
  local known = simple[p.text:sub(p.at, p.at)]
  if known then
    p.at = p.at + 1
    return known
  end
  local low, comma, high, behind = p.text:match(braces, p.at)
  if not low then return nil end
  p.at = behind
  local min = math.tointeger(tonumber(low))
  local max = high ~= "" and math.tointeger(tonumber(high)) or nil
  if not min or high ~= "" and not max then wrong(p, "the count is too large") end
  if comma == "" then max = min end
  if max and max < min then wrong(p, "{%d,%d} ends before it begins", min, max) end
  return {min, max}
end

--- A node of what `sequence` reads, once or between bars.
function M.alternatives(p, sequence)
  local alt = {sequence(p)}
  while p.text:sub(p.at, p.at) == "|" do
    p.at = p.at + 1
    alt[#alt + 1] = sequence(p)
  end
  return #alt == 1 and alt[1] or {alt = alt}
end

return M
