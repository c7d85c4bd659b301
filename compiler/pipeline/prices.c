/* Times from FLOPs and bytes. A unit that is computed again for its gradient costs its forward in I once more. */
#include "pipeline/prices.h"

#include <math.h>

#define ASSUMED_FLOPS 1e12

static double to_ns(const Prices *prices, int64_t flops) {
  double speed = prices->config->flops > 0 ? prices->config->flops : ASSUMED_FLOPS;
  return round((double)flops / (double)prices->program->tp / speed * 1e9);
}

void price_chunks(const Prices *prices, const int64_t *first_unit, int chunks, double *f, double *i, double *w) {
  for (int c = 0; c < chunks; c++) {
    int64_t flops[3] = {0};
    for (int64_t unit = first_unit[c]; unit < first_unit[c + 1]; unit++)
      for (int k = 0; k < 3; k++) flops[k] += prices->unit_flops[unit][k];
    f[c] = to_ns(prices, flops[0]);
    i[c] = to_ns(prices, flops[1]) + (prices->program->recompute ? f[c] : 0);
    w[c] = to_ns(prices, flops[2]);
  }
}

double price_hop(const Prices *prices, const int64_t *first_unit, int chunks, const int *rank_of) {
  const Config *config = prices->config;
  const pd_program *program = prices->program;
  int64_t ranks_apart = (int64_t)program->dp * program->tp, largest = 0;
  bool leaves_node = config->ranks_per_node > 0 && ranks_apart * program->pp > config->ranks_per_node;
  double bandwidth = leaves_node && config->node_bandwidth > 0 ? config->node_bandwidth : config->bandwidth;
  double latency = leaves_node && config->node_latency > 0 ? config->node_latency : config->latency;
  for (int c = 1; c < chunks; c++) {
    int wires[PD_MAX_WIRES], count = pd_live_wires(program, first_unit[c], wires);
    int64_t bytes = 0;
    for (int k = 0; k < count && count <= PD_MAX_WIRES; k++)
      bytes += program->wires[wires[k]].elements * program->real_bytes;
    if (rank_of[c - 1] != rank_of[c] && bytes > largest) largest = bytes;
  }
  return round((latency + (bandwidth > 0 ? (double)largest / bandwidth : 0)) * 1e9);
}
