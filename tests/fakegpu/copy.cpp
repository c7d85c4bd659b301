/* Copies and fills. A copy from pageable host memory reads it during the call (the driver stages it), one to pageable
 * memory waits for its end; with pinned memory both happen whenever the stream gets there. */
#include "api.h"
#include "memory.h"
#include "report.h"
#include "stream.h"

#include <cstring>

namespace fake {
namespace {

/* how a rectangle of bytes lies in memory; one row for plain copies */
struct rectangle {
  size_t width, height, to_pitch, from_pitch;
  size_t span(size_t pitch) const {
    return height ? (height - 1) * pitch + width : 0;
  }
};

bool on_device(const void *address) {
  return fake_is_device(address);
}

bool pinned(const void *address) {
  const allocation *a = find_memory(address);
  return a && (a->kind == memory_kind::pinned || a->kind == memory_kind::registered);
}

/* freed memory is still known; it counts as what it was, so that the check of ranges names it */
bool was_device(const void *address) {
  const allocation *a = find_memory(address);
  return a && (a->kind == memory_kind::device || a->kind == memory_kind::managed);
}

void move(char *to, const char *from, const rectangle &r) {
  for (size_t row = 0; row < r.height; row++) memcpy(to + row * r.to_pitch, from + row * r.from_pitch, r.width);
}

const char *names[] = {"host-to-host", "host-to-device", "device-to-host", "device-to-device"};

/* a copy on a stream; `host_waits`: the call is synchronous */
cudaError_t copy(const char *call, void *to, const void *from, rectangle r, cudaMemcpyKind kind, cudaStream_t stream,
                 bool host_waits) {
  if (planted("half")) r.width /= 2;
  if (!r.width || !r.height) return cudaSuccess;
  if (!to || !from) return cudaErrorInvalidValue;
  bool to_device = was_device(to), from_device = was_device(from);
  cudaMemcpyKind real = to_device     ? from_device ? cudaMemcpyDeviceToDevice : cudaMemcpyHostToDevice
                        : from_device ? cudaMemcpyDeviceToHost
                                      : cudaMemcpyHostToHost;
  if (kind != cudaMemcpyDefault && kind != real) {
    if (kind > cudaMemcpyDefault) return cudaErrorInvalidMemcpyDirection;
    fake_explain(call, "the kind is %s, the pointers are %s (to %s, from %s)", names[kind], names[real],
                 symbolic(to).c_str(), symbolic(from).c_str());
    return cudaErrorInvalidValue;
  }
  bool stage = real == cudaMemcpyHostToDevice && !pinned(from);
  bool pageable = stage || (real == cudaMemcpyDeviceToHost && !pinned(to)) || real == cudaMemcpyHostToHost;
  if (is_capturing(stream) && pageable) {
    fake_explain(call, "a copy of pageable host memory cannot be captured");
    break_captures(call);
    return cudaErrorStreamCaptureUnsupported;
  }
  size_t to_span = r.span(r.to_pitch), from_span = r.span(r.from_pitch);
  auto target = static_cast<char *>(to);
  auto source = static_cast<const char *>(from);
  std::vector<fake_range> ranges = {{to, to_span, 1}};
  std::shared_ptr<std::vector<char>> staged;
  if (stage) {
    staged = std::make_shared<std::vector<char>>(source, source + from_span);
    source = staged->data();
  } else {
    ranges.push_back({from, from_span, 0});
  }
  std::string detail = std::string(names[real]) + " " + std::to_string(r.width);
  if (r.height > 1) detail += "x" + std::to_string(r.height);
  detail += " " + symbolic(to) + " <- " + symbolic(from);
  cudaError_t error = submit(
      stream, call, detail, std::move(ranges),
      [=](std::vector<char> &) {
        (void)staged;
        move(target, source, r);
        return FAKE_DONE;
      },
      stream_use::foreign);
  if (error != cudaSuccess || !(host_waits || (pageable && !stage))) return error;
  return synchronize_stream(stream, call);
}

rectangle row(size_t bytes) {
  return {bytes, 1, bytes, bytes};
}

cudaError_t fill(const char *call, void *start, int value, rectangle r, cudaStream_t stream) {
  if (planted("half")) r.width /= 2;
  if (!r.width || !r.height) return cudaSuccess;
  if (!start || !find_memory(start)) {
    fake_explain(call, "%p is not memory that a device can write", start);
    return cudaErrorInvalidValue;
  }
  auto target = static_cast<char *>(start);
  std::string detail = std::to_string(value & 255) + " " + std::to_string(r.width);
  if (r.height > 1) detail += "x" + std::to_string(r.height);
  return submit(
      stream, call, detail + " " + symbolic(start), {{start, r.span(r.to_pitch), 1}},
      [=](std::vector<char> &) {
        for (size_t i = 0; i < r.height; i++) memset(target + i * r.to_pitch, value, r.width);
        return FAKE_DONE;
      },
      stream_use::foreign);
}

} // namespace
} // namespace fake

using namespace fake;

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, cudaMemcpyKind kind) {
  return api("cudaMemcpy", capture_use::forbidden, [&] {
    bool between = on_device(to) && on_device(from); /* the host does not wait for these */
    return copy("cudaMemcpy", to, from, row(bytes), kind, cudaStreamLegacy, !between);
  });
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  return api("cudaMemcpyAsync", capture_use::allowed,
             [&] { return copy("cudaMemcpyAsync", to, from, row(bytes), kind, stream, false); });
}

cudaError_t cudaMemcpy2D(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t height,
                         cudaMemcpyKind kind) {
  return api("cudaMemcpy2D", capture_use::forbidden, [&]() -> cudaError_t {
    if (width > to_pitch || width > from_pitch) return cudaErrorInvalidPitchValue;
    bool between = on_device(to) && on_device(from);
    return copy("cudaMemcpy2D", to, from, {width, height, to_pitch, from_pitch}, kind, cudaStreamLegacy, !between);
  });
}

cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
                              size_t height, cudaMemcpyKind kind, cudaStream_t stream) {
  return api("cudaMemcpy2DAsync", capture_use::allowed, [&]() -> cudaError_t {
    if (width > to_pitch || width > from_pitch) return cudaErrorInvalidPitchValue;
    return copy("cudaMemcpy2DAsync", to, from, {width, height, to_pitch, from_pitch}, kind, stream, false);
  });
}

cudaError_t cudaMemcpyPeerAsync(void *to, int to_device, const void *from, int from_device, size_t bytes,
                                cudaStream_t stream) {
  return api("cudaMemcpyPeerAsync", capture_use::allowed, [&]() -> cudaError_t {
    const allocation *a = find_memory(to), *b = find_memory(from);
    if (!a || !b || a->device != to_device || b->device != from_device) {
      fake_explain("cudaMemcpyPeerAsync", "the pointers are not memory of the devices %d and %d", to_device,
                   from_device);
      return cudaErrorInvalidValue;
    }
    return copy("cudaMemcpyPeerAsync", to, from, row(bytes), cudaMemcpyDeviceToDevice, stream, false);
  });
}

cudaError_t cudaMemset(void *start, int value, size_t bytes) {
  return api("cudaMemset", capture_use::allowed,
             [&] { return fill("cudaMemset", start, value, row(bytes), cudaStreamLegacy); });
}

cudaError_t cudaMemsetAsync(void *start, int value, size_t bytes, cudaStream_t stream) {
  return api("cudaMemsetAsync", capture_use::allowed,
             [&] { return fill("cudaMemsetAsync", start, value, row(bytes), stream); });
}

cudaError_t cudaMemset2DAsync(void *start, size_t pitch, int value, size_t width, size_t height, cudaStream_t stream) {
  return api("cudaMemset2DAsync", capture_use::allowed, [&]() -> cudaError_t {
    if (width > pitch) return cudaErrorInvalidPitchValue;
    return fill("cudaMemset2DAsync", start, value, {width, height, pitch, pitch}, stream);
  });
}
