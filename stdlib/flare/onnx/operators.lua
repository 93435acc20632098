--- The files of operators, and the operators that are refused, with the reasons. A file is loaded
-- when a model has one of its operators.
local M = {}

local standard = {
  activation = [[Celu Elu Gelu HardSigmoid HardSwish Hardmax LeakyRelu LogSoftmax Mish PRelu Relu
    Selu Shrink Sigmoid Softmax Softplus Softsign SwiGLU Swish Tanh ThresholdedRelu]],
  attention = "Attention CausalConvWithState LinearAttention RotaryEmbedding TensorScatter",
  control = "If Loop Scan",
  conv = "Col2Im Conv ConvTranspose DeformConv",
  detect = "MaxRoiPool NonMaxSuppression RoiAlign",
  index = [[Compress Gather GatherElements GatherND NonZero OneHot Scatter
    ScatterElements ScatterND]],
  linear = "Det Einsum Gemm MatMul",
  logic = [[And BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Equal Greater GreaterOrEqual
    IsInf IsNaN Less LessOrEqual Not Or Where Xor]],
  loss = "NegativeLogLikelihoodLoss SoftmaxCrossEntropyLoss",
  make = "Cast CastLike BitCast Constant ConstantOfShape EyeLike Range Trilu",
  math = [[Abs Acos Acosh Add Asin Asinh Atan Atanh Ceil Clip Cos Cosh CumProd CumSum Div Erf Exp
    Floor Log Max Mean Min Mod Mul Neg Pow Reciprocal Round Sign Sin Sinh Sqrt Sub Sum Tan]],
  norm = [[BatchNormalization GroupNormalization InstanceNormalization LRN LayerNormalization
    LpNormalization MeanVarianceNormalization RMSNormalization]],
  order = "ArgMax ArgMin TopK Unique",
  pool = [[AveragePool GlobalAveragePool GlobalLpPool GlobalMaxPool LpPool MaxPool MaxUnpool]],
  quantize = [[ConvInteger DequantizeLinear DynamicQuantizeLinear MatMulInteger QLinearConv
    QLinearMatMul QuantizeLinear]],
  random = [[Bernoulli Dropout Multinomial RandomNormal RandomNormalLike RandomUniform
    RandomUniformLike]],
  recurrent = "GRU LSTM RNN",
  reduce = [[ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin
    ReduceProd ReduceSum ReduceSumSquare]],
  resize = "Resize Upsample",
  sample = "AffineGrid GridSample",
  sequence = [[ConcatFromSequence Optional OptionalGetElement OptionalHasElement SequenceAt
    SequenceConstruct SequenceEmpty SequenceErase SequenceInsert SequenceLength SequenceMap
    SplitToSequence]],
  shape = [[CenterCropPad Concat DepthToSpace Expand Flatten Identity Pad Reshape ReverseSequence
    Shape Size Slice SpaceToDepth Split Squeeze Tile Transpose Unsqueeze]],
  signal = "BlackmanWindow DFT HammingWindow HannWindow MelWeightMatrix STFT",
  text = "TfIdfVectorizer",
}

-- What onnxruntime writes into models that it optimises or quantises; one of them it puts into
-- the default domain.
local microsoft = {
  microsoft = [[Attention BiasGelu EmbedLayerNormalization FastGelu FusedConv FusedGemm FusedMatMul
    Gelu MultiHeadAttention QuickGelu RotaryEmbedding SimplifiedLayerNormalization
    SkipLayerNormalization SkipSimplifiedLayerNormalization]],
  microsoft_quantized = [[DynamicQuantizeMatMul MatMulIntegerToFloat MatMulNBits QGemm QLinearAdd
    QLinearAveragePool QLinearConcat QLinearGlobalAveragePool QLinearLeakyRelu QLinearMul
    QLinearSigmoid QLinearSoftmax QLinearWhere]],
  quantize = "DequantizeLinear QuantizeLinear",
}

local function files_of(families)
  local files = {}
  for family, names in pairs(families) do
    for name in names:gmatch "%w+" do files[name] = family end
  end
  return files
end

local domains = {[""] = files_of(standard), ["com.microsoft"] = files_of(microsoft)}
domains[""].SimplifiedLayerNormalization = "microsoft"

--- Operators that are refused, and the class of the reason.
M.refused = {
  ImageDecoder = "image decoding", RegexFullMatch = "strings",
  StringConcat = "strings", StringNormalizer = "strings", StringSplit = "strings",
}

--- The function of an operator, or nil.
function M.find(domain, name)
  local file = domains[domain] and domains[domain][name]
  return file and require("flare.onnx." .. file)[name]
end

--- The names of all supported operators, in the default domain or another.
function M.names(domain)
  local list = {}
  for name in pairs(domains[domain or ""] or {}) do list[#list + 1] = name end
  table.sort(list)
  return list
end

return M
