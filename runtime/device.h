/* What the engine asks of the machine it runs on. There are two of them, of which the linker takes one: runtime/host
 * (memory of the process, MPI messages, kernels in C) and runtime/cuda (one device a rank, streams, NCCL).
 *
 * Addresses inside the allocation are the device's: the host reads and writes there only through pd_device_read,
 * pd_device_write and pd_device_rows. Work is queued. Calls take effect in their order as far as the engine can see, but
 * may not have happened when they return; pd_device_read, pd_device_write and pd_device_close_pass wait. */
#ifndef PD_DEVICE_H
#define PD_DEVICE_H

#include "layout.h"
#include "world.h"

typedef struct pd_device pd_device;

/* ---- start and end ---- */

/* Allocates exactly pd_layout_total bytes (fails with PD_EXIT_MEMORY naming the bytes), which may hold anything, and opens
 * all that later calls use. Collective. `kernels`: --kernels. With PDC_MEMORY=nan in the environment the host's bytes are
 * all ones, which is NaN: what is read before it is written shows. */
pd_device *pd_device_open(const pd_program *program, const pd_pipeline *pipeline, const pd_layout *layout,
                          const pd_world *world, const char *kernels);
void pd_device_close(pd_device *device);
/* False, and why, when something that was queued cannot end any more: a connection to another rank is lost. For the
 * thread that watches (watch.h), while the program's own waits. */
bool pd_device_sound(const pd_device *device, char *why, size_t room);
char *pd_device_memory(const pd_device *device);
int64_t pd_device_bytes(const pd_device *device);
/* Threads that work on the host uses. */
void pd_device_threads(int threads);
/* What it runs on and with, for the table at the start: "host kernels", "NVIDIA H200, sm_90". */
const char *pd_device_name(const pd_device *device);
/* Operations a second of large products on this rank, measured; to be called by all ranks at once, since they may share
 * what computes. 0: it does not measure. */
double pd_device_product_rate(pd_device *device);

/* ---- the host's access, outside of passes ---- */

void pd_device_read(pd_device *device, void *to, const void *from, int64_t bytes);
void pd_device_write(pd_device *device, void *to, const void *from, int64_t bytes);
/* Where the host writes the rows of data that the next pass finds at byte `at` of the allocation. */
void *pd_device_rows(pd_device *device, int64_t at);
/* First values of a parameter: `n` elements of `local` drawn as `info` says. */
void pd_device_draw(pd_device *device, const pd_param_info *info, pd_key key, const pd_local *local, int64_t n,
                    void *out);

/* ---- a pass: a training step or an evaluation ---- */

/* What is the same for all units of a pass. */
typedef struct pd_pass {
  uint64_t step, seed;
  const double *inverse_counts; /* per normaliser; of a list that updates, one such set for each update */
  int64_t updates;              /* of the list; 0: it is for one, at its end */
  double batch_scale;
  const int64_t *samples; /* per micro-batch; NULL: all of them */
  bool training;
  /* pd_device_decide and pd_device_update */
  int64_t update;         /* number of the update, from 1; 0: the parameters stay as they are */
  double rate;
} pd_pass;

/* Results become zero, the rows written since the last pass arrive. */
void pd_device_open_pass(pd_device *device, const pd_pass *pass);
/* The queue of a whole training step, update included, is the same every time but for what pd_pass says: between these
 * two the device may record it, and when the first says false, has queued the recorded one itself. */
bool pd_device_begin_step(pd_device *device);
void pd_device_end_step(pd_device *device);
/* Waits for all of it. Results per micro-batch, 1 + metrics each, of this rank alone. */
void pd_device_close_pass(pd_device *device, double *results);

/* What frames point at: results of micro-batch `mb` (PD_NONE: where what counts nowhere goes), normalisers. */
double *pd_device_results(const pd_device *device, int64_t mb);
const double *pd_device_inverse_counts(const pd_device *device);
/* The rest of a frame: what only this kind of device has. */
void pd_device_frame(const pd_device *device, pd_frame *frame);

/* ---- memory ---- */

void pd_device_clear(pd_device *device, void *at, int64_t bytes);
void pd_device_copy(pd_device *device, void *to, const void *from, int64_t bytes);
/* out[i] += a[i]; wide: elements of pd_wide_bytes, else of the compute precision */
void pd_device_add(pd_device *device, bool wide, int64_t n, const void *a, void *out);

/* ---- messages between chunks ----
 *
 * A mail carries the messages of one kind over one boundary of chunks in one direction, `count` buffers a message. A
 * message starts when it is queued; pd_mail_wait orders what follows after the last one of the micro-batch's slot. */

typedef struct pd_mail pd_mail;
typedef enum pd_direction { PD_FORWARDS, PD_BACKWARDS } pd_direction;
typedef struct pd_piece {
  void *at;
  int64_t bytes;
} pd_piece;

/* `boundary`: the chunk after it, whose wires it carries. `peer`: pipeline rank. NULL if there are no messages. */
pd_mail *pd_mail_open(pd_device *device, int boundary, pd_direction direction, bool sends, int peer, int64_t slots,
                      int count);
void pd_mail_close(pd_mail *mail);
void pd_mail_send(pd_mail *mail, int64_t mb, const pd_piece *pieces);
void pd_mail_receive(pd_mail *mail, int64_t mb, const pd_piece *pieces);
/* Whether pd_mail_wait would return at once. */
bool pd_mail_ready(pd_mail *mail, int64_t mb);
void pd_mail_wait(pd_mail *mail, int64_t mb);
/* Lets messages and reductions that are under way move on. */
void pd_device_progress(pd_device *device);

/* ---- gradients ---- */

/* Bucket `b` of the layout is final: its sum over replicas starts as soon as it can. Buckets come in their order. */
void pd_device_reduce(pd_device *device, int b);
/* Before anything reads a bucket that was final; the next one is number 0 again. ready: it would return at once. */
bool pd_device_reduce_ready(pd_device *device);
void pd_device_reduce_wait(pd_device *device);

/* One piece of a tied parameter's gradient, which pipeline ranks add up, to or from rank `peer`; `slot` tells messages
 * between the same two apart. Both treat those of a parameter in one order, so a receive follows the send it belongs to.
 * What was sent may change after pd_device_tied_wait. */
void pd_device_tied_send(pd_device *device, int slot, const void *from, int64_t bytes, int peer);
void pd_device_tied_receive(pd_device *device, int slot, void *into, int64_t bytes, int peer);
/* The same for sums of chunk `chunk`, the sender's, that the other copy of the chunk on rank `peer` gets. A send does not
 * keep later work of this rank waiting. */
void pd_device_sums_send(pd_device *device, int chunk, const void *from, int64_t bytes, int peer);
void pd_device_sums_receive(pd_device *device, int chunk, void *into, int64_t bytes, int peer);
void pd_device_tied_wait(pd_device *device);

/* The norm of all gradients; a list of several updates has one set of squares for each. Tensor `index` (of
 * pd_device_tensors, in program order) contributes the squares of n elements at x; `split`: of this tensor-parallel rank's
 * part. Each is added once in the pipeline and, unless split, on every tensor-parallel rank. */
int pd_device_tensors(const pd_program *program);
void pd_device_add_squares(pd_device *device, int set, int index, bool split, int64_t n, const void *x);
/* The norm, and the factor of gradients that clipping makes of it. */
void pd_device_decide(pd_device *device, int set);
double pd_device_norm(pd_device *device, int set); /* waits */
/* Instead of the pass's own and of what was decided. */
void pd_device_set_update(pd_device *device, int64_t update, double rate, double factor);

/* What the optimizer needs of a parameter's part. */
typedef struct pd_change {
  int64_t elements;
  void *weights, *gradients, *moments[2];
  void *copy;  /* of a bf16 program: what the model reads of the weights, and gets them rounded; else NULL */
  double decay;
  int index;   /* of the tensor, as in pd_device_add_squares */
  bool split;  /* this tensor-parallel rank has a part of it */
  bool adapts; /* lamb: it moves in proportion to its own length */
} pd_change;
/* These do nothing when the pass has no update or the norm is not finite. */
void pd_device_update(pd_device *device, const pd_change *change);
/* Lamb alone, before its updates: renews the moments of a tensor and measures its length and that of its direction. After
 * the last tensor, the lengths of parts are summed over tensor-parallel ranks. */
void pd_device_measure(pd_device *device, const pd_change *change);
void pd_device_close_measures(pd_device *device);
/* A running mean (pd_param_info.statistic): w[i] = (1 - momentum) * w[i] + momentum * sums[i] / count, of the weights
 * and gradients of `change` */
void pd_device_update_statistic(pd_device *device, const pd_change *change, double momentum, double count);

#endif
