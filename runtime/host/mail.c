/* Messages by MPI. A receive goes straight into the slot of its micro-batch; a send leaves from its slot. */
#include <stdlib.h>

#include "host/host.h"

struct pd_mail {
  pd_device *device;
  int boundary, peer, count;
  pd_direction direction;
  int64_t slots;
  MPI_Request *requests; /* `count` for each slot */
};

pd_mail *pd_mail_open(pd_device *device, int boundary, pd_direction direction, bool sends, int peer, int64_t slots,
                      int count) {
  (void)sends;
  if (slots == 0 || count == 0) return NULL;
  pd_mail *mail = malloc(sizeof *mail);
  if (mail == NULL) pd_fail(PD_EXIT_MEMORY, "out of memory");
  *mail = (pd_mail){device, boundary, peer, count, direction, slots,
                    malloc((size_t)(slots * count) * sizeof *mail->requests)};
  if (mail->requests == NULL) pd_fail(PD_EXIT_MEMORY, "out of memory");
  for (int64_t i = 0; i < slots * count; i++) mail->requests[i] = MPI_REQUEST_NULL;
  return mail;
}

void pd_mail_close(pd_mail *mail) {
  if (mail == NULL) return;
  free(mail->requests);
  free(mail);
}

static MPI_Request *requests_of(const pd_mail *mail, int64_t mb) {
  return mail->requests + mb % mail->slots * mail->count;
}

static int tag_of(const pd_mail *mail, int i) {
  return (mail->boundary * PD_MAX_WIRES + i) * 2 + (mail->direction == PD_BACKWARDS);
}

void pd_mail_send(pd_mail *mail, int64_t mb, const pd_piece *pieces) {
  for (int i = 0; i < mail->count; i++) {
    pd_send_start(mail->device->world->pipe, pieces[i].at, pieces[i].bytes, mail->peer, tag_of(mail, i),
                  &requests_of(mail, mb)[i]);
  }
}

void pd_mail_receive(pd_mail *mail, int64_t mb, const pd_piece *pieces) {
  for (int i = 0; i < mail->count; i++) {
    pd_receive_start(mail->device->world->pipe, pieces[i].at, pieces[i].bytes, mail->peer, tag_of(mail, i),
                     &requests_of(mail, mb)[i]);
  }
}

bool pd_mail_ready(pd_mail *mail, int64_t mb) {
  int complete = 1;
  if (mail != NULL) MPI_Testall(mail->count, requests_of(mail, mb), &complete, MPI_STATUSES_IGNORE);
  return complete;
}

void pd_mail_wait(pd_mail *mail, int64_t mb) {
  if (mail != NULL) MPI_Waitall(mail->count, requests_of(mail, mb), MPI_STATUSES_IGNORE);
}

/* ---- gradients over replicas ---- */

/* Bucket b is number b % 2 of the two reductions that may be under way at once. */
static void start_bucket(pd_device *device) {
  const int b = device->started++;
  const pd_bucket *bucket = &device->layout->buckets[b];
  pd_reduction *reduction = &device->reductions[b % 2];
  reduction->x = device->memory + bucket->offset;
  reduction->n = bucket->elements;
  reduction->tag = b % 2 * 2;
  pd_reduction_start(reduction);
}

/* Starts what is final and has a place to go. Never waits. */
static void start_buckets(pd_device *device) {
  while (device->started < device->final && pd_reduction_test(&device->reductions[device->started % 2])) {
    start_bucket(device);
  }
}

void pd_device_reduce(pd_device *device, int b) {
  device->final = b + 1;
  start_buckets(device);
}

bool pd_device_reduce_ready(pd_device *device) {
  start_buckets(device);
  return device->started == device->final && pd_reduction_test(&device->reductions[0]) &&
         pd_reduction_test(&device->reductions[1]);
}

void pd_device_reduce_wait(pd_device *device) {
  while (device->started < device->final) {
    pd_reduction_finish(&device->reductions[device->started % 2]);
    start_bucket(device);
  }
  pd_reduction_finish(&device->reductions[0]);
  pd_reduction_finish(&device->reductions[1]);
  device->final = device->started = 0;
}

void pd_device_progress(pd_device *device) {
  if (device->world->size == 1) return;
  pd_reduction_test(&device->reductions[0]);
  pd_reduction_test(&device->reductions[1]);
  start_buckets(device);
  if (device->world->pp > 1) {
    int flag;
    MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, device->world->pipe, &flag, MPI_STATUS_IGNORE);
  }
}

/* ---- tied gradients ---- */

void pd_device_tied_send(pd_device *device, int slot, const void *from, int64_t bytes, int peer) {
  if (device->tied_count == device->tied_room) pd_fail(PD_EXIT_PLAN, "more tied gradients than planned");
  pd_send_start(device->world->pipe, from, bytes, peer, device->tied_tag + slot,
                &device->tied_requests[device->tied_count++]);
}

void pd_device_tied_receive(pd_device *device, int slot, void *into, int64_t bytes, int peer) {
  MPI_Request request;
  pd_receive_start(device->world->pipe, into, bytes, peer, device->tied_tag + slot, &request);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
}

void pd_device_sums_send(pd_device *device, int chunk, const void *from, int64_t bytes, int peer) {
  pd_device_tied_send(device, chunk, from, bytes, peer);
}

void pd_device_sums_receive(pd_device *device, int chunk, void *into, int64_t bytes, int peer) {
  pd_device_tied_receive(device, chunk, into, bytes, peer);
}

void pd_device_tied_wait(pd_device *device) {
  MPI_Waitall(device->tied_count, device->tied_requests, MPI_STATUSES_IGNORE);
  device->tied_count = 0;
}
