/* Attention by cuDNN in a program: the library, its handle on the compute stream, a plan for every shape. All of it is
 * made when the device is opened, before anything is captured. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/attention_cudnn.h"
#include "cuda/cuda.h"
#include "cuda/cudnn_library.h"
#include "cuda/launch.h"
#include "watch.h"

struct pd_cuda_attention {
  cudnnHandle_t handle;
};

enum { REASON = 1024 };

static void check(cudnnStatus_t status, const char *call) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  char text[512] = "";
  pd_cudnn.cudnnGetLastErrorString(text, sizeof text);
  pd_fail(PD_EXIT_CUDA, "%s failed with %s%s%s", call, pd_cudnn.cudnnGetErrorString(status), text[0] != 0 ? ": " : "",
          text);
}

/* Why cuDNN does not do it: the first reason is kept. */
static void refuse(const pd_device *device, char *reason, const char *why) {
  if (device->program->attention_required) {
    pd_fail(PD_EXIT_CUDA, "this program was built with --attention=cudnn, and %s", why);
  }
  if (reason[0] == 0) snprintf(reason, REASON, "%s", why);
}

/* The first rank with a reason speaks for all. Collective. */
static void tell(const pd_device *device, const char *reason) {
  const pd_world *world = device->world;
  int speaker = reason[0] != 0 ? world->rank : world->size;
  MPI_Allreduce(MPI_IN_PLACE, &speaker, 1, MPI_INT, MPI_MIN, world->all);
  if (speaker != world->rank) return;
  fprintf(stderr, "note: attention runs on this program's own kernels, which are slower: %s\n", reason);
}

static bool open_library(pd_device *device, char *why, size_t why_size) {
  if (!pd_cudnn_open(why, why_size)) return false;
  cudnnHandle_t handle = NULL;
  const cudnnStatus_t status = pd_cudnn.cudnnCreate(&handle);
  if (status != CUDNN_STATUS_SUCCESS) {
    snprintf(why, why_size, "cudnnCreate failed with %s", pd_cudnn.cudnnGetErrorString(status));
    return false;
  }
  check(pd_cudnn.cudnnSetStream(handle, device->compute), "cudnnSetStream");
  device->attention = calloc(1, sizeof *device->attention);
  if (device->attention == NULL) pd_fail(PD_EXIT_MEMORY, "out of memory");
  device->attention->handle = handle;
  return true;
}

static void make_plan(const pd_device *device, cudnnBackendDescriptor_t properties, pd_attention *entry, char *reason) {
  char why[REASON];
  entry->plan = pd_attention_plan_make(properties, entry, why, sizeof why);
  if (entry->plan == NULL) {
    refuse(device, reason, why);
  } else if (pd_attention_workspace(entry->plan) > device->program->attention_space) {
    snprintf(why, sizeof why, "cuDNN's plan for it needs %lld bytes, of which %lld are in the program's plan",
             (long long)pd_attention_workspace(entry->plan), (long long)device->program->attention_space);
    pd_attention_plan_free(entry->plan);
    entry->plan = NULL;
    refuse(device, reason, why);
  }
}

static void make_plans(pd_device *device, char *reason) {
  const pd_program *program = device->program;
  char why[REASON];
  cudnnBackendDescriptor_t properties = NULL;
  if (open_library(device, why, sizeof why))
    properties = pd_attention_device(device->attention->handle, why, sizeof why);
  if (properties == NULL) {
    refuse(device, reason, why);
    return;
  }
  for (int i = 0; i < program->attention_count; i++) {
    pd_watch_show("start: plan %d of %d for attention", i + 1, program->attention_count);
    make_plan(device, properties, &program->attentions[i], reason);
  }
  pd_cudnn.cudnnBackendDestroyDescriptor(properties);
}

void pd_cuda_open_attentions(pd_device *device) {
  char reason[REASON] = "";
  make_plans(device, reason);
  tell(device, reason);
}

void pd_cuda_close_attentions(pd_device *device) {
  for (int i = 0; i < device->program->attention_count; i++) {
    pd_attention_plan_free(device->program->attentions[i].plan);
    device->program->attentions[i].plan = NULL;
  }
  if (device->attention == NULL) return;
  check(pd_cudnn.cudnnDestroy(device->attention->handle), "cudnnDestroy");
  free(device->attention);
  device->attention = NULL;
}

static void *space(const pd_device *device) {
  return device->memory + device->layout->libraries;
}

void pd_attend(const pd_frame *f, const pd_attention *attention, const void *q, const void *k, const void *v, void *o,
               float *lse) {
  const pd_device *device = f->device;
  check(pd_attention_forward(attention->plan, device->attention->handle, q, k, v, o, lse, space(device)),
        "attention by cuDNN");
}

void pd_attend_grad(const pd_frame *f, const pd_attention *attention, const void *q, const void *k, const void *v,
                    const void *o, const float *lse, const void *d_o, void *dq, void *dk, void *dv) {
  const pd_device *device = f->device;
  check(pd_attention_backward(attention->plan, device->attention->handle, q, k, v, o, lse, d_o, dq, dk, dv,
                              space(device)),
        "the gradient of attention by cuDNN");
}
