/* A driver with VERSION, INIT's answer, DEVICES of compute capability
 * MAJOR.MINOR.
 */
#include "../../../kernels/cuda/driver/library.h"

#include <stdio.h>

CUresult cuInit(unsigned flags);
CUresult cuDriverGetVersion(int *version);
CUresult cuGetErrorString(CUresult e, const char **text);
CUresult cuDeviceGetCount(int *count);
CUresult cuDeviceGetName(char *name, int room, CUdevice device);
CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute what,
                              CUdevice device);

CUresult cuInit(unsigned flags) {
  (void)flags;
  return INIT;
}

CUresult cuDriverGetVersion(int *version) {
  *version = VERSION;
  return CUDA_SUCCESS;
}

CUresult cuGetErrorString(CUresult e, const char **text) {
  *text = e == 802 ? "system not yet initialized" : "something else";
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int *count) {
  *count = DEVICES;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char *name, int room, CUdevice device) {
  (void)device;
  snprintf(name, (size_t)room, "Fake %d.%d", MAJOR, MINOR);
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute what,
                              CUdevice device) {
  (void)device;
  *value = what == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR   ? MAJOR
           : what == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR ? MINOR
                                                                  : 1;
  return CUDA_SUCCESS;
}
