/* What every function of the fake CUDA runtime begins and ends with, and how it puts work on a stream. */
#ifndef PD_FAKE_API_H
#define PD_FAKE_API_H

#include "schedule.h"

namespace fake {

/* forbidden: calls that may not be made while a stream is being captured (global and thread-local modes) */
enum class capture_use { allowed, forbidden };

/* the error that the call returns before it does anything, cudaSuccess if it may go on */
cudaError_t enter_api(const char *call, capture_use use);
/* remembers an error for cudaGetLastError */
cudaError_t leave_api(cudaError_t error);

/* counts a call; whether it is to do nothing (PD_FAKE_MISTAKE) */
bool dropped(const char *call);
/* whether this mistake is planted in the call that is being made */
bool planted(const char *mistake);

/* counted: not by somebody else before, as NCCL's calls are */
template <class F> cudaError_t api(const char *call, capture_use use, F &&body, bool counted = true) {
  std::lock_guard<std::recursive_mutex> hold(lock);
  cudaError_t error = enter_api(call, use);
  if (error == cudaSuccess && !(counted && dropped(call))) error = body();
  return leave_api(error);
}

int current_device();

/* `foreign`: the stream may belong to another device than the current one, as for copies */
enum class stream_use { own, foreign };

/* the error that work on this stream would get */
cudaError_t check_stream(cudaStream_t stream, const char *call, stream_use use = stream_use::own);

/* Puts work on a stream or into the graph that it is captured into. */
cudaError_t submit(cudaStream_t stream, const char *call, std::string detail, std::vector<fake_range> ranges,
                   action run, stream_use use = stream_use::own);

bool is_capturing(cudaStream_t stream);

/* waits until a stream has run everything; an error if it is being captured */
cudaError_t synchronize_stream(cudaStream_t stream, const char *call);

/* dims as in "2,3,1" */
std::string text_of(const dim3 &size);

} // namespace fake
#endif
