/* What the other fake libraries use of the fake runtime (fake.h): operations of their own on streams, ranges, objects.
 */
#include "../fake.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                                                               \
  do {                                                                                                                 \
    if (!(condition)) {                                                                                                \
      printf("line %d: not true: %s\n", __LINE__, #condition);                                                         \
      exit(5);                                                                                                         \
    }                                                                                                                  \
  } while (0)

struct job {
  int *log, *calls; /* of the program */
  int again, name;  /* how often it is not ready; what it writes into the log */
  float *target;
};
static int logged;

static fake_state work(void *context) {
  struct job *job = context;
  ++*job->calls;
  if (job->again > 0) {
    job->again--;
    return FAKE_AGAIN;
  }
  if (job->target) job->target[0] = (float)job->name;
  job->log[logged++] = job->name;
  return FAKE_DONE;
}
static fake_state fail(void *context) {
  (void)context;
  return FAKE_FAILED;
}
static fake_state forever(void *context) {
  (void)context;
  return FAKE_AGAIN;
}

static int entries[16], calls;
static struct job job(int name, int again, float *target) {
  struct job made = {entries, &calls, again, name, target};
  return made;
}
static cudaError_t put(cudaStream_t stream, struct job job, size_t bytes) {
  fake_range range = {job.target, bytes, 1};
  fake_operation o = {"work", "of a test", work, &job, sizeof job, &range, job.target ? 1 : 0};
  cudaError_t error = fake_enqueue(stream, &o);
  memset(&job, 0xee, sizeof job); /* it was copied */
  return error;
}

static cudaStream_t one, two;

/* an operation that waits for something outside lets others run; its copy of the context counts */
static void again(void) {
  cudaEvent_t event;
  CHECK(!cudaEventCreate(&event));
  CHECK(!put(one, job(1, 3, NULL), 0));
  CHECK(!put(two, job(2, 0, NULL), 0));
  CHECK(!cudaEventRecord(event, one) && !cudaStreamWaitEvent(two, event, 0));
  CHECK(!put(two, job(3, 1, NULL), 0));
  CHECK(!cudaStreamSynchronize(two));
  CHECK(logged == 3 && calls == 7 && entries[2] == 3);
  CHECK(!cudaEventDestroy(event));
}

/* captured operations run at each launch, with a fresh copy of their context */
static void captured(void) {
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  CHECK(!cudaStreamBeginCapture(one, cudaStreamCaptureModeGlobal));
  CHECK(!put(one, job(1, 2, NULL), 0));
  CHECK(!cudaStreamEndCapture(one, &graph) && !cudaGraphInstantiate(&exec, graph, 0) && !cudaGraphDestroy(graph));
  CHECK(calls == 0);
  for (int i = 0; i < 3; i++) CHECK(!cudaGraphLaunch(exec, one));
  CHECK(!cudaStreamSynchronize(one));
  CHECK(logged == 3 && calls == 9);
  CHECK(!cudaGraphExecDestroy(exec));
}

static void progress(void) {
  CHECK(fake_progress() == 0);
  CHECK(!put(one, job(1, 1, NULL), 0));
  while (!logged) (void)fake_progress();
  CHECK(fake_progress() == 0 && calls == 2);
}

/* two streams write the same memory; an event orders them, or does not */
static void write_twice(int ordered) {
  float *x;
  cudaEvent_t event;
  CHECK(!cudaMalloc((void **)&x, 4) && !cudaEventCreate(&event));
  CHECK(!put(one, job(1, 0, x), 4) && !cudaEventRecord(event, one));
  if (ordered) CHECK(!cudaStreamWaitEvent(two, event, 0));
  CHECK(!put(two, job(2, 0, x), 4));
  CHECK(!cudaStreamSynchronize(one) && !cudaStreamSynchronize(two));
  CHECK(!cudaFree(x) && !cudaEventDestroy(event));
}
static void ordered(void) {
  write_twice(1);
}
static void unordered(void) {
  write_twice(0);
}

static void ranges(void) {
  float *x, got;
  CHECK(!cudaMalloc((void **)&x, 4));
  CHECK(fake_is_device(x) && !fake_is_device(&got));
  fake_check_device(x, 4, "argument", "a test");
  CHECK(!put(one, job(7, 0, x), 4));
  CHECK(!cudaStreamSynchronize(one) && !cudaMemcpy(&got, x, 4, cudaMemcpyDeviceToHost) && got == 7);
  CHECK(!cudaFree(x) && !fake_is_device(x));
}
static void range_too_long(void) {
  float *x;
  CHECK(!cudaMalloc((void **)&x, 4));
  put(one, job(7, 0, x), 8);
}
static void not_device(void) {
  float x[2] = {0};
  fake_check_device(x, 8, "argument", "a test");
}

static void failure(void) {
  fake_operation o = {"fail", NULL, fail, NULL, 0, NULL, 0};
  CHECK(fake_enqueue(one, &o) == cudaSuccess);
  CHECK(cudaStreamSynchronize(one) == cudaErrorLaunchFailure);
  CHECK(cudaStreamSynchronize(two) == cudaErrorLaunchFailure && cudaGetLastError() == cudaErrorLaunchFailure);
  exit(0); /* nothing can be destroyed any more */
}
static void stuck(void) {
  fake_operation o = {"forever", "in a test", forever, NULL, 0, NULL, 0};
  CHECK(fake_enqueue(one, &o) == cudaSuccess);
  cudaStreamSynchronize(one);
}

static void objects(void) {
  static char thing;
  fake_object_made("thing", &thing);
  fake_object_check("thing", &thing, "use");
  fake_object_destroyed("thing", &thing);
}
static void object_left(void) {
  static char thing;
  fake_object_made("thing", &thing);
}
static void object_of_another_kind(void) {
  static char thing;
  fake_object_made("thing", &thing);
  fake_object_check("handle", &thing, "use");
}

int main(int argc, char **argv) {
  static const struct {
    const char *name;
    void (*run)(void);
  } parts[] = {{"again", again},
               {"captured", captured},
               {"progress", progress},
               {"ranges", ranges},
               {"ordered", ordered},
               {"unordered", unordered},
               {"objects", objects},
               {"failure", failure},
               {"stuck", stuck},
               {"range_too_long", range_too_long},
               {"not_device", not_device},
               {"object_left", object_left},
               {"object_of_another_kind", object_of_another_kind}};
  CHECK(!cudaStreamCreateWithFlags(&one, cudaStreamNonBlocking) &&
        !cudaStreamCreateWithFlags(&two, cudaStreamNonBlocking));
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
    if (argc > 1 && !strcmp(argv[1], parts[i].name)) {
      parts[i].run();
      CHECK(!cudaStreamDestroy(one) && !cudaStreamDestroy(two));
      printf("ok\n");
      return 0;
    }
  return 2;
}
