"""Writes spec/support/tensorboard_data.lua: a file of events, as TensorBoard's own writer has it.

    python spec/support/tensorboard_data.py > spec/support/tensorboard_data.lua

Made with tensorboard 2.21.0.
"""
import io

from tensorboard.compat.proto import attr_value_pb2, event_pb2, graph_pb2, node_def_pb2
from tensorboard.compat.proto import summary_pb2, tensor_pb2
from tensorboard.compat.proto import tensor_shape_pb2, versions_pb2
from tensorboard.summary.writer.record_writer import RecordWriter

TIME = 1700000000.25
Value = summary_pb2.Summary.Value


def summary(step, value):
    return event_pb2.Event(wall_time=TIME, step=step,
                           summary=summary_pb2.Summary(value=[value]))


def shape(*sizes):
    return tensor_shape_pb2.TensorShapeProto(
        dim=[tensor_shape_pb2.TensorShapeProto.Dim(size=n) for n in sizes])


def node(name, op, inputs, *sizes):
    attr = attr_value_pb2.AttrValue(
        list=attr_value_pb2.AttrValue.ListValue(shape=[shape(*sizes)]))
    return node_def_pb2.NodeDef(name=name, op=op, input=inputs, attr={"_output_shapes": attr})


# x = {0, 1, 2, 4, 4} in four bins
histogram = summary_pb2.HistogramProto(min=0, max=4, num=5, sum=11, sum_squares=37,
                                       bucket_limit=[0, 1, 2, 3, 4], bucket=[0, 1, 1, 1, 2])
text = tensor_pb2.TensorProto(dtype=7, tensor_shape=shape(1), string_val=["**näive**".encode()])
metadata = summary_pb2.SummaryMetadata(
    plugin_data=summary_pb2.SummaryMetadata.PluginData(plugin_name="text"))
graph = graph_pb2.GraphDef(
    node=[node("input", "Placeholder", [], 5, 3),
          node("Sequential/1", "Linear", ["input"], 5, 4),
          node("Sequential/2", "ReLU", ["Sequential/1"], 5, 4),
          node("output", "Identity", ["Sequential/2"], 5, 4)],
    versions=versions_pb2.VersionDef(producer=27))
events = [
    event_pb2.Event(wall_time=TIME, file_version="brain.Event:2"),
    event_pb2.Event(wall_time=TIME, step=8, session_log=event_pb2.SessionLog(status=1)),
    summary(1, Value(tag="loss", simple_value=0.3)),
    summary(1000000, Value(tag="val/accuracy", simple_value=0)),
    summary(2, Value(tag="weights", histo=histogram)),
    summary(3, Value(tag="note/text_summary", tensor=text, metadata=metadata)),
    event_pb2.Event(wall_time=TIME, graph_def=graph.SerializeToString()),
]
out = io.BytesIO()
writer = RecordWriter(out)
for event in events:
    writer.write(event.SerializeToString())
    writer.flush()
print("-- Written by spec/support/tensorboard_data.py, in hexadecimal.\nreturn [[")
data = out.getvalue().hex()
for k in range(0, len(data), 96):
    print(data[k:k + 96])
print("]]")
