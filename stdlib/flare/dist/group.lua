--- A process group, as dist.group and dist.mesh make it and dist.world is one. The collectives are
-- its methods: g:all_reduce(x, o) is dist.all_reduce(x, {group = g, ...}), and so for all others.
-- g.rank is this process's number in it, nil outside, g.size the number of its ranks, and g.ranks
-- the list of their numbers in the job.
local class = require "flare.class"
local core = require "flare.core"
local fail = require "flare.fail"
local options = require "flare.options"

local comm = core.comm

local Group = class "dist.Group"

-- All groups, whose engines a reset detaches, and the number of resets.
local groups, resets = setmetatable({}, {__mode = "k"}), 0

Group.engine = "host" -- for tensors in the host's memory

--- dist.Group(ranks) is dist.group(ranks).
-- @param ranks a list of ranks of the job
-- @param id the number of a group that the runtime has already; nil: makes one, which all ranks of
--   the job do in the same order
function Group:init(ranks, id)
  if not id and type(ranks) ~= "table" then
    fail("group: a list of ranks is expected, as in {0, 2}, got %s", options.kind(ranks))
  end
  self.id = id or comm.group(ranks)
  self.rank, self.ranks = comm.members(self.id)
  self.size = #self.ranks
  self.streams, self.attached = {}, {}
  groups[self] = true
end

-- Called after core.comm.reset: engines are attached again when they are next needed, and handles
-- of earlier calls have no result.
function Group.reset()
  resets = resets + 1
  for group in pairs(groups) do group.attached = {} end
end

-- Returns `value` if it is a group with this rank in it. `where`: the function's name, for errors.
function Group.of(where, value)
  if not class.is(value, Group) then
    fail("%s: group must be one that dist.group makes, got %s", where, options.kind(value))
  end
  if not value.rank then fail("%s: this rank is not in the group", where) end
  return value
end

-- Attaches the engine for a device at the first call that needs it, which all members make.
function Group:attach(device)
  if self.attached[device] then return end
  if self.size > 1 and not comm.engine(self.id, device) then self:_attach(device) end
  self.attached[device] = true
end

function Group:_attach(device)
  if not self.rank then fail("this rank is not in the group") end
  local engine = device:find "^cuda" and "nccl" or Group.engine
  local ticket = ""
  if engine == "nccl" then
    self:attach "cpu"
    ticket = self:share(self.rank == 0 and comm.ticket(engine) or nil)
  end
  comm.attach(self.id, engine, device, ticket)
end

-- --- calls ---

local Work = class "dist.Work"
Work.__keeps = true

--- Waits until the call is done; on a device, makes the current stream wait for it.
-- @return the result
function Work:wait()
  if self.seq and self.resets ~= resets then
    self.seq, self.finish = nil, nil
    fail "wait: the call ended with the failure of the ranks before this line"
  end
  if self.event then core.current_stream(self.device):wait(self.event)
  elseif self.seq then comm.wait(self.group, self.device, self.lane, self.seq) end
  self.event, self.seq = nil, nil
  local finish = self.finish
  if finish then self.result, self.finish = finish(self.result), nil end
  return self.result
end

--- Lets wait() return f(result).
-- @return the handle
function Work:after(f)
  self.finish = f
  return self
end

--- Tells whether wait() would return at once.
-- @return a boolean
function Work:done()
  if self.event then return self.event:query() end
  return not self.seq or self.resets ~= resets
    or comm.done(self.group, self.device, self.lane, self.seq)
end

-- Asynchronous calls on a device run on a stream that belongs to the group.
local function stream_of(self, device)
  local stream = self.streams[device]
  if not stream then
    stream = core.stream(device)
    self.streams[device] = stream
  end
  stream:wait(core.current_stream(device))
  return stream
end

-- Calls f, which starts an asynchronous call on tensors of the device. All that f launches, and
-- what Work:after adds, runs on the group's stream, after the work that is queued on the current
-- stream. Returns the handle.
function Group:later(device, f)
  if self.size == 1 or device == "cpu" then return f() end
  local stream, work = stream_of(self, device), Work()
  work.result = stream:run(function() return f():wait() end)
  work.event, work.device = stream:record(), device
  return work
end

-- The same for f that writes the given tensors; later uses of one of them wait for it.
function Group:aside(device, tensors, f)
  local stream = stream_of(self, device)
  stream:run(f)
  stream:promise(tensors)
end

-- Calls the function f of the core, as f(x, o), or f(o) without x.
local function call(self, f, x, o, device)
  o.group = self.id
  if not o.async then
    if x then return f(x, o) end
    return f(o)
  end
  local _ <close> = core.no_grad()
  if self.size == 1 or device == "cpu" then
    local y
    if x and not x:is_contiguous() then x = x:contiguous() end
    if x then y = f(x, o) else y = f(o) end
    local work = Work()
    work.result, work.group, work.device = y, self.id, device
    if self.size > 1 then
      work.lane, work.seq = comm.last(self.id, device)
      work.resets = resets
    end
    return work
  end
  local stream, work = stream_of(self, device), Work()
  if x then work.result = stream:run(f, x, o) else work.result = stream:run(f, o) end
  work.event, work.device = stream:record(), device
  return work
end

local is_tensor = core.is_tensor

local function check_tensor(name, x)
  if not is_tensor(x) then fail("%s: expected a tensor, got %s", name, options.kind(x)) end
  return x
end

-- The options of a call for the core, which has the same defaults. Only those that are given: a
-- full table takes longer than a collective of small tensors.
local function read(name, o, defaults)
  local given = {}
  if o == nil then return given end
  if type(o) ~= "table" then options.check(name, o, defaults) end
  for key, value in next, o do
    if type(value) ~= type(defaults[key]) then options.check(name, o, defaults) end
    given[key] = value
  end
  return given
end

-- Refused before the call is counted, because the calls of the other ranks may be valid.
local function check_algorithm(name, given, device)
  if given.algorithm == "nccl" and not device:find "^cuda" then
    fail("%s: algorithm nccl is for GPUs; for %s there are ring, one_shot, two_shot", name, device)
  end
end

local discards = comm.discards
-- Collectives whose lost result was reported; in other libraries collectives write over x.
local warned = {}
-- Whether the result is of no use to this rank.
local useless = {broadcast = function(self, root) return self.rank == root end,
  reduce = function(self, root) return self.rank ~= root end,
  gather = function(self, root) return self.rank ~= root end}
local in_place = {all_reduce = true, reduce = true, broadcast = true}

-- Reports a call that is a statement: its result is lost, and x has not changed.
local function warn_discarded(self, name, o)
  local has_none = useless[name]
  if has_none and has_none(self, type(o) == "table" and o.root or 0) then return end
  local level = 3
  local info = debug.getinfo(level, "Sl")
  while info and (info.currentline < 0 or info.short_src:sub(1, 7) == "<flare>") do
    level = level + 1
    info = debug.getinfo(level, "Sl")
  end
  if not info then return end
  warned[name] = true
  io.stderr:write(("flare: %s:%d: the result of %s is not used, and its argument is unchanged: "
    .. "y = dist.%s(...)%s\n"):format(info.short_src, info.currentline, name, name,
    in_place[name] and (", or dist.%s_(x), which writes over x"):format(name) or ""))
end

local function define(name, defaults)
  local f = core["comm_" .. name]
  defaults.async = false
  Group[name] = function(self, x, o)
    if not warned[name] and discards() then warn_discarded(self, name, o) end
    check_tensor(name, x)
    local device, given = x.device, read(name, o, defaults)
    check_algorithm(name, given, device)
    if not self.attached[device] then self:attach(device) end
    return call(self, f, x, given, device)
  end
end

define("all_reduce", {reduce = "sum", algorithm = "auto"})
define("reduce", {reduce = "sum", root = 0})
define("broadcast", {root = 0})
define("all_gather", {})
define("gather", {root = 0})
define("reduce_scatter", {reduce = "sum"})
define("all_to_all", {})

-- The variants that write over x.
for name, defaults in pairs {all_reduce = {reduce = "sum", algorithm = "auto", async = false},
    broadcast = {root = 0, async = false}, reduce = {reduce = "sum", root = 0, async = false},
    all_gather = {async = false}} do
  local method = "comm_" .. name .. "_"
  local whole = name == "all_gather" or nil -- x has the parts of all ranks
  local function f(x, given)
    given.whole = whole
    return x[method](x, given)
  end
  Group[name .. "_"] = function(self, x, o)
    check_tensor(name, x)
    local device, given = x.device, read(name, o, defaults)
    check_algorithm(name, given, device)
    if not self.attached[device] then self:attach(device) end
    if given.async and not x:is_contiguous() then
      fail("%s_: an asynchronous call needs a contiguous tensor", name)
    end
    return call(self, f, x, given, device)
  end
end

--- See dist.send.
function Group:send(x, peer, o)
  check_tensor("send", x)
  self:attach(x.device)
  o = options.check("send", o, {async = false})
  o.peer = peer
  return call(self, core.comm_send, x, o, x.device)
end

--- See dist.recv.
function Group:recv(shape, peer, o)
  if not warned.recv and discards() then warn_discarded(self, "recv") end
  local given = core.is_tensor(shape) and {dtype = shape.dtype, device = shape.device} or {}
  o = options.check("recv", o, {async = false, dtype = given.dtype or "f32",
    device = given.device or "cpu"})
  if core.is_tensor(shape) then shape = shape.shape end
  if type(shape) ~= "table" and type(shape) ~= "userdata" then
    fail("recv: a shape or a tensor like the one that comes is expected, got %s",
      options.kind(shape))
  end
  local device = o.device
  o.shape, o.peer = {table.unpack(shape, 1, #shape)}, peer
  self:attach(device)
  return call(self, core.comm_recv, nil, o, device)
end

--- See dist.scatter.
function Group:scatter(x, o)
  o = options.check("scatter", o, {root = 0, async = false, device = options.none})
  local root, device, meta = o.root, o.device, nil
  o.device = nil
  if self.rank == root then
    check_tensor("scatter", x)
    meta = x.dtype .. " " .. table.concat({table.unpack(x.shape, 1, x:dim())}, " ")
    meta = x.device .. " " .. meta
  end
  local words = {}
  for word in self:share(meta, root):gmatch "%S+" do words[#words + 1] = word end
  local shape = {}
  for k = 3, #words do shape[k - 2] = math.tointeger(tonumber(words[k])) end
  if (shape[1] or 1) % self.size ~= 0 then -- all ranks raise it
    fail("scatter: dim 1 of x (%s) must be a multiple of the %d ranks",
      table.concat(shape, ", "), self.size)
  end
  if self.rank ~= root then
    x = core.zeros({0}, {dtype = words[2], device = device or words[1]:match "^%a+"})
    shape[1] = shape[1] // self.size
    o.shape = shape
  end
  self:attach(x.device)
  return call(self, core.comm_scatter, x, o, x.device)
end

--- See dist.barrier.
function Group:barrier()
  self:attach "cpu"
  core.comm_barrier{group = self.id}
end

--- See dist.share.
function Group:share(text, root)
  root = root or 0
  if self.rank == root and type(text) ~= "string" then
    fail("share: rank %d has to give a string, got %s", root, options.kind(text))
  end
  if self.size == 1 then return text end
  self:attach "cpu"
  local mine = self.rank == root
  local n = core.tensor({mine and #text or 0}, {dtype = "i64"})
  n = core.comm_broadcast(n, {group = self.id, root = root}):item()
  if n == 0 then return "" end
  local bytes = mine and core.from_bytes(text, "u8") or core.zeros({n}, {dtype = "u8"})
  return core.comm_broadcast(bytes, {group = self.id, root = root}):bytes()
end

function Group:__tostring()
  return ("dist.Group (ranks %s, this is %s)"):format(table.concat(self.ranks, " "),
    self.rank and "number " .. self.rank or "none of them")
end

return Group
