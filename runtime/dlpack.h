/* Memory shared with other array libraries in one process: the structs of
 * DLPack's binary interface, versions 0 and 1 (https://dmlc.github.io/dlpack),
 * and the functions that give and take them. A program that has the project's
 * own dlpack.h includes that one first and uses it. */
#ifndef FL_DLPACK_H
#define FL_DLPACK_H

#include "flare.h"

#ifndef DLPACK_DLPACK_H_

typedef enum {
  kDLCPU = 1,
  kDLCUDA = 2,
  kDLCUDAHost = 3, /* pinned host memory */
  kDLExtDev = 12,  /* of one library alone; here "sim" */
  kDLCUDAManaged = 13
} DLDeviceType;

typedef struct {
  DLDeviceType device_type;
  int32_t device_id;
} DLDevice;

typedef enum {
  kDLInt = 0,
  kDLUInt = 1,
  kDLFloat = 2,
  kDLBfloat = 4,
  kDLComplex = 5,
  kDLBool = 6
} DLDataTypeCode;

typedef struct {
  uint8_t code, bits;
  uint16_t lanes;
} DLDataType;

typedef struct {
  void *data;
  DLDevice device;
  int32_t ndim;
  DLDataType dtype;
  int64_t *shape;
  int64_t *strides; /* in elements; NULL: row-major */
  uint64_t byte_offset;
} DLTensor;

typedef struct DLManagedTensor {
  DLTensor dl_tensor;
  void *manager_ctx;
  void (*deleter)(struct DLManagedTensor *self);
} DLManagedTensor;

typedef struct {
  uint32_t major, minor;
} DLPackVersion;

#define DLPACK_FLAG_BITMASK_READ_ONLY (1UL << 0UL)
#define DLPACK_FLAG_BITMASK_IS_COPIED (1UL << 1UL)

typedef struct DLManagedTensorVersioned {
  DLPackVersion version;
  void *manager_ctx;
  void (*deleter)(struct DLManagedTensorVersioned *self);
  uint64_t flags;
  DLTensor dl_tensor;
} DLManagedTensorVersioned;

#endif

#ifdef __cplusplus
extern "C" {
#endif

/* The other library's stream: it works there with what it gets, or has worked
 * there on what it gives. The second user waits on the device.
 * FL_DLPACK_WAIT (giving): the host waits until the values are there; (taking):
 * they are there, or this runtime's stream waits for them already.
 * FL_DLPACK_NO_ORDER: no stream waits. Only devices with streams look at it. */
#define FL_DLPACK_WAIT     ((intptr_t)0)
#define FL_DLPACK_NO_ORDER ((intptr_t)-1)

typedef struct fl_dlpack_options {
  size_t struct_size; /* sizeof(fl_dlpack_options) */
  intptr_t stream;    /* as DLPack counts them: 1 is CUDA's default stream */
} fl_dlpack_options;

/* Describes the tensor's memory for another library, without a copy, in the
 * struct of DLPack 1 or (old) of 0. The memory lives until the library calls
 * the deleter, which may be on any thread and after fl_runtime_close: what the
 * runtime needs for it then stays until the last one. options may be NULL.
 * EAUTOGRAD: the tensor takes part in gradients, detach it; EUNSUPPORTED: its
 * device is unknown there, or (old) its memory is read-only. */
FL_API fl_status fl_tensor_to_dlpack(fl_tensor *t,
                                     const fl_dlpack_options *options,
                                     struct DLManagedTensorVersioned **m);
FL_API fl_status fl_tensor_to_dlpack_old(fl_tensor *t,
                                         const fl_dlpack_options *options,
                                         struct DLManagedTensor **m);
/* A tensor over another library's memory, without a copy. New reference; the
 * description is then the tensor's, which calls the deleter when nothing uses
 * the memory any more; after a failure it stays the caller's. Read-only memory
 * makes a tensor that refuses to be written. options may be NULL. EDTYPE,
 * EDEVICE, ESIZE; EUNSUPPORTED: another version. */
FL_API fl_status fl_tensor_from_dlpack(fl_runtime *rt,
                                       struct DLManagedTensorVersioned *m,
                                       const fl_dlpack_options *options,
                                       fl_tensor **t);
FL_API fl_status fl_tensor_from_dlpack_old(fl_runtime *rt,
                                           struct DLManagedTensor *m,
                                           const fl_dlpack_options *options,
                                           fl_tensor **t);

#ifdef __cplusplus
}
#endif
#endif
