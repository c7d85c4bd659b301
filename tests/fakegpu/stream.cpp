/* Streams and events: what an operation waits for. A stream keeps its last operation; an event keeps the operation that
 * recorded it; the legacy stream waits for all blocking streams of its device, and they wait for it. */
#include "stream.h"

#include "memory.h"
#include "report.h"
#include "sanitizer.h"

#include <algorithm>
#include <cstring>
#include <map>

struct CUevent_st {
  std::string name;
  int device;
  unsigned flags;
  fake::operation_ref recorded;
  fake::capture_ref captured; /* last recorded in this capture */
  std::vector<size_t> frontier;
};

namespace fake {
namespace {

struct device_streams {
  CUstream_st legacy, per_thread;
  std::vector<operation_ref> orphans; /* last operations of destroyed blocking streams */
};

std::vector<cudaStream_t> &created() { /* alive ones */
  static auto *all = new std::vector<cudaStream_t>;
  return *all;
}

void init(CUstream_st &s, const std::string &name, int device, unsigned flags, int priority) {
  s.name = name + (device ? "@" + std::to_string(device) : "");
  s.device = device;
  s.flags = flags;
  s.blocking = !(flags & cudaStreamNonBlocking);
  s.priority = priority;
  s.own = new_lane("stream " + s.name);
}

device_streams &of_device(int device) {
  static auto *all = new std::map<int, device_streams>;
  auto found = all->find(device);
  if (found != all->end()) return found->second;
  device_streams &d = (*all)[device];
  init(d.legacy, "legacy", device, 0, 0);
  init(d.per_thread, "per-thread", device, 0, 0);
  d.legacy.legacy = true;
  return d;
}

int event_count, stream_count;

action nothing() {
  return [](std::vector<char> &) { return FAKE_DONE; };
}

/* the stream is captured by way of a capture that still records */
bool capturing(const CUstream_st &s) {
  return s.captured != nullptr;
}

/* what the next operation of a stream has to wait for */
std::vector<operation_ref> waits_of(const CUstream_st &s) {
  std::vector<operation_ref> waits = {s.tail};
  device_streams &d = of_device(s.device);
  if (s.legacy) {
    for (cudaStream_t other : created())
      if (other->device == s.device && other->blocking) waits.push_back(other->tail);
    waits.push_back(d.per_thread.tail);
    waits.insert(waits.end(), d.orphans.begin(), d.orphans.end());
  } else if (s.blocking) {
    waits.push_back(d.legacy.tail);
  }
  return waits;
}

void put(CUstream_st &s, work_ref what, std::vector<operation_ref> more = {}) {
  std::vector<operation_ref> waits = waits_of(s);
  waits.insert(waits.end(), more.begin(), more.end());
  s.tail = enqueue(std::move(what), std::move(waits), s.name, s.own);
  if (s.legacy) of_device(s.device).orphans.clear();
}

/* what came before an operation of a stream, for an event that is recorded too early */
operation_ref before_last(const operation_ref &last) {
  return last && !last->waits.empty() ? last->waits[0] : nullptr;
}

work_ref marker(const char *call, const std::string &detail, int device) {
  return std::make_shared<work>(work{call, detail, device, nothing(), {}, true});
}

/* legacy-stream use while a blocking stream is captured would make the capture depend on it */
cudaError_t check_legacy(const CUstream_st &s, const char *call) {
  if (!s.legacy) return cudaSuccess;
  for (cudaStream_t other : created())
    if (other->device == s.device && other->blocking && capturing(*other))
      return break_capture(*other->captured, cudaErrorStreamCaptureImplicit, call,
                           "the legacy stream is used while a blocking stream is captured");
  return cudaSuccess;
}

} // namespace

std::string text_of(const dim3 &size) {
  return std::to_string(size.x) + "," + std::to_string(size.y) + "," + std::to_string(size.z);
}

cudaStream_t resolve(cudaStream_t stream, const char *call) {
  if (!stream || stream == cudaStreamLegacy) return &of_device(current_device()).legacy;
  if (stream == cudaStreamPerThread) return &of_device(current_device()).per_thread;
  fake_object_check("stream", stream, call);
  return stream;
}

bool is_capturing(cudaStream_t stream) {
  return capturing(*resolve(stream, "is capturing"));
}

cudaError_t break_capture(capture &c, cudaError_t error, const char *call, const char *why) {
  fake_explain(call, "%s (the capture of stream %s is invalid from now on)", why, c.origin->name.c_str());
  c.broken = true;
  return error;
}

bool break_captures(const char *call) {
  bool any = false;
  for (cudaStream_t s : created()) {
    if (!capturing(*s) || s->captured->origin != s) continue;
    capture &c = *s->captured;
    if (c.mode == cudaStreamCaptureModeRelaxed) continue;
    if (c.mode == cudaStreamCaptureModeThreadLocal && c.thread != std::this_thread::get_id()) continue;
    break_capture(c, cudaErrorStreamCaptureUnsupported, call, "not allowed while a stream is captured");
    any = true;
  }
  return any;
}

void end_capture(capture &c) {
  for (cudaStream_t s : c.streams) {
    s->captured = nullptr;
    s->frontier.clear();
  }
  c.ended = true;
}

cudaError_t check_stream(cudaStream_t handle, const char *call, stream_use use) {
  CUstream_st &s = *resolve(handle, call);
  if (use == stream_use::own && s.device != current_device()) {
    fake_explain(call, "stream %s belongs to device %d, the current device is %d", s.name.c_str(), s.device,
                 current_device());
    return cudaErrorInvalidResourceHandle;
  }
  cudaError_t error = check_legacy(s, call);
  if (error == cudaSuccess && s.captured && s.captured->broken) error = cudaErrorStreamCaptureInvalidated;
  return error;
}

cudaError_t submit(cudaStream_t handle, const char *call, std::string detail, std::vector<fake_range> ranges,
                   action run, stream_use use) {
  cudaError_t error = check_stream(handle, call, use);
  if (error != cudaSuccess) return error;
  CUstream_st &s = *resolve(handle, call);
  int device = use == stream_use::own ? s.device : -1;
  for (const fake_range &r : ranges)
    if (find_memory(r.start)) check_range(r.start, r.bytes, device, "memory", call);
  auto what = std::make_shared<work>(work{call, std::move(detail), device, std::move(run), std::move(ranges), false});
  fake_record("%s%s: %s %s", s.name.c_str(), capturing(s) ? " (captured)" : "", call, what->detail.c_str());
  if (!capturing(s)) {
    put(s, what);
    return cudaSuccess;
  }
  capture &c = *s.captured;
  size_t lane = static_cast<size_t>(std::find(c.streams.begin(), c.streams.end(), &s) - c.streams.begin());
  c.graph->nodes.push_back({what, s.frontier, lane});
  s.frontier = {c.graph->nodes.size() - 1};
  return cudaSuccess;
}

cudaError_t synchronize_stream(cudaStream_t handle, const char *call) {
  CUstream_st &s = *resolve(handle, call);
  if (capturing(s))
    return break_capture(*s.captured, cudaErrorStreamCaptureUnsupported, call, "waits for a stream that is captured");
  cudaError_t error = check_legacy(s, call);
  if (error != cudaSuccess) return error;
  wait_for(s.tail); /* and nothing else: what the legacy stream would wait for is not waited for by the host */
  return broken() ? cudaErrorLaunchFailure : cudaSuccess;
}

} // namespace fake

using namespace fake;

/* ---- streams ---- */

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned int flags, int priority) {
  return api("cudaStreamCreate", capture_use::allowed, [&]() -> cudaError_t {
    if (!stream || flags & ~static_cast<unsigned>(cudaStreamNonBlocking)) return cudaErrorInvalidValue;
    auto s = new CUstream_st();
    init(*s, "s" + std::to_string(++stream_count), current_device(), flags, std::clamp(priority, -5, 0));
    created().push_back(s);
    fake_object_made("stream", s);
    fake_record("host: cudaStreamCreate %s%s priority %d", s->name.c_str(), s->blocking ? "" : " nonblocking",
                s->priority);
    *stream = s;
    return cudaSuccess;
  });
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned int flags) {
  return cudaStreamCreateWithPriority(stream, flags, 0);
}

cudaError_t cudaStreamCreate(cudaStream_t *stream) {
  return cudaStreamCreateWithPriority(stream, cudaStreamDefault, 0);
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  return api("cudaStreamDestroy", capture_use::allowed, [&]() -> cudaError_t {
    if (!stream || stream == cudaStreamLegacy || stream == cudaStreamPerThread) return cudaErrorInvalidResourceHandle;
    fake_object_destroyed("stream", stream);
    fake_record("host: cudaStreamDestroy %s", stream->name.c_str());
    if (capturing(*stream)) {
      capture_ref c = stream->captured;
      break_capture(*c, cudaSuccess, "cudaStreamDestroy", "a captured stream is destroyed");
      c->streams.erase(std::find(c->streams.begin(), c->streams.end(), stream));
      stream->captured = nullptr;
    }
    if (stream->blocking) of_device(stream->device).orphans.push_back(stream->tail);
    created().erase(std::find(created().begin(), created().end(), stream));
    return cudaSuccess; /* what it holds runs later */
  });
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  return api("cudaStreamSynchronize", capture_use::allowed, [&]() -> cudaError_t {
    fake_record("host: cudaStreamSynchronize %s", resolve(stream, "cudaStreamSynchronize")->name.c_str());
    return synchronize_stream(stream, "cudaStreamSynchronize");
  });
}

cudaError_t cudaDeviceSynchronize(void) {
  return api("cudaDeviceSynchronize", capture_use::forbidden, [&]() -> cudaError_t {
    fake_record("host: cudaDeviceSynchronize");
    std::vector<operation_ref> last = {of_device(current_device()).legacy.tail,
                                       of_device(current_device()).per_thread.tail};
    for (cudaStream_t s : created())
      if (s->device == current_device()) last.push_back(s->tail);
    for (const operation_ref &o : of_device(current_device()).orphans) last.push_back(o);
    for (size_t i = last.size(); i--;) wait_for(last[i]);
    return broken() ? cudaErrorLaunchFailure : cudaSuccess;
  });
}

/* whether an operation is done; lets the device work a little, so that a loop of queries ends */
static cudaError_t query(const operation_ref &o) {
  if (o && !o->done) progress();
  if (o && !o->done) return cudaErrorNotReady;
  observe(o);
  return broken() ? cudaErrorLaunchFailure : cudaSuccess;
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
  return api("cudaStreamQuery", capture_use::allowed, [&]() -> cudaError_t {
    CUstream_st &s = *resolve(stream, "cudaStreamQuery");
    if (capturing(s))
      return break_capture(*s.captured, cudaErrorStreamCaptureUnsupported, "cudaStreamQuery",
                           "asks for a stream that is captured");
    cudaError_t error = check_legacy(s, "cudaStreamQuery");
    if (error != cudaSuccess) return error;
    return query(s.tail);
  });
}

cudaError_t cudaStreamGetFlags(cudaStream_t stream, unsigned int *flags) {
  return api("cudaStreamGetFlags", capture_use::allowed, [&]() -> cudaError_t {
    if (!flags) return cudaErrorInvalidValue;
    *flags = resolve(stream, "cudaStreamGetFlags")->flags;
    return cudaSuccess;
  });
}

cudaError_t cudaStreamGetPriority(cudaStream_t stream, int *priority) {
  return api("cudaStreamGetPriority", capture_use::allowed, [&]() -> cudaError_t {
    if (!priority) return cudaErrorInvalidValue;
    *priority = resolve(stream, "cudaStreamGetPriority")->priority;
    return cudaSuccess;
  });
}

cudaError_t cudaStreamGetDevice(cudaStream_t stream, int *device) {
  return api("cudaStreamGetDevice", capture_use::allowed, [&]() -> cudaError_t {
    if (!device) return cudaErrorInvalidValue;
    *device = resolve(stream, "cudaStreamGetDevice")->device;
    return cudaSuccess;
  });
}

/* ---- events ---- */

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned int flags) {
  return api("cudaEventCreate", capture_use::allowed, [&]() -> cudaError_t {
    if (!event || flags & ~static_cast<unsigned>(cudaEventBlockingSync | cudaEventDisableTiming))
      return cudaErrorInvalidValue;
    auto e = new CUevent_st();
    e->name = "e" + std::to_string(++event_count);
    e->device = current_device();
    e->flags = flags;
    fake_object_made("event", e);
    *event = e;
    return cudaSuccess;
  });
}

cudaError_t cudaEventCreate(cudaEvent_t *event) {
  return cudaEventCreateWithFlags(event, cudaEventDefault);
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  return api("cudaEventDestroy", capture_use::allowed, [&]() -> cudaError_t {
    if (!event) return cudaErrorInvalidResourceHandle;
    fake_object_destroyed("event", event);
    return cudaSuccess;
  });
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return api("cudaEventRecord", capture_use::allowed, [&]() -> cudaError_t {
    fake_object_check("event", event, "cudaEventRecord");
    CUstream_st &s = *resolve(stream, "cudaEventRecord");
    if (s.device != event->device) {
      fake_explain("cudaEventRecord", "event %s belongs to device %d, stream %s to device %d", event->name.c_str(),
                   event->device, s.name.c_str(), s.device);
      return cudaErrorInvalidResourceHandle;
    }
    cudaError_t error = check_legacy(s, "cudaEventRecord");
    if (error != cudaSuccess) return error;
    fake_record("%s%s: cudaEventRecord %s", s.name.c_str(), capturing(s) ? " (captured)" : "", event->name.c_str());
    if (capturing(s)) {
      if (s.captured->broken) return cudaErrorStreamCaptureInvalidated;
      event->captured = s.captured;
      event->frontier =
          planted("early") && !s.frontier.empty() ? s.captured->graph->nodes[s.frontier.back()].after : s.frontier;
      event->recorded = nullptr;
      return cudaSuccess;
    }
    operation_ref before = s.tail;
    put(s, marker("cudaEventRecord", event->name, s.device));
    event->recorded = planted("early") ? before_last(before) : s.tail;
    event->captured = nullptr;
    return cudaSuccess;
  });
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned int flags) {
  if (flags == cudaEventRecordDefault) return cudaEventRecord(event, stream);
  return api("cudaEventRecordWithFlags", capture_use::allowed, [&] {
    fake_explain("cudaEventRecordWithFlags", "external events are not supported by the fake GPU");
    return cudaErrorNotSupported;
  });
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags) {
  return api("cudaStreamWaitEvent", capture_use::allowed, [&]() -> cudaError_t {
    const char *call = "cudaStreamWaitEvent";
    fake_object_check("event", event, call);
    CUstream_st &s = *resolve(stream, call);
    if (flags != cudaEventWaitDefault) {
      fake_explain(call, "external events are not supported by the fake GPU");
      return cudaErrorNotSupported;
    }
    cudaError_t error = check_legacy(s, call);
    if (error != cudaSuccess) return error;
    fake_record("%s%s: cudaStreamWaitEvent %s", s.name.c_str(), capturing(s) || event->captured ? " (captured)" : "",
                event->name.c_str());
    if (event->captured) {
      capture_ref c = event->captured;
      if (c->ended) {
        fake_explain(call, "event %s was last recorded in a capture that has ended", event->name.c_str());
        return cudaErrorCapturedEvent;
      }
      if (c->broken) return cudaErrorStreamCaptureInvalidated;
      if (s.legacy)
        return break_capture(*c, cudaErrorStreamCaptureImplicit, call, "the legacy stream would be captured");
      if (capturing(s) && s.captured != c) {
        s.captured->broken = true;
        return break_capture(*c, cudaErrorStreamCaptureMerge, call, "two captures would be merged");
      }
      if (!capturing(s)) {
        s.captured = c;
        c->streams.push_back(&s);
      }
      for (size_t node : event->frontier)
        if (std::find(s.frontier.begin(), s.frontier.end(), node) == s.frontier.end()) s.frontier.push_back(node);
      return cudaSuccess;
    }
    if (capturing(s)) {
      if (!event->recorded) return cudaSuccess;
      return break_capture(*s.captured, cudaErrorStreamCaptureIsolation, call,
                           "the event was recorded outside the capture");
    }
    put(s, marker(call, event->name, s.device), {event->recorded});
    return cudaSuccess;
  });
}

/* an event whose state the program asks for; captured ones have none */
static cudaError_t outside_capture(cudaEvent_t event, const char *call) {
  fake_object_check("event", event, call);
  if (!event->captured) return cudaSuccess;
  fake_explain(call, "event %s was last recorded in a captured stream", event->name.c_str());
  if (!event->captured->ended) event->captured->broken = true;
  return cudaErrorCapturedEvent;
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  return api("cudaEventQuery", capture_use::forbidden, [&]() -> cudaError_t {
    cudaError_t error = outside_capture(event, "cudaEventQuery");
    return error == cudaSuccess ? query(event->recorded) : error;
  });
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return api("cudaEventSynchronize", capture_use::forbidden, [&]() -> cudaError_t {
    cudaError_t error = outside_capture(event, "cudaEventSynchronize");
    if (error != cudaSuccess) return error;
    fake_record("host: cudaEventSynchronize %s", event->name.c_str());
    wait_for(event->recorded);
    return broken() ? cudaErrorLaunchFailure : cudaSuccess;
  });
}

cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t start, cudaEvent_t end) {
  return api("cudaEventElapsedTime", capture_use::allowed, [&]() -> cudaError_t {
    if (!milliseconds) return cudaErrorInvalidValue;
    for (cudaEvent_t event : {start, end}) {
      cudaError_t error = outside_capture(event, "cudaEventElapsedTime");
      if (error != cudaSuccess) return error;
      if (event->flags & cudaEventDisableTiming || !event->recorded) {
        fake_explain("cudaEventElapsedTime", "event %s %s", event->name.c_str(),
                     event->recorded ? "was created without timing" : "was never recorded");
        return cudaErrorInvalidResourceHandle;
      }
    }
    if (!start->recorded->done || !end->recorded->done) return cudaErrorNotReady;
    *milliseconds = static_cast<float>(end->recorded->finished - start->recorded->finished);
    return cudaSuccess;
  });
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void *data) {
  return api("cudaLaunchHostFunc", capture_use::allowed, [&]() -> cudaError_t {
    if (!function) return cudaErrorInvalidValue;
    return submit(
        stream, "cudaLaunchHostFunc", "", {},
        [=](std::vector<char> &) {
          tsan_blind blind;
          function(data);
          return FAKE_DONE;
        },
        stream_use::foreign);
  });
}

cudaError_t fake_enqueue(cudaStream_t stream, const fake_operation *o) {
  return api(
      o->name, capture_use::allowed,
      [&]() -> cudaError_t {
        std::vector<char> given(static_cast<const char *>(o->context),
                                static_cast<const char *>(o->context) + o->context_bytes);
        std::vector<fake_range> ranges(o->ranges, o->ranges + o->range_count);
        fake_run *run = o->run;
        return submit(stream, o->name, o->detail ? o->detail : "", std::move(ranges), [=](std::vector<char> &own) {
          if (own.empty()) {
            own = given;
            own.push_back(0); /* a context of no bytes is started once, too */
          }
          tsan_blind blind;
          return run(own.data());
        });
      },
      strncmp(o->name, "nccl", 4) != 0);
}
