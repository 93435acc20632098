--- AMD Alveo U250 with the kernels of kernels/fpga, one of each, as their emulator counts cycles.
local clock = 300e6 -- Hz, the target of the kernels

return {
  name = "AMD Alveo U250",
  source = "AMD, DS962, Alveo U200 and U250 Data Center Accelerator Cards Data Sheet: DSP slices, "
    .. "blocks of RAM, four channels of DDR4 with 64 GB and 77 GB/s, PCIe 3.0 x16, up to 225 W; "
    .. "idle power and the time that a call of a kernel takes through XRT are estimates",
  -- 256 multipliers of 16 bits, each with an adder, whatever the dtype of the operands in memory
  peak = {f32 = 2 * 256 * clock},
  memory = {bytes = 64e9, rate = 4 * 64 * clock}, -- a port of 64 bytes a cycle for each channel
  links = {host = {rate = 15.75e9, latency = 20e-6}},
  power = {idle = 30, busy = 225},
  latency = 30e-6,
  efficiency = {product = 0.86, attention = 0.43, memory = 0.75},
  measured = "in the emulator: products of 512 x 512 matrices, attention with heads of 64; "
    .. "elementwise operators use three of the four channels",
  fabric = {clock = clock, dsp = 12288, bram36 = 2688, uram = 1280},
}
