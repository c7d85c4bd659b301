/* One program of all planted faults: `faults_test NAME` runs one, `faults_test NAME right` the kernel without it.
 * Prints the checksum of the results; exit status 1 for a wrong one. */
#include "faults/fault.h"

#include "faults/accumulator_uninitialised.cu"
#include "faults/argument_host.cu"
#include "faults/barrier_divergent.cu"
#include "faults/barrier_exited.cu"
#include "faults/barrier_missing.cu"
#include "faults/barrier_reused.cu"
#include "faults/blocks_dependent.cu"
#include "faults/dynamic_uninitialised.cu"
#include "faults/launch_refused.cu"
#include "faults/load_outside.cu"
#include "faults/pack_misaligned.cu"
#include "faults/shared_outside.cu"
#include "faults/shared_uninitialised.cu"
#include "faults/store_outside.cu"
#include "faults/sum_order.cu"
#include "faults/sum_shared_unordered.cu"
#include "faults/tile_outside.cu"
#include "faults/tile_overwritten.cu"
#include "faults/warp_incomplete.cu"
#include "faults/warp_mask.cu"
#include "faults/warp_mixed.cu"

typedef struct entry {
  const char *name;
  int (*wrong)(), (*right)();
} entry;

#define ENTRY(fault)                                                                                                   \
  { #fault, fault::run < true>, fault::run < false> }

static const entry entries[] = {
    ENTRY(accumulator_uninitialised),
    ENTRY(argument_host),
    ENTRY(barrier_divergent),
    ENTRY(barrier_exited),
    ENTRY(barrier_missing),
    ENTRY(barrier_reused),
    ENTRY(blocks_dependent),
    ENTRY(dynamic_uninitialised),
    ENTRY(launch_refused),
    ENTRY(load_outside),
    ENTRY(pack_misaligned),
    ENTRY(shared_outside),
    ENTRY(shared_uninitialised),
    ENTRY(store_outside),
    ENTRY(sum_order),
    ENTRY(sum_shared_unordered),
    ENTRY(tile_outside),
    ENTRY(tile_overwritten),
    ENTRY(warp_incomplete),
    ENTRY(warp_mask),
    ENTRY(warp_mixed),
};

int main(int argc, char **argv) {
  for (const entry &e : entries) {
    if (argc < 2 || strcmp(argv[1], e.name) != 0) continue;
    const int right = argc > 2 ? e.right() : e.wrong();
    printf("%s: checksum %016llx\n", right ? "right" : "WRONG", (unsigned long long)totals()->checksum);
    return right ? 0 : 1;
  }
  fprintf(stderr, "usage: faults_test NAME [right]\n");
  return 2;
}
