--- flare.data: readers, data sets, batches.
--
-- A data set is an object with `size()` and `fetch(index)`: index is a tensor of positions
-- from 1, the results are batches (tensors with one row for each position). Or with `get(i)`, which
-- gives one sample. For worker threads `describe()` returns the name of a module and arguments; in
-- the worker the module, or its `from`, is called with these and gives the data set.
require "flare"

return require "flare.lazy"("flare.data", {}, {
  Loader = "flare.data.loader",
  Tensors = "flare.data.tensors", Subset = "flare.data.subset",
  Concat = "flare.data.concat", transforms = "flare.data.transforms",
  split = "flare.data.split", Windows = "flare.data.windows",
  Vocabulary = "flare.data.vocabulary",
  idx = "flare.data.idx", text = "flare.data.text", csv = "flare.data.csv",
  digits = "flare.data.digits",
})
