--- Types for the definitions of editors: of functions and methods in C that are not operators, and
-- of arguments and results that comments describe. A description from which no type follows is
-- "any", since a type that is too narrow would make an editor object to good code.
local M = {}

local making = "flare.making" -- {dtype =, device =, requires_grad =}
local tensor, number, text = "flare.tensor", "number", "string"
local like = {{"x", tensor}, {"o?", making}}
local gradients = "{gradient?: flare.tensor[]|flare.tensor, retain_graph?: boolean, "
  .. "create_graph?: boolean, allow_unused?: boolean}"
local sizes = {{"size", "number|number[]"}, {"...", "number|" .. making}}
local call = {{"f?", "function|boolean"}, {"...", "any"}}
local device = {{"device?", text}}
local random = "{generator?: flare.generator}"

-- Names, arguments and results: of flare.*, then of tensors.
local functions = {
  {"tensor", {{"numbers", "any"}, {"o?", making}}, tensor},
  {"zeros ones empty", sizes, tensor},
  {"zeros_like ones_like empty_like rand_like randn_like", like, tensor},
  {"full_like", {{"x", tensor}, {"value", "number|boolean"}, {"o?", making}}, tensor},
  {"range", {{"start", number}, {"stop", number}, {"step?", "number|" .. making},
             {"o?", making}}, tensor},
  {"from_bytes", {{"bytes", text}, {"dtype", "flare.dtype"}, {"shape", "number[]"}}, tensor},
  {"from_dlpack", {{"capsule", "userdata"}}, tensor},
  {"is_tensor grad_enabled", {{"value?", "any"}}, "boolean"},
  {"grad", {{"y", "flare.tensor[]|flare.tensor"}, {"x", "flare.tensor[]|flare.tensor"},
            {"o?", gradients}}, "flare.tensor ..."},
  {"backward", {{"list", "flare.tensor[]"}, {"o?", gradients}}},
  {"no_grad enable_grad anomaly scope", call, "any", "any"},
  {"meta", {{"f", "function"}, {"...", "any"}}, "any", "any"},
  {"autocast", {{"dtype", '"bf16"|"f16"|false'}, {"f?", "function"}, {"...", "any"}},
   "any", "any"},
  {"func", {{"o", "{name?: string, forward: function, backward: function}"}}, "function"},
  {"device set_default_device", {{"name?", text}, {"f?", "function"}, {"...", "any"}},
   "any", "any"},
  {"devices", {}, "string[]"},
  {"threads", {{"n?", number}}, "integer"},
  {"synchronize", device},
  {"stream event current_stream default_stream", device, "any"},
  {"debug_streams", call, "any", "any"},
  {"load_backend", {{"path", text}}, "true?", "string?"},
  {"spawn", {{"source", text}, {"...", "any"}}, "any"},
  {"clock", {}, number},
  {"provenance", {{"message", text}}, "string?"},
  {"manual_seed", {{"seed", number}}},
  {"generator", {{"seed?", number}}, "flare.generator"},
  {"default_generator", {}, "flare.generator"},
  {"elementwise", {{"inputs", text}, {"outputs", text}, {"body", text}, {"...", "any"}},
   "function"},
  {"reduce", {{"inputs", text}, {"output", text}, {"body", text}, {"how?", text}, {"...", "any"}},
   "function"},
  {"kernel", {{"f", "function"}}, "function"},
  {"max min", {{"x", "flare.operand"}, {"other?", "number|flare.operand"}, {"...", "any"}},
   tensor, tensor},
}

local on = {{"on?", "boolean"}}
local members = {
  {"max min", {{"other?", "number|flare.operand"}, {"...", "any"}}, tensor, tensor},
  {"size stride", {{"dim?", number}}, "any"},
  {"dim numel nelement nbytes element_size storage_offset data_ptr", {}, "integer"},
  {"is_contiguous", {{"layout?", text}}, "boolean"},
  {"is_floating_point is_pinned", {}, "boolean"},
  {"shares", {{"y", tensor}}, "boolean"},
  {"plot hist heat image", {{"path", text}, {"o?", "table"}}, "any", "any"},
  {"pin_memory protect cpu detach t zero_ contiguous", {}, tensor},
  {"f64 f32 f16 bf16 i64 i32 i16 i8 u8 bool c64 c128 float double half bfloat16 long int short "
   .. "char byte", {}, tensor},
  {"cuda", {{"device?", "integer|string"}}, tensor},
  {"is", {{"shape", text}, {"names?", "table"}, {"dtype?", "flare.dtype"}}, tensor},
  {"item", {}, "any"}, -- a number, or a boolean
  {"totable tolist", {}, "any"},
  {"bytes", {}, text},
  {"to", {{"what", "string|table"}, {"...", "any"}}, tensor},
  {"type", {{"dtype?", "flare.dtype"}}, "any"},
  {"backward", {{"o?", gradients}}},
  {"requires_grad_", on, tensor},
  {"graph", {{"o?", "integer|table"}}, "any"},
  {"register_hook", {{"f", "fun(gradient: flare.tensor): flare.tensor?"}}, "any"},
  {"retain_grad zero_grad close", {}},
  {"to_dlpack", {}, "userdata"},
  {"view_as reshape_as expand_as", {{"y", tensor}}, tensor},
  {"split", {{"size", "number|number[]"}, {"dim?", number}}, "flare.tensor[]"},
  {"chunk", {{"n", number}, {"dim?", number}}, "flare.tensor[]"},
  {"unbind", {{"dim?", number}}, "flare.tensor[]"},
  {"rearrange", {{"pattern", text}, {"sizes?", "table"}}, tensor},
  {"reduce", {{"pattern", text}, {"how", "string|function"}, {"sizes?", "table"}}, tensor},
  {"uniform_ random_", {{"low?", number}, {"high?", number}, {"o?", random}}, tensor},
  {"normal_ log_normal_ cauchy_", {{"a?", number}, {"b?", number}, {"o?", random}}, tensor},
  {"exponential_ geometric_", {{"p?", number}, {"o?", random}}, tensor},
}

local function by_name(list)
  local known = {}
  for _, entry in ipairs(list) do
    for name in entry[1]:gmatch "%S+" do
      known[name] = {params = entry[2], returns = table.move(entry, 3, #entry, 1, {})}
    end
  end
  return known
end

--- Name -> {params = {{name, type}}, returns = {type}}
M.functions, M.members = by_name(functions), by_name(members)

--- Fields that parts of the library have later, at a call; and what a part has besides its own.
M.later = {["flare.dist"] = {"world"}}
M.parents = {["flare.nn.functional"] = "flare"}

-- What descriptions begin with.
local beginnings = {
  {"^a list of tensors%f[^%w]", "flare.tensor[]"}, {"^tensors %(", "flare.tensor[]"},
  {"^a tensor%f[^%w]", tensor}, {"^the tensor%f[^%w]", tensor}, {"^a 0%-d tensor", tensor},
  {"^a list%f[^%w]", "table"}, {"^a table%f[^%w]", "table"},
  {"^a path%f[^%w]", text}, {"^a string%f[^%w]", text}, {"^a name%f[^%w]", text},
  {"^a text%f[^%w]", text}, {"^the folder", text}, {"^its name$", text},
  {"^a function%f[^%w]", "function"}, {"^function%(", "function"},
  {"^a number%f[^%w]", number}, {"^how many%f[^%w]", number}, {"^seconds%f[^%w]", number},
  {"^a dim%f[^%w]", number}, {"^a boolean%f[^%w]", "boolean"}, {"^whether%f[^%w]", "boolean"},
  {"^an integer%f[^%w]", "integer"}, {"^names and tensors", "table"}, {"^a reader", "table"},
  {"^%(batch, [%w_ ,*/]+%)", tensor}, {"^samples %(batch", tensor}, {"^floats %(", tensor},
  {"^%(N, %.%.%.%)", tensor}, {"^%(N, C", tensor}, {"^%(time, batch", tensor},
  {"^the text$", text}, {"^the SVG's text$", text}, {"^a module%f[^%w]", "flare.nn.Module"},
  {"^a layer%f[^%w]", "flare.nn.Module"},
  {"^a Tokenizer%f[^%w]", "flare.text.Tokenizer"}, {"^a dist%.Group%f[^%w]", "flare.dist.Group"},
}

-- Options that are the same in all functions.
local shared = {generator = "flare.generator", device = text, dtype = "flare.dtype"}

-- The type of a default, as it is written.
local function type_of_default(value)
  if value:find "^%-?%d" then return value:find "^%-?[%d.e+-]+$" and number or "any" end
  if value == "true" or value == "false" then return "boolean" end
  if value:find '^"[^"]*"$' then return text end
  return "any"
end

--- The fields of {a = 1, b = "x", c}, which a description begins with: "{a?: number, ...}", or nil.
function M.of_options(description)
  local inside = description:match "^(%b{})"
  if not inside then return nil end
  inside = inside:sub(2, -2):gsub("%b{}", function(t) return (t:gsub(",", "\0")) end)
    :gsub("%b()", function(t) return (t:gsub(",", "\0")) end)
    :gsub('%b""', function(t) return (t:gsub(",", "\0")) end)
  local list = {}
  for part in inside:gmatch "[^,]+" do
    local name, value = part:match "^%s*([%a_][%w_]*)%s*=%s*(.-)%s*$"
    name = name or part:match "^%s*([%a_][%w_]*)%s*$"
    if name then
      local kind = type_of_default(value or "")
      if kind == "any" then kind = shared[name] or kind end
      list[#list + 1] = ("%s?: %s"):format(name, kind)
    end
  end
  if not list[1] then return nil end
  return "{" .. table.concat(list, ", ") .. "}"
end

-- What an argument of a name is everywhere in the library.
local named = {path = text, folder = text, name = text, title = text, f = "function",
               opts = "table", o = "table", seed = number, where = text, message = text,
               saved = "table", on = "boolean"}

--- The type that a description of an argument or a result gives.
-- @param name of the argument, or nil
function M.of(description, name)
  local first = description:match "^[^;:.(]*"
  if name ~= "opts" and name ~= "o"
    and (first:find "%f[%w]or%f[%W]" or first:find "^a [%w ]+ of a ") then
    return "any"
  end
  for _, entry in ipairs(beginnings) do
    if description:find(entry[1]) then return entry[2] end
  end
  return named[name] or "any"
end

local optional = {"^[^.]*optional", "default", "or nil", "left out", "without", "nil:", "if given"}

--- The type of an argument, and whether it may be left out.
function M.of_argument(name, description)
  if name == "..." then return "any", false end
  local options = M.of_options(description)
  if options then return options, true end
  local kind = M.of(description, name)
  for _, pattern in ipairs(optional) do
    if description:find(pattern) then return kind, true end
  end
  return kind, kind == "any" or kind == "table" or name == "message" or name == "on"
end

--- The types of a function's results, from what its comment says of them, or nil.
function M.returns(description)
  if not description then return {"any ..."} end
  if description:find "^true, or nil and a message" then return {"true?", "string?"} end
  local good = description:match "^(.-),? or nil and a message"
  if good then
    local known = M.of(good)
    return {known == "any" and known or known .. "?", "string?"}
  end
  if description:find "^self%f[^%w]" then return {"self"} end
  local known = M.of(description)
  local first = description:match "^[^;:.(]*"
  if first:find "," or first:find "%f[%w]and%f[%W]" then return {"any", "any"} end -- several
  return {known}
end

return M
