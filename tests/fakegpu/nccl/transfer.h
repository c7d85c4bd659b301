/* One call of NCCL while it runs: a state machine over host buffers, stepped without blocking. */
#ifndef PD_FAKE_NCCL_TRANSFER_H
#define PD_FAKE_NCCL_TRANSFER_H

#include "comm.h"

namespace fake_nccl {

enum class kind : int32_t { all_reduce, reduce, broadcast, all_gather, reduce_scatter, send, receive };

/* what a call says; plain bytes, so that it can be enqueued */
struct call {
  kind what;
  ncclComm_t comm;
  const void *in;
  void *out;
  size_t count; /* as in the API: elements of send, receive, all-reduce; of one rank's part in gather and scatter */
  ncclDataType_t type;
  ncclRedOp_t op;
  int peer; /* or root */
};

const char *name_of(kind what);         /* "ncclAllReduce" */
size_t type_bytes(ncclDataType_t type); /* 0: not known here */
bool is_collective(const call &c);
std::string describe(const call &c); /* "f32 sum count=12" */
/* bytes that a call reads and writes on this rank */
size_t bytes_in(const call &c);
size_t bytes_out(const call &c);

struct transfer; /* a call under way */
transfer *transfer_start(const call &c);
/* true once it is done; then it is gone */
bool transfer_step(transfer *t);

} // namespace fake_nccl
#endif
