/* Capture of streams into graphs, and graphs that run: every node is an operation that waits for the nodes it comes
 * after, and for nothing else. */
#include "stream.h"

#include "report.h"

#include <algorithm>

struct CUgraphExec_st {
  std::string name;
  std::vector<CUgraphNode_st> nodes;
  std::vector<fake::lane *> lanes; /* of the captured streams but the first, which goes with the launching stream */
  fake::operation_ref last;        /* launches of one executable graph run one after another */
};

namespace fake {
namespace {

int graph_count, exec_count;
unsigned long long capture_count;

/* nodes that the given ones come after, themselves included */
std::vector<bool> before(const CUgraph_st &graph, const std::vector<size_t> &from) {
  std::vector<bool> seen(graph.nodes.size());
  for (size_t i : from) seen[i] = true;
  for (size_t i = graph.nodes.size(); i--;)
    if (seen[i])
      for (size_t j : graph.nodes[i].after) seen[j] = true;
  return seen;
}

cudaGraph_t new_graph() {
  auto graph = new CUgraph_st();
  graph->name = "g" + std::to_string(++graph_count);
  return graph;
}

} // namespace
} // namespace fake

using namespace fake;

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  return api("cudaStreamBeginCapture", capture_use::allowed, [&]() -> cudaError_t {
    CUstream_st &s = *resolve(stream, "cudaStreamBeginCapture");
    if (s.legacy) {
      fake_explain("cudaStreamBeginCapture", "the legacy stream cannot be captured");
      return cudaErrorStreamCaptureUnsupported;
    }
    if (s.captured) return cudaErrorIllegalState;
    fake_record("%s: cudaStreamBeginCapture", s.name.c_str());
    s.captured = std::make_shared<capture>(
        capture{++capture_count, mode, std::this_thread::get_id(), &s, new_graph(), {&s}, false, false});
    return cudaSuccess;
  });
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph) {
  return api("cudaStreamEndCapture", capture_use::allowed, [&]() -> cudaError_t {
    const char *call = "cudaStreamEndCapture";
    if (!graph) return cudaErrorInvalidValue;
    *graph = nullptr;
    CUstream_st &s = *resolve(stream, call);
    capture_ref c = s.captured;
    if (!c) return cudaErrorIllegalState;
    fake_record("%s: cudaStreamEndCapture", s.name.c_str());
    if (c->origin != &s)
      return break_capture(*c, cudaErrorStreamCaptureUnmatched, call, "ends on another stream than it began on");
    if (c->mode != cudaStreamCaptureModeRelaxed && c->thread != std::this_thread::get_id())
      return break_capture(*c, cudaErrorStreamCaptureWrongThread, call, "ends on another thread than it began on");
    std::vector<bool> joined = before(*c->graph, s.frontier);
    for (size_t i = 0; i < joined.size() && !c->broken; i++)
      if (!joined[i]) {
        const CUgraphNode_st &node = c->graph->nodes[i];
        fake_explain(call,
                     "%s %s on stream %s is not joined: the stream that began the capture waits for no event after it",
                     node.what->call, node.what->detail.c_str(), c->streams[node.lane]->name.c_str());
        end_capture(*c);
        delete c->graph;
        return cudaErrorStreamCaptureUnjoined;
      }
    end_capture(*c);
    if (c->broken) {
      delete c->graph;
      return cudaErrorStreamCaptureInvalidated;
    }
    fake_object_made("graph", c->graph);
    *graph = c->graph;
    return cudaSuccess;
  });
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus *status) {
  return api("cudaStreamIsCapturing", capture_use::allowed, [&]() -> cudaError_t {
    if (!status) return cudaErrorInvalidValue;
    const capture_ref &c = resolve(stream, "cudaStreamIsCapturing")->captured;
    *status = !c          ? cudaStreamCaptureStatusNone
              : c->broken ? cudaStreamCaptureStatusInvalidated
                          : cudaStreamCaptureStatusActive;
    return cudaSuccess;
  });
}

cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus *status, unsigned long long *id,
                                     cudaGraph_t *graph, const cudaGraphNode_t **dependencies,
                                     const cudaGraphEdgeData **edges, size_t *count) {
  if (dependencies || edges || count) return leave_api(cudaErrorNotSupported);
  cudaError_t error = cudaStreamIsCapturing(stream, status);
  if (error != cudaSuccess) return error;
  return api("cudaStreamGetCaptureInfo", capture_use::allowed, [&]() -> cudaError_t {
    const capture_ref &c = resolve(stream, "cudaStreamGetCaptureInfo")->captured;
    if (id && c) *id = c->id;
    if (graph && c) *graph = c->graph;
    return cudaSuccess;
  });
}

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode *mode) {
  return api("cudaThreadExchangeStreamCaptureMode", capture_use::allowed, [&]() -> cudaError_t {
    fake_explain("cudaThreadExchangeStreamCaptureMode", "not supported by the fake GPU");
    return mode ? cudaErrorNotSupported : cudaErrorInvalidValue;
  });
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  return api("cudaGraphDestroy", capture_use::allowed, [&]() -> cudaError_t {
    fake_object_destroyed("graph", graph);
    return cudaSuccess;
  });
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *count) {
  return api("cudaGraphGetNodes", capture_use::allowed, [&]() -> cudaError_t {
    fake_object_check("graph", graph, "cudaGraphGetNodes");
    if (!count) return cudaErrorInvalidValue;
    if (nodes)
      for (size_t i = 0; i < std::min(*count, graph->nodes.size()); i++) nodes[i] = &graph->nodes[i];
    *count = graph->nodes.size();
    return cudaSuccess;
  });
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long) {
  return api("cudaGraphInstantiate", capture_use::allowed, [&]() -> cudaError_t {
    if (!exec) return cudaErrorInvalidValue;
    fake_object_check("graph", graph, "cudaGraphInstantiate");
    auto x = new CUgraphExec_st();
    x->name = "x" + std::to_string(++exec_count);
    x->nodes = graph->nodes;
    size_t lanes = 0;
    for (const CUgraphNode_st &node : x->nodes) lanes = std::max(lanes, node.lane + 1);
    for (size_t i = 1; i < lanes; i++)
      x->lanes.push_back(new_lane("graph " + x->name + " branch " + std::to_string(i)));
    fake_object_made("executable graph", x);
    fake_record("host: cudaGraphInstantiate %s nodes %zu = %s", graph->name.c_str(), x->nodes.size(), x->name.c_str());
    *exec = x;
    return cudaSuccess;
  });
}

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long flags) {
  return cudaGraphInstantiate(exec, graph, flags);
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  return api("cudaGraphExecDestroy", capture_use::allowed, [&]() -> cudaError_t {
    fake_object_destroyed("executable graph", exec);
    return cudaSuccess; /* launches that have not run keep what they need */
  });
}

cudaError_t cudaGraphUpload(cudaGraphExec_t exec, cudaStream_t stream) {
  return api("cudaGraphUpload", capture_use::allowed, [&]() -> cudaError_t {
    fake_object_check("executable graph", exec, "cudaGraphUpload");
    return submit(stream, "cudaGraphUpload", exec->name, {}, [](std::vector<char> &) { return FAKE_DONE; });
  });
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  return api("cudaGraphLaunch", capture_use::allowed, [&]() -> cudaError_t {
    fake_object_check("executable graph", exec, "cudaGraphLaunch");
    CUstream_st &s = *resolve(stream, "cudaGraphLaunch");
    if (config().seeds > 1) fake_record("host: seed %llu", static_cast<unsigned long long>(seed_now()));
    if (s.captured) {
      fake_explain("cudaGraphLaunch", "graphs inside graphs are not supported by the fake GPU");
      return cudaErrorNotSupported;
    }
    auto done = [](std::vector<char> &) { return FAKE_DONE; };
    cudaError_t error =
        submit(stream, "cudaGraphLaunch", exec->name, {}, done); /* the nodes come after this operation */
    if (error != cudaSuccess) return error;
    auto link = [&](const char *call) {
      return std::make_shared<work>(work{call, exec->name, s.device, done, {}, true});
    };
    operation_ref begin = enqueue(link("start of graph"), {s.tail, exec->last}, s.name, s.own);
    std::vector<operation_ref> run;
    std::vector<bool> leaf(exec->nodes.size(), true);
    for (const CUgraphNode_st &node : exec->nodes) {
      std::vector<operation_ref> waits;
      for (size_t i : node.after) {
        waits.push_back(run[i]);
        leaf[i] = false;
      }
      if (waits.empty()) waits.push_back(begin);
      run.push_back(enqueue(node.what, waits, "graph " + exec->name + " in " + s.name,
                            node.lane == 0 ? s.own : exec->lanes[node.lane - 1]));
    }
    std::vector<operation_ref> ends = {begin};
    for (size_t i = 0; i < run.size(); i++)
      if (leaf[i]) ends.push_back(run[i]);
    s.tail = exec->last = enqueue(link("end of graph"), ends, s.name, s.own);
    return cudaSuccess;
  });
}
