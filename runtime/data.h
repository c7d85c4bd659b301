/* Training and validation data: files of the user turned into rows of the model's inputs.
 *
 * A data set is one source per model input, all with the same number of samples: windows of a stream of tokens (text:
 * a token is a byte), or arrays in .npy or IDX files. Which sample a step reads is a pure function of (seed, step), so
 * it does not depend on the layout and needs no state. Files are mapped; what is in them is checked before it is used.
 */
#ifndef PD_DATA_H
#define PD_DATA_H

#include "data_array.h"
#include "log.h"
#include "program.h"

/* Where the samples of one model input lie. */
typedef struct pd_source {
  const pd_bytes *file; /* NULL: no part of the program reads this input */
  pd_element type;
  bool big_endian;
  int64_t first;  /* byte offset of sample 0 in the file */
  int64_t stride; /* elements from one sample to the next */
  double scale;   /* applied to whole numbers that become reals */
} pd_source;

typedef struct pd_data {
  const pd_program *program;
  int64_t samples;
  bool tokens; /* sources are windows of one stream */
  bool shuffle;
  uint64_t seed;      /* of the order */
  pd_source *sources; /* per model input */
  pd_bytes *files;
  int file_count;
} pd_data;

/* Whether data for `split` ("train" or "valid") are named at all, on the command line (`--data`, `--valid`; may be
 * NULL) or in the data section. */
bool pd_data_given(const pd_program *program, const char *split, const char *command);
/* Opens and checks headers, shapes and counts. Training data are shuffled unless the section says shuffle=off;
 * validation data never are. `seed`: --seed, or negative: the data section's, else the program's. */
bool pd_data_open(pd_data *data, const pd_program *program, const char *split, const char *command, int64_t seed,
                  pd_problem *problem);
void pd_data_close(pd_data *data);

/* Policy over epochs: drop. An epoch has floor(samples / batch) steps; what is left of its permutation is not read. */
int64_t pd_data_steps_per_epoch(const pd_data *data);
/* The sample at `index` (0 .. batch-1) of the global batch of `step`, which counts from 0. */
int64_t pd_data_sample(const pd_data *data, uint64_t step, int64_t index);

/* Tensor-parallel rank `tp_rank`'s part of sample `sample` of model input `input` into `out` (int32 or real; NULL:
 * check only). Whole numbers are checked, all of the sample on every rank; *counted is the number of its elements that
 * are not PD_IGNORE. */
bool pd_data_row(const pd_data *data, int input, int64_t sample, int tp_rank, void *out, int64_t *counted,
                 pd_problem *problem);

/* The text of `key` in the program's data section, or NULL. */
const char *pd_data_key(const pd_program *program, const char *key);

#endif
