/* Streams, and the captures that turn what is put on them into graphs. */
#ifndef PD_FAKE_STREAM_H
#define PD_FAKE_STREAM_H

#include "api.h"

#include <thread>

/* a node of a graph: work and the nodes it comes after */
struct CUgraphNode_st {
  fake::work_ref what;
  std::vector<size_t> after;
  size_t lane; /* of the captured stream that it came from */
};

struct CUgraph_st {
  std::string name;
  std::vector<CUgraphNode_st> nodes;
};

namespace fake {

/* streams being captured into one graph */
struct capture {
  unsigned long long id;
  cudaStreamCaptureMode mode;
  std::thread::id thread;
  cudaStream_t origin;
  cudaGraph_t graph;
  std::vector<cudaStream_t> streams; /* that have joined, the origin first */
  bool broken, ended;
};
using capture_ref = std::shared_ptr<capture>;

/* the stream's state behind a handle, the default streams included; a fault if it was destroyed */
cudaStream_t resolve(cudaStream_t stream, const char *call);

/* captures that a forbidden call breaks: those in global mode, and the calling thread's own */
bool break_captures(const char *call);
void end_capture(capture &c);

/* breaks a capture */
cudaError_t break_capture(capture &c, cudaError_t error, const char *call, const char *why);

} // namespace fake

struct CUstream_st {
  std::string name;
  int device;
  bool legacy, blocking; /* blocking: ordered against the legacy stream */
  unsigned flags;
  int priority;
  fake::operation_ref tail;
  fake::lane *own;              /* the order of its operations */
  fake::capture_ref captured;   /* null when not capturing */
  std::vector<size_t> frontier; /* nodes that the next captured operation comes after */
};
#endif
