--- Operators from shared libraries, see docs/kernels.md.
local core = require "flare.core"
local options = require "flare.options"

local op = {}

--- Makes a function of a shared library an operator of this runtime, or gives one that is there
-- another backend's kernel.
-- @param o name, signature, library (a path), symbol, init, like (input 1 if left out), backward
-- (a registered operator), backend ("cpu"), fingerprint (to be compared)
-- @return the operator as a function, and its fingerprint
function op.register(o)
  local none = options.none
  return core.op_register(options.check("op.register", o, {
    name = none, signature = none, library = none, symbol = none, init = none, like = none,
    backward = none, backend = none, fingerprint = none,
  }))
end

return op
