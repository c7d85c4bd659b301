/* A graph for cuDNN being built, descriptor by descriptor: what attention_graph.c describes and attention_cudnn.c makes
 * plans of. Private to these two. */
#ifndef PD_ATTENTION_GRAPH_H
#define PD_ATTENTION_GRAPH_H

#include "cuda/attention_cudnn.h"

typedef cudnnBackendDescriptor_t descriptor;

enum { MAX_DESCRIPTORS = 160, MAX_OPERATIONS = 32 };

/* names of the tensors that an execution is given */
enum {
  Q = 1,
  K,
  V,
  O,
  LSE,
  D_O,
  DQ,
  DK,
  DV,
  SCALE,
  LOWEST,
  OFFSET,
  ONE,
  DQ_SUM,
  DELTA,
  DK_HEADS,
  DV_HEADS,
  FIRST_INNER = 100
};

/* A graph being built. The first thing that goes wrong is kept; what follows is skipped. */
typedef struct builder {
  descriptor made[MAX_DESCRIPTORS], operation[MAX_OPERATIONS];
  int made_count, operation_count;
  int64_t inner; /* the last name given to a tensor that exists inside the graph only */
  cudnnStatus_t status;
  const char *failed;
} builder;

/* Keeps the first status that is not success, with what was to be done; true while all went well. */
bool pd_graph_ok(builder *b, cudnnStatus_t status, const char *what);
/* A new descriptor, freed by pd_graph_release; NULL once something went wrong, as in all that follows. */
descriptor pd_graph_make(builder *b, cudnnBackendDescriptorType_t type);
void pd_graph_set(builder *b, descriptor d, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                  int64_t count, const void *value);
void pd_graph_set_descriptor(builder *b, descriptor d, cudnnBackendAttributeName_t name, descriptor value);
void pd_graph_finish(builder *b, descriptor d, const char *what);
void pd_graph_release(builder *b);

/* All operations of `attention`, finished. */
void pd_graph_describe(builder *b, const pd_attention *attention);

#endif
