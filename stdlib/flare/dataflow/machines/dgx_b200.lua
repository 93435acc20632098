--- Nodes of eight NVIDIA B200 GPUs with a network between them.
local machine = {}
for key, value in pairs(require "flare.dataflow.machines.b200") do machine[key] = value end

machine.name = "NVIDIA DGX B200"
machine.source = machine.source .. "; NVIDIA, DGX B200 data sheet: eight GPUs and up to 4 TB of "
  .. "memory a node, a network adapter of 400 Gb/s for each GPU"
machine.node = 8
machine.host = {bytes = 4e12, rate = 614.4e9}
machine.links = {host = machine.links.host, peer = machine.links.peer,
                 net = {rate = 50e9, latency = 20e-6}}

return machine
