--- Binary heaps.

--- A class of heaps: `push(item)` adds an item, `pop()` takes out the first; nil if there is none.
-- @param before before(a, b): whether item a comes out before item b
return function(before)
  local Heap = {}
  Heap.__index = Heap

  function Heap:push(item)
    local k = #self + 1
    while k > 1 and before(item, self[k // 2]) do
      self[k] = self[k // 2]
      k = k // 2
    end
    self[k] = item
  end

  function Heap:pop()
    local n = #self
    local first, last = self[1], self[n]
    self[n] = nil
    n = n - 1
    if n < 1 then return first end
    local k = 1
    while 2 * k <= n do
      local child = 2 * k
      if child < n and before(self[child + 1], self[child]) then child = child + 1 end
      if not before(self[child], last) then break end
      self[k] = self[child]
      k = child
    end
    self[k] = last
    return first
  end

  return Heap
end
