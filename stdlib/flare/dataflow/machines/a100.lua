--- NVIDIA A100 SXM4 with 80 GB.
return {
  name = "NVIDIA A100 SXM 80 GB",
  source = "NVIDIA, A100 Tensor Core GPU data sheet, 2021: rates without sparsity, NVLink 600 GB/s "
    .. "and PCIe 4.0 64 GB/s in both directions together, 400 W",
  peak = {f64 = 19.5e12, f32 = 19.5e12, tf32 = 156e12, bf16 = 312e12, f16 = 312e12},
  memory = {bytes = 80e9, rate = 2.039e12},
  links = {host = {rate = 32e9, latency = 10e-6}, peer = {rate = 300e9, latency = 10e-6}},
  power = {idle = 50, busy = 400},
  latency = 3e-6,
}
