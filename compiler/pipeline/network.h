/* How long ranks take to tell each other something: from the bandwidths and latencies of `cluster` and from which ranks
 * share a node. World ranks are (pp_rank * dp + dp_rank) * tp + tp_rank, `ranks_per_node` of them to a node in order.
 */
#ifndef PDC_PIPELINE_NETWORK_H
#define PDC_PIPELINE_NETWORK_H

#include "semantic/semantic.h"

typedef struct Network Network;

/* For the mesh of `config`. In time proportional to the number of ranks. */
Network *network_new(Arena *arena, const Config *config);

/* ns of a message of `bytes` from rank to rank. A bandwidth or latency that is not declared costs nothing; one between
 * nodes that is not declared is that inside of them. */
double network_message(const Config *config, bool between_nodes, double bytes);
/* A pipeline reaches over nodes. */
bool network_pipeline_leaves_node(const Config *config);

/* ns of an all-reduce of `bytes` a rank, of the slowest tensor-parallel or data-parallel group at a pipeline position.
 * Ring inside a node and ring between nodes: with n ranks 2 (n - 1) (latency + bytes / n / bandwidth). Over several
 * nodes with k ranks on each: scattered over k inside, an all-reduce of the k-th part between, gathered inside. */
double network_tensor_all_reduce(const Network *network, int pp_rank, double bytes);
/* Of an all-gather that ends with `bytes` on every rank: half of it. */
double network_tensor_all_gather(const Network *network, int pp_rank, double bytes);
double network_replica_all_reduce(const Network *network, int pp_rank, double bytes);

#endif
