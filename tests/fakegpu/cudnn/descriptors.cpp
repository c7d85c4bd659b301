/* cuDNN's handles, and backend descriptors as bags of attributes. Attributes that the fake does not act on are refused,
 * not ignored. */
#include "objects.h"

#include "../fake.h"

#include <cstdlib>
#include <cstring>
#include <new>

namespace fake_cudnn {
namespace {

thread_local std::string last_error;

enum { NEEDED = 1, READ_ONLY = 2 };

/* what a descriptor may be told: most elements, and the kind of descriptors */
struct rule {
  cudnnBackendDescriptorType_t of;
  cudnnBackendAttributeName_t name;
  cudnnBackendAttributeType_t type;
  int64_t most;
  int flags;
  cudnnBackendDescriptorType_t part;
};

#define PLAIN(of, name, type, most, flags)                                                                             \
  {                                                                                                                    \
    CUDNN_BACKEND_##of##_DESCRIPTOR, CUDNN_ATTR_##name, CUDNN_TYPE_##type, most, flags,                                \
        CUDNN_BACKEND_TENSOR_DESCRIPTOR                                                                                \
  }
#define PART(of, name, most, flags, part)                                                                              \
  {                                                                                                                    \
    CUDNN_BACKEND_##of##_DESCRIPTOR, CUDNN_ATTR_##name, CUDNN_TYPE_BACKEND_DESCRIPTOR, most, flags,                    \
        CUDNN_BACKEND_##part##_DESCRIPTOR                                                                              \
  }

const rule rules[] = {
    PLAIN(TENSOR, TENSOR_DATA_TYPE, DATA_TYPE, 1, NEEDED),
    PLAIN(TENSOR, TENSOR_DIMENSIONS, INT64, 8, NEEDED),
    PLAIN(TENSOR, TENSOR_STRIDES, INT64, 8, NEEDED),
    PLAIN(TENSOR, TENSOR_UNIQUE_ID, INT64, 1, NEEDED),
    PLAIN(TENSOR, TENSOR_BYTE_ALIGNMENT, INT64, 1, NEEDED),
    PLAIN(TENSOR, TENSOR_IS_VIRTUAL, BOOLEAN, 1, 0),
    PLAIN(TENSOR, TENSOR_IS_BY_VALUE, BOOLEAN, 1, 0),
    PLAIN(POINTWISE, POINTWISE_MODE, POINTWISE_MODE, 1, NEEDED),
    PLAIN(POINTWISE, POINTWISE_MATH_PREC, DATA_TYPE, 1, NEEDED),
    PLAIN(POINTWISE, POINTWISE_AXIS, INT64, 1, 0),
    PLAIN(MATMUL, MATMUL_COMP_TYPE, DATA_TYPE, 1, NEEDED),
    PLAIN(REDUCTION, REDUCTION_OPERATOR, REDUCTION_OPERATOR_TYPE, 1, NEEDED),
    PLAIN(REDUCTION, REDUCTION_COMP_TYPE, DATA_TYPE, 1, NEEDED),
    PART(OPERATION_POINTWISE, OPERATION_POINTWISE_PW_DESCRIPTOR, 1, NEEDED, POINTWISE),
    PART(OPERATION_POINTWISE, OPERATION_POINTWISE_XDESC, 1, NEEDED, TENSOR),
    PART(OPERATION_POINTWISE, OPERATION_POINTWISE_BDESC, 1, 0, TENSOR),
    PART(OPERATION_POINTWISE, OPERATION_POINTWISE_TDESC, 1, 0, TENSOR),
    PART(OPERATION_POINTWISE, OPERATION_POINTWISE_YDESC, 1, NEEDED, TENSOR),
    PART(OPERATION_MATMUL, OPERATION_MATMUL_ADESC, 1, NEEDED, TENSOR),
    PART(OPERATION_MATMUL, OPERATION_MATMUL_BDESC, 1, NEEDED, TENSOR),
    PART(OPERATION_MATMUL, OPERATION_MATMUL_CDESC, 1, NEEDED, TENSOR),
    PART(OPERATION_MATMUL, OPERATION_MATMUL_DESC, 1, NEEDED, MATMUL),
    PART(OPERATION_REDUCTION, OPERATION_REDUCTION_XDESC, 1, NEEDED, TENSOR),
    PART(OPERATION_REDUCTION, OPERATION_REDUCTION_YDESC, 1, NEEDED, TENSOR),
    PART(OPERATION_REDUCTION, OPERATION_REDUCTION_DESC, 1, NEEDED, REDUCTION),
    PART(OPERATION_RESHAPE, OPERATION_RESHAPE_XDESC, 1, NEEDED, TENSOR),
    PART(OPERATION_RESHAPE, OPERATION_RESHAPE_YDESC, 1, NEEDED, TENSOR),
    PART(OPERATIONGRAPH, OPERATIONGRAPH_OPS, 64, NEEDED, OPERATION_POINTWISE), /* any operation */
    PLAIN(DEVICEPROP, DEVICEPROP_HANDLE, HANDLE, 1, NEEDED),
    PART(ENGINEHEUR, ENGINEHEUR_OPERATION_GRAPH, 1, NEEDED, OPERATIONGRAPH),
    PART(ENGINEHEUR, ENGINEHEUR_DEVICEPROP, 1, NEEDED, DEVICEPROP),
    PLAIN(ENGINEHEUR, ENGINEHEUR_MODE, HEUR_MODE, 1, NEEDED),
    PART(ENGINEHEUR, ENGINEHEUR_RESULTS, 64, READ_ONLY, ENGINECFG),
    PART(ENGINECFG, ENGINECFG_ENGINE, 1, READ_ONLY, ENGINE),
    PLAIN(ENGINE, ENGINE_NUMERICAL_NOTE, NUMERICAL_NOTE, CUDNN_NUMERICAL_NOTE_TYPE_COUNT, READ_ONLY),
    PART(EXECUTION_PLAN, EXECUTION_PLAN_ENGINE_CONFIG, 1, NEEDED, ENGINECFG),
    PART(EXECUTION_PLAN, EXECUTION_PLAN_DEVICEPROP, 1, NEEDED, DEVICEPROP),
    PLAIN(EXECUTION_PLAN, EXECUTION_PLAN_WORKSPACE_SIZE, INT64, 1, READ_ONLY),
    PLAIN(VARIANT_PACK, VARIANT_PACK_UNIQUE_IDS, INT64, 64, NEEDED),
    PLAIN(VARIANT_PACK, VARIANT_PACK_DATA_POINTERS, VOID_PTR, 64, NEEDED),
    PLAIN(VARIANT_PACK, VARIANT_PACK_WORKSPACE, VOID_PTR, 1, NEEDED),
};

size_t element_bytes(cudnnBackendAttributeType_t type) {
  switch (type) {
  case CUDNN_TYPE_INT64:
  case CUDNN_TYPE_VOID_PTR:
  case CUDNN_TYPE_HANDLE:
  case CUDNN_TYPE_BACKEND_DESCRIPTOR:
    return 8;
  case CUDNN_TYPE_BOOLEAN:
    return 1;
  default:
    return 4; /* enumerations */
  }
}

const rule *find_rule(cudnnBackendDescriptorType_t of, cudnnBackendAttributeName_t name) {
  for (const rule &r : rules)
    if (r.of == of && r.name == name) return &r;
  return nullptr;
}

bool is_operation(cudnnBackendDescriptorType_t type) {
  return type == CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR || type == CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR ||
         type == CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR || type == CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR;
}

const char handle_kind[] = "cuDNN handle", descriptor_kind[] = "cuDNN descriptor";

descriptor *get(cudnnBackendDescriptor_t d, const char *call) {
  fake_object_check(descriptor_kind, d, call);
  return static_cast<descriptor *>(d);
}

/* the parts that a descriptor is told of */
cudnnStatus_t take_parts(const char *call, const rule &r, const cudnnBackendDescriptor_t *from, int64_t count,
                         attribute *into) {
  for (int64_t i = 0; i < count; i++) {
    if (!from[i]) return refuse(call, CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "a descriptor is NULL");
    const descriptor *part = get(from[i], call);
    if (!part->is_finished)
      return refuse(call, CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, "a descriptor is used before it is finalized");
    const bool fits =
        r.name == CUDNN_ATTR_OPERATIONGRAPH_OPS ? is_operation(part->says->type) : part->says->type == r.part;
    if (!fits) return refuse(call, CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE, "a descriptor is of the wrong kind");
    into->descriptors.push_back(part->says);
  }
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t finish_device(const char *call, const contents &c) {
  fake_object_check(handle_kind, c.one<cudnnHandle_t>(CUDNN_ATTR_DEVICEPROP_HANDLE), call);
  return CUDNN_STATUS_SUCCESS;
}

int arch_of(const contents &device) {
  return device.one<cudnnHandle_t>(CUDNN_ATTR_DEVICEPROP_HANDLE)->arch;
}

cudnnStatus_t finish_heuristic(const char *call, contents *c) {
  std::string why;
  c->chosen = find_engine(c->part(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH)->meaning,
                          arch_of(*c->part(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP)), &why);
  return c->chosen ? CUDNN_STATUS_SUCCESS : refuse(call, CUDNN_STATUS_NOT_SUPPORTED, why);
}

cudnnStatus_t finish_plan(const char *call, contents *c) {
  c->chosen = c->part(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG)->chosen;
  if (c->chosen->arch != arch_of(*c->part(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP)))
    return refuse(call, CUDNN_STATUS_BAD_PARAM, "the engine was chosen for another device");
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t finish_pack(const char *call, const contents &c) {
  if (c.said.at(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS).count != c.said.at(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS).count)
    return refuse(call, CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH,
                  "a variant pack has so many names, and not so many pointers");
  return CUDNN_STATUS_SUCCESS;
}

/* what can be asked of a finished descriptor */
cudnnStatus_t answer(const char *call, const descriptor *d, const rule &r, int64_t asked, int64_t *count, void *into) {
  const engine *chosen = d->says->chosen.get();
  if (r.name == CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE) {
    if (asked < 1) return refuse(call, CUDNN_STATUS_BAD_PARAM_OUT_OF_BOUND, "there is no room for the answer");
    memcpy(into, &chosen->workspace, sizeof chosen->workspace);
    if (count) *count = 1;
    return CUDNN_STATUS_SUCCESS;
  }
  if (r.name == CUDNN_ATTR_ENGINE_NUMERICAL_NOTE) {
    const cudnnBackendNumericalNote_t notes[] = {CUDNN_NUMERICAL_NOTE_TENSOR_CORE,
                                                 CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC};
    const int64_t known = chosen->any_order ? 2 : 1;
    if (count) *count = known;
    memcpy(into, notes, sizeof *notes * (size_t)(asked < known ? asked : known));
    return CUDNN_STATUS_SUCCESS;
  }
  /* the caller has made the descriptors that become the answer */
  if (count) *count = 1;
  if (asked < 1) return CUDNN_STATUS_SUCCESS;
  descriptor *result = get(static_cast<cudnnBackendDescriptor_t *>(into)[0], call);
  if (result->says->type != r.part || result->is_finished)
    return refuse(call, CUDNN_STATUS_BAD_PARAM, "the descriptor for the answer is of another kind, or in use");
  result->says->chosen = d->says->chosen;
  result->is_finished = true;
  return CUDNN_STATUS_SUCCESS;
}

} // namespace

cudnnStatus_t refuse(const char *call, cudnnStatus_t status, const std::string &why) {
  last_error = why;
  fake_explain(call, "%s", why.c_str());
  return status;
}

} // namespace fake_cudnn

using namespace fake_cudnn;

extern "C" {

size_t cudnnGetVersion(void) {
  const char *said = getenv("PD_FAKE_CUDNN_VERSION");
  return said ? (size_t)atol(said) : CUDNN_VERSION;
}

#define STATUSES(X)                                                                                                    \
  X(SUCCESS)                                                                                                           \
  X(NOT_INITIALIZED)                                                                                                   \
  X(BAD_PARAM) X(BAD_PARAM_NULL_POINTER) X(BAD_PARAM_NOT_FINALIZED) X(BAD_PARAM_OUT_OF_BOUND)                          \
      X(BAD_PARAM_ATTRIBUTE_TYPE) X(BAD_PARAM_SHAPE_MISMATCH) X(BAD_PARAM_MISALIGNED_POINTER)                          \
          X(BAD_PARAM_DUPLICATED_ENTRIES) X(NOT_SUPPORTED) X(INTERNAL_ERROR) X(EXECUTION_FAILED)
const char *cudnnGetErrorString(cudnnStatus_t status) {
  switch (status) {
#define X(name)                                                                                                        \
  case CUDNN_STATUS_##name:                                                                                            \
    return "CUDNN_STATUS_" #name;
    STATUSES(X)
#undef X
  default:
    return "unknown status";
  }
}

void cudnnGetLastErrorString(char *message, size_t size) {
  if (!size) return;
  strncpy(message, last_error.c_str(), size - 1);
  message[size - 1] = 0;
  last_error.clear();
}

cudnnStatus_t cudnnCreate(cudnnHandle_t *handle) {
  int device = 0, major = 0, minor = 0;
  if (!handle) return CUDNN_STATUS_BAD_PARAM_NULL_POINTER;
  if (cudaGetDevice(&device) != cudaSuccess || cudaFree(nullptr) != cudaSuccess ||
      cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) != cudaSuccess ||
      cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device) != cudaSuccess)
    return refuse("cudnnCreate", CUDNN_STATUS_NOT_INITIALIZED, "there is no device");
  *handle = new (std::nothrow) cudnnContext{device, major * 10 + minor, nullptr};
  if (!*handle) return CUDNN_STATUS_INTERNAL_ERROR;
  fake_object_made(handle_kind, *handle);
  fake_record("cudnnCreate");
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) {
  fake_object_destroyed(handle_kind, handle);
  delete handle;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
  fake_object_check(handle_kind, handle, "cudnnSetStream");
  handle->stream = stream;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetStream(cudnnHandle_t handle, cudaStream_t *stream) {
  fake_object_check(handle_kind, handle, "cudnnGetStream");
  *stream = handle->stream;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t *made) {
  bool known = false;
  for (const rule &r : rules) known |= r.of == type;
  if (!made) return CUDNN_STATUS_BAD_PARAM_NULL_POINTER;
  if (!known)
    return refuse("cudnnBackendCreateDescriptor", CUDNN_STATUS_NOT_SUPPORTED,
                  "the fake does not know descriptors of kind " + std::to_string((int)type));
  descriptor *d = new (std::nothrow) descriptor{std::make_shared<contents>(), false};
  if (!d) return CUDNN_STATUS_INTERNAL_ERROR;
  d->says->type = type;
  fake_object_made(descriptor_kind, d);
  *made = d;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t d) {
  if (!d) return CUDNN_STATUS_SUCCESS;
  fake_object_destroyed(descriptor_kind, d);
  delete static_cast<descriptor *>(d);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t object, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t count, const void *from) {
  const char *call = "cudnnBackendSetAttribute";
  descriptor *d = get(object, call);
  const rule *r = find_rule(d->says->type, name);
  if (d->is_finished) return refuse(call, CUDNN_STATUS_BAD_PARAM, "the descriptor is finalized already");
  if (!r || (r->flags & READ_ONLY))
    return refuse(call, CUDNN_STATUS_NOT_SUPPORTED,
                  "the fake does not know attribute " + std::to_string((int)name) + " of it");
  if (type != r->type)
    return refuse(call, CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE,
                  "attribute " + std::to_string((int)name) + " is of another type");
  if (count < 1 || count > r->most || !from)
    return refuse(call, CUDNN_STATUS_BAD_PARAM_OUT_OF_BOUND,
                  "attribute " + std::to_string((int)name) + " has 1 to " + std::to_string(r->most) + " elements");
  attribute a = {type, count, {}, {}};
  if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR) {
    const cudnnStatus_t status = take_parts(call, *r, static_cast<const cudnnBackendDescriptor_t *>(from), count, &a);
    if (status != CUDNN_STATUS_SUCCESS) return status;
  } else {
    a.bytes.resize((size_t)count * element_bytes(type));
    memcpy(a.bytes.data(), from, a.bytes.size());
  }
  d->says->said[name] = a;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t object, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t asked, int64_t *count, void *into) {
  const char *call = "cudnnBackendGetAttribute";
  const descriptor *d = get(object, call);
  const rule *r = find_rule(d->says->type, name);
  if (!d->is_finished)
    return refuse(call, CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, "a descriptor is asked before it is finalized");
  if (!r || !(r->flags & READ_ONLY) || type != r->type)
    return refuse(call, CUDNN_STATUS_NOT_SUPPORTED,
                  "the fake does not answer attribute " + std::to_string((int)name) + " of it");
  if (asked > 0 && !into) return refuse(call, CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "there is no room for the answer");
  return answer(call, d, *r, asked, count, into);
}

cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t object) {
  const char *call = "cudnnBackendFinalize";
  descriptor *d = get(object, call);
  contents *c = d->says.get();
  if (d->is_finished) return refuse(call, CUDNN_STATUS_BAD_PARAM, "the descriptor is finalized already");
  for (const rule &r : rules)
    if (r.of == c->type && (r.flags & NEEDED) && !c->has(r.name))
      return refuse(call, CUDNN_STATUS_BAD_PARAM, "attribute " + std::to_string((int)r.name) + " is missing");
  cudnnStatus_t status = CUDNN_STATUS_SUCCESS;
  switch (c->type) {
  case CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR:
    status = finish_device(call, *c);
    break;
  case CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR:
    status = read_graph(*c, &c->meaning);
    break;
  case CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR:
    status = finish_heuristic(call, c);
    break;
  case CUDNN_BACKEND_ENGINECFG_DESCRIPTOR:
  case CUDNN_BACKEND_ENGINE_DESCRIPTOR:
    status = refuse(call, CUDNN_STATUS_NOT_SUPPORTED, "the fake has no engines but those that its heuristic gives");
    break;
  case CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR:
    status = finish_plan(call, c);
    break;
  case CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR:
    status = finish_pack(call, *c);
    break;
  default:
    status = check_description(*c);
    break;
  }
  d->is_finished = status == CUDNN_STATUS_SUCCESS;
  return status;
}

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan, cudnnBackendDescriptor_t pack) {
  const char *call = "cudnnBackendExecute";
  fake_object_check(handle_kind, handle, call);
  const descriptor *p = get(plan, call), *v = get(pack, call);
  if (p->says->type != CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR ||
      v->says->type != CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR)
    return refuse(call, CUDNN_STATUS_BAD_PARAM, "a plan and a variant pack are executed, nothing else");
  if (!p->is_finished || !v->is_finished)
    return refuse(call, CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, "a descriptor is executed before it is finalized");
  return execute(handle, *p->says, *v->says);
}
}
