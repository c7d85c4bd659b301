/* Communicators of the fake NCCL, and the messages they travel by.
 *
 * Everything goes over MPI_COMM_WORLD with tags of 2^30 and above, from and to host memory. A communicator has a tag
 * for collectives and one for send and receive, agreed at its start; messages of one tag between two ranks do not
 * overtake each other, so both ends count them alike. */
#ifndef PD_FAKE_NCCL_COMM_H
#define PD_FAKE_NCCL_COMM_H

#include <mpi.h>
#include <nccl.h>

#include <string>
#include <vector>

struct ncclComm {
  int rank, size, device;
  uint64_t id;                /* the same on all members, different from all others */
  std::vector<int> world;     /* world rank of each member */
  int tag;                    /* collectives; tag + 1: send and receive */
  uint64_t started;           /* collectives so far, in the order of their runs */
  const void *busy = nullptr; /* the group of calls that runs on it */
};

namespace fake_nccl {

/* remembers `what` for ncclGetLastError, explains it, returns the result */
ncclResult_t refuse(const char *call, ncclResult_t result, const std::string &what);

/* dies if the communicator is not alive; an error if the current device is not its own */
ncclResult_t check_comm(const char *call, ncclComm_t comm);

/* another communicator that is alive, the same if there is none */
ncclComm_t another(ncclComm_t comm);

/* "rank 1 of 4 (world rank 3)" */
std::string rank_text(const ncclComm *comm);

} // namespace fake_nccl
#endif
