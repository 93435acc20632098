-- Mistakes of newcomers from PyTorch, NumPy, Python and JavaScript, and what the program says of
-- each, with its hint: for spec/messages_spec.lua. The line is user.lua:1 where none is given.
-- `x` is a (2, 3) tensor of floats, `i` positions {1, 2}, `w` a leaf of three ones that requires
-- gradients, `model` a Sequential of Linear(3, 4), ReLU and Linear(4, 2).
return {
  -- methods and functions by a dot, a call where there is a field, and the reverse
  {"local y = x.size()",
   "size: x: expected a tensor, got no value; methods are called with ':', as in x:sum()"},
  {"local y = x.reshape(3, 2)",
   "reshape: x: expected a tensor, got an integer; methods are called with ':', as in x:sum()"},
  {"local n = x.shape(1)",
   "attempt to call a flare.shape value (field 'shape') (shape is a table: x.shape[1])"},
  {"local n = x.size[1]",
   "attempt to index a function value (field 'size') (a method is called: x:size(1))"},
  {"local y = x:clone().detach()",
   "detach: x: expected a tensor, got no value; methods are called with ':', as in x:sum()"},
  {"local y = x.dtype()",
   "attempt to call a string value (field 'dtype') (it is read without (): x.dtype)"},
  {"local y = model:training()",
   "attempt to call a boolean value (method 'training') (it is read without (): "
   .. "x.requires_grad, model.training)"},
  {"local y = w:sum().backward()",
   "backward: x: expected a tensor, got no value; methods are called with ':', as in x:sum()"},
  {"w:grad()", "attempt to call a nil value (method 'grad') (it is read without (): x.grad)"},
  {"local g = w.grad:sum()",
   "attempt to index a nil value (field 'grad') (it is there after backward, if x "
   .. "requires a gradient)"},
  {"local y = model.parameters()",
   "parameters: expected a model, got nothing; methods are called with ':', as in "
   .. "model:parameters()"},
  {"local y = model.forward(x)",
   "a tensor is not a function; methods are called with ':', as in model:forward(x)"},
  {"local y = nn.linear(3, 4)", "there is no nn.linear (did you mean 'Linear'?)"},
  {"local y = optim.adam(model)", "there is no optim.adam (did you mean 'Adam'?)"},

  -- names of PyTorch and NumPy
  {'local y = x:astype("f32")', "tensors have no 'astype'; did you mean 'to'?"},
  {'local y = x:to("float32")',
   'to: there is no dtype "float32"; did you mean "f32"? (f64 f32 f16 bf16 i64 i32 '
   .. "i16 i8 u8 bool c64 c128)"},
  {'local y = flare.tensor({1}, {dtype = "int64"})',
   'tensor: there is no dtype "int64"; did you mean "i64"? (f64 f32 f16 bf16 i64 i32 '
   .. "i16 i8 u8 bool c64 c128)"},
  {"local y = flare.tensor({1}, {dtype = flare.int64})",
   'there is no flare.int64: dtypes are strings: "i64"'},
  {"local y = flare.from_numpy(x)",
   "there is no flare.from_numpy: flare.load reads .npy and .npz files; "
   .. "flare.from_dlpack shares memory"},
  {"local y = flare.autograd.grad(w:sum(), w)",
   "there is no flare.autograd: flare.grad, flare.backward, and flare.func for "
   .. "functions with gradients of their own"},
  {'local y = flare.set_default_dtype("f64")',
   "there is no flare.set_default_dtype: give dtype = ... where a tensor is made, or "
   .. "convert with x:to(dtype)"},
  {"local y = flare.set_printoptions{precision = 3}",
   "there is no flare.set_printoptions: flare.printing{digits = 4, width = 80}"},
  {"local y = flare.jit.script(model)",
   "there is no flare.jit: flare.compile(f) fuses the elementwise operators of a function"},
  {"local y = flare.nn.utils.clip_grad_norm_(model:parameters(), 1)",
   "there is no nn.utils: optim.clip_grad_norm_, nn.weight_norm, nn.spectral_norm, "
   .. "nn.prune, flare.pad_sequence"},
  {"local y = nn.MultiheadAttention(8, 2)",
   "there is no nn.MultiheadAttention (did you mean 'MultiHeadAttention'?)"},
  {"local y = nn.Parameter(x)",
   "there is no nn.Parameter: in a module self:param(tensor); elsewhere a tensor with "
   .. "requires_grad = true"},
  {"local y = nn.functional.conv2d(x, x)",
   "there is no nn.functional.conv2d (did you mean 'conv'?)"},
  {"local y = optim.ReduceLROnPlateau(optim.SGD(model))",
   "there is no optim.ReduceLROnPlateau (did you mean 'PlateauLR'?)"},
  {"local y = optim.SGD(model).param_groups[1].lr",
   "attempt to index a nil value (field 'param_groups') (it is optimizer.groups)"},
  {"local y = data.DataLoader(data.Tensors(x))",
   "there is no flare.data.DataLoader: data.Loader(dataset, {batch = 32, shuffle = true})"},
  {'local y = data.MNIST("data")',
   "there is no flare.data.MNIST: files of MNIST are read by data.idx.pairs(images, labels)"},
  {"local y = x:max(2).indices",
   "tensors have no 'indices' (x:max(1) and x:sort() return values and positions)"},
  {"local y = flare.func.vmap(x)",
   "attempt to index a function value (field 'func') (flare.func makes a function "
   .. "with a gradient of its own; vmap and grad are flare.vmap and flare.grad)"},
  {"local y = flare.special.erf(x)",
   "there is no flare.special: its functions are in flare: flare.erf(x)"},
  {"local y = w.data:add_(1)", "tensors have no 'data'; did you mean 'detach'?"},

  -- what is passed
  {"local y = nn.Linear(3, 4, false)",
   "nn.Linear: options must be a table {name = value}, got boolean (there are: act, bias)"},
  {"local y = nn.Conv2d(3, 8, 3, 1, 1)",
   "nn.Conv2d: options must be a table {name = value}, got number (there are: bias, "
   .. "dilation, groups, padding, padding_mode, stride)"},
  {"local y = nn.LSTM(3, 4, {num_layers = 2})",
   "nn.LSTM: unknown option 'num_layers' (did you mean 'layers'?)"},
  {"local y = nn.Sequential(nn.Linear(3, 4), nn.ReLU)",
   "Sequential: a module is expected, got the class ReLU: call it to make a layer"},
  {"local y = nn.Sequential(nn.Linear(3, 4), flare.relu)",
   "Sequential: a module is expected, got function"},
  {"local y = nn.CrossEntropyLoss(x, i)",
   "nn.CrossEntropyLoss: options must be a table {name = value}, got a tensor; a "
   .. "layer is made first and called then: nn.CrossEntropyLoss()(x) (there are: "
   .. "ignore_index, label_smoothing, reduction, weight)"},
  {"local y = nn.CrossEntropyLoss()(x, flare.tensor{0, 1})",
   "cross_entropy: targets of shape (2) are class positions and must be i64 or i32, "
   .. "not f32 (in CrossEntropyLoss) (whole numbers are made by flare.tensor({1, 2}, "
   .. '{dtype = "i64"}))'},
  {"local y = nn.CrossEntropyLoss()(i, x)",
   "cross_entropy: input 1 is i64, but must be floats (in CrossEntropyLoss) "
   .. "(x:float() makes floats of it)"},
  {"local y = nn.MSELoss()(x, x:t())", "mse_loss: x has shape (2, 3), target (3, 2) (in MSELoss)"},
  {"local y = nn.NLLLoss()(x, w)",
   "nll_loss: input 2 is f32, but must be positions (i64 or i32) (in NLLLoss) (whole "
   .. 'numbers are made by flare.tensor({1, 2}, {dtype = "i64"}))'},
  {"local y = nn.BCELoss()(x, x)",
   "bce_loss: x must be probabilities from 0 to 1, got 2; bce_with_logits takes "
   .. "logits (in BCELoss)"},
  {"local y = optim.Adam(model:parameters(), 0.001)",
   "optim.Adam: options must be a table {name = value}, got number (there are: "
   .. "amsgrad, betas, eps, lr, master, maximize, weight_decay)"},
  {"local y = optim.Adam(w)", "optim.Adam: a list of parameters is expected, got one tensor"},
  {"local y = optim.StepLR(model, {every = 1})",
   "optim.StepLR: an optimizer is expected, got a Sequential"},
  {"local y = optim.SGD(model):step(w:sum())",
   "step: the closure must be a function, got a tensor"},
  {"local y = flare.tensor(1, 2, 3)",
   "tensor: options are a table such as {dtype = ...}, got an integer (all elements "
   .. "are one table: flare.tensor{1, 2, 3})"},
  {'local y = flare.zeros({2, 3}, "f64")',
   "zeros: options are a table such as {dtype = ...}, got string"},
  {'local y = flare.einsum(x, "ij->i")',
   'einsum: expected an equation like "ij,jk->ik", got a tensor'},
  {'local y = flare.save(model, "model.pt")',
   "save: the path comes first and must be a string, got a Sequential"},
  {"local y = flare.class(nn.Module)", "class: the name must be a string, got the class Module"},
  {"local y = x:masked_fill(x, 0)",
   "masked_fill: input 2 is f32, but must be bool (comparisons such as x:gt(0) give bool)"},
  {"local y = x & 1",
   "bitwise_and: input 1 is f32, but must be integers (x:long() makes integers of it)"},
  {"local y = flare.rand(2, {seed = 1})",
   "rand: unknown option 'seed'; did you mean 'generator'?"},
  {"local y = nn.LSTM(3, 4)(x:view(2, 1, 3), {x, x})",
   "LSTM: the states are arguments of their own: lstm(x, h0, c0), got a table"},
  {"local f = flare.func(function(v) return v end)",
   "func: expected {forward = f, backward = f}, got function"},
  {"local y = model(i)",
   "linear: input 1 is i64, but must be floats (in Sequential.1) (x:float() makes "
   .. "floats of it)"},
  {"local y = flare.where(x, 1, 0)",
   "where: input 1 is f32, but must be bool (comparisons such as x:gt(0) give bool)"},
  {"local y = data.Loader({x, i}, {batch = 2})",
   "data.Loader: a data set with size and fetch (or get), such as data.Tensors(x, y), "
   .. "is expected, got table"},

  -- tensors and Lua's operators, loops and strings
  {"local y = x ~= nil and x < 2",
   "tensors are compared elementwise by methods: x:lt(y), x:le(y), x:gt(y), x:ge(y)"},
  {'x[x:gt(2)] = "a"', "x[...] = value: value: expected a tensor or a number, got string"},
  {"x[1] = flare.zeros(4)", "x[...] = value: shape (4) does not broadcast to (3)"},
  {"local y = x[0][0]", "x[0]: positions count from 1: x[1] is the first, x[-1] the last"},
  {"local y = x[1][4]", "x[...]: position 4 is out of range 1..3 (dim 1 of (3))"},
  {"for k, v in x do end", "a tensor is not a function; elements are x[i], x[{i, j}]"},
  {"for p in model:parameters() do end",
   "attempt to call a table value (for iterator 'for iterator') (a list is walked by: "
   .. "for i, x in ipairs(list) do)"},
  {"for name, p in pairs(model:named_parameters()) do end",
   "bad argument #1 to 'for iterator' (table expected, got function) (an iterator "
   .. "needs no pairs: for name, p in model:named_parameters() do)"},
  {"local p = model:named_parameters()[1]",
   "attempt to index a function value (an iterator is read by for: for name, p in "
   .. "model:named_parameters() do)"},
  {"local y = model[4](x)",
   "attempt to call a nil value (field 'integer index') (there is nothing at this "
   .. "position; positions count from 1)"},
  {"local y = x.shape[3] + 1",
   "attempt to perform arithmetic on a nil value (field 'integer index') (there is "
   .. "nothing at this position; positions count from 1)"},
  {'local y = model:state_dict()["0.weight"]:sum()',
   "attempt to index a nil value (field '0.weight') (names count from 1: \"1.weight\")"},
  {'print("loss: " + w:sum())',
   "add: a: expected a tensor or a number, got string (strings are joined by ..: "
   .. '"loss " .. loss:item())'},
  {'print("loss: " .. w:sum())',
   "..: a tensor is no text: x:item() is its number, tostring(x) shows it"},
  {'print(("%.3f"):format(w:sum()))',
   "bad argument #1 to 'format' (number expected, got flare.tensor) (a tensor's "
   .. "number is x:item())"},
  {'print(("%d"):format(2.5))',
   "bad argument #1 to 'format' (number has no integer representation) (%d takes "
   .. "whole numbers; others are written by %g or %.3f)"},
  {'print("loss %d" % 2)',
   "attempt to mod a 'string' with a 'number' (it is (\"%d of %s\"):format(x, y))"},
  {'print("a" .. nil)', "attempt to concatenate a nil value (tostring(x) is a text for any x)"},
  {'print(f"loss {x}")',
   "attempt to call a nil value (global 'f') (for f\"{x}\" write (\"%g\"):format(x))"},
  {"local t = {1} t:append(2)",
   "attempt to call a nil value (method 'append') (a list grows by list[#list + 1] = x)"},
  {'local t = ("a,b"):split(",")',
   "attempt to call a nil value (method 'split') (for word in s:gmatch(\"[^,]+\") do "
   .. "... end cuts a string)"},
  {"local t = {} print(t[0] + 1)",
   "attempt to perform arithmetic on a nil value (field 'integer index') (there is "
   .. "nothing at this position; positions count from 1)"},
  {"print(math.sqrt(x))",
   "bad argument #1 to 'sqrt' (number expected, got flare.tensor) (a tensor's number "
   .. "is x:item())"},

  -- classes
  {'local Net = flare.class("Net") local y = Net()(x)',
   "attempt to call a Net value (a model's class has a parent: flare.class(\"Net\", "
   .. "nn.Module))"},
  {'local Net = flare.class("Net", nn.Module) local y = Net()(x)',
   "Net has no forward method (in Net)"},
  {'local Net = flare.class("Net", nn.Module) function Net:init() self.fc1 = '
   .. "nn.Linear(3, 2) end function Net:forward(v) local u = self.fc_1(v) return u end "
   .. "local y = Net()(x)",
   "attempt to call a nil value (field 'fc_1') (did you mean 'fc1'?)"},
  {'local Net = flare.class("Net", nn.Module) function Net.init() self.fc = 1 end local '
   .. "y = Net()",
   "attempt to index a nil value (global 'self') (methods are defined with ':', as in "
   .. "function Net:forward(x))"},
  {'local Net = flare.class("Net", nn.Module) function Net:init() super().init() end '
   .. "local y = Net()",
   "attempt to call a nil value (global 'super') (nothing is needed there; for a "
   .. "parent's own init: Net.parent.init(self, ...))"},
  {'local Net = flare.class("Net", nn.Module) Net:parameters()',
   "parameters: expected a model, got the class Net: Net() makes an object; methods "
   .. "are called with ':', as in model:parameters()"},
  {'local Net = flare.class("Net", nn.Module) function Net:init() self.w = '
   .. "flare.ones(3) end optim.SGD(Net())",
   "optim.SGD: a list of parameters is expected, got an empty one (a module's tensor "
   .. "is a parameter by self.weight = self:param(tensor))"},
  {'local Net = class("Net", nn.Module)',
   "attempt to call a nil value (global 'class') (here it is flare.class)"},

  -- globals
  {"local y = torch.tensor{1}",
   "attempt to index a nil value (global 'torch') (torch is flare here: local flare = "
   .. 'require "flare")'},
  {"local y = np.array{1}",
   "attempt to index a nil value (global 'np') (arrays are flare's tensors: local "
   .. 'flare = require "flare")'},
  {"local y = F.relu(x)",
   "attempt to index a nil value (global 'F') (its functions are in flare: flare.relu(x))"},
  {"for k in range(10) do end",
   "attempt to call a nil value (global 'range') (Lua counts by: for i = 1, n do)"},
  {"print(len(x))", "attempt to call a nil value (global 'len') (a length is #x)"},
  {"print(isinstance(x, 1))",
   "attempt to call a nil value (global 'isinstance') (it is type(x), "
   .. "flare.is_tensor(x) or flare.class.is(x, Net))"},
  {"print(max(1, 2))",
   "attempt to call a nil value (global 'max') (of numbers it is math.max, of tensors "
   .. "flare.max)"},
  {"plt.plot(x)",
   "attempt to index a nil value (global 'plt') (x:plot(\"losses.svg\"), or :plot x at "
   .. "the prompt)"},
  {"self.x = 1",
   "attempt to index a nil value (global 'self') (methods are defined with ':', as in "
   .. "function Net:forward(x))"},
  {"local _ <close> = flare.no_grad",
   "variable '_' got a non-closable value (a guard is what a call returns: local _ "
   .. "<close> = flare.no_grad())"},

  -- what is no Lua
  {"if x != 1 then end",
   "'then' expected near '!' (Lua writes not x, and not equal as ~= (tensors: x:ne(y)))"},
  {"local y = 3 ** 2", "unexpected symbol near '*' (a power is x ^ y)"},
  {"y += 1", "syntax error near '+' (Lua has no += or ++: x = x + 1, or x:add_(1))"},
  {"local y = x @ x", "unexpected symbol near '@' (a product of matrices is x:matmul(y))"},
  {"local y = x[1, 2]", "']' expected near ',' (several positions are a table: x[{1, 2}])"},
  {"local y = x[:, 2]", "unexpected symbol near ':' (all of a dim is {}: x[{{}, 1}])"},
  {"local y = x[1:2]", "']' expected near ':' (a range of positions is x[{{first, last}}])"},
  {"local y = x:repeat(2)",
   "<name> expected near 'repeat' (it is x:tile({2, 1}): repeat is a word of Lua)"},
  {"local y = flare.zeros((2, 3))",
   "')' expected near ',' (Lua has no tuples: flare.zeros(3, 4), or a table: {3, 4})"},
  {"local y = nn.Linear(3, 4, bias=true)",
   "')' expected near '=' (what has names is a table: f(x, {name = value}))"},
  {"local y = [1, 2, 3]", "unexpected symbol near '[' (a list is {1, 2, 3})"},
  {'local y = {1, "a": 2}', "'}' expected near ':' (a table is {name = value, [key] = value})"},
  {"local y = !x",
   "unexpected symbol near '!' (Lua writes not x, and not equal as ~= (tensors: x:ne(y)))"},
  {"local y = x && y", "unexpected symbol near '&' (Lua writes and, or, not)"},
  {"local y = x ? 1 : 2", "unexpected symbol near '?' (Lua chooses by: condition and x or y)"},
  {"local y = 1 if x else 2",
   "'then' expected near 'else' (Lua chooses by: condition and x or y)"},
  {"local y = lambda v: v * 2",
   "function arguments expected near '*' (a function is: function(x) return x end)"},
  {"local y = [v for v in x]",
   "unexpected symbol near '[' (a list is filled in a loop: for i = 1, n do list[i] = "
   .. "i * i end)"},
  {"a = b = 3", "unexpected symbol near '=' (each assignment is a statement: x = 1; y = 1)"},
  {"# a comment", "unexpected symbol near '#' (a comment begins with --)"},
  {"/* a comment */",
   "unexpected symbol near '/' (a comment is -- to the end of the line, or --[[ ... ]])"},
  {"import flare",
   "syntax error near 'flare' (a module is read by: local flare = require \"flare\")"},
  {"from flare import nn",
   "syntax error near 'flare' (a module is read by: local flare = require \"flare\")"},
  {"def f(x):\n  return x", "syntax error near 'f' (a function is: function name(x) ... end)"},
  {"class Net(nn.Module):\n  pass",
   "syntax error near 'Net' (a class is: local Net = flare.class(\"Net\", nn.Module))"},
  {"with flare.no_grad():\n  y = model(x)",
   "syntax error near 'flare' (Lua has no with: local _ <close> = flare.no_grad(), or "
   .. "flare.no_grad(f))"},
  {"if x is None then end", "'then' expected near 'is' (Lua compares by == and ~=)"},
  {"if 3 in {1, 2} then end", "'then' expected near 'in' (a key is in a table if t[key] ~= nil)"},
  {"elif x then", "syntax error near 'x' (it is elseif condition then)"},
  {"let y = 1", "syntax error near 'y' (a variable is: local x = 1)"},
  {"const y = 1", "syntax error near 'y' (a variable is: local x <const> = 1)"},
  {"assert x == 1",
   "syntax error near 'x' (assert is a function: assert(condition, \"message\"))"},
  {"print x", "syntax error near 'x' (print is a function: print(x))"},
  {'raise ValueError("x")',
   "syntax error near 'ValueError' (an error is raised by error(\"message\"))"},
  {"while x:\n  y = 1",
   "user.lua:2: function arguments expected near '=' (a block is: while condition do ... end)"},
  {"for k in range(10):\n  print(k)",
   "user.lua:2: 'do' expected near <eof> (a block is: for i = 1, n do ... end)"},
  {"for (k = 1; k < 3; k++) { }",
   "<name> expected near '(' (Lua counts by: for i = 1, n do ... end)"},
  {"if (x) { print(x) }", "'then' expected near <eof> (Lua writes: if condition then ... end)"},
  {"function f() { return 1 }",
   "unexpected symbol near '{' (a block has no braces, it ends with end)"},
  {"function f(x) -> x",
   "unexpected symbol near '-' (functions have no types in Lua: function name(x) ... end)"},
  {"@flare.compile\nlocal function f() end",
   "unexpected symbol near '@' (a decorator is a call: f = flare.compile(f))"},
  {"if x then\n  y = 1\nelse if y then\n  y = 2\nend",
   "user.lua:5: 'end' expected (to close 'if' at line 1) near <eof> (elseif is one "
   .. "word; else if needs one more end)"},
  {"y = {\n  a = 1\n  b = 2\n}",
   "user.lua:3: '}' expected (to close '{' at line 1) near 'b' (a comma stands "
   .. "between what is in a table)"},
}
