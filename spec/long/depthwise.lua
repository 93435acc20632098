-- The kernels of depthwise convolutions on the host, on hundreds of random shapes.
-- limit: 10 min
package.path = "./?.lua;" .. package.path
local host = require "spec.support.depthwise_host"
local place = os.tmpname() .. ".d"
local said = host.run(place, 11, 400)
os.execute("rm -rf " .. place)
print(said)
assert(said:find "^0 of %d+ differ\n$", "some are wrong")
print("figure: depthwise on the host: " .. said)
