--- NVIDIA GeForce RTX 4090.
return {
  name = "NVIDIA GeForce RTX 4090",
  source = "NVIDIA, Ada GPU Architecture white paper, 2022, appendix A: rates without sparsity and "
    .. "with f32 accumulation, 24 GB at 1008 GB/s, 450 W; PCIe 4.0 x16, no NVLink: devices "
    .. "exchange data over PCIe",
  peak = {f64 = 1.29e12, f32 = 82.6e12, tf32 = 82.6e12, bf16 = 165.2e12, f16 = 165.2e12,
          fp8 = 330.3e12},
  memory = {bytes = 24e9, rate = 1.008e12},
  links = {host = {rate = 32e9, latency = 10e-6}, peer = {rate = 32e9, latency = 15e-6}},
  power = {idle = 25, busy = 450},
  latency = 3e-6,
}
