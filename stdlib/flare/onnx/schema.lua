--- The messages of ONNX's protobuf, as far as they are read here: the number of a field, its
-- name, and its kind (see lua/io/protobuf.c) or its message. Numbers are those of onnx.proto.
local function many(name, kind) return {name, kind, many = true} end

local M = {}

local Entry = {[1] = {"key", "text"}, [2] = {"value", "text"}}

M.Tensor = {
  [1] = many("dims", "int"), [2] = {"data_type", "int"}, [4] = {"float_data", "fixed"},
  [5] = {"int32_data", "varints"}, [6] = many("string_data", "text"),
  [7] = {"int64_data", "varints"}, [8] = {"name", "text"}, [9] = {"raw_data", "span"},
  [10] = {"double_data", "fixed"}, [11] = {"uint64_data", "varints"},
  [13] = many("external_data", Entry), [14] = {"data_location", "int"},
}

local Dim = {[1] = {"value", "int"}, [2] = {"param", "text"}}
local TensorType = {[1] = {"elem_type", "int"}, [2] = {"shape", {[1] = many("dim", Dim)}}}
local Type = {[1] = {"tensor", TensorType}, [5] = {"map", {}}, [8] = {"sparse", {}}}
Type[4] = {"sequence", {[1] = {"elem_type", Type}}}
Type[9] = {"optional", {[1] = {"elem_type", Type}}}

local Graph = {}
local Attribute = {
  [1] = {"name", "text"}, [2] = {"f", "float"}, [3] = {"i", "int"}, [4] = {"s", "text"},
  [5] = {"t", M.Tensor}, [6] = {"g", Graph}, [7] = many("floats", "float"),
  [8] = many("ints", "int"), [9] = many("strings", "text"), [10] = many("tensors", M.Tensor),
  [11] = many("graphs", Graph), [14] = {"tp", Type}, [20] = {"type", "int"},
  [21] = {"ref", "text"},
}

local Node = {
  [1] = many("input", "text"), [2] = many("output", "text"), [3] = {"name", "text"},
  [4] = {"op_type", "text"}, [5] = many("attribute", Attribute), [7] = {"domain", "text"},
}

local Value = {[1] = {"name", "text"}, [2] = {"type", Type}}

Graph[1] = many("node", Node)
Graph[2] = {"name", "text"}
Graph[5] = many("initializer", M.Tensor)
Graph[11] = many("input", Value)
Graph[12] = many("output", Value)
Graph[15] = many("sparse_initializer", {})

local Opset = {[1] = {"domain", "text"}, [2] = {"version", "int"}}

local Function = {
  [1] = {"name", "text"}, [4] = many("input", "text"), [5] = many("output", "text"),
  [6] = many("attribute", "text"), [7] = many("node", Node), [9] = many("opset_import", Opset),
  [10] = {"domain", "text"}, [11] = many("attribute_proto", Attribute),
}

M.Model = {
  [1] = {"ir_version", "int"}, [2] = {"producer_name", "text"}, [7] = {"graph", Graph},
  [8] = many("opset_import", Opset), [25] = many("functions", Function),
}

return M
