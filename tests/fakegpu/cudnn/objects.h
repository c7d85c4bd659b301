/* The fake cuDNN's backend descriptors, and the graph that they describe once it is finished.
 *
 *   descriptors.cpp  handles, descriptors, their attributes
 *   graph.cpp        what a finished graph means, what it may not be, and the engine that would take it
 *   run.cpp          executions: their arguments, and the operations one by one */
#ifndef PD_FAKE_CUDNN_OBJECTS_H
#define PD_FAKE_CUDNN_OBJECTS_H

#include <cudnn.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

struct cudnnContext {
  int device, arch;
  cudaStream_t stream;
};

namespace fake_cudnn {

struct contents;
typedef std::shared_ptr<const contents> finished;

struct attribute {
  cudnnBackendAttributeType_t type;
  int64_t count;
  std::vector<char> bytes;           /* of plain elements */
  std::vector<finished> descriptors; /* of descriptors: what they said when they were set */
};

struct graph;
struct engine {
  std::shared_ptr<const graph> of;
  int arch;
  int64_t workspace;
  bool any_order; /* its sums depend on timing */
};

/* What a descriptor says. Finished ones do not change, and live as long as anything refers to them. */
struct contents {
  cudnnBackendDescriptorType_t type;
  std::map<int, attribute> said;
  std::shared_ptr<const graph> meaning; /* of an operation graph */
  std::shared_ptr<const engine> chosen; /* of heuristics, configurations, engines, plans */

  bool has(int name) const {
    return said.count(name) > 0;
  }
  template <class T> T one(int name) const {
    return *reinterpret_cast<const T *>(said.at(name).bytes.data());
  }
  template <class T> std::vector<T> all(int name) const {
    const attribute &a = said.at(name);
    const T *first = reinterpret_cast<const T *>(a.bytes.data());
    return std::vector<T>(first, first + a.count);
  }
  const contents *part(int name) const {
    return said.count(name) ? said.at(name).descriptors[0].get() : nullptr;
  }
};

/* What a cudnnBackendDescriptor_t points to. */
struct descriptor {
  std::shared_ptr<contents> says;
  bool is_finished;
};

/* ---- graphs ---- */

enum place { OUTER, INNER, BY_VALUE }; /* in device memory, between operations only, a number of the host's */

struct tensor {
  int64_t name, size[4], stride[4], alignment;
  cudnnDataType_t type;
  place where;
  bool made; /* by an operation of the graph */

  int64_t elements() const {
    return size[0] * size[1] * size[2] * size[3];
  }
  /* bytes from the first to the last element */
  size_t span() const;
};

struct operation {
  char letter; /* graph.cpp */
  int in[3], out, axis;
};

struct graph {
  std::vector<tensor> tensors;
  std::vector<operation> operations;
  std::string letters; /* of all operations, in their order */
};

size_t type_bytes(cudnnDataType_t type);

/* Keeps `why` for cudnnGetLastErrorString, says it on stderr, and returns the status. */
cudnnStatus_t refuse(const char *call, cudnnStatus_t status, const std::string &why);

/* Whether the descriptor's attributes make sense, for those that describe a graph. */
cudnnStatus_t check_description(const contents &c);
/* The meaning of a finished list of operations. */
cudnnStatus_t read_graph(const contents &c, std::shared_ptr<const graph> *out);
/* The engine for it on an architecture (80, 90, …); none: null, and `why`. */
std::shared_ptr<const engine> find_engine(const std::shared_ptr<const graph> &g, int arch, std::string *why);

cudnnStatus_t execute(cudnnHandle_t handle, const contents &plan, const contents &pack);

} // namespace fake_cudnn
#endif
