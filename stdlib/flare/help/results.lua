--- What methods give and take by the contract of their class, and functions whose comments do not
-- say it in words that types.lua reads: for the definitions of editors. What is "any" by its
-- contract, such as the result of a function that a caller passes, is not listed.
local M = {}

local tensor, number, text, list = "flare.tensor", "number", "string", "flare.tensor[]"
local operand = {x = "flare.tensor|number", p = "flare.tensor|number", shape = "number[]"}
local x = {x = tensor}
local states = {x = tensor, opts = "table", h0 = "flare.tensor|table", c0 = "flare.tensor|table"}
local pair = {a = tensor, b = tensor, c = tensor}

-- Patterns of classes, names of methods, results; `takes`: parameters, `lacks`: a class that the
-- pattern fits, but not the entry.
local methods = {
  {"^flare%.distributions%.", "log_prob cdf icdf", tensor, takes = operand},
  {"^flare%.distributions%.", "mean variance entropy std sample rsample", tensor},
  {"^flare%.distributions%.", "draw", tensor, takes = operand},
  {"^flare%.distributions%.", "log_scale", tensor},
  {"^flare%.data%.transforms%.", "images", tensor, takes = x},
  {"^flare%.data%.transforms%.", "apply", tensor, "any ...", takes = {x = tensor, labels = tensor}},
  {"^flare%.data%.transforms%.", "describe", text, text, "table"},
  {"^flare%.data%.", "fetch", takes = {index = "flare.tensor|number[]"}},
  {"^flare%.data%.", "size batches seed_of", "integer"},
  {"^flare%.data%.Loader$", "index", "flare.tensor?", takes = {epoch = number, k = number}},
  {"^flare%.data%.Loader$", "order", tensor, takes = {epoch = number, k = number}},
  {"^flare%.optim%.CyclicLR$", "factor", number, number, takes = {o = "table", t = number}},
  {"^flare%.optim%.OneCycleLR$", "factor", number, number, takes = {o = "table", t = number}},
  {"^flare%.optim%.[%w]+LR$", "factor", number, takes = {o = "table", t = number, i = number}},
  {"^flare%.optim%.[%w]+LR$", "lr", number},
  {"^flare%.optim%.", "moments", "integer", takes = {group = "table"}},
  {"^flare%.optim%.", "moment_dtype", "flare.dtype?",
   takes = {p = tensor, k = number, group = "table"}},
  {"^flare%.optim%.", "update", takes = {group = "table", xs = list, step = number,
                                         moments = number}},
  {"^flare%.optim%.", "state_dict", "table"},
  {"^flare%.metrics%.", "state_dict", "table"},
  {"^flare%.metrics%.", "area", number, takes = {hits = tensor, counts = tensor}},
  {"^flare%.metrics%.MeanAveragePrecision$", "value", "table", takes = {states = "table"}},
  {"^flare%.metrics%.ConfusionMatrix$", "value", tensor, takes = {states = "table"}},
  {"^flare%.metrics%.%w+Rate$", "value", number, "number?", "number?", takes = {states = "table"}},
  {"^flare%.metrics%.Mean", "value", number, takes = {states = "table"}},
  {"^flare%.metrics%.R2$", "value", number, takes = {states = "table"}},
  {"^flare%.metrics%.Accuracy$", "value", number, takes = {states = "table"}},
  {"^flare%.metrics%.Perplexity$", "value", number, takes = {states = "table"}},
  {"^flare%.metrics%.BLEU$", "value", number, takes = {states = "table"}},
  {"^flare%.metrics%.AUROC$", "value", "number|flare.tensor", takes = {states = "table"}},
  {"^flare%.metrics%.F1$", "value", "number|flare.tensor", takes = {states = "table"}},
  {"^flare%.metrics%.Jaccard$", "value", "number|flare.tensor", takes = {states = "table"}},
  {"^flare%.metrics%.Precision$", "value", "number|flare.tensor", takes = {states = "table"}},
  {"^flare%.metrics%.Recall$", "value", "number|flare.tensor", takes = {states = "table"}},
  {"^flare%.metrics%.EditDistance$", "value", number, "number?", "number?",
   takes = {states = "table"}},
  {"^flare%.metrics%.RougeL$", "value", number, "number?", "number?", takes = {states = "table"}},
  {"^flare%.metrics%.", "value", "any", takes = {states = "table"}},
  {"^flare%.metrics%.Metric$", "add keep replace", takes = x},
  {"^flare%.dist%.Group$", "send scatter recv share",
   takes = {x = tensor, shape = "number|number[]", text = text}},
  {"^flare%.data%.Vocabulary$", "encode", takes = {text = text}},
  {"^flare%.data%.lines%.Lines$", "get line", takes = {i = number}},
  {"^flare%.metrics%.Metric$", "reset", "self"}, {"^flare%.metrics%.Collection$", "reset", "self"},
  {"^flare%.metrics%.MeanAveragePrecision$", "update", none = true},
  {"^flare%.metrics%.", "update", none = true, takes = {scores = tensor, targets = tensor}},
  {"^flare%.nn%.%w*Loss$", "forward", tensor, takes = pair,
   lacks = "flare.nn.AdaptiveLogSoftmaxWithLoss"},
  {"^flare%.nn%.AdaptiveLogSoftmaxWithLoss$", "forward", tensor, tensor,
   takes = {x = tensor, target = tensor}},
  {"^flare%.nn%.AdaptiveLogSoftmaxWithLoss$", "predict", tensor, takes = x},
  {"^flare%.nn%.Cosine", "forward", tensor, takes = pair},
  {"^flare%.nn%.PairwiseDistance$", "forward", tensor, takes = pair},
  {"^flare%.nn%.Bilinear$", "forward", tensor, takes = pair},
  {"^flare%.nn%.Embedding$", "forward", tensor, takes = {index = tensor}},
  {"^flare%.nn%.EmbeddingBag$", "forward", tensor,
   takes = {index = tensor, weights = tensor, offsets = "flare.tensor|number[]"}},
  {"^flare%.nn%.MaxUnpool", "forward", tensor,
   takes = {x = tensor, at = tensor, size = "number[]"}},
  {"^flare%.nn%.MultiHeadAttention$", "forward weights", tensor,
   takes = {x = tensor, memory = tensor, mask = tensor}},
  {"^flare%.nn%.Transformer$", "forward", tensor, takes = {source = tensor, target = tensor}},
  {"^flare%.nn%.Transformer%w+$", "forward feed around drop", tensor,
   takes = {x = tensor, memory = tensor, mask = tensor, memory_mask = tensor, f = "function"}},
  {"^flare%.nn%.GRU$", "forward", tensor, tensor, takes = states},
  {"^flare%.nn%.RNN$", "forward", tensor, tensor, takes = states},
  {"^flare%.nn%.LSTM$", "forward", tensor, tensor, tensor, takes = states},
  {"^flare%.nn%.GRUCell$", "forward", tensor, takes = {x = tensor, h = tensor}},
  {"^flare%.nn%.RNNCell$", "forward", tensor, takes = {x = tensor, h = tensor}},
  {"^flare%.nn%.LSTMCell$", "forward", tensor, tensor,
   takes = {x = tensor, h = tensor, c = tensor}},
  {"^flare%.nn%.MoE$", "route", tensor, tensor, tensor, tensor, takes = x},
  {"^flare%.nn%.Module$", "parameters buffers", list},
  {"^flare%.nn%.Module$", "modules", "flare.nn.Module[]"},
  {"^flare%.nn%.Module$", "named_parameters named_buffers", "fun(): string, flare.tensor"},
  {"^flare%.nn%.Module$", "named_modules", "fun(): string, flare.nn.Module"},
  {"^flare%.nn%.Module$", "count", "integer"}, {"^flare%.nn%.Module$", "param", tensor},
  {"^flare%.nn%.Module$", "register_forward_pre_hook register_forward_hook register_backward_hook",
   "table"},
  {"^flare%.nn%.Module$", "summary describe", text},
  {"^flare%.nn%.Module$", "state_dict", "table<string, flare.tensor>"},
  {"^flare%.nn%.Module$", "clone cpu cuda float double half bfloat16 to eval", "self"},
  {"^flare%.nn%.ModuleDict$", "keys", "string[]"},
}
local noised = {x = tensor, y = tensor, noise = tensor}
for _, entry in ipairs{
  {"^flare%.models%.%w+Scheduler$", "step", tensor, tensor, takes = noised},
  {"^flare%.models%.%w+Scheduler$", "add_noise get_velocity target sample scale_model_input",
   tensor, takes = noised},
  {"^flare%.models%.%w+Scheduler$", "predict", tensor, tensor, takes = noised},
  {"^flare%.models%.", "loss", tensor, takes = {images = tensor, ids = tensor, labels = tensor,
                                                x = tensor, spectra = tensor}},
  {"^flare%.models%.%w+ForCausalLM$", "features logits", tensor,
   takes = {ids = tensor, features = tensor}},
  {"^flare%.models%.GPT2LMHeadModel$", "features logits", tensor,
   takes = {ids = tensor, features = tensor}},
  {"^flare%.models%.%w+ForImageClassification$", "forward", tensor, takes = {images = tensor}},
  {"^flare%.models%.BertForSequenceClassification$", "forward", tensor, takes = {ids = tensor}},
  {"^flare%.models%.BertModel$", "forward", tensor, "flare.tensor?", takes = {ids = tensor}},
  {"^flare%.models%.LlamaModel$", "forward", tensor, takes = {ids = tensor}},
  {"^flare%.models%.GPT2Model$", "forward", tensor, takes = {ids = tensor}},
  {"^flare%.models%.Mistral%w*Model$", "forward", tensor, takes = {ids = tensor}},
  {"^flare%.models%.MixtralModel$", "forward", tensor, takes = {ids = tensor}},
  {"^flare%.models%.Qwen%w+Model$", "forward", tensor, takes = {ids = tensor}},
  {"^flare%.text%.Tokenizer$", "size", "integer"}, {"^flare%.text%.Tokenizer$", "decode", text},
  {"^flare%.text%.Tokenizer$", "decode_batch tokens", "string[]"},
  {"^flare%.models%.BertForMaskedLM$", "forward", tensor, takes = {ids = tensor}},
  {"^flare%.models%.Causal$", "forward criterion", tensor,
   takes = {ids = tensor, features = tensor, targets = tensor}},
  {"^flare%.models%.ConvNextModel$", "forward", tensor, tensor, takes = {images = tensor}},
  {"^flare%.models%.ResNetModel$", "forward", tensor, tensor, takes = {images = tensor}},
  {"^flare%.models%.ViTModel$", "forward", tensor, takes = {images = tensor}},
  {"^flare%.models%.UNet", "forward", tensor, takes = {x = tensor, context = tensor}},
  {"^flare%.models%.DiT", "forward", tensor, takes = {x = tensor, labels = tensor}},
  {"^flare%.models%.AutoencoderKL$", "decode images latents forward", tensor,
   takes = {x = tensor, z = tensor}},
  {"^flare%.models%.CLIPModel$", "images texts forward", tensor,
   takes = {images = tensor, ids = tensor}},
  {"^flare%.distributions%.%w+Transform$", "forward inverse log_slope", tensor, takes = x},
} do methods[#methods + 1] = entry end
local layers = {}
for name in ([[Linear Conv1d Conv2d Conv3d ConvTranspose1d ConvTranspose2d ConvTranspose3d
  LayerNorm RMSNorm GroupNorm BatchNorm1d BatchNorm2d BatchNorm3d InstanceNorm1d InstanceNorm2d
  InstanceNorm3d LocalResponseNorm MaxPool1d MaxPool2d MaxPool3d AvgPool1d AvgPool2d AvgPool3d
  AdaptiveAvgPool1d AdaptiveAvgPool2d AdaptiveAvgPool3d AdaptiveMaxPool1d AdaptiveMaxPool2d
  AdaptiveMaxPool3d LPPool1d LPPool2d LPPool3d Flatten Unflatten Dropout Dropout1d Dropout2d
  Dropout3d AlphaDropout FeatureAlphaDropout PReLU Upsample PixelShuffle PixelUnshuffle MoE Fold
  Unfold ChannelShuffle QuantizedLinear ZeroPad1d ZeroPad2d ZeroPad3d CELU ELU GELU GLU Hardshrink
  Hardsigmoid Hardswish Hardtanh LeakyReLU LogSigmoid LogSoftmax Mish RReLU ReLU ReLU6 SELU SiLU
  Sigmoid Softmax Softmin Softplus Softshrink Softsign Tanh Tanhshrink Threshold]]):gmatch "%S+" do
  layers["flare.nn." .. name] = true
end

local tensors = {} -- names of parameters
for name in ("x a b c v y src xp fp theta logits log_probs weight anchor same other var target"
             ):gmatch "%S+" do tensors[name] = tensor end
tensors.dim = number
local indexed = setmetatable({index = tensor}, {__index = tensors})

local functions = {
  {"flare.", "atleast_1d atleast_2d atleast_3d block_diag cartesian_prod column_stack combinations "
   .. "cond convolve diagonal_scatter dstack fliplr flipud hstack interp intersect1d multi_dot "
   .. "nanstd nanvar pairwise_distance pdist polyfit polyval ravel_multi_index rot90 "
   .. "select_scatter setdiff1d slice_scatter take_along_dim tensordot tensorinv tensorsolve "
   .. "tril_indices triu_indices union1d unwrap vecdot vstack rearrange", tensor,
   takes = tensors},
  {"flare.", "broadcast_tensors meshgrid unravel_index", "flare.tensor ..."},
  {"flare.", "hsplit vsplit dsplit tensor_split", list, takes = tensors},
  {"flare.", "equal", "boolean", takes = tensors},
  {"flare.", "pad_sequence", tensor, tensor},
  {"flare.", "histogramdd", tensor, list},
  {"flare.nn.functional.", "affine_grid alpha_dropout cosine_embedding_loss ctc_loss dropout "
   .. "embedding embedding_bag feature_alpha_dropout gaussian_nll_loss glu gumbel_softmax "
   .. "hinge_embedding_loss instance_norm local_response_norm margin_ranking_loss "
   .. "multi_margin_loss multilabel_margin_loss multilabel_soft_margin_loss poisson_nll_loss prelu "
   .. "rrelu soft_margin_loss softmin threshold triplet_margin_loss", tensor,
   takes = indexed},
  {"flare.nn.init.", "constant constant_ dirac dirac_ eye eye_ kaiming kaiming_ normal normal_ "
   .. "ones ones_ orthogonal orthogonal_ sparse sparse_ truncated_normal truncated_normal_ uniform "
   .. "uniform_ xavier xavier_ zeros zeros_", tensor, takes = tensors},
  {"flare.data.audio.", "log_mel mel_filters resample", tensor},
  {"flare.data.", "digits", tensor, tensor},
  {"flare.dataflow.schemes.", "gpipe in_memory interleaved offload ring zb_h1",
   "flare.dataflow.Schedule"},
  {"flare.dataflow.", "schedule", "flare.dataflow.Schedule"},
  {"flare.models.", "choices perplexity", "table"},
  {"flare.nn.init.", "fans", "integer", "integer"},
  {"flare.nn.init.", "gain", number},
  {"flare.nn.", "parameters_to_vector", tensor, takes = {params = "flare.nn.Module|table"}},
  {"flare.nn.", "from_pytorch to_pytorch", "table<string, flare.tensor>"},
  {"flare.distributions.", "kl", tensor},
  {"flare.dist.", "rank size local_rank", "integer"},
  {"flare.dist.", "all_gather all_gather_ all_reduce all_reduce_ all_to_all broadcast broadcast_ "
   .. "gather reduce reduce_ reduce_scatter scatter send", takes = {x = tensor}},
  {"flare.dist.", "clip_grad_norm_", takes = {limit = number}},
  {"flare.optim.", "clip_grad_value_", takes = {limit = number}},
  {"flare.", "einsum", tensor, takes = {text = text}},
  {"flare.io.npy.", "save encode", takes = {x = tensor}},
  {"flare.dist.", "init", "integer", "integer"},
  {"flare.metrics.", "edit_distance", "integer"},
  {"flare.optim.", "clip_grad_norm_ grad_norm", tensor, takes = {limit = number}},
  {"flare.options.", "input tensor", tensor},
  {"flare.options.", "text kind reason hint", text},
  {"flare.options.", "nearest", "string?"},
  {"flare.options.", "check state", "table"},
  {"flare.options.", "count", number},
}

-- Fields of objects: patterns of classes, names, the type.
local fields = {
  {"^flare%.distributions%.", "loc scale logits probs rate scale_tril", tensor},
  {"^flare%.distributions%.Beta$", "a b", tensor},
  {"^flare%.distributions%.Gamma$", "shape", tensor},
  {"^flare%.distributions%.Dirichlet$", "alpha", tensor},
  {"^flare%.distributions%.Uniform$", "low high", tensor},
  {"^flare%.nn%.Conv", "padding kernel stride dilation before output_padding", "number[]"},
  {"^flare%.nn%.%w+Pool%d", "padding kernel stride dilation", "number[]"},
  {"^flare%.nn%.MaxUnpool%d", "padding kernel stride", "number[]"},
  {"^flare%.nn%.LayerNorm$", "shape", "number[]"}, {"^flare%.nn%.RMSNorm$", "shape", "number[]"},
  {"^flare%.nn%.", "inputs outputs heads hidden channels directions eps momentum p inputs1 inputs2 "
   .. "width", number},
  {"^flare%.nn%.Conv", "groups", number}, {"^flare%.nn%.GroupNorm$", "groups", number},
  {"^flare%.nn%.Conv", "mode", text}, {"^flare%.nn%.EmbeddingBag$", "mode", text},
  {"^flare%.nn%.EmbeddingBag$", "include_last", "boolean"},
  {"^flare%.nn%.Flatten$", "first last", number},
  {"^flare%.nn%.LocalResponseNorm$", "size", number},
  {"^flare%.nn%.Unflatten$", "dim", number}, {"^flare%.nn%.Unflatten$", "sizes", "number[]"},
  {"^flare%.nn%.Embedding$", "base rows", number},
  {"^flare%.nn%.Embedding$", "max_norm padding", "number?"},
  {"^flare%.nn%.MoE$", "balance bias_balance experts noise scale top_k z_loss", number},
  {"^flare%.nn%.MoE$", "normalise", "boolean"}, {"^flare%.nn%.MoE$", "scores", text},
  {"^flare%.nn%.MultiHeadAttention$", "causal", "boolean"},
  {"^flare%.nn%.MultiHeadAttention$", "dropout", number},
  {"^flare%.nn%.Transformer%w+$", "dropout", number},
  {"^flare%.nn%.QuantizedLinear$", "bits group", number},
  {"^flare%.nn%.QuantizedLinear$", "symmetric", "boolean"},
  {"^flare%.nn%.GRU$", "layers projection dropout", number},
  {"^flare%.nn%.LSTM$", "layers projection dropout", number},
  {"^flare%.nn%.RNN$", "layers projection dropout", number},
  {"^flare%.nn%.", "ceil batch_first count_pad norm_first two_states", "boolean"},
  {"^flare%.nn%.", "weight weight_ih weight_hh", tensor},
  {"^flare%.nn%.", "bias bias_ih bias_hh running_mean running_var", "flare.tensor?"},
  {"^flare%.optim%.%w+LR$", "optimizer", "table"}, {"^flare%.optim%.%w+LR$", "t", number},
  {"^flare%.optim%.", "options", "table"}, {"^flare%.metrics%.", "options", "table"},
  {"^flare%.optim%.EMA$", "averages params", list},
  {"^flare%.optim%.EMA$", "decay updates", number},
  {"^flare%.optim%.GradScaler$", "factor good skipped", number},
  {"^flare%.optim%.GradScaler$", "enabled", "boolean"},
  {"^flare%.data%.Concat$", "ends", "number[]"}, {"^flare%.data%.Concat$", "total", number},
  {"^flare%.data%.Loader$", "batch position rank ranks seed", number},
  {"^flare%.data%.Loader$", "drop_last pin repeats shuffle", "boolean"},
  {"^flare%.data%.Windows$", "block", number}, {"^flare%.data%.Windows$", "tokens", tensor},
  {"^flare%.data%.Vocabulary$", "characters", "string[]"},
  {"^flare%.data%.Vocabulary$", "bytes", "boolean"},
  {"^flare%.data%.transforms%.Normalize$", "mean std", tensor},
  {"^flare%.data%.transforms%.", "p", number}, {"^flare%.data%.transforms%.", "mode where", text},
  {"^flare%.data%.transforms%.", "antialias keep_ratio", "boolean"},
  {"^flare%.data%.transforms%.", "sigma ratio", "number[]"},
  {"^flare%.models%.%w+Scheduler$", "alphas_cumprod", tensor},
  {"^flare%.models%.%w+Scheduler$", "init_noise_sigma least most", number},
  {"^flare%.models%.Cache$", "batch block length", number},
  {"^flare%.models%.Pages$", "block count", number},
  {"^flare%.models%.Rope$", "kind", text}, {"^flare%.models%.Rope$", "dims limit", number},
  {"^flare%.models%.Engine$", "limit", number},
  {"^flare%.metrics%.Collection$", "names", "string[]"},
  {"^flare%.io%.Checkpoint", "folder", text}, {"^flare%.io%.Checkpoint", "keep run", number},
  {"^flare%.train%.Trainer$", "epoch at", number},
  {"^flare%.train%.Trainer$", "by_epoch halted parallel", "boolean"},
  {"^flare%.train%.Trainer$", "device", text},
}

-- Arguments of the calls that make objects: patterns of classes, names, the type.
local made = {
  {"^flare%.distributions%.", "loc scale rate concentration alpha beta low high df",
   "flare.tensor|number"},
  {"^flare%.optim%.%w+LR$", "optimizer", "table"},
  {"^flare%.optim%.", "params parameters", "flare.nn.Module|table"},
  {"^flare%.models%.", "given", "table"},
  {"^flare%.nn%.", "inputs outputs channels width heads", number},
  {"^flare%.nn%.%w+%d", "kernel", "number|number[]"}, {"^flare%.nn%.%w*Dropout", "p", number},
}

--- The type of an argument of the call that makes an object of a class, or nil.
function M.argument(path, name)
  for _, entry in ipairs(made) do
    if path:find(entry[1]) and (" " .. entry[2] .. " "):find(" " .. name .. " ", 1, true) then
      return entry[3]
    end
  end
end

--- The type of a field of a class, or nil.
function M.field(path, name)
  for _, entry in ipairs(fields) do
    if path:find(entry[1]) and (" " .. entry[2] .. " "):find(" " .. name .. " ", 1, true) then
      return entry[3]
    end
  end
end

M.functions, M.tensor, M.takes = {}, {}, {}
for _, entry in ipairs(functions) do
  for name in entry[2]:gmatch "%S+" do
    local types = entry[3] and table.move(entry, 3, #entry, 1, {})
    M.functions[entry[1] .. name], M.takes[entry[1] .. name] = types, entry.takes
    if entry[1] == "flare." then M.tensor[name] = types end -- they are methods, too
  end
end
for _, name in ipairs{"nanmax", "nanmin"} do M.tensor[name] = {tensor} end

--- What is known of a method.
-- @param path of its class, "flare.nn.Linear"
-- @return the types of its results, a list, or nil; the types of its parameters by their names
function M.of(path, name)
  if layers[path] and name == "forward" then return {tensor}, x end
  for _, entry in ipairs(methods) do
    if path:find(entry[1]) and path ~= entry.lacks
      and (" " .. entry[2] .. " "):find(" " .. name .. " ", 1, true) then
      local types = (entry[3] or entry.none) and table.move(entry, 3, #entry, 1, {})
      return types or nil, entry.takes or {}
    end
  end
  return nil, {}
end

return M
