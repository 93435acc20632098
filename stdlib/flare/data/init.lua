--- flare.data: readers, data sets, batches.
--
-- A data set is an object with `size()` and `fetch(index)`: index is a tensor of positions
-- from 1, the results are batches (tensors with one row for each position). Or with `get(i)`, which
-- gives one sample. For worker threads `describe()` returns the name of a module and arguments; in
-- the worker the module, or its `from`, is called with these and gives the data set.
require "flare"

local parts = {
  Loader = {"flare.data.loader"},
  Tensors = {"flare.data.tensors"}, Subset = {"flare.data.subset"},
  split = {"flare.data.split"}, Windows = {"flare.data.windows"},
  Vocabulary = {"flare.data.vocabulary"},
  idx = {"flare.data.idx"}, text = {"flare.data.text"}, csv = {"flare.data.csv"},
  digits = {"flare.data.digits"},
}

return setmetatable({}, {
  __name = "flare.data",
  __index = function(self, name)
    local part = parts[name]
    if not part then
      local hint = require("flare.options").hint(tostring(name), parts)
      require("flare.fail")("there is no flare.data.%s%s", tostring(name), hint)
    end
    local value = require(part[1])
    rawset(self, name, value)
    return value
  end,
  __pairs = function(self)
    return function(_, name)
      local key = next(parts, name)
      if key ~= nil then return key, self[key] end
    end, self, nil
  end,
})
