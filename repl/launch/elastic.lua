--- Jobs whose number of ranks changes: ranks that die are left out of the next attempt, and a file
-- says how many there should be.
local Elastic = {}
Elastic.__index = Elastic

--- Reads --elastic MIN:MAX. @return {least, most}; nil and a message
function Elastic.read(text, n)
  local least, most = text:match "^(%d+):(%d+)$"
  least, most = math.tointeger(tonumber(least or "")), math.tointeger(tonumber(most or ""))
  if not least or least < 1 or least > most then
    return nil, ("--elastic %s: expected the smallest and the largest number of ranks, as in 2:8")
      :format(text)
  elseif n < least or n > most then
    return nil, ("-n %d is not within --elastic %s"):format(n, text)
  end
  return {least = least, most = most}
end

--- @param o the options of the launcher: elastic, ranks (a file with a number, or nil)
function Elastic.new(o)
  return setmetatable({least = o.elastic.least, most = o.elastic.most, file = o.ranks}, Elastic)
end

--- The number of ranks that the file asks for, within the limits; nil if it asks for none.
function Elastic:wanted()
  local file <close> = self.file and io.open(self.file)
  local n = file and math.tointeger(tonumber(file:read "l" or ""))
  return n and math.max(self.least, math.min(self.most, n))
end

--- How many ranks the next attempt has.
-- @param ranks of the attempt that ended @param changed whether it ended since the file asked for
--   another number
-- @return the number; nil and a message if there are too few
function Elastic:next(ranks, changed)
  local n = #ranks
  if not changed then
    local lost = 0
    for _, rank in ipairs(ranks) do if rank.died then lost = lost + 1 end end
    n = n - math.max(1, lost)
    self.had = self:wanted() -- ranks that died come back when the file changes
  else
    self.had = nil
    n = self:wanted() or n
  end
  if n < self.least then
    return nil, ("%d ranks are left, fewer than the %d of --elastic"):format(n, self.least)
  end
  return n
end

--- Whether the file asks for another number than the job has.
function Elastic:changed(size)
  local n = self:wanted()
  if n ~= self.had then self.had = nil end
  return n ~= nil and n ~= size and n ~= self.had
end

return Elastic
