/* What passes between chunks: wires forwards, their gradients backwards.
 *
 * A receive goes straight into the slot of its micro-batch and is waited for by the action that reads it; a send leaves
 * from the slot and is waited for before the slot is used again. So no action waits for more than a list of blocking
 * sends would, and a list without a cycle under rendezvous cannot hang. Between chunks of one rank data are copied by
 * the reader. */
#include "engine_state.h"

void pd_engine_open_mail(pd_engine *engine) {
  for (int i = 0; i < engine->layout->chunk_count; i++) {
    pd_chunk_state *chunk = &engine->chunks[i];
    const pd_chunk_plan *plan = chunk->plan;
    const pd_edge *previous = &plan->previous, *next = &plan->next;
    if (previous->peer != PD_NONE && !previous->local) {
      chunk->wires_in = pd_mail_open(engine->device, plan->chunk, PD_FORWARDS, false, previous->peer,
                                     plan->activations.count, previous->wire_count);
      chunk->gradients_out = pd_mail_open(engine->device, plan->chunk, PD_BACKWARDS, true, previous->peer,
                                          plan->sent.count, previous->grad_count);
    }
    if (next->peer != PD_NONE && !next->local) {
      chunk->wires_out = pd_mail_open(engine->device, plan->chunk + 1, PD_FORWARDS, true, next->peer,
                                      plan->activations.count, next->wire_count);
      chunk->gradients_in = pd_mail_open(engine->device, plan->chunk + 1, PD_BACKWARDS, false, next->peer,
                                         plan->received.count, next->grad_count);
    }
  }
}

void pd_engine_close_mail(pd_engine *engine) {
  for (int i = 0; i < engine->layout->chunk_count; i++) {
    pd_chunk_state *chunk = &engine->chunks[i];
    pd_mail_close(chunk->wires_in);
    pd_mail_close(chunk->wires_out);
    pd_mail_close(chunk->gradients_in);
    pd_mail_close(chunk->gradients_out);
  }
}

/* Shows what for if that takes any time. */
static void wait_mail(pd_engine *engine, pd_mail *mail, int64_t mb, const char *what, int peer) {
  if (mail == NULL || pd_mail_ready(mail, mb)) return;
  pd_engine_show(engine, what, peer);
  pd_mail_wait(mail, mb);
  pd_engine_show(engine, NULL, 0);
}

void pd_engine_wait_wires_out(pd_engine *engine, pd_chunk_state *chunk, int64_t mb) {
  wait_mail(engine, chunk->wires_out, mb, "its last activations to be received by", chunk->plan->next.peer);
}

static void wire_pieces(const pd_engine *engine, const pd_edge *edge, char *slot, pd_piece *pieces) {
  for (int i = 0; i < edge->wire_count; i++) {
    pieces[i] = (pd_piece){slot + edge->wire_at[i], pd_wire_size(engine, edge->wire[i])};
  }
}

static void gradient_pieces(const pd_engine *engine, const pd_edge *edge, char *slot, pd_piece *pieces) {
  for (int g = 0; g < edge->grad_count; g++) {
    pieces[g] = (pd_piece){slot + edge->grad_at[g], pd_wire_size(engine, edge->grad_wire[g])};
  }
}

void pd_engine_send_wires(pd_engine *engine, pd_chunk_state *chunk, int64_t mb) {
  pd_piece pieces[PD_MAX_WIRES];
  if (chunk->wires_out == NULL) return;
  wire_pieces(engine, &chunk->plan->next, pd_slot(engine, &chunk->plan->activations, mb), pieces);
  pd_mail_send(chunk->wires_out, mb, pieces);
}

void pd_engine_receive_wires(pd_engine *engine, pd_chunk_state *chunk, int64_t mb) {
  pd_piece pieces[PD_MAX_WIRES];
  pd_engine_wait_wires_out(engine, chunk, mb); /* what came in may be on its way out */
  if (chunk->wires_in == NULL) return;
  wire_pieces(engine, &chunk->plan->previous, pd_slot(engine, &chunk->plan->activations, mb), pieces);
  pd_mail_receive(chunk->wires_in, mb, pieces);
}

void pd_engine_settle_wires(pd_engine *engine, pd_chunk_state *chunk, int64_t mb) {
  const pd_edge *edge = &chunk->plan->previous;
  pd_engine_wait_wires_out(engine, chunk, mb);
  wait_mail(engine, chunk->wires_in, mb, "activations from", edge->peer);
  if (chunk->before == NULL) return;
  const pd_chunk_plan *before = chunk->before->plan;
  const char *from = pd_slot(engine, &before->activations, mb);
  char *slot = pd_slot(engine, &chunk->plan->activations, mb);
  for (int i = 0; i < edge->wire_count; i++) {
    pd_device_copy(engine->device, slot + edge->wire_at[i], from + before->next.wire_at[i],
                   pd_wire_size(engine, edge->wire[i]));
  }
}

void pd_engine_send_gradients(pd_engine *engine, pd_chunk_state *chunk, int64_t mb) {
  pd_piece pieces[PD_MAX_WIRES];
  if (chunk->gradients_out == NULL) return;
  gradient_pieces(engine, &chunk->plan->previous, pd_slot(engine, &chunk->plan->sent, mb), pieces);
  pd_mail_send(chunk->gradients_out, mb, pieces);
}

void pd_engine_receive_gradients(pd_engine *engine, pd_chunk_state *chunk, int64_t mb) {
  pd_piece pieces[PD_MAX_WIRES];
  if (chunk->gradients_in == NULL) return;
  gradient_pieces(engine, &chunk->plan->next, pd_slot(engine, &chunk->plan->received, mb), pieces);
  pd_mail_receive(chunk->gradients_in, mb, pieces);
}

void pd_engine_settle_gradients(pd_engine *engine, pd_chunk_state *chunk, int64_t mb) {
  const pd_edge *edge = &chunk->plan->next;
  wait_mail(engine, chunk->gradients_out, mb, "its last gradients to be received by", chunk->plan->previous.peer);
  wait_mail(engine, chunk->gradients_in, mb, "gradients from", edge->peer);
  if (chunk->after == NULL || edge->grad_count == 0) return;
  const pd_chunk_plan *after = chunk->after->plan;
  const char *from = pd_slot(engine, &after->sent, mb);
  char *slot = pd_slot(engine, &chunk->plan->received, mb);
  for (int g = 0; g < edge->grad_count; g++) {
    pd_device_copy(engine->device, slot + edge->grad_at[g], from + after->previous.grad_at[g],
                   pd_wire_size(engine, edge->grad_wire[g]));
  }
}

void pd_engine_settle_all(pd_engine *engine) {
  for (int i = 0; i < engine->layout->chunk_count; i++) {
    pd_chunk_state *chunk = &engine->chunks[i];
    for (int64_t slot = 0; slot < chunk->plan->activations.count; slot++) {
      wait_mail(engine, chunk->wires_out, slot, "its last activations to be received by", chunk->plan->next.peer);
    }
    for (int64_t slot = 0; slot < chunk->plan->sent.count; slot++) {
      wait_mail(engine, chunk->gradients_out, slot, "its last gradients to be received by", chunk->plan->previous.peer);
    }
  }
}
