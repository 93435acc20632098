--- The element types of ONNX by their codes, and the corresponding dtypes.
local refuse = require "flare.onnx.refuse"

local M = {}

local names = {
  [1] = "f32", [2] = "u8", [3] = "i8", [5] = "i16", [6] = "i32", [7] = "i64", [9] = "bool",
  [10] = "f16", [11] = "f64", [16] = "bf16",
}

local foreign = {
  [0] = "none", [4] = "u16", [8] = "strings", [12] = "u32", [13] = "u64", [14] = "complex64",
  [15] = "complex128", [17] = "f8e4m3fn", [18] = "f8e4m3fnuz", [19] = "f8e5m2",
  [20] = "f8e5m2fnuz", [21] = "u4", [22] = "i4", [23] = "f4e2m1", [24] = "f8e8m0", [25] = "u2",
  [26] = "i2",
}

M.bytes = {f64 = 8, f32 = 4, f16 = 2, bf16 = 2, i64 = 8, i32 = 4, i16 = 2, i8 = 1, u8 = 1,
           bool = 1}

--- The dtype with that code.
-- @param what the name of the value with this type: a string, or a function that returns one
function M.dtype(code, what)
  if names[code] then return names[code] end
  refuse.raise("%s: %s is of %s", code == 8 and "strings" or "element types",
               type(what) == "function" and what() or what,
               foreign[code] or "type " .. tostring(code))
end

-- The names in version 1 of Cast.
local spelt = {FLOAT = 1, UINT8 = 2, INT8 = 3, UINT16 = 4, INT16 = 5, INT32 = 6, INT64 = 7,
               STRING = 8, BOOL = 9, FLOAT16 = 10, DOUBLE = 11, UINT32 = 12, UINT64 = 13,
               COMPLEX64 = 14, COMPLEX128 = 15}

--- The code of a type that is given by code or, as in version 1 of Cast, by name.
function M.code(given)
  return type(given) == "string" and (spelt[given:upper()] or given) or given
end

function M.is_float(dtype)
  return dtype == "f32" or dtype == "f64" or dtype == "f16" or dtype == "bf16"
end

return M
