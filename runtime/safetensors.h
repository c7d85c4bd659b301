/* The safetensors file format: a strict reader that trusts nothing in a file, and a writer whose file appears whole or
 * not at all. Knows nothing of ranks or models. */
#ifndef PD_SAFETENSORS_H
#define PD_SAFETENSORS_H

#include "kernels/kernels.h"
#include "log.h"

#include <stdint.h>

typedef struct pd_tensor {
  char *name;
  int type; /* row of the table of dtypes in safetensors.c */
  int rank;
  int64_t shape[PD_MAX_RANK];
  int64_t elements;
  int64_t begin, end; /* bytes, from the start of the data */
} pd_tensor;

typedef struct pd_safetensors {
  char *path;
  const unsigned char *map;
  int64_t size, data; /* of the file; where its data start */
  pd_tensor *tensors; /* by name */
  int64_t count;
} pd_safetensors;

/* Limits of the reader; the first is the format's. */
#define PD_SAFETENSORS_HEADER 100000000
#define PD_SAFETENSORS_TENSORS 100000
#define PD_SAFETENSORS_NAME 1024

bool pd_safetensors_open(pd_safetensors *file, const char *path, pd_problem *problem);
void pd_safetensors_close(pd_safetensors *file);
const pd_tensor *pd_safetensors_find(const pd_safetensors *file, const char *name);
const char *pd_safetensors_type(const pd_tensor *tensor); /* "BF16" */
/* Whether elements can be read as reals: F64 F32 F16 BF16. */
bool pd_safetensors_is_real(const pd_tensor *tensor);
/* Elements first .. first+n-1 as reals of 4 or 8 bytes; widening is exact. The range must lie inside the tensor. */
void pd_safetensors_read(const pd_safetensors *file, const pd_tensor *tensor, int64_t first, int64_t n, int real_bytes,
                         void *out);

/* What is to be written: all of one dtype. */
typedef struct pd_tensor_shape {
  const char *name;
  int rank;
  int64_t shape[PD_MAX_RANK];
} pd_tensor_shape;

typedef struct pd_safetensors_writer {
  char *path, *temporary;
  int file;
  bool made; /* the temporary file exists */
  int real_bytes;
  int64_t count, data;
  char **names;
  int64_t *begin;   /* count + 1: elements before each tensor */
  int64_t *written; /* elements put so far */
} pd_safetensors_writer;

/* `tensors` ascending by name, as the reference writer orders them. Nothing appears at `path` before the end. */
bool pd_safetensors_create(pd_safetensors_writer *writer, const char *path, const pd_tensor_shape *tensors,
                           int64_t count, int real_bytes, pd_problem *problem);
/* Elements first .. first+n-1 of tensor number `tensor`. */
bool pd_safetensors_put(pd_safetensors_writer *writer, int64_t tensor, int64_t first, int64_t n, const void *from,
                        pd_problem *problem);
/* Every element must have been put. Syncs, closes and gives the file its name; cleans up in any case. */
bool pd_safetensors_finish(pd_safetensors_writer *writer, pd_problem *problem);
/* The same file written by several: the first makes it, in place, before the others open it; each puts its elements and then
 * says that it is done, which syncs and gives how many it put. That every element was put is for them to add up. */
bool pd_safetensors_share(pd_safetensors_writer *writer, const char *path, const pd_tensor_shape *tensors, int64_t count,
                          int real_bytes, bool first, pd_problem *problem);
bool pd_safetensors_part_done(pd_safetensors_writer *writer, int64_t *elements, pd_problem *problem);
void pd_safetensors_discard(pd_safetensors_writer *writer);

#endif
