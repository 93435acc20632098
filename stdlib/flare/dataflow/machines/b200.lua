--- NVIDIA B200 as in a DGX B200.
return {
  name = "NVIDIA B200",
  source = "NVIDIA, DGX B200 data sheet, 2024, an eighth of the system: 72 PFLOP/s FP8 with "
    .. "sparsity, 1440 GB at 64 TB/s, NVLink 14.4 TB/s in both directions together; Blackwell "
    .. "architecture brief, 2024: TF32 and BF16 rates, 40 TFLOP/s FP64; up to 1000 W",
  peak = {f64 = 40e12, f32 = 80e12, tf32 = 1100e12, bf16 = 2250e12, f16 = 2250e12, fp8 = 4500e12},
  memory = {bytes = 180e9, rate = 8e12},
  links = {host = {rate = 64e9, latency = 10e-6}, peer = {rate = 900e9, latency = 10e-6}},
  power = {idle = 140, busy = 1000},
  latency = 2e-6,
}
