/* NCCL: communicators, messages between chunks, reductions over replicas and tensor-parallel ranks, tied gradients.
 *
 * All communicators are created at the start, in one order on all ranks: tensor, replicas, pipe, then one for each
 * boundary between chunks of different ranks and each direction, ascending. A boundary has its own because NCCL matches
 * messages by their order alone, and two boundaries of the same two ranks may have theirs in different orders. */
#include "cuda/cuda.h"

#include <stdlib.h>

/* ---- communicators ---- */

/* Rank `root` of `comm` makes an identity, all its ranks join. NULL for one rank. */
static ncclComm_t join(MPI_Comm comm) {
  int rank, size;
  MPI_Comm_rank(comm, &rank);
  MPI_Comm_size(comm, &size);
  if (size == 1) return NULL;
  ncclUniqueId id;
  ncclComm_t made;
  if (rank == 0) NCCL_CHECK(ncclGetUniqueId(&id));
  MPI_Bcast(&id, (int)sizeof id, MPI_BYTE, 0, comm);
  NCCL_CHECK(ncclCommInitRank(&made, size, id, rank));
  return made;
}

/* The communicator of two ranks of the pipeline, `from` being rank 0 of it. */
static ncclComm_t join_pair(const pd_world *world, int from, int to, int tag) {
  ncclUniqueId id;
  ncclComm_t made;
  if (world->pp_rank == from) {
    NCCL_CHECK(ncclGetUniqueId(&id));
    MPI_Send(&id, (int)sizeof id, MPI_BYTE, to, tag, world->pipe);
  } else {
    MPI_Recv(&id, (int)sizeof id, MPI_BYTE, from, tag, world->pipe, MPI_STATUS_IGNORE);
  }
  NCCL_CHECK(ncclCommInitRank(&made, 2, id, world->pp_rank == from ? 0 : 1));
  return made;
}

static pd_link *link_of(const pd_device *device, int boundary, pd_direction direction) {
  return &device->links[2 * boundary + (direction == PD_BACKWARDS)];
}

void pd_cuda_open_communicators(pd_device *device, const pd_pipeline *pipeline) {
  const pd_world *world = device->world;
  device->tensor = join(world->tensor);
  device->replicas = join(world->replicas);
  device->pipe = join(world->pipe);
  device->link_count = 2 * pipeline->chunk_count;
  device->links = calloc((size_t)device->link_count + 1, sizeof *device->links);
  if (device->links == NULL) pd_fail(PD_EXIT_MEMORY, "out of memory");
  for (int chunk = 0; chunk < pipeline->chunk_count; chunk++) {
    const int before = pd_chunk_before(pipeline, chunk);
    if (before == PD_NO_CHUNK) continue;
    const int ranks[2] = {pipeline->rank_of[before], pipeline->rank_of[chunk]};
    if (ranks[0] == ranks[1] || (ranks[0] != world->pp_rank && ranks[1] != world->pp_rank)) continue;
    for (int d = 0; d < 2; d++) {
      pd_link *link = link_of(device, chunk, d == 0 ? PD_FORWARDS : PD_BACKWARDS);
      link->comm = join_pair(world, ranks[d], ranks[1 - d], 2 * chunk + d);
      CUDA_CHECK(cudaStreamCreateWithFlags(&link->stream, cudaStreamNonBlocking));
    }
  }
}

static void leave(ncclComm_t comm) {
  if (comm != NULL) NCCL_CHECK(ncclCommDestroy(comm));
}

void pd_cuda_close_communicators(pd_device *device) {
  for (int i = 0; i < device->link_count; i++) {
    if (device->links[i].comm == NULL) continue;
    leave(device->links[i].comm);
    CUDA_CHECK(cudaStreamDestroy(device->links[i].stream));
  }
  free(device->links);
  leave(device->pipe);
  leave(device->replicas);
  leave(device->tensor);
}

/* ---- messages between chunks ---- */

struct pd_mail {
  pd_device *device;
  pd_link *link;
  bool sends;
  int count;
  int64_t slots;
  cudaEvent_t *done; /* per slot */
  bool *under_way;   /* per slot: `compute` does not follow its last message yet */
};

pd_mail *pd_mail_open(pd_device *device, int boundary, pd_direction direction, bool sends, int peer, int64_t slots,
                      int count) {
  (void)peer; /* the other rank of the link */
  if (slots == 0 || count == 0) return NULL;
  pd_mail *mail = malloc(sizeof *mail);
  if (mail == NULL) pd_fail(PD_EXIT_MEMORY, "out of memory");
  *mail = (pd_mail){device, link_of(device, boundary, direction), sends, count, slots,
                    malloc((size_t)slots * sizeof *mail->done), calloc((size_t)slots, sizeof *mail->under_way)};
  if (mail->done == NULL || mail->under_way == NULL) pd_fail(PD_EXIT_MEMORY, "out of memory");
  for (int64_t i = 0; i < slots; i++) CUDA_CHECK(cudaEventCreateWithFlags(&mail->done[i], cudaEventDisableTiming));
  return mail;
}

void pd_mail_close(pd_mail *mail) {
  if (mail == NULL) return;
  for (int64_t i = 0; i < mail->slots; i++) CUDA_CHECK(cudaEventDestroy(mail->done[i]));
  free(mail->done);
  free(mail->under_way);
  free(mail);
}

/* A message of several buffers is one group. A send follows what made the buffers, a receive what used them last. */
static void queue(pd_mail *mail, int64_t mb, const pd_piece *pieces) {
  const pd_link *link = mail->link;
  pd_cuda_fork(mail->device, link->stream);
  NCCL_CHECK(ncclGroupStart());
  for (int i = 0; i < mail->count; i++) {
    const size_t bytes = (size_t)pieces[i].bytes;
    if (mail->sends) {
      NCCL_CHECK(ncclSend(pieces[i].at, bytes, ncclInt8, 1, link->comm, link->stream));
    } else {
      NCCL_CHECK(ncclRecv(pieces[i].at, bytes, ncclInt8, 0, link->comm, link->stream));
    }
  }
  NCCL_CHECK(ncclGroupEnd());
  CUDA_CHECK(cudaEventRecord(mail->done[mb % mail->slots], link->stream));
  mail->under_way[mb % mail->slots] = true;
}

void pd_mail_send(pd_mail *mail, int64_t mb, const pd_piece *pieces) {
  queue(mail, mb, pieces);
}

void pd_mail_receive(pd_mail *mail, int64_t mb, const pd_piece *pieces) {
  queue(mail, mb, pieces);
}

/* The stream waits, not the host. */
bool pd_mail_ready(pd_mail *mail, int64_t mb) {
  pd_mail_wait(mail, mb);
  return true;
}

void pd_mail_wait(pd_mail *mail, int64_t mb) {
  if (mail == NULL || !mail->under_way[mb % mail->slots]) return;
  CUDA_CHECK(cudaStreamWaitEvent(mail->device->compute, mail->done[mb % mail->slots], 0));
  mail->under_way[mb % mail->slots] = false;
}

void pd_device_progress(pd_device *device) {
  (void)device;
}

/* ---- reductions ---- */

static ncclDataType_t type_of(int element_bytes) {
  return element_bytes == 2 ? ncclBfloat16 : ncclFloat;
}

void pd_device_reduce(pd_device *device, int b) {
  const pd_bucket *bucket = &device->layout->buckets[b];
  void *x = device->memory + bucket->offset;
  if (device->replicas == NULL) return;
  pd_cuda_fork(device, device->reductions);
  NCCL_CHECK(ncclAllReduce(x, x, (size_t)bucket->elements, ncclFloat, ncclSum, device->replicas, device->reductions));
  device->reducing = true;
}

bool pd_device_reduce_ready(pd_device *device) {
  return !device->reducing;
}

void pd_device_reduce_wait(pd_device *device) {
  if (device->reducing) pd_cuda_join(device, device->reductions, device->reduced);
  device->reducing = false;
}

void pd_tensor_sum(const pd_frame *f, void *x, int64_t n, int element_bytes) {
  if (f->device->tensor == NULL) return;
  NCCL_CHECK(ncclAllReduce(x, x, (size_t)n, type_of(element_bytes), ncclSum, f->device->tensor, f->device->compute));
}

void pd_tensor_max(const pd_frame *f, void *x, int64_t n, int element_bytes) {
  if (f->device->tensor == NULL) return;
  NCCL_CHECK(ncclAllReduce(x, x, (size_t)n, type_of(element_bytes), ncclMax, f->device->tensor, f->device->compute));
}

void pd_tensor_gather(const pd_frame *f, const void *x, int64_t n, int element_bytes, void *y) {
  NCCL_CHECK(ncclAllGather(x, y, (size_t)n, type_of(element_bytes), f->device->tensor, f->device->compute));
}

/* ---- tied gradients ---- */

void pd_device_tied_send(pd_device *device, int slot, const void *from, int64_t bytes, int peer) {
  (void)slot; /* both sides have them in one order */
  NCCL_CHECK(ncclSend(from, (size_t)bytes, ncclInt8, peer, device->pipe, device->compute));
}

void pd_device_tied_receive(pd_device *device, int slot, void *into, int64_t bytes, int peer) {
  (void)slot;
  NCCL_CHECK(ncclRecv(into, (size_t)bytes, ncclInt8, peer, device->pipe, device->compute));
}

void pd_device_tied_wait(pd_device *device) {
  (void)device; /* `compute` went through them */
}
