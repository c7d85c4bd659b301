/* What the chunks of a program and a hop between ranks take, in ns: FLOPs at the declared or assumed speed, bytes at
 * the declared bandwidth. The same figures as in the plan. */
#ifndef PDC_PIPELINE_PRICES_H
#define PDC_PIPELINE_PRICES_H

#include "layout.h" /* runtime/ */
#include "pipeline/pipeline.h"
#include "semantic/semantic.h"

typedef struct Prices {
  const Config *config;
  const pd_program *program;
  int64_t (*unit_flops)[3]; /* {F, I, W} per unit: of one micro-batch, before the tensor-parallel split */
} Prices;

/* FLOP/s of a rank: declared, or 10^12. */
double price_flops(const Config *config);
/* Of one micro-batch through each of `chunks` chunks that hold units first_unit[c] .. first_unit[c+1]-1. */
void price_chunks(const Prices *prices, const int64_t *first_unit, int chunks, double *f, double *i, double *w);
/* One hop: the largest boundary between chunks on different ranks, over the slowest link that neighbours on the
 * pipeline use. */
double price_hop(const Prices *prices, const int64_t *first_unit, int chunks, const int *rank_of);

#endif
