/* The inside of the host device, shared by its files:
 *   device.c   memory, passes, kernels, norm
 *   update.c   optimizers, running statistics
 *   mail.c     messages between chunks and tied gradients, by MPI
 *   reduce.c   reductions over replicas and tensor-parallel ranks */
#ifndef PD_HOST_H
#define PD_HOST_H

#include "device.h"
#include "host/reduce.h"

struct pd_device {
  const pd_program *program;
  const pd_layout *layout;
  const pd_world *world;
  char *memory;
  int64_t bytes;
  const pd_kernels_f32 *f32; /* the one of the program's precision */
  const pd_kernels_f64 *f64;
  pd_pass pass;
  int result_count;
  double *results, *ignored;
  int sets, tensors;
  double *whole, *split;      /* squares per set and tensor: all tensor-parallel ranks have the same; one part each */
  double *norms;              /* per set */
  bool finite;                /* the gradients of the next update are */
  double factor;
  double *lengths;            /* lamb: squared lengths of every tensor and of its direction; then those of parts */
  pd_reduction reductions[2]; /* of buckets: number b is under way in number b % 2 */
  int final, started;         /* so many buckets, in order */
  MPI_Request *tied_requests;
  int tied_count, tied_room, tied_tag;
};

/* ---- update.c ---- */
void pd_host_open_update(pd_device *device);
void pd_host_close_update(pd_device *device);

#endif
