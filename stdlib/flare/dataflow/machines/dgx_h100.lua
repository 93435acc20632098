--- Nodes of eight NVIDIA H100 GPUs with a network between them.
local machine = {}
for key, value in pairs(require "flare.dataflow.machines.h100") do machine[key] = value end

machine.name = "NVIDIA DGX H100"
machine.source = machine.source .. "; NVIDIA, DGX H100 data sheet: eight GPUs and 2 TB of "
  .. "memory a node, a network adapter of 400 Gb/s for each GPU"
machine.node = 8
machine.host = {bytes = 2e12, rate = 614.4e9}
machine.links = {host = machine.links.host, peer = machine.links.peer,
                 net = {rate = 50e9, latency = 20e-6}}

return machine
