--- AMD EPYC 9654, one socket.
return {
  name = "AMD EPYC 9654",
  source = "AMD, EPYC 9654 product page, 2022: 96 cores at 2.4 GHz base, 460.8 GB/s, 360 W; AMD, "
    .. "Software Optimization Guide for Zen 4: two 256-bit FMAs a cycle and core, so 32 FLOP in "
    .. "f32 and twice that in bf16; 1.5 TB is one choice of memory, twelve modules of 128 GB",
  peak = {f64 = 3.69e12, f32 = 7.37e12, bf16 = 14.7e12, f16 = 7.37e12},
  memory = {bytes = 1536e9, rate = 460.8e9},
  links = {host = {rate = 460.8e9}, peer = {rate = 25e9, latency = 20e-6}},
  power = {idle = 100, busy = 360},
  latency = 1e-6,
}
