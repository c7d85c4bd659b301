/* cuDNN as a library that may be there: it is opened when the program starts, so that one that is missing or too old is
 * a fact to report, and not a program that the loader refuses. */
#ifndef PD_CUDNN_LIBRARY_H
#define PD_CUDNN_LIBRARY_H

#include <cudnn.h>
#include <stdbool.h>
#include <stddef.h>

/* The first version whose attention needs no padding mask, whatever the number of keys. */
#define PD_CUDNN_LEAST 91600

#define PD_CUDNN_FUNCTIONS(F)                                                                                          \
  F(cudnnGetVersion)                                                                                                   \
  F(cudnnCreate)                                                                                                       \
  F(cudnnDestroy)                                                                                                      \
  F(cudnnSetStream)                                                                                                    \
  F(cudnnGetStream)                                                                                                    \
  F(cudnnGetErrorString)                                                                                               \
  F(cudnnGetLastErrorString)                                                                                           \
  F(cudnnBackendCreateDescriptor)                                                                                      \
  F(cudnnBackendDestroyDescriptor)                                                                                     \
  F(cudnnBackendSetAttribute)                                                                                          \
  F(cudnnBackendGetAttribute)                                                                                          \
  F(cudnnBackendFinalize)                                                                                              \
  F(cudnnBackendExecute)

typedef struct pd_cudnn_library {
#define F(name) __typeof__(&name) name;
  PD_CUDNN_FUNCTIONS(F)
#undef F
} pd_cudnn_library;

/* The functions of the library that pd_cudnn_open found; NULL before. */
extern pd_cudnn_library pd_cudnn;

/* Finds libcudnn where the loader looks: LD_LIBRARY_PATH, the directory that the program was linked with, the system's.
 * False if there is none, or none of version PD_CUDNN_LEAST or later; `why` says it. It stays open. */
bool pd_cudnn_open(char *why, size_t why_size);

#endif
