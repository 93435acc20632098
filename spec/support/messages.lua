-- Wrong lines and the message that each gives, for spec/messages_spec.lua. `x` is a (2, 3)
-- tensor of floats, `i` positions {1, 2}, `w` a leaf of three ones that requires gradients,
-- `net` the spec's model, in which something three levels deep does not fit.
local first = "user.lua:1: "

return {
  -- layers and the place in the model
  {"local y = nn.Linear(4, 2)(x)", first
   .. "linear: x (2, 3) does not fit weight (2, 4): its last size must be 4 (in Linear)"},
  {"local y = net(x)",
   "net.lua:8: linear: x (2, 4) does not fit weight (4, 5): its last size must be 5 "
   .. "(in Net.blocks.2.mlp.1)"},
  {"local y = net.blocks[2](x)",
   "net.lua:8: linear: x (2, 3) does not fit weight (4, 5): its last size must be 5 "
   .. "(in Block.mlp.1)"},
  {"local y = nn.Sequential(nn.Linear(3, 4), nn.Sequential(nn.ReLU(), nn.Linear(4, 4), "
   .. "nn.Sequential(nn.BatchNorm1d(4), nn.Linear(2, 2))))(x)", first
   .. "linear: x (2, 4) does not fit weight (2, 2): its last size must be 2 "
   .. "(in Sequential.2.3.2)"},
  {"local y = nn.Linear(3, 2).forward(x)", first
   .. "tensors have no 'weight'; methods are called with ':', as in model:forward(x)"},
  {"local y = nn.Linear(3, 2).parameters()", first
   .. "parameters: expected a model, got nothing; methods are called with ':', as in "
   .. "model:parameters()"},
  {"local y = nn.LayerNorm(4)(x)", first
   .. "layer_norm: x (2, 3) and weight (4) do not fit: x must end with weight's sizes "
   .. "(in LayerNorm)"},
  {"local y = nn.BatchNorm1d(4)(x)", first
   .. "batch_norm: x (2, 3) and weight (4) do not fit: weight has a number for each channel "
   .. "(in BatchNorm1d)"},
  {"local y = x:max{dim = 3}", first .. "max: there is no dim 3 in a tensor of 2 dims"},
  {"local y = x:min{dimm = 1}", first .. "min: unknown option 'dimm'; did you mean 'dims'?"},
  {"local y = nn.Linear(3, 2, {act = 'rleu'})", first
   .. "linear: act: expected one of none|relu|gelu|gelu_tanh|silu|tanh|sigmoid, got \"rleu\"; "
   .. "did you mean \"relu\"? (in Linear)"},
  {"local y = nn.Conv2d(1, 2, {kernel_size = 3})", first
   .. "nn.Conv2d: kernel must be a number or 2 of them, got a table with 'kernel_size'"},
  {"local y = nn.Linear(3, 2)()", first
   .. "linear: x: expected a tensor, got nil; methods are called with ':', as in x:sum() "
   .. "(in Linear)"},
  {"local y = nn.Linear(3, 2){1, 2, 3}", first
   .. "linear: x: expected a tensor or a number, got table; make a tensor of it: "
   .. "flare.tensor{...} (in Linear)"},
  {"local y = nn.Linear('3', 2)", first
   .. "nn.Linear: inputs must be an integer of at least 1, got '3'"},
  {"local y = nn.Linear(3, 2, {bais = false})", first
   .. "nn.Linear: unknown option 'bais' (did you mean 'bias'?)"},
  {"local y = nn.Linaer(3, 2)", first .. "there is no nn.Linaer (did you mean 'Linear'?)"},
  {"local y = nn.Sequential(nn.Linear(3, 4), 'relu')", first
   .. "Sequential: a module is expected, got string"},
  {"local y = nn.Dropout(1.5)", first
   .. "nn.Dropout: p must be a number in [0, 1), got 1.5"},
  {"local y = nn.MultiHeadAttention(10, 3)", first
   .. "nn.MultiHeadAttention: a width of 10 cannot be cut into 3 equal heads"},
  {"local y = nn.Embedding(10, 4)(i - 1)", first
   .. "embedding: position 0 is out of range 1..10: positions count from 1; for data that "
   .. "counts from 0 say base = 0 (in Embedding)"},
  {"local y = nn.Embedding(10, 4)(i + 9)", first
   .. "embedding: position 11 is out of range 1..10 (in Embedding)"},
  {"local y = nn.Embedding(10, 4)(x)", first
   .. "embedding: input 2 is f32, but must be positions (i64 or i32) (in Embedding)"},
  {"local y = nn.Conv2d(1, 2, 3)(flare.zeros(1, 3, 8, 8))", first
   .. "conv: an input (1, 3, 8, 8), a weight (2, 1, 3, 3) and 1 groups do not fit: channels "
   .. "must be 1, and outputs a multiple of groups (in Conv2d)"},
  {"local y = nn.Conv2d(1, 2, 5)(flare.zeros(1, 1, 3, 3))", first
   .. "conv: a kernel of 5 (dilation 1) does not fit into size 3 with padding 0 (in Conv2d)"},
  {"local y = nn.LSTM(4, 5)(flare.zeros(2, 3, 3))", first
   .. "LSTM: the input must be (time, batch, 4), got (2, 3, 3)"},
  {"local y = nn.Linear(3, 2):to('gpu')", first
   .. "to: there is no device \"gpu\"; there are: cpu, sim, fpga, cuda (in Linear)"},
  {"nn.Linear(3, 2):load_state_dict({weight = flare.zeros(2, 2), bias = flare.zeros(2)})", first
   .. "load_state_dict for Linear:\n  shapes differ: weight is (2, 2), the module has (2, 3) "
   .. "(in Linear)"},
  {"nn.Linear(3, 2):load_state_dict({weight = flare.zeros(2, 3), bais = flare.zeros(2)})", first
   .. "load_state_dict for Linear:\n  missing: bias\n  not in the module: bais (did you mean "
   .. "'bias'?) (in Linear)"},

  -- losses and optimizers
  {"local y = nn.functional.cross_entropy(x, i - 1)", first
   .. "cross_entropy: position 0 is out of range 1..3: positions count from 1; for data that "
   .. "counts from 0 say base = 0"},
  {"local y = nn.functional.cross_entropy(x, flare.tensor({1, 2, 3}, {dtype = 'i64'}))", first
   .. "cross_entropy: scores of shape (2, 3) take targets of shape (2) (positions) or "
   .. "their own (probabilities), not (3)"},
  {"local y = nn.functional.mse_loss(x, flare.zeros(4))", first
   .. "mse_loss: x has shape (2, 3), target (4)"},
  {"local y = optim.Adam({})", first
   .. "optim.Adam: a list of parameters is expected, got an empty one"},
  {"local y = optim.Adam({w}, {lr = -1})", first
   .. "optim.Adam: lr must be a number of at least 0, got -1"},
  {"local y = optim.Adam({w}, {learning_rate = 1})", first
   .. "optim.Adam: unknown option 'learning_rate' (did you mean 'lr'?)"},
  {"local y = optim.Adam({w}, 1e-3)", first
   .. "optim.Adam: options must be a table {name = value}, got number (there are: amsgrad, "
   .. "betas, eps, lr, master, maximize, weight_decay)"},
  {"optim.Adam({w}).lr = 1", first .. "options belong to groups: optimizer.groups[1].lr = 1"},
  {"local y = nn.ReLU(x)", first
   .. "nn.ReLU: options must be a table {name = value}, got a tensor; a layer is made first and "
   .. "called then: nn.ReLU()(x) (it takes none)"},
  {"local y = nn.Sequential(nn.ReLU()).forward(x)", first
   .. "a tensor is not a function; methods are called with ':', as in model:forward(x)"},
  {"local y = nn.Linear{3, 2}", first
   .. "nn.Linear: inputs must be an integer of at least 1, got a table"},
  {"local y = nn.SpatialConvolution", first
   .. "there is no nn.SpatialConvolution (did you mean 'Conv2d'?)"},
  {"optim.SGD({w}).step()", first
   .. "step: expected an optimizer, got nothing; methods are called with ':', as in "
   .. "optimizer:step()"},
  {"optim.SGD({w}):step(1)", first .. "step: the closure must be a function, got number"},
  {"optim.clip_grad_norm_({w}, {max_norm = 1})", first
   .. "clip_grad_norm_: the limit must be a number of at least 0, got table"},
  {"local y = flare.profile()", first .. "profile: a function is expected, got nil"},
  {"flare.save('nowhere', x)", first .. "save: a single tensor needs a path that ends in .npy"},
  {"flare.save('nowhere', {model = nn.Linear(2, 2)})", first
   .. "save: cannot write a Linear (at 'model'); write what its state_dict() gives"},
  {"for y in data.Loader(data.Tensors(x)) do end", first
   .. "a Loader is read by epochs: for x, y in loader:epoch() do"},
  {"local y = optim.Adma", first .. "there is no optim.Adma (did you mean 'Adam'?)"},
  {"local y = data.Loader(x)", first
   .. "data.Loader: a data set with size and fetch (or get), such as data.Tensors(x, y), is "
   .. "expected, got a tensor"},

  -- shapes, positions, dtypes, devices
  {"local y = flare.zeros(2^40, 2^40)", first
   .. "shape (1099511627776, 1099511627776) of f32 is too large: its bytes do not fit into 62 "
   .. "bits"},
  {"local y = flare.zeros(-1)", first .. "zeros: shape: sizes cannot be negative, got -1"},
  {"local y = flare.zeros(nil)", first
   .. "zeros: shape: expected integers or a table of them, got nil"},
  {"local y = flare.zeros(2.5)", first .. "zeros: shape: expected an integer, got 2.5"},
  {"local y = x:reshape(-1, -1)", first .. "reshape: only one size can be -1 in (-1, -1)"},
  {"local y = x:reshape(4)", first .. "reshape: shape (2, 3) has 6 elements, (4) has 4"},
  {"local y = x:reshape(2^32, 2^32)", first
   .. "reshape: shape (4294967296, 4294967296) is too large"},
  {"local y = x:t():view(6)", first
   .. "view: a tensor of shape (3, 2) with strides (1, 3) cannot be seen as (6) without a "
   .. "copy: use reshape"},
  {"local y = x:expand(4, 3)", first
   .. "expand: shape (2, 3) does not expand to (4, 3): only sizes of 1 can, and new dims come "
   .. "first"},
  {"local y = x:narrow(1, 2, 5)", first
   .. "narrow: 5 elements from position 2 with step 1 do not lie within size 2"},
  {"local y = x:select(1, 5)", first .. "select: position 5 is out of range 1..2"},
  {"local y = x[9007199254740993]", first
   .. "x[...]: position 9007199254740993 is out of range 1..2 (dim 1 of (2, 3))"},
  {"local y = x[0 / 0]", first .. "x[...]: positions are integers, got nan"},
  {"x[3] = 0", first .. "x[...]: position 3 is out of range 1..2 (dim 1 of (2, 3))"},
  {"local y = x[i - 5]", first .. "x[...]: position -4 is out of range 1..2"},
  {"x[{{}, i - 1}] = 0", first
   .. "x[...]: position 0 is out of range 1..3: data that counts from 0 is x[index + 1] here"},
  {"local y = x:gather(2, flare.tensor({{1}, {9}}, {dtype = 'i64'}))", first
   .. "gather: position 9 is out of range 1..3"},
  {"local y = x:matmul(flare.zeros(4, 5))", first
   .. "matmul: (2, 3) x (4, 5): inner sizes 3 and 4 differ"},
  {"local y = x:sum(7)", first .. "sum: there is no dim 7 in a tensor of 2 dims"},
  {"local y = x:sum{axis = 1}", first
   .. "sum: unknown option 'axis'; did you mean 'dims'?"},
  {"local y = x:foo()", first .. "tensors have no 'foo'"},
  {"local y = 'loss ' .. w", first
   .. "..: a tensor is no text: x:item() is its number, tostring(x) shows it"},
  {"local y = flare.full(3, 7)", first
   .. "full: value is missing: it takes (shape, value, dtype)"},
  {"local y = flare.cat{}", first .. "cat: needs at least one tensor"},
  {"local y = flare.cat({x, flare.zeros(3, 3)}, 2)", first
   .. "cat: input 2 has shape (3, 3); beside (2, 3) it must differ in dim 2 only"},
  {"local y = x + x:to('sim:0')", first .. "add: input 2 is on sim:0, the ones before on cpu"},
  {"local y = x & 1", first .. "bitwise_and: input 1 is f32, but must be integers"},
  {"local y = i:exp_()", first
   .. "exp_: the result is f32 and cannot be kept in a i64 tensor"},
  {"local y = x:to('metal:0')", first
   .. "to: there is no device \"metal:0\"; there are: cpu, sim, fpga, cuda"},
  {"local y = flare.tensor{1, nil, 3}", first .. "tensor: there is nothing at [2]"},
  {"local y = flare.tensor{{1, 2}, {1, 2, [4] = 3}}", first
   .. "tensor: there is nothing at [2][3], but something at the key 4"},
  {"local y = flare.tensor{[2] = 1}", first
   .. "tensor: there is nothing at [1], but something at the key 2"},
  {"local y = flare.full_like(flare.zeros(2, {dtype = 'u8'}), 300)", first
   .. "full_like: 300 does not fit u8 (0..255)"},
  {"local m = nn.Sequential(nn.ReLU()) m[1] = x m:parameters()", first
   .. "Sequential: '1' was a module and holds a plain tensor now; to remove the module, assign nil "
   .. "first; for a parameter in its place: layer[1] = layer:param(tensor)"},
  {"local y = flare.dist.allreduce(x)", first
   .. "there is no dist.allreduce (did you mean 'all_reduce'?)"},
  {"local y = x:numpy()", first .. "tensors have no 'numpy'; did you mean 'totable'?"},
  {"local y = nn.MaxPool2d(2)()", first .. "MaxPool2d: x must be a tensor, got nil"},
  {"local y = flare.tensor{1, '2'}", first .. "tensor: expected a number at [2], got string"},
  {"local y = flare.tensor{{1, 2}, 3}", first
   .. "tensor: expected a table of 2 at [2], got an integer"},
  {"if x:gt(3) then x:item() end", first
   .. "item: a tensor of shape (2, 3) has 6 elements, not one"},
  {"local y = x:masked_fill(x, 0)", first .. "masked_fill: input 2 is f32, but must be bool"},

  -- gradients
  {"w:add_(1)", first
   .. "add_: a leaf that requires a gradient cannot be written in place; do it inside no_grad, "
   .. "or on a result"},
  {"local z = w * 1\nlocal l = (z * z):sum()\nz:add_(1)\nl:backward()",
   "user.lua:4: mul (user.lua:2) needs a tensor (3) for its gradient that was changed in place "
   .. "since, at user.lua:3"},
  {"local s = w:exp()\ns[1] = 0\ns:sum():backward()",
   "user.lua:3: exp (user.lua:1) needs a tensor (3) for its gradient that was changed in place "
   .. "since, at user.lua:2"},
  {"local l = (w * w):sum()\nl:backward()\nl:backward()",
   "user.lua:3: backward through mul (user.lua:1) a second time: what it had saved is gone; use "
   .. "retain_graph = true the first time"},
  {"(w * 2):backward()", first
   .. "backward from a tensor of shape (3) needs a gradient of that shape; without one it "
   .. "starts from one element, such as a loss"},
  {"x:sum():backward()", first
   .. "backward: this tensor does not depend on anything that requires a gradient"},
  {"flare.no_grad(function() return w:sum() end):backward()", first
   .. "backward: this tensor does not depend on anything that requires a gradient"},
  {"w:sum():backward():item()", first
   .. "gradients have no 'item': grads[x] is the one of the tensor x"},
  {"w.grad = flare.zeros(4)", first .. "a gradient has its tensor's shape (3), not (4)"},
  {"flare.grad((w * 2):sum(), x)", first .. "grad: input 1 does not require a gradient"},
  {"local y = flare.zeros(3, {dtype = 'i64', requires_grad = true})", first
   .. "only floats and complex numbers can require gradients, not i64"},

  -- habits from PyTorch, NumPy and Python
  {"local y = nn.Sequential(nn.ReLU()).train()", first
   .. "train: expected a model, got nothing; methods are called with ':', as in model:train()"},
  {"local y = nn.Sequential(nn.ReLU()).eval()", first
   .. "eval: expected a model, got nothing; methods are called with ':', as in model:eval()"},
  {"local y = nn.Linear(3, 2).zero_grad()", first
   .. "zero_grad: expected a model, got nothing; methods are called with ':', as in "
   .. "model:zero_grad()"},
  {"local y = nn.Linear(3, 2).cuda()", first
   .. "cuda: expected a model, got nothing; methods are called with ':', as in model:cuda()"},
  {"optim.Adam({w}).zero_grad()", first
   .. "zero_grad: expected an optimizer, got nothing; methods are called with ':', as in "
   .. "optimizer:zero_grad()"},
  {"optim.StepLR(optim.SGD({w}), {every = 1}).step()", first
   .. "step: expected a schedule, got nothing; methods are called with ':', as in schedule:step()"},
  {"optim.PlateauLR(optim.SGD({w})).step(0.5)", first
   .. "step: expected a schedule, got a number; methods are called with ':', as in "
   .. "schedule:step()"},
  {"for y in data.Loader(data.Tensors(x)).epoch() do print(y) end", first
   .. "epoch: expected a loader, got nothing; methods are called with ':', as in loader:epoch()"},
  {"return data.Loader(data.Tensors(x)).batches()", first
   .. "batches: expected a loader, got nothing; methods are called with ':', as in "
   .. "loader:batches()"},
  {"optim.EMA({w}).update()", first
   .. "update: expected an ema, got nothing; methods are called with ':', as in ema:update()"},
  {"optim.EMA({w}).update(true)", first
   .. "update: expected an ema, got boolean; methods are called with ':', as in ema:update()"},
  {"optim.EMA({w}).with(function() end)", first
   .. "with: expected an ema, got function; methods are called with ':', as in ema:with()"},
  {"optim.GradScaler().step(optim.SGD({w}))", first
   .. "step: expected a scaler, got SGD; methods are called with ':', as in scaler:step()"},
  {"return optim.GradScaler().scale(w:sum())", first
   .. "scale: expected a scaler, got flare.tensor; methods are called with ':', as in "
   .. "scaler:scale()"},
  {"optim.Adam({w}).state_dict()", first
   .. "state_dict: expected an optimizer, got nothing; methods are called with ':', as in "
   .. "optimizer:state_dict()"},
  {"local y = x:nll_loss(i + 2)", first .. "nll_loss: position 4 is out of range 1..3"},
  {"local y = flare.lp_pool(x, 2, 9)", first
   .. "lp_pool: a kernel of 9 (dilation 1) does not fit into size 3 with padding 0"},
  {"local y = x:max(1).values", first .. "tensors have no 'values'"},
  {"local y = x:to(flare.float32)", first
   .. 'there is no flare.float32: dtypes are strings: "f32"'},
  {"local y = flare.linalg.svd(x)", first
   .. "there is no flare.linalg: its functions are in flare: flare.inv(x), flare.svd(x)"},
  {"local y = flare.utils.data", first
   .. "there is no flare.utils: data sets and loaders are in flare.data, gradient "
   .. "clipping is optim.clip_grad_norm_"},
  {"local y = optim.lr_scheduler.StepLR(1)", first
   .. "there is no optim.lr_scheduler: schedules are in optim itself: optim.StepLR, "
   .. "optim.CosineLR, ..."},
  {"local y = x:size(0)", first .. "size: dim: dims count from 1; 0 is none (-1 is the last)"},
  {"local y = x.shape[0] + 1", first
   .. "shape[0]: positions count from 1; shape[1] is the first size, shape[-1] the last"},
  {"local y = x:unsqueeze(0)", first
   .. "unsqueeze: dim: dims count from 1; 0 is none (-1 is the last)"},
  {"local y = x:transpose(0, 1)", first
   .. "transpose: dim0: dims count from 1; 0 is none (-1 is the last)"},
  {"local y = x:sum{keepdims = true}", first
   .. "sum: unknown option 'keepdims'; did you mean 'keepdim'?"},
  {"local y = flare.Tensor(3, 3)", first
   .. "there is no flare.Tensor: flare.tensor{...}, flare.zeros(sizes), flare.empty(sizes)"},
  {'local y = x + "1"', first .. "add: b: expected a tensor or a number, got string"},
  {"local y = x + {1, 2, 3}", first
   .. "add: b: expected a tensor or a number, got table; make a tensor of it: "
   .. "flare.tensor{...}"},
  {"x.data = 3", first
   .. "'data' of a tensor cannot be set; 'grad' and 'requires_grad' can, and elements: "
   .. "x[i] = value"},
  {"local y = nn.Conv2d(3, 8)", first
   .. "nn.Conv2d: kernel must be a number or a table of 2, got nil"},
  {'local y = nn.Conv2d(3, 8, 3, {stride = "2"})', first
   .. "nn.Conv2d: stride must be a number or a table of 2, got string"},
  {"local y = nn.CrossEntropyLoss()(x)", first
   .. "cross_entropy: target is missing: it takes (x, target, weight, ignore_index, "
   .. "label_smoothing, reduction) (in CrossEntropyLoss)"},
  {"local y = nn.BatchNorm2d(3)(x)", first
   .. "BatchNorm2d: the input must have 4 dims (batch, channels, ...), got (2, 3)"},
  {"local y = x > 1", first
   .. "tensors are compared elementwise by methods: x:lt(y), x:le(y), x:gt(y), x:ge(y)"},
  {"local y = flare.stack({x, w})", first
   .. "stack: input 2 has shape (3) and the first (2, 3); they must be the same"},
  {'local y = flare.einsum("ij->k", x)', first
   .. 'einsum "ij->k": k is in the result, but in no input'},
  {"local y = x:topk(5)", first .. "topk: k must be from 0 to 3, the size of dim 2, got 5"},
  {'local y = flare.save(x, "a.npy")', first
   .. "save: the path comes first and must be a string, got a tensor"},
  {"local y = flare.randint(5)", first
   .. "randint: high is missing: it takes (low, high, shape, dtype)"},
  {"local y = x:dropout(2)", first .. "dropout: p must be from 0 to 1, got 2"},
  {"local y = i:div_(2)", first .. "div_: the result is f32 and cannot be kept in a i64 tensor"},
  {"local y = x:index_select(1, {1, 2})", first
   .. "index_select: index: expected a tensor or a number, got table; make a tensor of "
   .. "it: flare.tensor{...}"},
  {"local y = data.Loader(data.Tensors(x), {batch_size = 2})", first
   .. "data.Loader: unknown option 'batch_size' (did you mean 'batch'?)"},
  {"local y = data.Tensors(x, w)", first
   .. "data.Tensors: argument 2 has 3 rows, the first has 2"},
  {"local y = flare.is_grad_enabled()", first
   .. "there is no flare.is_grad_enabled: flare.grad_enabled()"},
  {"local y = flare.cuda.is_available()", first
   .. "there is no flare.cuda.is_available: cuda.available()"},
}
