/* Versions of the other libraries: NVRTC MAJOR.MINOR, cuBLASLt and cuDNN 1.2.3
 * times what they count in, cuBLAS 13.1, cuSOLVER 12.1, cuFFT 12.2, NCCL 2.20.
 * Nothing can be compiled. */
#include <stddef.h>

int nvrtcVersion(int *major, int *minor);
int nvrtcCompileProgram(void *program, int n, const char *const *options);
const char *nvrtcGetErrorString(int e);
size_t cublasLtGetVersion(void);
size_t cudnnGetVersion(void);
int ncclGetVersion(int *version);
int cublasGetProperty(int what, int *value);
int cusolverGetVersion(int *version);
int cufftGetVersion(int *version);

int nvrtcVersion(int *major, int *minor) {
  *major = MAJOR;
  *minor = MINOR;
  return 0;
}

int nvrtcCompileProgram(void *program, int n, const char *const *options) {
  (void)program, (void)n, (void)options;
  return 6;
}

const char *nvrtcGetErrorString(int e) {
  return e == 6 ? "NVRTC_ERROR_COMPILATION" : "?";
}

size_t cublasLtGetVersion(void) {
  return 130203;
}

size_t cudnnGetVersion(void) {
  return 91203;
}

int ncclGetVersion(int *version) {
  *version = 22000;
  return 0;
}

int cublasGetProperty(int what, int *value) {
  *value = what == 0 ? 13 : 1;
  return 0;
}

int cusolverGetVersion(int *version) {
  *version = 12104;
  return 0;
}

int cufftGetVersion(int *version) {
  *version = 12203;
  return 0;
}
