/* Groups of ranks differ only in how they lie on nodes: on how many, and how many ranks on the fullest. Few such shapes
 * occur, so each position keeps the list of its own, and a price is the highest of them. Prices are whole nanoseconds.
 */
#include "pipeline/network.h"

#include <math.h>

typedef struct Shape {
  int64_t nodes, fullest;
} Shape;
typedef VEC(Shape) Shapes;

struct Network {
  const Config *config;
  Shapes *tensor, *replicas; /* per pipeline rank */
};

static double link_ns(const Config *config, bool between_nodes, double bytes) {
  double bandwidth = between_nodes && config->node_bandwidth > 0 ? config->node_bandwidth : config->bandwidth;
  double latency = between_nodes && config->node_latency > 0 ? config->node_latency : config->latency;
  return (latency + (bandwidth > 0 ? bytes / bandwidth : 0)) * 1e9;
}

double network_message(const Config *config, bool between_nodes, double bytes) {
  return round(link_ns(config, between_nodes, bytes));
}

bool network_pipeline_leaves_node(const Config *config) {
  return config->ranks_per_node > 0 && config->pp * config->dp * config->tp > config->ranks_per_node;
}

/* Ranks first, first + stride, …, `count` of them. */
static Shape shape_of(const Config *config, int64_t first, int64_t stride, int64_t count) {
  if (config->ranks_per_node <= 0) return (Shape){1, count};
  Shape shape = {0, 0};
  int64_t node = -1, here = 0;
  for (int64_t k = 0; k < count; k++) { /* nodes ascend */
    int64_t at = (first + k * stride) / config->ranks_per_node;
    here = at == node ? here + 1 : 1;
    shape.nodes += at != node;
    node = at;
    if (here > shape.fullest) shape.fullest = here;
  }
  return shape;
}

static void add_shape(Arena *arena, Shapes *shapes, Shape shape) {
  for (uint32_t i = 0; i < shapes->count; i++)
    if (shapes->at[i].nodes == shape.nodes && shapes->at[i].fullest == shape.fullest) return;
  vec_push(arena, shapes, shape);
}

Network *network_new(Arena *arena, const Config *config) {
  Network *network = ARENA_NEW(arena, Network);
  network->config = config;
  network->tensor = ARENA_ARRAY(arena, Shapes, config->pp);
  network->replicas = ARENA_ARRAY(arena, Shapes, config->pp);
  int64_t replicas = config->dp, parts = config->tp;
  for (int64_t pp_rank = 0; pp_rank < config->pp; pp_rank++) {
    int64_t first = pp_rank * replicas * parts;
    for (int64_t r = 0; r < replicas; r++)
      add_shape(arena, &network->tensor[pp_rank], shape_of(config, first + r * parts, 1, parts));
    for (int64_t t = 0; t < parts; t++)
      add_shape(arena, &network->replicas[pp_rank], shape_of(config, first + t, parts, replicas));
  }
  return network;
}

/* Half of a ring: n - 1 times the n-th part goes on to the neighbour. */
static double half_ring(const Config *config, bool between_nodes, int64_t n, double bytes) {
  return n > 1 ? (double)(n - 1) * link_ns(config, between_nodes, bytes / (double)n) : 0;
}

static double slowest(const Network *network, const Shapes *shapes, double bytes, double halves) {
  double most = 0;
  for (uint32_t i = 0; i < shapes->count; i++) {
    Shape shape = shapes->at[i];
    double time = halves * (half_ring(network->config, false, shape.fullest, bytes) +
                            half_ring(network->config, true, shape.nodes, bytes / (double)shape.fullest));
    if (time > most) most = time;
  }
  return round(most);
}

double network_tensor_all_reduce(const Network *network, int pp_rank, double bytes) {
  return slowest(network, &network->tensor[pp_rank], bytes, 2);
}

double network_tensor_all_gather(const Network *network, int pp_rank, double bytes) {
  return slowest(network, &network->tensor[pp_rank], bytes, 1);
}

double network_replica_all_reduce(const Network *network, int pp_rank, double bytes) {
  return slowest(network, &network->replicas[pp_rank], bytes, 2);
}
