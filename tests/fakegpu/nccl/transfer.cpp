/* How calls are carried out. A collective sends this rank's whole input to all members, with a header that says which
 * call it is; a member that finds another call in it than its own is a fault on both. Sums run in the order of ranks,
 * in float for bf16. Sends are synchronous: one ends only after its receive has begun, as a GPU's may. */
#include "transfer.h"

#include "../fake.h"

#include <cstring>
#include <memory>

namespace fake_nccl {

namespace {

struct header {
  kind what;
  ncclDataType_t type;
  ncclRedOp_t op;
  int root;
  uint64_t count, number; /* number: of the collective in its communicator */
};

std::string text_of(const header &h) {
  call c = {h.what, nullptr, nullptr, nullptr, (size_t)h.count, h.type, h.op, h.root};
  return std::string(name_of(c.what)) + " " + describe(c);
}

using message = std::vector<char>;

float half_to_float(uint16_t half) {
  uint32_t bits = (uint32_t)half << 16;
  float x;
  memcpy(&x, &bits, 4);
  return x;
}

uint16_t float_to_half(float x) {
  uint32_t bits;
  memcpy(&bits, &x, 4);
  if (x != x) return 0x7fff;
  return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

template <class T> T apply(ncclRedOp_t op, T a, T b) {
  switch (op) {
  case ncclProd:
    return (T)(a * b);
  case ncclMax:
    return a < b ? b : a;
  case ncclMin:
    return b < a ? b : a;
  default:
    return (T)(a + b); /* sum and average */
  }
}

template <class T> void reduce_as(ncclRedOp_t op, const std::vector<const char *> &parts, size_t count, char *out) {
  for (size_t i = 0; i < count; i++) {
    T sum = reinterpret_cast<const T *>(parts[0])[i];
    for (size_t p = 1; p < parts.size(); p++) sum = apply(op, sum, reinterpret_cast<const T *>(parts[p])[i]);
    if (op == ncclAvg) sum = (T)(sum / (T)parts.size());
    reinterpret_cast<T *>(out)[i] = sum;
  }
}

void reduce_halves(ncclRedOp_t op, const std::vector<const char *> &parts, size_t count, char *out) {
  for (size_t i = 0; i < count; i++) {
    float sum = half_to_float(reinterpret_cast<const uint16_t *>(parts[0])[i]);
    for (size_t p = 1; p < parts.size(); p++)
      sum = apply(op, sum, half_to_float(reinterpret_cast<const uint16_t *>(parts[p])[i]));
    if (op == ncclAvg) sum /= (float)parts.size();
    reinterpret_cast<uint16_t *>(out)[i] = float_to_half(sum);
  }
}

void reduce(const call &c, const std::vector<const char *> &parts, char *out) {
  switch (c.type) {
  case ncclFloat32:
    return reduce_as<float>(c.op, parts, c.count, out);
  case ncclFloat64:
    return reduce_as<double>(c.op, parts, c.count, out);
  case ncclInt32:
    return reduce_as<int32_t>(c.op, parts, c.count, out);
  case ncclInt64:
    return reduce_as<int64_t>(c.op, parts, c.count, out);
  case ncclUint64:
    return reduce_as<uint64_t>(c.op, parts, c.count, out);
  case ncclInt8:
    return reduce_as<int8_t>(c.op, parts, c.count, out);
  case ncclUint8:
    return reduce_as<uint8_t>(c.op, parts, c.count, out);
  default:
    return reduce_halves(c.op, parts, c.count, out);
  }
}

} // namespace

struct transfer {
  call c;
  header mine;
  message outgoing;                  /* header and payload */
  std::vector<message> parts;        /* from each member; empty: not there yet */
  std::vector<MPI_Request> requests; /* of what is sent */
  size_t missing = 0;
};

const char *name_of(kind what) {
  static const char *const names[] = {"ncclAllReduce",     "ncclReduce", "ncclBroadcast", "ncclAllGather",
                                      "ncclReduceScatter", "ncclSend",   "ncclRecv"};
  return names[(int)what];
}

size_t type_bytes(ncclDataType_t type) {
  switch (type) {
  case ncclInt8:
  case ncclUint8:
    return 1;
  case ncclBfloat16:
    return 2;
  case ncclFloat32:
  case ncclInt32:
    return 4;
  case ncclFloat64:
  case ncclInt64:
  case ncclUint64:
    return 8;
  default:
    return 0;
  }
}

bool is_collective(const call &c) {
  return c.what != kind::send && c.what != kind::receive;
}

static bool reduces(kind what) {
  return what == kind::all_reduce || what == kind::reduce || what == kind::reduce_scatter;
}

std::string describe(const call &c) {
  static const char *const ops[] = {"sum", "prod", "max", "min", "avg"};
  static const char *const types[] = {"i8", "u8", "i32", "u32", "i64", "u64", "f16", "f32", "f64", "bf16"};
  std::string text = c.type >= 0 && c.type <= ncclBfloat16 ? types[c.type] : "?";
  if (reduces(c.what)) text += std::string(" ") + (c.op >= 0 && c.op < ncclNumOps ? ops[c.op] : "?");
  text += " count=" + std::to_string(c.count);
  if (c.what == kind::send) text += " to " + std::to_string(c.peer);
  if (c.what == kind::receive) text += " from " + std::to_string(c.peer);
  if (c.what == kind::broadcast || c.what == kind::reduce) text += " root " + std::to_string(c.peer);
  return text;
}

size_t bytes_in(const call &c) {
  size_t bytes = c.count * type_bytes(c.type);
  if (c.what == kind::receive || (c.what == kind::broadcast && c.comm->rank != c.peer)) return 0;
  return c.what == kind::reduce_scatter ? bytes * (size_t)c.comm->size : bytes;
}

size_t bytes_out(const call &c) {
  size_t bytes = c.count * type_bytes(c.type);
  if (c.what == kind::send || (c.what == kind::reduce && c.comm->rank != c.peer)) return 0;
  return c.what == kind::all_gather ? bytes * (size_t)c.comm->size : bytes;
}

/* sends header and this rank's input; a broadcast from elsewhere is a header alone */
static void post(transfer *t, int to) {
  MPI_Request request;
  if (is_collective(t->c))
    MPI_Isend(t->outgoing.data(), (int)t->outgoing.size(), MPI_BYTE, t->c.comm->world[(size_t)to], t->c.comm->tag,
              MPI_COMM_WORLD, &request);
  else
    MPI_Issend(t->outgoing.data(), (int)t->outgoing.size(), MPI_BYTE, t->c.comm->world[(size_t)to], t->c.comm->tag + 1,
               MPI_COMM_WORLD, &request);
  t->requests.push_back(request);
}

transfer *transfer_start(const call &c) {
  auto *t = new transfer{c, {}, {}, {}, {}, 0};
  const bool rooted = c.what == kind::broadcast || c.what == kind::reduce;
  t->mine = {c.what, c.type, reduces(c.what) ? c.op : ncclSum, rooted ? c.peer : 0, c.count, 0};
  if (is_collective(c)) t->mine.number = c.comm->started++;
  const size_t bytes = bytes_in(c);
  t->outgoing.resize(sizeof(header) + bytes);
  memcpy(t->outgoing.data(), &t->mine, sizeof(header));
  if (bytes) memcpy(t->outgoing.data() + sizeof(header), c.in, bytes);
  t->parts.resize((size_t)c.comm->size);
  if (is_collective(c)) {
    for (int i = 0; i < c.comm->size; i++)
      if (i != c.comm->rank) post(t, i);
    t->parts[(size_t)c.comm->rank] = t->outgoing;
    t->missing = (size_t)c.comm->size - 1;
  } else if (c.what == kind::send) {
    post(t, c.peer);
  } else {
    t->missing = 1;
  }
  return t;
}

static void check(const transfer *t, int from, const message &got) {
  header theirs;
  memcpy(&theirs, got.data(), sizeof theirs);
  const std::string other =
      "rank " + std::to_string(from) + " (world rank " + std::to_string(t->c.comm->world[(size_t)from]) + ")";
  if (!is_collective(t->c)) {
    if (theirs.type == t->mine.type && theirs.count == t->mine.count) return;
    fake_fault("message mismatch", "%s expects %s, %s sends %s", rank_text(t->c.comm).c_str(), describe(t->c).c_str(),
               other.c_str(), text_of(theirs).c_str());
  }
  if (memcmp(&theirs, &t->mine, sizeof theirs) == 0) return;
  fake_fault("collective mismatch", "operation %llu of a communicator is %s on %s, and %s on %s",
             (unsigned long long)t->mine.number, text_of(t->mine).c_str(), rank_text(t->c.comm).c_str(),
             text_of(theirs).c_str(), other.c_str());
}

/* takes one message of member `from`, if it has come */
static bool take(transfer *t, int from) {
  int there = 0, bytes = 0;
  MPI_Message handle;
  MPI_Status status;
  const int tag = t->c.comm->tag + !is_collective(t->c);
  MPI_Improbe(t->c.comm->world[(size_t)from], tag, MPI_COMM_WORLD, &there, &handle, &status);
  if (!there) return false;
  MPI_Get_count(&status, MPI_BYTE, &bytes);
  message &part = t->parts[(size_t)from];
  part.resize((size_t)bytes);
  MPI_Mrecv(part.data(), bytes, MPI_BYTE, &handle, MPI_STATUS_IGNORE);
  check(t, from, part);
  t->missing--;
  return true;
}

static const char *payload(const message &part) {
  return part.data() + sizeof(header);
}

static void finish(transfer *t) {
  const call &c = t->c;
  const size_t bytes = c.count * type_bytes(c.type);
  std::vector<const char *> parts;
  for (const message &part : t->parts) parts.push_back(part.empty() ? nullptr : payload(part));
  char *out = static_cast<char *>(c.out);
  switch (c.what) {
  case kind::send:
    break;
  case kind::receive:
    memcpy(out, parts[(size_t)c.peer], bytes);
    break;
  case kind::broadcast:
    memcpy(out, parts[(size_t)c.peer], bytes);
    break;
  case kind::all_gather:
    for (size_t i = 0; i < parts.size(); i++) memcpy(out + i * bytes, parts[i], bytes);
    break;
  case kind::reduce_scatter:
    for (const char *&part : parts) part += bytes * (size_t)c.comm->rank;
    reduce(c, parts, out);
    break;
  case kind::reduce:
    if (c.comm->rank == c.peer) reduce(c, parts, out);
    break;
  case kind::all_reduce:
    reduce(c, parts, out);
    break;
  }
}

bool transfer_step(transfer *t) {
  for (int i = 0; i < t->c.comm->size && t->missing; i++) {
    const bool wanted = is_collective(t->c) ? i != t->c.comm->rank : i == t->c.peer;
    if (wanted && t->parts[(size_t)i].empty()) take(t, i);
  }
  if (t->missing) return false;
  int sent = 1;
  if (!t->requests.empty()) MPI_Testall((int)t->requests.size(), t->requests.data(), &sent, MPI_STATUSES_IGNORE);
  if (!sent) return false;
  finish(t);
  delete t;
  return true;
}

} // namespace fake_nccl
