"""Prints what TensorBoard's own reader finds in a folder of events, for spec/tensorboard_spec.lua."""
import json
import sys

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

all_of = dict.fromkeys(("images", "histograms", "scalars", "tensors", "compressedHistograms"), 0)
reader = EventAccumulator(sys.argv[1], size_guidance=all_of)
reader.Reload()
tags = reader.Tags()
out = {"scalars": {t: [[e.step, e.value] for e in reader.Scalars(t)] for t in tags["scalars"]},
       "images": {t: [[e.step, e.width, e.height] for e in reader.Images(t)]
                  for t in tags["images"]},
       "texts": {t: [e.tensor_proto.string_val[0].decode() for e in reader.Tensors(t)]
                 for t in tags["tensors"]}}
out["histograms"] = {}
for t in tags["histograms"]:
    h = reader.Histograms(t)[0].histogram_value
    out["histograms"][t] = [h.min, h.max, h.num, h.sum, h.sum_squares, sum(h.bucket),
                            len(h.bucket_limit)]
out["nodes"] = [[n.name, n.op, list(n.input)] for n in reader.Graph().node]
print(json.dumps(out))
