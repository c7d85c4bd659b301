/* NCCL: communicators, messages between chunks, reductions over replicas and tensor-parallel ranks, tied gradients.
 *
 * All communicators are created at the start, in one order on all ranks: tensor, replicas, pipe, then one for each
 * boundary between chunks of different ranks and each direction, ascending, then one for each chunk that has another
 * copy. A boundary has its own because NCCL matches messages by their order alone, and two boundaries of the same two
 * ranks may have theirs in different orders; so have the sums of chunks. */
#include "cuda/cuda.h"

#include <stdio.h>
#include <stdlib.h>

#include "watch.h"

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

static pd_link *links_new(int count) {
  pd_link *links = calloc((size_t)count + 1, sizeof *links);
  if (links == NULL) pd_fail(PD_EXIT_MEMORY, "out of memory");
  return links;
}

static void open_link(const pd_device *device, pd_link *link, int from, int to, int tag) {
  if (from == to || (from != device->world->pp_rank && to != device->world->pp_rank)) return;
  link->comm = join_pair(device->world, from, to, tag);
  CUDA_CHECK(cudaStreamCreateWithFlags(&link->stream, cudaStreamNonBlocking));
  CUDA_CHECK(cudaEventCreateWithFlags(&link->done, cudaEventDisableTiming));
}

static void close_links(pd_link *links, int count) {
  for (int i = 0; i < count; i++) {
    if (links[i].comm == NULL) continue;
    NCCL_CHECK(ncclCommDestroy(links[i].comm));
    CUDA_CHECK(cudaStreamDestroy(links[i].stream));
    CUDA_CHECK(cudaEventDestroy(links[i].done));
  }
  free(links);
}

void pd_cuda_open_communicators(pd_device *device, const pd_pipeline *pipeline) {
  const pd_world *world = device->world;
  const int chunks = pipeline->chunk_count, copies = pipeline->copies > 1 ? chunks : 0;
  pd_watch_show("start, the communicators of NCCL");
  device->tensor = join(world->tensor);
  device->replicas = join(world->replicas);
  device->pipe = join(world->pipe);
  device->link_count = 2 * chunks;
  device->links = links_new(device->link_count);
  device->sum_count = copies;
  device->sums = links_new(copies);
  for (int chunk = 0; chunk < chunks; chunk++) {
    const int before = pd_chunk_before(pipeline, chunk);
    if (before == PD_NO_CHUNK) continue;
    const int ranks[2] = {pipeline->rank_of[before], pipeline->rank_of[chunk]};
    open_link(device, link_of(device, chunk, PD_FORWARDS), ranks[0], ranks[1], 2 * chunk);
    open_link(device, link_of(device, chunk, PD_BACKWARDS), ranks[1], ranks[0], 2 * chunk + 1);
  }
  for (int chunk = 0; chunk < copies; chunk++) {
    const int other = (chunk + pd_copy_chunks(pipeline)) % chunks;
    open_link(device, &device->sums[chunk], pipeline->rank_of[chunk], pipeline->rank_of[other], 2 * chunks + chunk);
  }
}

static void leave(ncclComm_t comm) {
  if (comm != NULL) NCCL_CHECK(ncclCommDestroy(comm));
}

void pd_cuda_close_communicators(pd_device *device) {
  close_links(device->sums, device->sum_count);
  close_links(device->links, device->link_count);
  leave(device->pipe);
  leave(device->replicas);
  leave(device->tensor);
}

/* What NCCL has met since a communicator was made. Its kernels wait for ever for what a lost connection owes them. */
static bool is_sound(ncclComm_t comm, char *why, size_t room) {
  if (comm == NULL) return true;
  ncclResult_t met = ncclSuccess;
  const ncclResult_t result = ncclCommGetAsyncError(comm, &met);
  if (result != ncclSuccess) met = result;
  if (met == ncclSuccess || met == ncclInProgress) return true;
  snprintf(why, room, "NCCL has failed: %s (%s)", ncclGetErrorString(met), ncclGetLastError(comm));
  return false;
}

bool pd_device_sound(const pd_device *device, char *why, size_t room) {
  bool sound =
      is_sound(device->tensor, why, room) && is_sound(device->replicas, why, room) && is_sound(device->pipe, why, room);
  for (int i = 0; sound && i < device->link_count; i++) sound = is_sound(device->links[i].comm, why, room);
  for (int i = 0; sound && i < device->sum_count; i++) sound = is_sound(device->sums[i].comm, why, room);
  return sound;
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

/* ---- sums of the two copies of a chunk ----
 *
 * In streams of their own: both ranks may send before either receives. */

void pd_device_sums_send(pd_device *device, int chunk, const void *from, int64_t bytes, int peer) {
  (void)peer; /* the other rank of the link */
  pd_link *link = &device->sums[chunk];
  pd_cuda_fork(device, link->stream);
  NCCL_CHECK(ncclSend(from, (size_t)bytes, ncclInt8, 1, link->comm, link->stream));
  link->under_way = true;
}

void pd_device_sums_receive(pd_device *device, int chunk, void *into, int64_t bytes, int peer) {
  (void)peer;
  pd_link *link = &device->sums[chunk];
  pd_cuda_fork(device, link->stream);
  NCCL_CHECK(ncclRecv(into, (size_t)bytes, ncclInt8, 0, link->comm, link->stream));
  pd_cuda_join(device, link->stream, link->done);
}

/* `compute` went through those of tied parameters. */
void pd_device_tied_wait(pd_device *device) {
  for (int i = 0; i < device->sum_count; i++) {
    pd_link *link = &device->sums[i];
    if (link->under_way) pd_cuda_join(device, link->stream, link->done);
    link->under_way = false;
  }
}
