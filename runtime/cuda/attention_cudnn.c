/* Makes cuDNN's plans for attention and runs them. */
#include "cuda/attention_cudnn.h"

#include <cuda_runtime_api.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/attention_graph.h"
#include "cuda/cudnn_library.h"

struct pd_attention_plan {
  pd_attention attention;
  descriptor plan;
  int64_t workspace; /* the engine's own; behind it lie delta, the float sums of dq, dk and dv by heads */
  int operations;
};

/* ---- plans ---- */

static void reason(builder *b, char *why, size_t size) {
  char text[512] = "";
  pd_cudnn.cudnnGetLastErrorString(text, sizeof text);
  snprintf(why, size, "cuDNN could not %s: %s%s%s", b->failed != NULL ? b->failed : "go on",
           pd_cudnn.cudnnGetErrorString(b->status), text[0] != 0 ? ": " : "", text);
}

static descriptor device_of(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count,
                            const void *value, char *why, size_t why_size) {
  builder b = {.status = CUDNN_STATUS_SUCCESS};
  descriptor d = pd_graph_make(&b, CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
  pd_graph_set(&b, d, name, type, count, value);
  pd_graph_finish(&b, d, "take the description of the device");
  if (b.status == CUDNN_STATUS_SUCCESS) return d;
  reason(&b, why, why_size);
  pd_graph_release(&b);
  return NULL;
}

cudnnBackendDescriptor_t pd_attention_device(cudnnHandle_t handle, char *why, size_t why_size) {
  return device_of(CUDNN_ATTR_DEVICEPROP_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle, why, why_size);
}

cudnnBackendDescriptor_t pd_attention_device_described(const char *json, char *why, size_t why_size) {
  return device_of(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, (int64_t)strlen(json) + 1, json, why,
                   why_size);
}

/* The engine of a configuration gives other bits in another run. */
static bool timing_dependent(builder *b, descriptor configuration) {
  cudnnBackendNumericalNote_t notes[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
  int64_t count = 0;
  descriptor engine = pd_graph_make(b, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  if (engine == NULL) return true;
  if (!pd_graph_ok(b,
                   pd_cudnn.cudnnBackendGetAttribute(configuration, CUDNN_ATTR_ENGINECFG_ENGINE,
                                                     CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count, &engine),
                   "look at an engine") ||
      !pd_graph_ok(b,
                   pd_cudnn.cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
                                                     CUDNN_TYPE_NUMERICAL_NOTE, CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &count,
                                                     notes),
                   "look at an engine's notes")) {
    return true;
  }
  for (int64_t i = 0; i < count; i++) {
    if (notes[i] == CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC) return true;
  }
  return false;
}

/* The first of the heuristic's configurations that can be built, and whose engine does not say of itself that it
 * depends on timing if that is not wanted. */
static void choose_plan(builder *b, descriptor device, pd_attention_plan *plan) {
  const bool deterministic = !plan->attention.any_order;
  descriptor graph = pd_graph_make(b, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  pd_graph_set(b, graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, b->operation_count,
               b->operation);
  pd_graph_finish(b, graph, "understand the graph");
  const cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A;
  descriptor heuristic = pd_graph_make(b, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  pd_graph_set_descriptor(b, heuristic, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
  pd_graph_set(b, heuristic, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
  pd_graph_set_descriptor(b, heuristic, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, device);
  pd_graph_finish(b, heuristic, "find an engine");
  enum { MOST = 16 };
  descriptor configuration[MOST];
  for (int i = 0; i < MOST; i++) configuration[i] = pd_graph_make(b, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
  int64_t count = 0;
  if (b->status != CUDNN_STATUS_SUCCESS ||
      !pd_graph_ok(b,
                   pd_cudnn.cudnnBackendGetAttribute(heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                                     CUDNN_TYPE_BACKEND_DESCRIPTOR, MOST, &count, configuration),
                   "find an engine")) {
    return;
  }
  for (int64_t i = 0; i < count && plan->plan == NULL; i++) {
    const bool varies = timing_dependent(b, configuration[i]);
    if (b->status != CUDNN_STATUS_SUCCESS) return;
    if (varies && deterministic) continue;
    descriptor d = NULL;
    if (!pd_graph_ok(b, pd_cudnn.cudnnBackendCreateDescriptor(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, &d),
                     "create a descriptor"))
      return;
    if (pd_cudnn.cudnnBackendSetAttribute(d, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                                          &configuration[i]) == CUDNN_STATUS_SUCCESS &&
        pd_cudnn.cudnnBackendSetAttribute(d, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                                          &device) == CUDNN_STATUS_SUCCESS &&
        pd_cudnn.cudnnBackendFinalize(d) == CUDNN_STATUS_SUCCESS &&
        pd_cudnn.cudnnBackendGetAttribute(d, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, NULL,
                                          &plan->workspace) == CUDNN_STATUS_SUCCESS) {
      plan->plan = d;
    } else {
      pd_cudnn.cudnnBackendDestroyDescriptor(d);
    }
  }
  if (plan->plan == NULL)
    pd_graph_ok(b, CUDNN_STATUS_NOT_SUPPORTED,
                deterministic ? "find an engine whose sums do not depend on timing" : "find an engine");
}

pd_attention_plan *pd_attention_plan_make(cudnnBackendDescriptor_t device, const pd_attention *attention, char *why,
                                          size_t why_size) {
  pd_attention_plan *plan = calloc(1, sizeof *plan);
  builder *b = calloc(1, sizeof *b);
  if (plan == NULL || b == NULL) {
    snprintf(why, why_size, "out of memory");
    free(plan);
    free(b);
    return NULL;
  }
  b->status = CUDNN_STATUS_SUCCESS;
  plan->attention = *attention;
  pd_graph_describe(b, attention);
  plan->operations = b->operation_count;
  choose_plan(b, device, plan);
  if (b->status != CUDNN_STATUS_SUCCESS) {
    reason(b, why, why_size);
    pd_attention_plan_free(plan);
    plan = NULL;
  }
  pd_graph_release(b);
  free(b);
  return plan;
}

void pd_attention_plan_free(pd_attention_plan *plan) {
  if (plan == NULL) return;
  if (plan->plan != NULL) pd_cudnn.cudnnBackendDestroyDescriptor(plan->plan);
  free(plan);
}

static int64_t rounded(int64_t bytes) {
  return (bytes + 255) / 256 * 256;
}

static int64_t delta_bytes(const pd_attention_plan *plan) {
  const pd_attention *z = &plan->attention;
  return rounded(z->b * z->h * z->s * (int64_t)sizeof(float));
}

/* the float sums of dq, if blocks add to them */
static int64_t sum_bytes(const pd_attention_plan *plan) {
  const pd_attention *z = &plan->attention;
  return !z->any_order ? 0 : rounded(z->b * z->h * z->s * z->d * (int64_t)sizeof(float));
}

/* dk, and dv, of every query head, if heads share keys */
static int64_t heads_bytes(const pd_attention_plan *plan) {
  const pd_attention *z = &plan->attention;
  return z->h == z->g ? 0 : rounded(z->b * z->h * z->t * z->d * 2);
}

int64_t pd_attention_workspace(const pd_attention_plan *plan) {
  const int64_t own = rounded(plan->workspace);
  return !plan->attention.gradient ? own : own + delta_bytes(plan) + sum_bytes(plan) + 2 * heads_bytes(plan);
}

int pd_attention_operations(const pd_attention_plan *plan) {
  return plan->operations;
}

/* ---- execution ---- */

typedef struct operands {
  int64_t name[20];
  void *at[20];
  int count;
} operands;

static void give(operands *o, int64_t name, const void *at) {
  o->name[o->count] = name;
  memcpy(&o->at[o->count], &at, sizeof at); /* cuDNN takes inputs as void *, too */
  o->count++;
}

static cudnnStatus_t execute(const pd_attention_plan *plan, cudnnHandle_t handle, operands *o, void *workspace) {
  const pd_attention *z = &plan->attention;
  const float scale = (float)(1 / sqrt((double)z->d)), lowest = -INFINITY, one = 1;
  const int32_t offset = (int32_t)(z->t - z->s);
  give(o, SCALE, &scale);
  if (z->gradient) give(o, ONE, &one);
  if (z->causal) give(o, LOWEST, &lowest);
  if (z->causal && z->t != z->s) give(o, OFFSET, &offset);
  descriptor pack = NULL;
  cudnnStatus_t status = pd_cudnn.cudnnBackendCreateDescriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &pack);
  if (status != CUDNN_STATUS_SUCCESS) return status;
  status =
      pd_cudnn.cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, o->count, o->name);
  if (status == CUDNN_STATUS_SUCCESS)
    status = pd_cudnn.cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR,
                                               o->count, o->at);
  if (status == CUDNN_STATUS_SUCCESS)
    status =
        pd_cudnn.cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace);
  if (status == CUDNN_STATUS_SUCCESS) status = pd_cudnn.cudnnBackendFinalize(pack);
  if (status == CUDNN_STATUS_SUCCESS) status = pd_cudnn.cudnnBackendExecute(handle, plan->plan, pack);
  pd_cudnn.cudnnBackendDestroyDescriptor(pack);
  return status;
}

cudnnStatus_t pd_attention_forward(const pd_attention_plan *plan, cudnnHandle_t handle, const void *q, const void *k,
                                   const void *v, void *o, float *lse, void *workspace) {
  if (plan->attention.gradient) return CUDNN_STATUS_BAD_PARAM;
  operands given = {.count = 0};
  give(&given, Q, q);
  give(&given, K, k);
  give(&given, V, v);
  give(&given, O, o);
  give(&given, LSE, lse);
  return execute(plan, handle, &given, workspace);
}

cudnnStatus_t pd_attention_backward(const pd_attention_plan *plan, cudnnHandle_t handle, const void *q, const void *k,
                                    const void *v, const void *o, const float *lse, const void *d_o, void *dq, void *dk,
                                    void *dv, void *workspace) {
  if (!plan->attention.gradient) return CUDNN_STATUS_BAD_PARAM;
  char *const delta = (char *)workspace + rounded(plan->workspace), *const sum = delta + delta_bytes(plan);
  char *const heads = sum + sum_bytes(plan);
  cudaStream_t stream = NULL;
  cudnnStatus_t status = pd_cudnn.cudnnGetStream(handle, &stream);
  if (status != CUDNN_STATUS_SUCCESS) return status;
  if (sum_bytes(plan) > 0 && cudaMemsetAsync(sum, 0, (size_t)sum_bytes(plan), stream) != cudaSuccess) {
    return CUDNN_STATUS_EXECUTION_FAILED;
  }
  operands given = {.count = 0};
  give(&given, Q, q);
  give(&given, K, k);
  give(&given, V, v);
  give(&given, O, o);
  give(&given, LSE, lse);
  give(&given, D_O, d_o);
  give(&given, DQ, dq);
  give(&given, DK, dk);
  give(&given, DV, dv);
  give(&given, DELTA, delta);
  if (sum_bytes(plan) > 0) give(&given, DQ_SUM, sum);
  if (heads_bytes(plan) > 0) {
    give(&given, DK_HEADS, heads);
    give(&given, DV_HEADS, heads + heads_bytes(plan));
  }
  return execute(plan, handle, &given, workspace);
}
