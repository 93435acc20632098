--- flare.nn: layers, containers, losses. A class is loaded at its first use.
--
--     local nn = require "flare.nn"
--     local model = nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 10))
--
-- A layer is one file; adding one is that file and its line here.
require "flare"

local files = {
  Module = "module",
  Sequential = "containers", ModuleList = "containers", ModuleDict = "containers",
  Identity = "identity", Flatten = "flatten",
  Linear = "linear", Bilinear = "bilinear", Embedding = "embedding",
  EmbeddingBag = "embedding_bag", QuantizedLinear = "quantized_linear",
  Conv1d = "conv", Conv2d = "conv", Conv3d = "conv",
  ConvTranspose1d = "conv_transpose", ConvTranspose2d = "conv_transpose",
  ConvTranspose3d = "conv_transpose",
  MaxPool1d = "pooling", MaxPool2d = "pooling", MaxPool3d = "pooling",
  AvgPool1d = "pooling", AvgPool2d = "pooling", AvgPool3d = "pooling",
  AdaptiveAvgPool1d = "pooling", AdaptiveAvgPool2d = "pooling", AdaptiveAvgPool3d = "pooling",
  AdaptiveMaxPool1d = "pooling", AdaptiveMaxPool2d = "pooling", AdaptiveMaxPool3d = "pooling",
  LPPool1d = "pooling", LPPool2d = "pooling", LPPool3d = "pooling",
  MaxUnpool1d = "pooling", MaxUnpool2d = "pooling", MaxUnpool3d = "pooling",
  Upsample = "space", PixelShuffle = "space", PixelUnshuffle = "space",
  ChannelShuffle = "space", Unfold = "space", Fold = "space", Pad = "space", Unflatten = "space",
  BatchNorm1d = "batch_norm", BatchNorm2d = "batch_norm", BatchNorm3d = "batch_norm",
  sync_norms = "batch_norm", measure_norms = "batch_norm",
  LayerNorm = "layer_norm", RMSNorm = "rms_norm", GroupNorm = "group_norm",
  LocalResponseNorm = "local_response_norm",
  InstanceNorm1d = "instance_norm", InstanceNorm2d = "instance_norm",
  InstanceNorm3d = "instance_norm",
  Dropout = "dropout", Dropout1d = "dropout_channels", Dropout2d = "dropout_channels",
  Dropout3d = "dropout_channels", AlphaDropout = "alpha_dropout",
  FeatureAlphaDropout = "alpha_dropout",
  RNN = "recurrent", LSTM = "recurrent", GRU = "recurrent",
  RNNCell = "recurrent", LSTMCell = "recurrent", GRUCell = "recurrent",
  MultiHeadAttention = "attention", TransformerBlock = "transformer", MoE = "moe",
  moe_loss = "moe",
  Transformer = "transformer_layers", TransformerEncoderLayer = "transformer_layers",
  TransformerDecoderLayer = "transformer_layers", TransformerEncoder = "transformer_layers",
  TransformerDecoder = "transformer_layers",
  ReLU = "activations", ReLU6 = "activations", LeakyReLU = "activations", ELU = "activations",
  SELU = "activations", CELU = "activations", GELU = "activations", SiLU = "activations",
  Mish = "activations", Softplus = "activations", Hardtanh = "activations",
  Hardsigmoid = "activations", Hardswish = "activations", Softsign = "activations",
  Softshrink = "activations", Hardshrink = "activations", Tanhshrink = "activations",
  Sigmoid = "activations", LogSigmoid = "activations", Tanh = "activations",
  Softmax = "activations", LogSoftmax = "activations", GLU = "activations", PReLU = "prelu",
  Softmin = "activations", Threshold = "activations", RReLU = "activations",
  CrossEntropyLoss = "losses", NLLLoss = "losses", MSELoss = "losses", L1Loss = "losses",
  SmoothL1Loss = "losses", HuberLoss = "losses", BCELoss = "losses",
  BCEWithLogitsLoss = "losses", KLDivLoss = "losses",
  CosineEmbeddingLoss = "losses", MarginRankingLoss = "losses", TripletMarginLoss = "losses",
  GaussianNLLLoss = "losses", PoissonNLLLoss = "losses", HingeEmbeddingLoss = "losses",
  SoftMarginLoss = "losses", MultiMarginLoss = "losses", MultiLabelSoftMarginLoss = "losses",
  MultiLabelMarginLoss = "losses", AdaptiveLogSoftmaxWithLoss = "adaptive_softmax",
  CosineSimilarity = "distances", PairwiseDistance = "distances", CTCLoss = "ctc",

  from_pytorch = "state", to_pytorch = "state",
  spectral_norm = "reparametrize", weight_norm = "reparametrize",
  parametrize = "reparametrize", remove_parametrization = "reparametrize", prune = "prune",
  parameters_to_vector = "vector", vector_to_parameters = "vector", fuse_norm = "fuse",
  functional = "functional", init = "initialize",
}
for name, file in next, files do files[name] = "flare.nn." .. file end

return require "flare.lazy"("nn", {}, files)
