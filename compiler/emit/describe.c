/* The runtime's description of a program, filled from the planned graph. */
#include <stdlib.h>
#include <string.h>

#include "emit/writer.h"

static void describe_wires(Arena *arena, const Graph *graph, const Config *config, pd_program *program) {
  pd_wire_info *wires = ARENA_ARRAY(arena, pd_wire_info, graph->wires.count + 1);
  for (uint32_t i = 0; i < graph->wires.count; i++) {
    const Wire *wire = &graph->wires.at[i];
    wires[i] = (pd_wire_info){.name = wire->name,
                              .elements = axes_local_elements(graph, config, wire->rank, wire->axes),
                              .needs_grad = wire->needs_grad,
                              .wide = axes_are_single(graph, wire->rank, wire->axes)};
  }
  program->wires = wires;
  program->wire_count = (int)graph->wires.count;
}

/* Largest single reduction over tensor-parallel ranks in a segment's functions, in elements. */
static int64_t largest_reduction(const Graph *graph, const Config *config, const Segment *segment) {
  int64_t largest = 0;
  for (FunctionKind f = 0; f < FUNCTION_KINDS; f++)
    for (uint32_t i = 0; i < segment_list(segment, f)->count; i++) {
      const Op *op = &graph->ops.at[segment_list(segment, f)->at[i]];
      int64_t n = 0;
      if (op->kind == OP_ALL_REDUCE) n = value_local_elements(graph, config, op->out[0]);
      if (op->kind == OP_XENT) {
        const Value *x = &graph->values.at[op->in[0]];
        if (axis_is_split(graph, config, x->axes[x->rank - 1])) n = value_local_elements(graph, config, op->out[2]);
      }
      if (n > largest) largest = n;
    }
  return largest;
}

static void describe_segments(Arena *arena, const Graph *graph, const Config *config, const MemoryPlan *memory, pd_program *program) {
  pd_segment_info *segments = ARENA_ARRAY(arena, pd_segment_info, graph->segments.count);
  for (uint32_t s = 0; s < graph->segments.count; s++) {
    const Segment *segment = &graph->segments.at[s];
    const SegmentMemory *m = &memory->segments[s];
    pd_segment_info *info = &segments[s];
    info->name = segment->name;
    info->trips = segment->trips;
    info->in_count = (int)segment->ins.count;
    info->out_count = (int)segment->outs.count;
    for (uint32_t k = 0; k < segment->ins.count; k++) {
      const WireIn *in = &segment->ins.at[k];
      info->in_wire[k] = (int)in->wire;
      info->in_carried[k] = in->carried == NO_ID ? PD_NONE : (int)in->carried;
      info->gives_d_in[k] = segment->grads_out[k] != NO_ID;
    }
    for (uint32_t k = 0; k < segment->outs.count; k++) {
      info->out_wire[k] = (int)segment->outs.at[k].wire;
      info->needs_d_out[k] = segment->grads_in[k] != NO_ID;
    }
    info->shared_count = (int)m->shared.count;
    for (uint32_t k = 0; k < m->shared.count; k++) info->shared[k] = (int)m->shared.at[k];
    info->act_bytes = m->act_bytes;
    info->stash_bytes = m->stash_bytes;
    info->scratch_bytes = m->scratch_bytes;
    info->weight_elements = m->weight_elements;
    info->trained_elements = m->trained_elements;
    info->has_weight_grad = segment->weight_grad.count > 0;
    info->tp_elements = largest_reduction(graph, config, segment);
    for (FunctionKind f = 0; f < FUNCTION_KINDS; f++)
      for (uint32_t i = 0; i < segment_list(segment, f)->count; i++) {
        const Op *op = &graph->ops.at[segment_list(segment, f)->at[i]];
        for (unsigned k = 0; k < op->in_count; k++)
          if (graph->values.at[op->in[k]].kind == VALUE_DATA) info->uses_data[graph->values.at[op->in[k]].source] = true;
      }
  }
  program->segments = segments;
  program->segment_count = (int)graph->segments.count;
}

static void describe_parameters(Arena *arena, const Graph *graph, const Config *config, const MemoryPlan *memory, pd_program *program) {
  pd_param_info *params = ARENA_ARRAY(arena, pd_param_info, graph->params.count + 1);
  for (uint32_t i = 0; i < graph->params.count; i++) {
    const Param *param = &graph->params.at[i];
    pd_param_info *info = &params[i];
    info->name = param->name;
    info->rank = param->rank;
    info->split_axis = PD_NONE;
    for (unsigned k = 0; k < param->rank; k++) {
      info->shape[k] = graph->axes.at[param->axes[k]].size;
      if (axis_is_split(graph, config, param->axes[k])) info->split_axis = (int)k;
    }
    info->segment = param->segment == NO_ID ? PD_NONE : (int)param->segment;
    info->per_trip = param->per_trip;
    info->frozen = param->frozen;
    info->decay = param->decay;
    info->statistic = param->statistic;
    info->momentum = param->momentum;
    info->elements = axes_local_elements(graph, config, param->rank, param->axes);
    info->offset = memory->param_offset[i];
    info->init = param->init.kind == INIT_NORMAL ? PD_INIT_NORMAL : param->init.kind == INIT_UNIFORM ? PD_INIT_UNIFORM : PD_INIT_NUMBER;
    info->a = param->init.a;
    info->b = param->init.b;
  }
  program->params = params;
  program->param_count = (int)graph->params.count;
}

/* What integer inputs index, and which inputs are targets. */
static void describe_uses(const Graph *graph, pd_data_info *data) {
  for (uint32_t i = 0; i < graph->ops.count; i++) {
    const Op *op = &graph->ops.at[i];
    Id ids = NO_ID;
    int64_t limit = 0;
    if (op->kind == OP_GATHER) {
      ids = op->in[1];
      limit = graph->axes.at[graph->values.at[op->in[0]].axes[0]].size;
    } else if (op->kind == OP_XENT || op->kind == OP_ACCURACY) {
      const Value *x = &graph->values.at[op->in[0]];
      ids = op->in[1];
      limit = graph->axes.at[x->axes[x->rank - 1]].size;
    }
    if (ids == NO_ID || graph->values.at[ids].kind != VALUE_DATA) continue;
    pd_data_info *info = &data[graph->values.at[ids].source];
    if (!info->limit || limit < info->limit) info->limit = limit;
    info->is_target |= op->kind != OP_GATHER;
  }
}

static void describe_data(Arena *arena, const Graph *graph, const Config *config, pd_program *program) {
  pd_data_info *data = ARENA_ARRAY(arena, pd_data_info, graph->data.count + 1);
  program->tokens_per_sample = 1;
  program->tokens_are_samples = true;
  for (uint32_t i = 0; i < graph->data.count; i++) {
    const Data *input = &graph->data.at[i];
    pd_data_info *info = &data[i];
    info->name = input->name;
    info->is_integer = input->dtype == DT_I32;
    info->ignored = input->ignores ? input->ignored : PD_IGNORE;
    info->rank = input->rank - 1;
    info->split_axis = PD_NONE;
    info->elements = axes_local_elements(graph, config, input->rank - 1u, input->axes + 1);
    int64_t logical = 1;
    for (int k = 0; k < info->rank; k++) {
      info->shape[k] = graph->axes.at[input->axes[k + 1]].size;
      logical *= info->shape[k];
      if (axis_is_split(graph, config, input->axes[k + 1])) info->split_axis = k;
    }
    if (program->tokens_are_samples && info->is_integer && info->rank >= 1) {
      program->tokens_per_sample = logical;
      program->tokens_are_samples = false;
    }
  }
  describe_uses(graph, data);
  program->data = data;
  program->data_count = (int)graph->data.count;
  int *normalisers = ARENA_ARRAY(arena, int, graph->data.count + 1);
  for (uint32_t i = 0; i < graph->data.count; i++)
    if (data[i].is_target) normalisers[program->normaliser_count++] = (int)i;
  program->normalisers = normalisers;
}

static void describe_logits(const Graph *graph, const Config *config, const MemoryPlan *memory, pd_program *program, pd_segment_info *segments) {
  program->loss_segment = (int)graph->values.at[graph->loss].segment;
  program->logits_segment = PD_NONE;
  for (uint32_t s = graph->segments.count; s-- > 0 && program->logits_segment == PD_NONE;) {
    const IdVec *list = &graph->segments.at[s].forward;
    for (uint32_t i = 0; i < list->count; i++) {
      const Op *op = &graph->ops.at[list->at[i]];
      if (op->kind != OP_XENT) continue;
      const Value *x = &graph->values.at[op->in[0]];
      program->logits_segment = (int)s;
      program->logits_classes = graph->axes.at[x->axes[x->rank - 1]].size;
      program->logits_split = axis_is_split(graph, config, x->axes[x->rank - 1]);
      program->logits_rows_per_sample = axes_local_elements(graph, config, x->rank - 2u, x->axes + 1);
      Home home = memory->home[op->in[0]];
      if (home.place == PLACE_ACT) {
        program->logits_offset = home.offset;
      } else { /* copied there when evaluating */
        program->logits_offset = segments[s].act_bytes;
        segments[s].act_bytes += (value_bytes(graph, config, op->in[0]) + 63) / 64 * 64;
      }
      break;
    }
  }
}

static void describe_recipe(Arena *arena, const Config *config, pd_program *program) {
  static const pd_optimizer optimizers[] = {
      [OPTIMIZER_SGD] = PD_SGD, [OPTIMIZER_ADAM] = PD_ADAM, [OPTIMIZER_ADAMW] = PD_ADAMW, [OPTIMIZER_LAMB] = PD_LAMB};
  program->optimizer = optimizers[config->optimizer];
  program->beta1 = config->beta1;
  program->beta2 = config->beta2;
  program->eps = config->eps;
  program->decay = config->decay;
  program->momentum = config->momentum;
  program->clip = config->clip;
  static const pd_rate rates[] = {[RATE_CONSTANT] = PD_RATE_CONSTANT, [RATE_COSINE] = PD_RATE_COSINE, [RATE_LINEAR] = PD_RATE_LINEAR, [RATE_WSD] = PD_RATE_WSD};
  program->rate = rates[config->rate];
  program->peak = config->peak;
  program->floor = config->floor;
  program->warmup = config->warmup;
  program->end = config->end;
  program->decay_from = config->decay_from;
  program->steps = config->steps;
  program->eval_every = config->eval_every;
  program->save_every = config->save_every;
  program->log_every = config->log_every;
  program->seed = config->seed;
  pd_text_pair *pairs = ARENA_ARRAY(arena, pd_text_pair, config->data.count + 1);
  for (uint32_t i = 0; i < config->data.count; i++) pairs[i] = (pd_text_pair){config->data.at[i].key, config->data.at[i].value};
  program->section_data = pairs;
  for (uint32_t i = 0; i < config->checkpoint.count; i++) {
    const KeyValue *pair = &config->checkpoint.at[i];
    if (strcmp(pair->key, "dir") == 0) program->checkpoint_dir = pair->value;
    if (strcmp(pair->key, "load") == 0) program->checkpoint_load = pair->value;
    if (strcmp(pair->key, "keep") == 0) program->checkpoint_keep = strtoll(pair->value, NULL, 10);
    if (strcmp(pair->key, "resume") == 0) program->checkpoint_resume = strcmp(pair->value, "true") == 0;
  }
  program->section_data_count = (int)config->data.count;
}

/* Space that an operation wants beside its operands. */
static int64_t space_of(const Graph *graph, const Config *config, const Op *op) {
  switch (op->kind) {
  case OP_CONV2D:
  case OP_CONV2D_INPUT_GRAD:
  case OP_CONV2D_FILTER_GRAD: return group_images(graph, config, op).bytes;
  case OP_ALL_GATHER: return value_bytes(graph, config, op->out[0]);
  default: return 0;
  }
}

/* Constants in memory, in the order of the graph's values, and the space that products need if there are any, and kernels. */
static void describe_cuda(Arena *arena, const Graph *graph, const Config *config, pd_program *program) {
  float *constants = ARENA_ARRAY(arena, float, graph->values.count + 1);
  for (uint32_t v = 0; v < graph->values.count; v++)
    if (graph->values.at[v].kind == VALUE_CONST) constants[program->constant_count++] = (float)graph->values.at[v].number;
  program->constants = constants;
  for (uint32_t i = 0; i < graph->ops.count; i++) {
    const Op *op = &graph->ops.at[i];
    bool multiplies = op->kind == OP_CONTRACT || op->kind == OP_CONV2D || op->kind == OP_CONV2D_INPUT_GRAD || op->kind == OP_CONV2D_FILTER_GRAD;
    if (multiplies) program->product_space = (int64_t)32 << 20;
    int64_t space = space_of(graph, config, op);
    if (space > program->kernel_space) program->kernel_space = space;
  }
  attention_describe(arena, graph, config, program);
  for (uint32_t s = 0; s < graph->segments.count; s++) {
    const IdVec *list = segment_list(&graph->segments.at[s], FUNCTION_WEIGHT_GRAD);
    for (uint32_t i = 0; i < list->count; i++) {
      if (find_product_of_row_sum(graph, list, list->at[i]) == NO_ID) continue;
      const int64_t bytes = value_local_elements(graph, config, graph->ops.at[list->at[i]].out[0]) * (int64_t)sizeof(float);
      if (bytes > program->product_row) program->product_row = bytes;
    }
  }
}

pd_program *describe_program(Arena *arena, const Graph *graph, const Config *config, const MemoryPlan *memory, const char *compiler) {
  pd_program *program = ARENA_NEW(arena, pd_program);
  program->model = graph->model;
  program->compiler = compiler;
  program->target = config->target == TARGET_CUDA ? PD_TARGET_CUDA : PD_TARGET_HOST;
  program->real_bytes = real_bytes(config);
  program->pp = (int)config->pp;
  program->dp = (int)config->dp;
  program->tp = (int)config->tp;
  program->chunks = (int)config->chunks;
  program->batch = config->batch;
  program->microbatch = config->microbatch;
  program->microbatches = config->microbatches;
  program->recompute = config->recompute == RECOMPUTE_FULL;
  describe_wires(arena, graph, config, program);
  describe_segments(arena, graph, config, memory, program);
  describe_parameters(arena, graph, config, memory, program);
  describe_data(arena, graph, config, program);
  describe_logits(graph, config, memory, program, (pd_segment_info *)program->segments);
  describe_recipe(arena, config, program);
  const char **metrics = ARENA_ARRAY(arena, const char *, graph->metrics.count + 1);
  for (uint32_t k = 0; k < graph->metrics.count; k++) metrics[k] = graph->metrics.at[k].name;
  program->metrics = metrics;
  program->metric_count = (int)graph->metrics.count;
  if (config->target == TARGET_CUDA) describe_cuda(arena, graph, config, program);
  double forward = 0, all = 0;
  for (uint32_t s = 0; s < graph->segments.count; s++) {
    const Segment *segment = &graph->segments.at[s];
    double trips = (double)segment->trips * (double)config->batch;
    forward += trips * (double)segment->flops_f;
    all += trips * ((double)segment->flops_f + (double)segment->flops_i + (double)segment->flops_w);
  }
  program->forward_flops = forward;
  program->step_flops = all;
  program->peak_flops = config->flops > 0 ? config->flops : 0;
  return program;
}
