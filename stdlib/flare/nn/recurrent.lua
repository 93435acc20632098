--- RNN, LSTM and GRU: several layers, one or two directions.
--
-- The time comes first: inputs are (time, batch, inputs), as PyTorch's are by default, or (batch,
-- time, inputs) with batch_first = true. (Attention and transformers are always batch first.)
-- States are (layers * directions, batch, hidden). One product multiplies the inputs of all time
-- steps by their weight; a step is then one product with the state and one fused cell.
local class = require "flare.class"
local core = require "flare.core"
local fail = require "flare.fail"
local init = require "flare.nn.initialize"
local options = require "flare.options"
local steps = require "flare.nn.steps"
local Module = require "flare.nn.module"

local Recurrent = class("Recurrent", Module)

--- nn.LSTM(inputs, hidden, {layers = 1, bidirectional = false, bias = true, dropout = 0,
--   batch_first = false}); nn.RNN also has act = "tanh" or "relu", nn.LSTM projection = 0
-- The input is (time, batch, inputs), with batch_first = true it is (batch, time, inputs).
-- `dropout` acts between layers, in training. `projection`: the size to which weight_hr_l1
-- (projection, hidden) projects h after each step (arXiv:1402.1128); 0 for none. Parameters are
-- weight_ih_l1 (gates * hidden, inputs), weight_hh_l1 (gates * hidden, size of h), bias_ih_l1 and
-- bias_hh_l1; those of the reverse direction end with "_reverse", those of further layers have l2,
-- l3 and so on.
function Recurrent:init(inputs, hidden, opts)
  local where = "nn." .. getmetatable(self).__name
  local defaults = {layers = 1, bidirectional = false, bias = true, dropout = 0,
                    batch_first = false}
  if self.acts then defaults.act = "tanh" end
  if self.two_states then defaults.projection = 0 end
  local o = options.check(where, opts, defaults)
  self.inputs = options.count(where, "inputs", inputs)
  self.hidden = options.count(where, "hidden", hidden)
  self.layers = options.count(where, "layers", o.layers)
  if self.acts and not self.acts[o.act] then
    fail("%s: act is 'tanh' or 'relu', got '%s'", where, tostring(o.act))
  end
  self.act, self.dropout, self.batch_first = o.act, o.dropout, o.batch_first
  if o.projection and options.count(where, "projection", o.projection, 0) >= hidden then
    fail("%s: projection must be below hidden, %d, got %d", where, hidden, o.projection)
  end
  self.projection = (o.projection or 0) > 0 and o.projection or nil
  self.width = self.projection or hidden -- of h
  self.directions = o.bidirectional and 2 or 1
  local bound = {low = -1 / math.sqrt(hidden), high = 1 / math.sqrt(hidden)}
  local rows = self.gates * hidden
  for layer = 1, self.layers do
    local width = layer == 1 and inputs or self.width * self.directions
    for direction = 1, self.directions do
      local suffix = self:suffix(layer, direction)
      self["weight_ih" .. suffix] = self:param(init.uniform({rows, width}, bound))
      self["weight_hh" .. suffix] = self:param(init.uniform({rows, self.width}, bound))
      if self.projection then
        self["weight_hr" .. suffix] = self:param(init.uniform({self.projection, hidden}, bound))
      end
      if o.bias then
        self["bias_ih" .. suffix] = self:param(init.uniform({rows}, bound))
        self["bias_hh" .. suffix] = self:param(init.uniform({rows}, bound))
      end
    end
  end
end

function Recurrent:suffix(layer, direction)
  return ("_l%d%s"):format(layer, direction == 2 and "_reverse" or "")
end

-- One direction of one layer. x: (time, batch, width); returns the outputs in order of time,
-- and the last state. Where a sequence is not `alive` its state stays.
function Recurrent:run(x, suffix, direction, h, c, alive)
  local gates = steps.unbind((core.linear(x, self["weight_ih" .. suffix],
                                          self["bias_ih" .. suffix])))
  local weight, bias = self["weight_hh" .. suffix], self["bias_hh" .. suffix]
  local project = self["weight_hr" .. suffix]
  local outputs, n = {}, #gates
  local first, last, by = 1, n, 1
  if direction == 2 then first, last, by = n, 1, -1 end
  for t = first, last, by do
    local h2, c2 = self:cell(gates[t], (core.linear(h, weight, bias)), h, c)
    if project then h2 = core.linear(h2, project) end
    if alive and alive[t] then
      if h2.dtype ~= h.dtype then h, c = h:to(h2.dtype), c and c:to(c2.dtype) end -- autocast
      h2, c2 = core.where(alive[t], h2, h), c2 and core.where(alive[t], c2, c)
    end
    h, c, outputs[t] = h2, c2, h2
  end
  return core.stack(outputs, {dim = 1}), h, c
end

local function initial(self, given, name, width, batch, x)
  local n = self.layers * self.directions
  if given == nil then
    return core.zeros({n, batch, width}, {dtype = x.dtype, device = x.device})
  end
  local shape = given.shape
  if #shape ~= 3 or shape[1] ~= n or shape[2] ~= batch or shape[3] ~= width then
    fail("%s: %s must be (%d, %d, %d), got (%s)", getmetatable(self).__name, name, n, batch,
         width, table.concat(shape, ", "))
  end
  return given
end

-- The mask of steps within each sequence, bool (time, batch, 1), and a list of its steps, without
-- the steps at which no sequence has ended.
local function living(where, lengths, time, batch, device)
  if type(lengths) == "table" then lengths = core.tensor(lengths, {dtype = "i64"}) end
  if not core.is_tensor(lengths) or lengths:dim() ~= 1 or #lengths ~= batch then
    fail("%s: lengths must be %d numbers, one for each sequence, got %s", where, batch,
         core.is_tensor(lengths) and tostring(lengths.shape) or options.kind(lengths))
  end
  local least, most = lengths:amin():item(), lengths:amax():item()
  if least < 0 or most > time then
    fail("%s: a length of %d, but there are %d time steps", where, least < 0 and least or most,
         time)
  end
  local alive = core.arange(1, time + 1):unsqueeze(2):le(lengths:cpu()):unsqueeze(3):to(device)
  local list = {}
  for t = math.tointeger(least) + 1, time do list[t] = alive[t] end
  return alive, list
end

--- y, h = rnn(x, h0, {lengths =}); for LSTM y, h, c = lstm(x, h0, c0, {lengths =})
-- @param x (time, batch, inputs), or batch first if the layer says so; or one sequence (time,
--   inputs), whose states and results have no batch either
-- @param h0 (layers * directions, batch, hidden or projection), zeros if left out; c0 the same, of
--   width hidden
-- @param opts `lengths`: the number of steps of each sequence, a list or a tensor. Beyond its end y
--   is 0; the last states are those at its end, where the reverse direction begins. The table may
--   be the second argument, without states
-- @return y (time, batch, hidden * directions) in x's layout, and the last states
function Recurrent:forward(x, h0, c0, opts)
  if type(h0) == "table" and core.is_tensor(h0[1]) then
    fail("%s: the states are arguments of their own: lstm(x, h0, c0), got a table",
         getmetatable(self).__name)
  end
  if type(h0) == "table" then h0, opts = nil, h0 end
  if type(c0) == "table" then c0, opts = nil, c0 end
  options.input(self, x)
  for _, state in pairs {h0, c0} do
    options.tensor(getmetatable(self).__name, "a state", state)
  end
  if x:dim() == 2 and x:size(2) == self.inputs then
    local at = self.batch_first and 1 or 2
    local y, h, c = self:forward(x:unsqueeze(at), h0 and h0:unsqueeze(2), c0 and c0:unsqueeze(2),
                                 opts)
    return y:squeeze(at), h:squeeze(2), c and c:squeeze(2)
  end
  local where = getmetatable(self).__name
  local lengths = options.check(where, opts, {lengths = options.none}).lengths
  if x:dim() ~= 3 or x:size(3) ~= self.inputs then
    fail("%s: the input must be (%s, %d), got (%s)", where,
         self.batch_first and "batch, time" or "time, batch", self.inputs,
         table.concat(x.shape, ", "))
  end
  if self.batch_first then x = x:transpose(1, 2) end
  if x:size(1) == 0 then fail("%s: the input has no time steps", where) end
  local batch = x:size(2)
  local alive, steps_alive
  if lengths then alive, steps_alive = living(where, lengths, x:size(1), batch, x.device) end
  h0 = initial(self, h0, "h0", self.width, batch, x)
  c0 = self.two_states and initial(self, c0, "c0", self.hidden, batch, x) or nil
  local hs, cs = {}, {}
  for layer = 1, self.layers do
    if layer > 1 and self.training and self.dropout > 0 then
      x = core.dropout(x, self.dropout)
    end
    local sides = {}
    for direction = 1, self.directions do
      local k = (layer - 1) * self.directions + direction
      local outputs, h, c = self:run(x, self:suffix(layer, direction), direction, h0[k],
                                     c0 and c0[k], steps_alive)
      sides[direction], hs[k], cs[k] = outputs, h, c
    end
    x = #sides == 1 and sides[1] or core.cat(sides, {dim = 3})
  end
  if alive then x = x:masked_fill(alive:logical_not(), 0) end
  if self.batch_first then x = x:transpose(1, 2) end
  if self.two_states then return x, core.stack(hs, {dim = 1}), core.stack(cs, {dim = 1}) end
  return x, core.stack(hs, {dim = 1})
end

function Recurrent:describe()
  return ("%d -> %d%s%s%s"):format(self.inputs, self.hidden,
                                 self.projection and ", projection=" .. self.projection or "",
                                 self.layers > 1 and ", layers=" .. self.layers or "",
                                 self.directions > 1 and ", bidirectional" or "")
end

local RNN = class("RNN", Recurrent)
RNN.gates = 1
RNN.acts = {tanh = true, relu = true}
function RNN:cell(gi, gh)
  return core[self.act](gi + gh)
end

local LSTM = class("LSTM", Recurrent)
LSTM.gates = 4
LSTM.two_states = true
function LSTM:cell(gi, gh, _, c)
  local h, c2 = core.lstm_cell(gi + gh, c)
  return h, c2
end

-- The number of steps from which the CPU's kernel for all steps, which packs the weights first, is
-- faster. On other devices it is an expression, slower than single steps.
local MANY = 8

local function at_once(row, x, alive)
  return not alive and x:size(1) >= MANY and core.has_kernel(row, x.device)
end

function LSTM:run(x, suffix, direction, h, c, alive)
  if self.projection or not at_once("lstm", x, alive) then
    return Recurrent.run(self, x, suffix, direction, h, c, alive)
  end
  local weight, ih = self["weight_hh" .. suffix], self["weight_ih" .. suffix]
  local bias = self["bias_ih" .. suffix]
  local gates = core.linear(x, ih, bias and bias + self["bias_hh" .. suffix])
  local y, cs = core.lstm(gates, weight, h, c, {reverse = direction == 2})
  local last = direction == 2 and 1 or -1
  return y, y[last], cs[last]
end

local GRU = class("GRU", Recurrent)
GRU.gates = 3
function GRU:cell(gi, gh, h)
  return (core.gru_cell(gi, gh, h))
end

function GRU:run(x, suffix, direction, h, c, alive)
  if not at_once("gru", x, alive) then
    return Recurrent.run(self, x, suffix, direction, h, c, alive)
  end
  local gates = core.linear(x, self["weight_ih" .. suffix], self["bias_ih" .. suffix])
  local y = core.gru(gates, self["weight_hh" .. suffix], self["bias_hh" .. suffix], h,
                     {reverse = direction == 2})
  return y, y[direction == 2 and 1 or -1]
end

local Cell = class("Cell", Module)

--- nn.LSTMCell(inputs, hidden, {bias = true}): one step; nn.RNNCell also has act
function Cell:init(inputs, hidden, opts)
  local of, where = self.of, "nn." .. getmetatable(self).__name
  local o = options.check(where, opts, {bias = true, act = of.acts and "tanh"})
  self.act, self.inputs = o.act, options.count(where, "inputs", inputs)
  self.hidden = options.count(where, "hidden", hidden)
  local rows, bound = of.gates * hidden, 1 / math.sqrt(hidden)
  for _, part in ipairs{"ih", "hh"} do
    local width = part == "ih" and inputs or hidden
    self["weight_" .. part] = self:param(init.uniform({rows, width}, {low = -bound, high = bound}))
    if o.bias then
      self["bias_" .. part] = self:param(init.uniform({rows}, {low = -bound, high = bound}))
    end
  end
end

--- h = cell(x, h); for LSTM h, c = cell(x, h, c): states (batch, hidden), zeros if left out
function Cell:forward(x, h, c)
  options.input(self, x)
  local function zeros()
    return core.zeros({x:size(1), self.hidden}, {dtype = x.dtype, device = x.device})
  end
  h = h or zeros()
  if self.of.two_states then c = c or zeros() end
  return self.of.cell(self, (core.linear(x, self.weight_ih, self.bias_ih)),
                      (core.linear(h, self.weight_hh, self.bias_hh)), h, c)
end

function Cell:describe() return ("%d -> %d"):format(self.inputs, self.hidden) end

local classes = {RNN = RNN, LSTM = LSTM, GRU = GRU}
for _, name in ipairs{"RNN", "LSTM", "GRU"} do
  local cell = class(name .. "Cell", Cell)
  cell.of = classes[name]
  classes[name .. "Cell"] = cell
end
return classes
