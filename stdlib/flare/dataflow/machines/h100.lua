--- NVIDIA H100 SXM5 with 80 GB.
return {
  name = "NVIDIA H100 SXM",
  source = "NVIDIA, H100 Tensor Core GPU data sheet, 2023: rates without sparsity, NVLink 900 GB/s "
    .. "and PCIe 5.0 128 GB/s in both directions together, up to 700 W",
  peak = {f64 = 67e12, f32 = 67e12, tf32 = 494.5e12, bf16 = 989.5e12, f16 = 989.5e12,
          fp8 = 1979e12},
  memory = {bytes = 80e9, rate = 3.35e12},
  links = {host = {rate = 64e9, latency = 10e-6}, peer = {rate = 450e9, latency = 10e-6}},
  power = {idle = 70, busy = 700},
  latency = 2e-6,
  efficiency = {product = 0.69, attention = 0.45, memory = 0.87, link = 0.82},
  measured = "on an H200, which has the same chip, at its 700 W: products of normal random bf16 "
    .. "matrices 683 TFLOP/s, attention 376 to 500 forward and 311 to 507 backward in heads of "
    .. "128, copies 4.19 of 4.8 TB/s, over PCIe 55 GB/s one way, 50 in both at once; as "
    .. "published: all-reduce 370 of 450 GB/s (NCCL without multicast); idle power is an estimate",
}
