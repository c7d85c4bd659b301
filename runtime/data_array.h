/* Files as bytes, and array files as typed, shaped bytes: .npy (versions 1 and 2, C order) and IDX, plain or compressed
 * by gzip. Nothing in a header is believed before it has been compared with the size of the file. */
#ifndef PD_DATA_ARRAY_H
#define PD_DATA_ARRAY_H

#include "kernels/kernels.h"
#include "log.h"

#include <stdint.h>

typedef struct pd_bytes {
  char *path;
  const unsigned char *at;
  int64_t size;
  bool mapped; /* else malloc'd */
} pd_bytes;
/* Maps a regular file. */
bool pd_bytes_open(pd_bytes *bytes, const char *path, pd_problem *problem);
void pd_bytes_close(pd_bytes *bytes);

typedef enum pd_element { PD_U8, PD_I8, PD_U16, PD_I16, PD_U32, PD_I32, PD_I64, PD_F32, PD_F64 } pd_element;
int pd_element_bytes(pd_element type);
bool pd_element_whole(pd_element type);
/* The value of an element; whole types only for the first. */
int64_t pd_element_whole_at(pd_element type, bool big_endian, const unsigned char *at);
double pd_element_real_at(pd_element type, bool big_endian, const unsigned char *at);

typedef struct pd_array {
  pd_element type;
  bool big_endian, idx;
  int rank; /* of the whole array: samples first */
  int64_t shape[PD_MAX_RANK + 1];
  int64_t first; /* byte offset of the elements */
  int64_t bytes; /* of all elements: the file holds exactly these after `first` */
} pd_array;
/* Whether the file starts like an array file. */
bool pd_array_is(const pd_bytes *bytes);
/* Whether it is compressed, and no array inside: a text, say. */
bool pd_array_is_compressed_other(const pd_bytes *bytes);
/* Reads the header; a compressed file is replaced in `bytes` by its contents. */
bool pd_array_open(pd_bytes *bytes, pd_array *array, pd_problem *problem);

#endif
