--- AMD Instinct MI300X.
return {
  name = "AMD Instinct MI300X",
  source = "AMD, Instinct MI300X data sheet, 2023: rates without sparsity, 192 GB at 5.3 TB/s, "
    .. "seven Infinity Fabric links of 128 GB/s in both directions together, PCIe 5.0 x16, 750 W",
  peak = {f64 = 163.4e12, f32 = 163.4e12, tf32 = 653.7e12, bf16 = 1307.4e12, f16 = 1307.4e12,
          fp8 = 2614.9e12},
  memory = {bytes = 192e9, rate = 5.3e12},
  links = {host = {rate = 64e9, latency = 10e-6}, peer = {rate = 64e9, latency = 10e-6}},
  power = {idle = 140, busy = 750},
  latency = 3e-6,
}
