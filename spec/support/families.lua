-- The families that rows are tried in: a file of samples, one of references and a spec each.
return {
  "elementwise",
  "shape",
  "reduce",
  "math",
  "statistics",
  "norm",
  "index",
  "conv",
  "space",
  "attention",
  "random",
  "optim",
  "fft",
  "linalg",
  "complex",
  "comm",
}
