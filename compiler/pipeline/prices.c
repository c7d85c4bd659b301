/* Times from FLOPs and bytes. A unit that is computed again for its gradient costs its forward in I once more. */
#include "pipeline/prices.h"

#include <math.h>

#include "pipeline/network.h"

#define ASSUMED_FLOPS 1e12

double price_flops(const Config *config) {
  return config->flops > 0 ? config->flops : ASSUMED_FLOPS;
}

static double to_ns(const Prices *prices, int64_t flops) {
  return round((double)flops / (double)prices->program->tp / price_flops(prices->config) * 1e9);
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
  const pd_program *program = prices->program;
  int64_t largest = 0;
  for (int c = 1; c < chunks; c++) {
    int wires[PD_MAX_WIRES], count = pd_live_wires(program, first_unit[c], wires);
    int64_t bytes = 0;
    for (int k = 0; k < count && count <= PD_MAX_WIRES; k++) bytes += pd_wire_data_bytes(program, wires[k]);
    if (rank_of[c - 1] != rank_of[c] && bytes > largest) largest = bytes;
  }
  return network_message(prices->config, network_pipeline_leaves_node(prices->config), (double)largest);
}
