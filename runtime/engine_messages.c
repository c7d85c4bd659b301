/* What passes between chunks: wires forwards, their gradients backwards.
 *
 * A receive goes straight into the slot of its micro-batch and is waited for by the action that reads it; a send leaves
 * from the slot and is waited for before the slot is used again. So no action waits for more than a list of blocking
 * sends would, and a list without a cycle under rendezvous cannot hang. Between chunks of one rank data are copied by
 * the reader. */
#include <stdlib.h>
#include <string.h>

#include "engine_state.h"

enum { FORWARDS, BACKWARDS };

/* Tag of wire number `i` of the boundary before chunk `chunk`. */
static int tag_of(int chunk, int i, int direction) {
  return (chunk * PD_MAX_WIRES + i) * 2 + direction;
}

static void open_one(pd_mail *mail, int64_t slots, int per_slot) {
  mail->slots = slots;
  mail->per_slot = per_slot;
  mail->requests = malloc(((size_t)slots * (size_t)per_slot + 1) * sizeof *mail->requests);
  if (mail->requests == NULL) pd_fail(PD_EXIT_MEMORY, "out of memory");
  for (int64_t i = 0; i < slots * per_slot; i++) mail->requests[i] = MPI_REQUEST_NULL;
}

void pd_engine_open_mail(pd_engine *engine) {
  for (int i = 0; i < engine->layout->chunk_count; i++) {
    pd_chunk_state *chunk = &engine->chunks[i];
    const pd_chunk_plan *plan = chunk->plan;
    open_one(&chunk->wires_in, plan->activations.count, plan->previous.wire_count);
    open_one(&chunk->wires_out, plan->activations.count, plan->next.wire_count);
    open_one(&chunk->gradients_in, plan->received.count, plan->next.grad_count);
    open_one(&chunk->gradients_out, plan->sent.count, plan->previous.grad_count);
  }
}

void pd_engine_close_mail(pd_engine *engine) {
  for (int i = 0; i < engine->layout->chunk_count; i++) {
    pd_chunk_state *chunk = &engine->chunks[i];
    free(chunk->wires_in.requests);
    free(chunk->wires_out.requests);
    free(chunk->gradients_in.requests);
    free(chunk->gradients_out.requests);
  }
}

static MPI_Request *requests_of(const pd_mail *mail, int64_t mb) {
  return mail->requests + mb % mail->slots * mail->per_slot;
}

void pd_engine_wait(pd_engine *engine, MPI_Request *requests, int count, const char *what, int peer) {
  int complete;
  MPI_Testall(count, requests, &complete, MPI_STATUSES_IGNORE);
  if (complete) return;
  pd_engine_show(engine, what, peer);
  MPI_Waitall(count, requests, MPI_STATUSES_IGNORE);
  pd_engine_show(engine, NULL, 0);
}

static void wait_mail(pd_engine *engine, const pd_mail *mail, int64_t mb, const char *what, int peer) {
  if (mail->per_slot == 0 || mail->slots == 0) return;
  pd_engine_wait(engine, requests_of(mail, mb), mail->per_slot, what, peer);
}

void pd_engine_wait_wires_out(pd_engine *engine, pd_chunk_state *chunk, int64_t mb) {
  wait_mail(engine, &chunk->wires_out, mb, "its last activations to be received by", chunk->plan->next.peer);
}

void pd_engine_send_wires(pd_engine *engine, pd_chunk_state *chunk, int64_t mb) {
  const pd_edge *edge = &chunk->plan->next;
  const char *slot = pd_slot(engine, &chunk->plan->activations, mb);
  for (int i = 0; i < edge->wire_count; i++) {
    pd_send_start(engine->world->pipe, slot + edge->wire_at[i], pd_wire_size(engine, edge->wire[i]), edge->peer,
                  tag_of(chunk->plan->chunk + 1, i, FORWARDS), &requests_of(&chunk->wires_out, mb)[i]);
  }
}

void pd_engine_receive_wires(pd_engine *engine, pd_chunk_state *chunk, int64_t mb) {
  const pd_edge *edge = &chunk->plan->previous;
  char *slot = pd_slot(engine, &chunk->plan->activations, mb);
  pd_engine_wait_wires_out(engine, chunk, mb); /* what came in may be on its way out */
  for (int i = 0; i < edge->wire_count; i++) {
    pd_receive_start(engine->world->pipe, slot + edge->wire_at[i], pd_wire_size(engine, edge->wire[i]), edge->peer,
                     tag_of(chunk->plan->chunk, i, FORWARDS), &requests_of(&chunk->wires_in, mb)[i]);
  }
}

void pd_engine_settle_wires(pd_engine *engine, pd_chunk_state *chunk, int64_t mb) {
  const pd_edge *edge = &chunk->plan->previous;
  pd_engine_wait_wires_out(engine, chunk, mb);
  wait_mail(engine, &chunk->wires_in, mb, "activations from", edge->peer);
  if (chunk->before == NULL) return;
  const pd_chunk_plan *before = chunk->before->plan;
  const char *from = pd_slot(engine, &before->activations, mb);
  char *slot = pd_slot(engine, &chunk->plan->activations, mb);
  for (int i = 0; i < edge->wire_count; i++) {
    memcpy(slot + edge->wire_at[i], from + before->next.wire_at[i], (size_t)pd_wire_size(engine, edge->wire[i]));
  }
}

void pd_engine_send_gradients(pd_engine *engine, pd_chunk_state *chunk, int64_t mb) {
  const pd_edge *edge = &chunk->plan->previous;
  if (edge->grad_count == 0) return;
  const char *slot = pd_slot(engine, &chunk->plan->sent, mb);
  for (int g = 0; g < edge->grad_count; g++) {
    pd_send_start(engine->world->pipe, slot + edge->grad_at[g], pd_wire_size(engine, edge->grad_wire[g]), edge->peer,
                  tag_of(chunk->plan->chunk, g, BACKWARDS), &requests_of(&chunk->gradients_out, mb)[g]);
  }
}

void pd_engine_receive_gradients(pd_engine *engine, pd_chunk_state *chunk, int64_t mb) {
  const pd_edge *edge = &chunk->plan->next;
  if (edge->grad_count == 0) return;
  char *slot = pd_slot(engine, &chunk->plan->received, mb);
  for (int g = 0; g < edge->grad_count; g++) {
    pd_receive_start(engine->world->pipe, slot + edge->grad_at[g], pd_wire_size(engine, edge->grad_wire[g]), edge->peer,
                     tag_of(chunk->plan->chunk + 1, g, BACKWARDS), &requests_of(&chunk->gradients_in, mb)[g]);
  }
}

void pd_engine_settle_gradients(pd_engine *engine, pd_chunk_state *chunk, int64_t mb) {
  const pd_edge *edge = &chunk->plan->next;
  wait_mail(engine, &chunk->gradients_out, mb, "its last gradients to be received by", chunk->plan->previous.peer);
  wait_mail(engine, &chunk->gradients_in, mb, "gradients from", edge->peer);
  if (chunk->after == NULL || edge->grad_count == 0) return;
  const pd_chunk_plan *after = chunk->after->plan;
  const char *from = pd_slot(engine, &after->sent, mb);
  char *slot = pd_slot(engine, &chunk->plan->received, mb);
  for (int g = 0; g < edge->grad_count; g++) {
    memcpy(slot + edge->grad_at[g], from + after->previous.grad_at[g],
           (size_t)pd_wire_size(engine, edge->grad_wire[g]));
  }
}

static void settle_mail(pd_engine *engine, const pd_mail *mail, const char *what, int peer) {
  for (int64_t slot = 0; slot < mail->slots; slot++) wait_mail(engine, mail, slot, what, peer);
}

void pd_engine_settle_all(pd_engine *engine) {
  for (int i = 0; i < engine->layout->chunk_count; i++) {
    pd_chunk_state *chunk = &engine->chunks[i];
    settle_mail(engine, &chunk->wires_out, "its last activations to be received by", chunk->plan->next.peer);
    settle_mail(engine, &chunk->gradients_out, "its last gradients to be received by", chunk->plan->previous.peer);
  }
}

void pd_engine_progress(pd_engine *engine) {
  if (engine->world->size == 1) return;
  if (engine->buckets_open) pd_engine_progress_buckets(engine);
  if (engine->world->pp > 1) {
    int flag;
    MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, engine->world->pipe, &flag, MPI_STATUS_IGNORE);
  }
}
