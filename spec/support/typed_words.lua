-- The names that typed_programs.lua draws from.
local function words(text)
  local list = {}
  for word in text:gmatch "%S+" do list[#list + 1] = word end
  return list
end

return {
  unary = words [[neg abs sign square reciprocal sqrt rsqrt exp exp2 expm1 log log1p log2 log10
    sin cos tan atan asin acos sinh cosh tanh asinh acosh atanh erf erfc erfinv cbrt sinc ndtr
    lgamma digamma sigmoid logsigmoid floor ceil round trunc frac relu relu6 leaky_relu elu selu
    celu gelu silu mish softplus hardtanh hardsigmoid hardswish softsign softshrink hardshrink
    tanhshrink huber bitwise_not logical_not isnan isinf isfinite signbit rad2deg nan_to_num entr
    i0]],
  binary = words [[add sub mul div floor_div remainder fmod pow maximum minimum atan2 fmax fmin
    heaviside hypot copysign logaddexp xlogy bitwise_and bitwise_or bitwise_xor shift_left eq ne lt
    le gt ge logical_and logical_or logical_xor isclose nextafter]],
  easy = words "add sub mul maximum minimum add mul sub",
  inplace = words [[add_ sub_ mul_ div_ maximum_ minimum_ relu_ tanh_ neg_ abs_ sigmoid_ exp_
    floor_ square_ clamp_ copy_ fill_ zero_ masked_fill_ sqrt_ gelu_]],
  dtypes = words "f32 f32 f32 f32 f64 f16 bf16 i64 i32 i16 i8 u8 bool",
  sums = words "sum mean amax amin var logsumexp",
  along = words [[sum mean prod amax amin any all argmax argmin cumsum cumprod cummax softmax
    log_softmax max_dim sort argsort logcumsumexp]],
  shapes = {{3, 4}, {5, 6}, {2, 3, 4}, {4}, {6, 1}, {1, 7}, {8, 8}, {17, 33}, {2, 1, 5}, {64, 40}},
  integers = {"i64", "i32", "u8"},
  floats = {"f64", "f16", "bf16"},
}
