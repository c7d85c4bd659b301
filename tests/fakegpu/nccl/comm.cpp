/* Start and end of communicators. The rank that made the unique id is their meeting point: every member tells it where
 * it is and gets the table of all. */
#include "comm.h"

#include "../fake.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <new>
#include <unistd.h>

namespace fake_nccl {
namespace {

enum { FIRST_TAG = 1 << 30, TAGS_A_RANK = 1 << 12 };
const char comm_kind[] = "NCCL communicator";
std::string last_error = "no error";
int ids_made;

struct identity { /* inside ncclUniqueId */
  uint64_t mark, number;
  int32_t world, tag; /* where members meet */
};
const uint64_t identity_mark = 0x70646e63636c0001;
static_assert(sizeof(identity) <= NCCL_UNIQUE_ID_BYTES, "fits");

struct greeting {
  int32_t rank, size, world;
};

bool mpi_is_up() {
  int up = 0, down = 0;
  MPI_Initialized(&up);
  if (up) MPI_Finalized(&down);
  return up && !down;
}

int world_rank() {
  int rank = 0;
  if (mpi_is_up()) MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return rank;
}

double seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double time_limit() {
  const char *text = getenv("PD_FAKE_TIMEOUT");
  return text ? atof(text) : 60;
}

/* Waits as a blocking NCCL call does while the device works on. */
void wait(MPI_Request *request, const char *what) {
  double since = seconds();
  for (int done = 0;;) {
    MPI_Test(request, &done, MPI_STATUS_IGNORE);
    if (done) return;
    if (fake_progress()) continue;
    if (seconds() - since > time_limit()) fake_fault("communicator", "world rank %d: %s", world_rank(), what);
    usleep(50);
  }
}

/* the table of members, told by the meeting point */
void meet(const identity &id, ncclComm *comm) {
  const std::string what = "ncclCommInitRank of " + rank_text(comm) +
                           " waits for the other members: do all ranks create their communicators in one order?";
  greeting mine = {comm->rank, comm->size, world_rank()};
  comm->world.assign((size_t)comm->size, mine.world);
  if (comm->size == 1) return;
  MPI_Request request;
  if (mine.world == id.world) {
    for (int i = 1; i < comm->size; i++) {
      greeting other;
      MPI_Irecv(&other, sizeof other, MPI_BYTE, MPI_ANY_SOURCE, id.tag, MPI_COMM_WORLD, &request);
      wait(&request, what.c_str());
      if (other.size != comm->size || other.rank < 0 || other.rank >= comm->size || other.rank == comm->rank)
        fake_fault("communicator", "world rank %d joins as rank %d of %d what world rank %d joins as rank %d of %d",
                   other.world, other.rank, other.size, mine.world, mine.rank, mine.size);
      comm->world[(size_t)other.rank] = other.world;
    }
    for (int to : comm->world) {
      if (to == mine.world) continue;
      MPI_Isend(comm->world.data(), comm->size, MPI_INT, to, id.tag + 1, MPI_COMM_WORLD, &request);
      wait(&request, what.c_str());
    }
  } else {
    MPI_Isend(&mine, sizeof mine, MPI_BYTE, id.world, id.tag, MPI_COMM_WORLD, &request);
    wait(&request, what.c_str());
    MPI_Irecv(comm->world.data(), comm->size, MPI_INT, id.world, id.tag + 1, MPI_COMM_WORLD, &request);
    wait(&request, what.c_str());
  }
}

} // namespace

ncclResult_t refuse(const char *call, ncclResult_t result, const std::string &what) {
  last_error = std::string(call) + ": " + what;
  fake_explain(call, "%s", what.c_str());
  return result;
}

static std::vector<ncclComm_t> alive;

ncclComm_t another(ncclComm_t comm) {
  for (ncclComm_t other : alive)
    if (other != comm) return other;
  return comm;
}

std::string rank_text(const ncclComm *comm) {
  return "rank " + std::to_string(comm->rank) + " of " + std::to_string(comm->size) + " (world rank " +
         std::to_string(world_rank()) + ")";
}

ncclResult_t check_comm(const char *call, ncclComm_t comm) {
  if (!comm) return refuse(call, ncclInvalidArgument, "the communicator is NULL");
  fake_object_check(comm_kind, comm, call);
  int device;
  if (cudaGetDevice(&device) != cudaSuccess) return ncclUnhandledCudaError;
  if (device != comm->device) return refuse(call, ncclInvalidUsage, "the current device is not the communicator's");
  return ncclSuccess;
}

} // namespace fake_nccl

using namespace fake_nccl;

extern "C" {

ncclResult_t ncclGetVersion(int *version) {
  if (!version) return ncclInvalidArgument;
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}

const char *ncclGetErrorString(ncclResult_t result) {
  static const char *const names[] = {"no error",
                                      "unhandled cuda error",
                                      "unhandled system error",
                                      "internal error",
                                      "invalid argument",
                                      "invalid usage",
                                      "remote process exited or there was a network error",
                                      "NCCL operation in progress"};
  return result >= 0 && result < ncclNumResults ? names[result] : "unknown result code";
}

const char *ncclGetLastError(ncclComm_t) {
  return last_error.c_str();
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *out) {
  if (!out) return ncclInvalidArgument;
  identity id = {identity_mark, (uint64_t)world_rank() << 32 | (uint64_t)ids_made, world_rank(), 0};
  id.tag = FIRST_TAG + (world_rank() * TAGS_A_RANK + ids_made * 4) % (1 << 29);
  if (ids_made++ * 4 >= TAGS_A_RANK) return refuse("ncclGetUniqueId", ncclInternalError, "too many unique ids");
  memset(out, 0, sizeof *out);
  memcpy(out, &id, sizeof id);
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *out, int size, ncclUniqueId unique, int rank, ncclConfig_t *) {
  const char *call = "ncclCommInitRank";
  identity id;
  memcpy(&id, &unique, sizeof id);
  if (!out || size < 1 || rank < 0 || rank >= size)
    return refuse(call, ncclInvalidArgument, "rank " + std::to_string(rank) + " of " + std::to_string(size));
  if (id.mark != identity_mark) return refuse(call, ncclInvalidArgument, "this is not what ncclGetUniqueId wrote");
  if (size > 1 && !mpi_is_up()) return refuse(call, ncclSystemError, "the fake NCCL needs MPI for several ranks");
  int device;
  if (cudaGetDevice(&device) != cudaSuccess || cudaFree(nullptr) != cudaSuccess)
    return refuse(call, ncclUnhandledCudaError, "there is no device");
  auto *comm = new (std::nothrow) ncclComm();
  if (!comm) return ncclSystemError;
  comm->rank = rank;
  comm->size = size;
  comm->device = device;
  comm->id = id.number;
  comm->tag = id.tag + 2;
  meet(id, comm);
  fake_object_made(comm_kind, comm);
  alive.push_back(comm);
  fake_record("ncclCommInitRank %d of %d", rank, size);
  *out = comm;
  return ncclSuccess;
}

ncclResult_t ncclCommInitRank(ncclComm_t *comm, int size, ncclUniqueId id, int rank) {
  return ncclCommInitRankConfig(comm, size, id, rank, nullptr);
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  return check_comm("ncclCommFinalize", comm);
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  if (!comm) return ncclSuccess;
  fake_object_destroyed(comm_kind, comm);
  if (comm->busy) fake_fault("communicator", "ncclCommDestroy while an operation of %s runs", rank_text(comm).c_str());
  alive.erase(std::find(alive.begin(), alive.end(), comm));
  delete comm;
  return ncclSuccess;
}

/* also ends communicators with operations that will never finish: what is left of them is not run */
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  if (comm) fake_object_destroyed(comm_kind, comm);
  return ncclSuccess;
}

/* From any thread, with any current device. */
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *error) {
  static std::atomic<int> asked;
  if (!comm || !error) return ncclInvalidArgument;
  fake_object_check(comm_kind, comm, "ncclCommGetAsyncError");
  const char *lost = getenv("PD_FAKE_NCCL_LOST");
  *error = lost && ++asked >= atoi(lost) ? ncclRemoteError : ncclSuccess;
  return ncclSuccess;
}

ncclResult_t ncclCommCount(const ncclComm_t comm, int *count) {
  ncclResult_t result = check_comm("ncclCommCount", comm);
  if (result == ncclSuccess) *count = comm->size;
  return result;
}

ncclResult_t ncclCommUserRank(const ncclComm_t comm, int *rank) {
  ncclResult_t result = check_comm("ncclCommUserRank", comm);
  if (result == ncclSuccess) *rank = comm->rank;
  return result;
}

ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int *device) {
  ncclResult_t result = check_comm("ncclCommCuDevice", comm);
  if (result == ncclSuccess) *device = comm->device;
  return result;
}
}
