/* NCCL's operations: what they check, how groups of them become one operation of a stream, and how that runs.
 *
 * Rules that are stricter than NCCL's, because programs should not lean on more:
 * - Operations of one communicator run one after another, in the order in which streams bring them up. A program that
 *   uses a communicator from two streams without an order between them will meet a mismatch or a stop under some seed.
 * - All calls of a group go to one stream. */
#include "transfer.h"

#include "../fake.h"

#include <cstring>

namespace fake_nccl {
namespace {

struct pending {
  call c;
  cudaStream_t stream;
};

struct group_state {
  int depth = 0;
  std::vector<pending> calls;
  ncclResult_t failed = ncclSuccess;
};
group_state group;

/* in a run's copy of its context: the head, then one entry a call */
struct head {
  size_t count;
};
struct entry {
  call c;
  transfer *under_way;
  int done;
};

/* may this call begin? Its communicator must be free for this run, and earlier collectives of the group on it over. */
bool may_begin(const entry *entries, size_t at, const void *self) {
  const call &c = entries[at].c;
  if (c.comm->busy && c.comm->busy != self) return false;
  for (size_t i = 0; i < at; i++)
    if (is_collective(c) && entries[i].c.comm == c.comm && is_collective(entries[i].c) && !entries[i].done)
      return false;
  return true;
}

fake_state run(void *context) {
  auto *h = static_cast<head *>(context);
  auto *entries = reinterpret_cast<entry *>(h + 1);
  bool all = true;
  for (size_t i = 0; i < h->count; i++) {
    entry &e = entries[i];
    if (e.done) continue;
    if (!e.under_way && may_begin(entries, i, context)) {
      fake_object_check("NCCL communicator", e.c.comm, name_of(e.c.what));
      e.c.comm->busy = context;
      e.under_way = transfer_start(e.c);
    }
    if (e.under_way && transfer_step(e.under_way)) {
      e.done = 1;
      e.under_way = nullptr;
    }
    if (!e.done) all = false;
  }
  if (!all) return FAKE_AGAIN;
  for (size_t i = 0; i < h->count; i++)
    if (entries[i].c.comm->busy == context) entries[i].c.comm->busy = nullptr;
  return FAKE_DONE;
}

ncclResult_t launch(const std::vector<pending> &calls) {
  if (calls.empty()) return ncclSuccess;
  std::vector<char> context(sizeof(head) + calls.size() * sizeof(entry));
  auto *h = reinterpret_cast<head *>(context.data());
  h->count = calls.size();
  std::vector<fake_range> ranges;
  std::string detail;
  for (size_t i = 0; i < calls.size(); i++) {
    const call &c = calls[i].c;
    if (calls[i].stream != calls[0].stream)
      return refuse("ncclGroupEnd", ncclInvalidUsage, "the fake NCCL wants one stream for all calls of a group");
    entry e = {c, nullptr, 0};
    memcpy(context.data() + sizeof(head) + i * sizeof(entry), &e, sizeof e);
    if (bytes_in(c)) ranges.push_back({c.in, bytes_in(c), 0});
    if (bytes_out(c)) ranges.push_back({c.out, bytes_out(c), 1});
    if (calls.size() > 1) detail += std::string(i ? " + " : "") + name_of(c.what) + " ";
    detail += describe(c) + " size=" + std::to_string(c.comm->size);
  }
  fake_operation operation = {calls.size() > 1 ? "ncclGroup" : name_of(calls[0].c.what),
                              detail.c_str(),
                              run,
                              context.data(),
                              context.size(),
                              ranges.data(),
                              ranges.size()};
  cudaError_t error = fake_enqueue(calls[0].stream, &operation);
  return error == cudaSuccess ? ncclSuccess : refuse(operation.name, ncclUnhandledCudaError, cudaGetErrorString(error));
}

/* overlapping is allowed only as NCCL's in-place forms say */
bool in_place_or_apart(const call &c) {
  const char *in = static_cast<const char *>(c.in), *out = static_cast<const char *>(c.out);
  const size_t part = c.count * type_bytes(c.type) * (size_t)c.comm->rank;
  if (!bytes_in(c) || !bytes_out(c)) return true;
  if (c.what == kind::all_gather && in == out + part) return true;
  if (c.what == kind::reduce_scatter && out == in + part) return true;
  if (c.what != kind::all_gather && c.what != kind::reduce_scatter && in == out) return true;
  return in >= out + bytes_out(c) || out >= in + bytes_in(c);
}

ncclResult_t check(const call &c) {
  const char *name = name_of(c.what);
  ncclResult_t result = check_comm(name, c.comm);
  if (result != ncclSuccess) return result;
  const size_t bytes = type_bytes(c.type);
  if (!bytes)
    return refuse(name, ncclInvalidArgument, "data type " + std::to_string(c.type) + " is not known to the fake");
  if (c.op < 0 || c.op >= ncclNumOps) return refuse(name, ncclInvalidArgument, "unknown reduction");
  if (c.peer < 0 || c.peer >= c.comm->size)
    return refuse(name, ncclInvalidArgument,
                  "there is no rank " + std::to_string(c.peer) + " among " + std::to_string(c.comm->size));
  if (!is_collective(c) && c.peer == c.comm->rank)
    return refuse(name, ncclInvalidUsage, "a rank sends to or receives from itself");
  if ((bytes_in(c) && (!c.in || !fake_is_device(c.in))) || (bytes_out(c) && (!c.out || !fake_is_device(c.out))))
    return refuse(name, ncclInvalidArgument, "a buffer is not in device memory");
  if ((uintptr_t)c.in % bytes || (uintptr_t)c.out % bytes)
    return refuse(name, ncclInvalidArgument, "a buffer is not aligned to its elements");
  if (!in_place_or_apart(c))
    return refuse(name, ncclInvalidUsage, "the buffers overlap, and not as in-place calls may");
  return ncclSuccess;
}

ncclResult_t add(call c, cudaStream_t stream) {
  /* an operation that comes too late, with its stream */
  static auto &late = *new std::vector<pending>;
  const char *planted = fake_planted(name_of(c.what));
  const std::string mistake = planted ? planted : "";
  if (mistake == "drop") return ncclSuccess;
  if (mistake == "half") c.count /= 2;
  if (mistake == "other") c.comm = another(c.comm);
  if (mistake == "late") {
    late.push_back({c, stream});
    return ncclSuccess;
  }
  if (!late.empty() && late[0].c.what == c.what) {
    const pending was = late[0];
    late.clear();
    ncclResult_t first = add(c, stream);
    return first == ncclSuccess ? add(was.c, was.stream) : first;
  }
  ncclResult_t result = check(c);
  if (result == ncclSuccess && c.count == 0) return result;
  if (group.depth) {
    if (result != ncclSuccess)
      group.failed = result;
    else
      group.calls.push_back({c, stream});
    return result;
  }
  return result == ncclSuccess ? launch({{c, stream}}) : result;
}

} // namespace
} // namespace fake_nccl

using namespace fake_nccl;

extern "C" {

ncclResult_t ncclGroupStart() {
  group.depth++;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  if (!group.depth) return refuse("ncclGroupEnd", ncclInvalidUsage, "there is no open group");
  if (--group.depth) return ncclSuccess;
  std::vector<pending> calls;
  calls.swap(group.calls);
  ncclResult_t failed = group.failed;
  group.failed = ncclSuccess;
  return failed != ncclSuccess ? failed : launch(calls);
}

ncclResult_t ncclAllReduce(const void *in, void *out, size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream) {
  return add({kind::all_reduce, comm, in, out, count, type, op, 0}, stream);
}

ncclResult_t ncclReduce(const void *in, void *out, size_t count, ncclDataType_t type, ncclRedOp_t op, int root,
                        ncclComm_t comm, cudaStream_t stream) {
  return add({kind::reduce, comm, in, out, count, type, op, root}, stream);
}

ncclResult_t ncclBroadcast(const void *in, void *out, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                           cudaStream_t stream) {
  return add({kind::broadcast, comm, in, out, count, type, ncclSum, root}, stream);
}

ncclResult_t ncclAllGather(const void *in, void *out, size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
  return add({kind::all_gather, comm, in, out, count, type, ncclSum, 0}, stream);
}

ncclResult_t ncclReduceScatter(const void *in, void *out, size_t count, ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t comm, cudaStream_t stream) {
  return add({kind::reduce_scatter, comm, in, out, count, type, op, 0}, stream);
}

ncclResult_t ncclSend(const void *in, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return add({kind::send, comm, in, nullptr, count, type, ncclSum, peer}, stream);
}

ncclResult_t ncclRecv(void *out, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream) {
  return add({kind::receive, comm, nullptr, out, count, type, ncclSum, peer}, stream);
}
}
