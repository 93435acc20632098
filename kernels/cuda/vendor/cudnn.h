/* The types and numbers of cuDNN's backend interface that we use. */
#ifndef FL_CUDA_CUDNN_H
#define FL_CUDA_CUDNN_H

#include "../cuda.h"

typedef int cudnnStatus_t, cudnnBackendDescriptorType_t,
    cudnnBackendAttributeName_t, cudnnBackendAttributeType_t;
typedef struct cudnnContext *cudnnHandle_t;
typedef void *cudnnBackendDescriptor_t;

/* FLC_DNN_NUMBERS(V): name, value; a spec compares them with NVIDIA's
 * headers. */
#define FLC_DNN_NUMBERS(V)                                                     \
  V(CUDNN_STATUS_SUCCESS, 0)                                                   \
  V(CUDNN_DATA_FLOAT, 0)                                                       \
  V(CUDNN_DATA_DOUBLE, 1)                                                      \
  V(CUDNN_DATA_HALF, 2)                                                        \
  V(CUDNN_DATA_BFLOAT16, 9)                                                    \
  V(CUDNN_CROSS_CORRELATION, 1)                                                \
  V(CUDNN_HEUR_MODE_B, 1)                                                      \
  V(CUDNN_HEUR_MODE_A, 3)                                                      \
  V(CUDNN_NUMERICAL_NOTE_TENSOR_CORE, 0)                                       \
  V(CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS, 1)                               \
  V(CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION, 2)                       \
  V(CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC, 4)                                  \
  V(CUDNN_TYPE_HANDLE, 0)                                                      \
  V(CUDNN_TYPE_DATA_TYPE, 1)                                                   \
  V(CUDNN_TYPE_INT64, 3)                                                       \
  V(CUDNN_TYPE_FLOAT, 4)                                                       \
  V(CUDNN_TYPE_DOUBLE, 5)                                                      \
  V(CUDNN_TYPE_VOID_PTR, 6)                                                    \
  V(CUDNN_TYPE_CONVOLUTION_MODE, 7)                                            \
  V(CUDNN_TYPE_HEUR_MODE, 8)                                                   \
  V(CUDNN_TYPE_NUMERICAL_NOTE, 11)                                             \
  V(CUDNN_TYPE_BACKEND_DESCRIPTOR, 15)                                         \
  V(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, 1)                                   \
  V(CUDNN_BACKEND_ENGINE_DESCRIPTOR, 2)                                        \
  V(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, 3)                                     \
  V(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, 4)                                    \
  V(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, 5)                                \
  V(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR, 10)                \
  V(CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR, 11)        \
  V(CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR, 12)          \
  V(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, 15)                               \
  V(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, 16)                                 \
  V(CUDNN_BACKEND_TENSOR_DESCRIPTOR, 17)                                       \
  V(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, 100)                                     \
  V(CUDNN_ATTR_CONVOLUTION_CONV_MODE, 101)                                     \
  V(CUDNN_ATTR_CONVOLUTION_DILATIONS, 102)                                     \
  V(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, 103)                                \
  V(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, 104)                                 \
  V(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, 105)                                  \
  V(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, 106)                                  \
  V(CUDNN_ATTR_ENGINEHEUR_MODE, 200)                                           \
  V(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, 201)                                \
  V(CUDNN_ATTR_ENGINEHEUR_RESULTS, 202)                                        \
  V(CUDNN_ATTR_ENGINECFG_ENGINE, 300)                                          \
  V(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, 400)                                     \
  V(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, 401)                              \
  V(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, 402)                             \
  V(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, 700)                       \
  V(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, 701)                        \
  V(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, 702)                   \
  V(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, 703)                           \
  V(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, 704)                           \
  V(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, 705)                           \
  V(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA, 706)                      \
  V(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA, 707)                       \
  V(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC, 708)                  \
  V(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W, 709)                          \
  V(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, 710)                         \
  V(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY, 711)                         \
  V(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA, 712)                    \
  V(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA, 713)                     \
  V(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC, 714)                \
  V(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW, 715)                       \
  V(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, 716)                        \
  V(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY, 717)                       \
  V(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, 800)                                     \
  V(CUDNN_ATTR_OPERATIONGRAPH_OPS, 801)                                        \
  V(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, 900)                                     \
  V(CUDNN_ATTR_TENSOR_DATA_TYPE, 901)                                          \
  V(CUDNN_ATTR_TENSOR_DIMENSIONS, 902)                                         \
  V(CUDNN_ATTR_TENSOR_STRIDES, 903)                                            \
  V(CUDNN_ATTR_TENSOR_UNIQUE_ID, 906)                                          \
  V(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, 1000)                                  \
  V(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, 1001)                               \
  V(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, 1003)                                   \
  V(CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, 1303)

#ifndef FLC_REAL_HEADERS
enum {
#define FLC_NUMBER(name, value) name = value,
  FLC_DNN_NUMBERS(FLC_NUMBER)
#undef FLC_NUMBER
};
#endif

typedef struct flc_dnn_table {
#define FLC_DL(ret, name, params) ret(*name) params;
#include "dl_cudnn.def"
} flc_dnn_table;

/* NULL without the library; the message says what is missing. */
const flc_dnn_table *flc_dnn_get(void);
const char *flc_dnn_path(void);

#endif
