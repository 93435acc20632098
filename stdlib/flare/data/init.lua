--- flare.data: readers, data sets, batches.
--
-- A data set is an object with `size()` and either `fetch(index)`, which takes a tensor of
-- positions from 1 and returns a batch, tensors with a row for each position, or `get(i)`, which
-- returns one sample. For worker threads, `describe()` returns the name of a module and arguments;
-- a worker calls the module, or its function `from`, with them and gets the data set.
require "flare"

return require "flare.lazy"("flare.data", {}, {
  Loader = "flare.data.loader",
  Tensors = "flare.data.tensors", Subset = "flare.data.subset",
  Concat = "flare.data.concat", transforms = "flare.data.transforms",
  split = "flare.data.split", Windows = "flare.data.windows",
  Vocabulary = "flare.data.vocabulary",
  idx = "flare.data.idx", text = "flare.data.text", csv = "flare.data.csv",
  digits = "flare.data.digits", images = "flare.data.images",
  lines = "flare.data.lines", jsonl = "flare.data.jsonl",
  audio = "flare.data.audio", cifar = "flare.data.cifar", image_folder = "flare.data.image_folder",
})
