--- Nodes of eight NVIDIA A100 GPUs with a network between them.
local machine = {}
for key, value in pairs(require "flare.dataflow.machines.a100") do machine[key] = value end

machine.name = "NVIDIA DGX A100"
machine.source = machine.source .. "; NVIDIA, DGX A100 data sheet: eight GPUs and 2 TB of "
  .. "memory a node, a network adapter of 200 Gb/s for each GPU"
machine.node = 8
machine.host = {bytes = 2e12, rate = 409.6e9}
machine.links = {host = machine.links.host, peer = machine.links.peer,
                 net = {rate = 25e9, latency = 20e-6}}

return machine
