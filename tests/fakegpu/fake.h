/* The fake GPU's inner interface: what its libcudart.so.13 offers to the other fake libraries (cuBLASLt, NCCL, cuDNN)
 * and to tests, beside the CUDA runtime's own functions. Those libraries are linked with `-L DIR -l:libcudart.so.13`
 * and put their work on streams with fake_enqueue; the scheduler (schedule.cpp) decides when and in which order it
 * runs.
 *
 * Two kinds of mistakes:
 * - What CUDA reports is returned as CUDA's error code; fake_explain adds a line on stderr that says why.
 * - What a GPU would silently do wrong is a fault: fake_fault prints `fake gpu: fault: NAME: …` and ends the process
 * with status FAKE_FAULT_STATUS.
 *
 * Environment, read at the first call:
 *   PD_FAKE_SEED=N          order of what streams leave open (0: as late as possible, only what a wait demands)
 *   PD_FAKE_SEED=1-21       these seeds in turn, the next one at every wait of the program; recordings say which seed a
 *                           graph is launched at: a training program waits once a step
 *   PD_FAKE_RECORD=FILE     the ordered list of calls, a line each; `%r` in FILE becomes the MPI rank
 *   PD_FAKE_KERNELS=A.so:B.so   twins of the program's kernels, made by g++ (device.h)
 *   PD_FAKE_DEVICES=N       number of devices (1); 0: cudaErrorNoDevice
 *   PD_FAKE_MEMORY=BYTES    memory of each device (16 GiB; suffixes K, M, G)
 *   PD_FAKE_ARCH=90         compute capability (the newest that the program has code for)
 *   PD_FAKE_DRIVER=13000    version of the driver, 0: none; below 13000 calls give cudaErrorInsufficientDriver
 *   PD_FAKE_TIMEOUT=SECONDS without progress while the program waits, then a fault that lists what waits (60)
 *   PD_FAKE_LEAKS=0         no fault for what is left at exit
 *   PD_FAKE_MISTAKE=drop:cudaStreamWaitEvent:7@1   a mistake planted in the program's 7th call of that kind, on rank 1
 * (without
 *                           @: on all). For a kernel the call is `kernel` and its name. The mistakes:
 *                             drop    it does nothing, and says that it succeeded
 *                             half    a copy, a fill, an allocation or a message has half its size
 *                             early   cudaEventRecord: the event does not wait for the last operation of its stream
 *                             late    an operation of NCCL comes after the rank's next one of its kind
 *                             other   an operation of NCCL goes to another communicator of the rank
 *                             wide    cublasLtMatrixLayoutCreate: rows are 8 elements further apart
 *   PD_FAKE_NCCL_LOST=N     from its Nth question on, ncclCommGetAsyncError finds ncclRemoteError
 *   PD_FAKE_RACES=1         operations that touch the same memory must be ordered (races.h; twins made for "races")
 *   PD_FAKE_THREADS=N       CPU threads that blocks of a kernel are spread over (1)
 *   PD_FAKE_BLOCKS=forward|reverse|seeded   order of blocks and warps of a kernel (seeded)
 *   PD_FAKE_CUDNN_VERSION=91900   what cudnnGetVersion says (that of the headers)
 *   PD_FAKE_CUDNN_WORKSPACE=BYTES more than cuDNN's plans would ask for */
#ifndef PD_FAKE_H
#define PD_FAKE_H

#include <cuda_runtime_api.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { FAKE_FAULT_STATUS = 99 };

/* memory that an operation reads or writes; host or device */
typedef struct fake_range {
  const void *start;
  size_t bytes;
  int write; /* 1: writes (or reads and writes) */
} fake_range;

typedef enum fake_state {
  FAKE_DONE,   /* finished */
  FAKE_AGAIN,  /* waits for something outside this process: call again later; other operations run meanwhile */
  FAKE_FAILED, /* the device is broken from now on: every later call returns cudaErrorLaunchFailure */
} fake_state;

/* Runs an operation on behalf of its stream. `context` is this run's own copy of the bytes given to fake_enqueue, as
 * they were then (a captured operation runs many times); the same copy is passed again after FAKE_AGAIN, and is dropped
 * without a call after FAKE_DONE. Device memory may be touched only inside this call: between calls it is closed, so
 * what MPI reads or writes in the background must be in host memory of the operation's own. Must not block, must not
 * call the CUDA runtime. */
typedef fake_state fake_run(void *context);

typedef struct fake_operation {
  const char *name;   /* the API call: "ncclAllReduce" */
  const char *detail; /* the rest of the line in recordings: "f32 sum count=12"; may be NULL */
  fake_run *run;
  const void *context; /* copied */
  size_t context_bytes;
  const fake_range *ranges; /* copied; each must lie inside a live allocation if it is device memory (else a fault) */
  size_t range_count;
} fake_operation;

/* Puts an operation at the end of a stream, or as a node into the graph that the stream is being captured into.
 * Returns cudaSuccess, or what a launch into this stream would return (invalid handle, wrong device, broken capture).
 */
cudaError_t fake_enqueue(cudaStream_t stream, const fake_operation *operation);

/* Lets the fake device work a little without waiting for anything: runs up to one operation. Returns 1 if one made
 * progress. For wrappers of blocking calls (MPI_Barrier, …) during which a real device would go on working. */
int fake_progress(void);

/* A fault: prints `fake gpu: fault: NAME: …` (with the running kernel or operation, if any) and ends the process. */
#if defined(__GNUC__)
__attribute__((noreturn, format(printf, 2, 3)))
#endif
void fake_fault(const char *name, const char *format, ...);

/* Counts a call; the mistake that is planted in it, or NULL. */
const char *fake_planted(const char *call);

/* A line on stderr that says why an error code is about to be returned: `fake gpu: CALL: …`. */
#if defined(__GNUC__)
__attribute__((format(printf, 2, 3)))
#endif
void fake_explain(const char *call, const char *format, ...);

/* Adds a line to the recording (a host call such as ncclCommInitRank); nothing without PD_FAKE_RECORD. */
#if defined(__GNUC__)
__attribute__((format(printf, 1, 2)))
#endif
void fake_record(const char *format, ...);

/* Fault `name` unless [start, start + bytes) lies inside one live allocation of the current device; `what` says whose
 * argument. */
void fake_check_device(const void *start, size_t bytes, const char *name, const char *what);

/* 1 if the address lies in a live allocation of some device. */
int fake_is_device(const void *address);

/* Objects that must be gone at exit (handles, communicators): made and destroyed. `kind` is a literal ("cublasLt
 * handle"). Destroying or using one that is not alive is a fault. */
void fake_object_made(const char *kind, const void *object);
void fake_object_destroyed(const char *kind, const void *object);
void fake_object_check(const char *kind, const void *object, const char *call);

#ifdef __cplusplus
}
#endif
#endif
