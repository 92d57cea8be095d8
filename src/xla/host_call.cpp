#include "xla/host_call.h"

#include <array>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/ATen.h>

#include <lockstep/base/error.h>

#include "xla/device.h"
#include "xla/host_failure.h"
#include "xla/host_functions.h"
#include "xla/lowering.h"

namespace lockstep::xla {
namespace {

using detail::XlaHostFunction;

constexpr std::string_view kTarget = "lockstep_host_call";
constexpr std::string_view kPlatform = "Host";  // as XLA calls CPUs here
constexpr int kOldestMinorWithCalls = 106;

// The functions by number.
class HostFunctions {
 public:
  int add(XlaHostFunction function) {
    const std::lock_guard lock(mutex_);
    int number = 0;
    while (functions_.contains(number)) ++number;
    functions_.emplace(number, std::make_shared<XlaHostFunction>(std::move(function)));
    return number;
  }

  // Whether none is left.
  bool remove(int number) {
    std::shared_ptr<XlaHostFunction> removed;  // destroyed when nobody holds the mutex
    const std::lock_guard lock(mutex_);
    const auto found = functions_.find(number);
    if (found == functions_.end()) return false;
    removed = std::move(found->second);
    functions_.erase(found);
    if (functions_.empty()) forget_host_failure();
    return functions_.empty();
  }

  // What fails once is not tried again: ranks would no longer call alike.
  void call(int number, std::span<const at::Tensor> tensors) {
    const auto function = find(number);
    try {
      (*function)(tensors);
    } catch (...) {
      keep_host_failure();
      throw;
    }
  }

 private:
  std::shared_ptr<XlaHostFunction> find(int number) {
    rethrow_host_failure();
    const std::lock_guard lock(mutex_);
    const auto found = functions_.find(number);
    if (found != functions_.end()) return found->second;
    throw Error("xla", {.what = "a compiled program calls a function of the host that is gone"});
  }

  std::mutex mutex_;
  std::map<int, std::shared_ptr<XlaHostFunction>> functions_;
};

HostFunctions& host_functions() {
  static auto* const made = new HostFunctions;
  return *made;
}

struct TypeNumber {
  int number;  // XLA's PrimitiveType
  at::ScalarType dtype;
};

constexpr std::array kTypeNumbers{TypeNumber{1, at::kBool},    TypeNumber{2, at::kChar},
                                  TypeNumber{3, at::kShort},   TypeNumber{4, at::kInt},
                                  TypeNumber{5, at::kLong},    TypeNumber{6, at::kByte},
                                  TypeNumber{10, at::kHalf},   TypeNumber{11, at::kFloat},
                                  TypeNumber{12, at::kDouble}, TypeNumber{16, at::kBFloat16}};

at::ScalarType dtype_of(int number) {
  for (const auto& known : kTypeNumbers)
    if (known.number == number) return known.dtype;
  throw Error("xla", {.what = "a compiled program calls the host with an element type that it does not know",
                      .got = std::to_string(number)});
}

at::Tensor tensor_of(const ffi::Array& array) {
  return at::from_blob(array.data, at::IntArrayRef(array.sizes, static_cast<std::size_t>(array.rank)),
                       at::TensorOptions().dtype(dtype_of(array.element_type)));
}

ffi::Array& array_of(const ffi::Arrays& arrays, std::int64_t place) {
  return *static_cast<ffi::Array*>(arrays.values[place]);
}

// The number of the function is the only attribute.
int number_of(const ffi::Attributes& attributes) {
  if (attributes.count != 1 || attributes.kinds[0] != ffi::kNumberAttribute)
    throw Error("xla", {.what = "a compiled program calls the host without the number of a function"});
  const auto& number = *static_cast<ffi::Number*>(attributes.values[0]);
  return static_cast<int>(*static_cast<std::int64_t*>(number.value));
}

// The first array has no content: it makes calls follow each other.
void perform(const ffi::Frame& frame) {
  std::vector<at::Tensor> tensors;
  for (std::int64_t i = 0; i < frame.results.count; ++i) {
    const auto given = tensor_of(array_of(frame.arguments, i));
    auto made = tensor_of(array_of(frame.results, i));
    if (made.nbytes() > 0 && made.data_ptr() != given.data_ptr())
      std::memcpy(made.data_ptr(), given.const_data_ptr(), made.nbytes());
    if (i > 0) tensors.push_back(std::move(made));
  }
  host_functions().call(number_of(frame.attributes), tensors);
}

// The minor version that functions say they were written for: plug-ins differ in which they take.
int minor_version = 1;

bool answers_metadata(const ffi::Frame& frame) {
  for (auto* extension = frame.extensions; extension != nullptr; extension = extension->next) {
    if (extension->kind != ffi::kMetadataExtension) continue;
    auto& metadata = *reinterpret_cast<ffi::MetadataExtension*>(extension)->metadata;
    metadata.version.major = 0;
    metadata.version.minor = minor_version;
    metadata.traits = 0;
    return true;
  }
  return false;
}

// Called by programs.
ffi::Error* call_host(ffi::Frame* frame) {
  if (answers_metadata(*frame)) return nullptr;
  std::string message;
  try {
    perform(*frame);
    return nullptr;
  } catch (const std::exception& error) {
    message = error.what();
  } catch (...) {
    message = "a function of the host has failed";
  }
  ffi::ErrorText text{.size = sizeof(ffi::ErrorText),
                      .extensions = nullptr,
                      .message = message.c_str(),
                      .code = ffi::kInternalError};
  return frame->services->make_error(&text);
}

const ffi::PjrtExtension* find_extension(const PJRT_Api& api) {
  if (api.pjrt_api_version.minor_version < kOldestMinorWithCalls) return nullptr;
  for (const auto* extension = api.extension_start; extension != nullptr; extension = extension->next)
    if (extension->type == PJRT_Extension_Type_FFI)
      return reinterpret_cast<const ffi::PjrtExtension*>(extension);
  return nullptr;
}

bool can_call = false;

// Empty: it was taken.
std::string register_function(const PJRT_Api& api, const ffi::PjrtExtension& extension) {
  ffi::Registration registration{.size = sizeof(ffi::Registration),
                                 .name = kTarget.data(),
                                 .name_size = kTarget.size(),
                                 .function = reinterpret_cast<void*>(&call_host),
                                 .platform = kPlatform.data(),
                                 .platform_size = kPlatform.size(),
                                 .traits = 0};
  return take_message(api, extension.register_function(&registration));
}

}  // namespace

void enable_host_calls(const Client& client) {
  const auto* const extension = client.platform() == "cpu" ? find_extension(client.api()) : nullptr;
  if (extension == nullptr || client.partitions() > 1) return;  // each partition would call
  std::string refusal;
  for (minor_version = 1; minor_version <= 9; ++minor_version) {
    refusal = register_function(client.api(), *extension);
    if (refusal.empty()) {
      can_call = true;
      return;
    }
  }
  throw Error("xla", {.what = "the PJRT plug-in does not take functions of the host",
                      .got = refusal,
                      .where = client.plugin().file().string()});
}

bool can_call_host() { return can_call; }

namespace {

// Arrays that make the calls of a device follow each other, within a program and from one to the next.
std::map<c10::DeviceIndex, at::Tensor>& orders_of_calls() {
  static auto* const made = new std::map<c10::DeviceIndex, at::Tensor>;
  return *made;
}

const at::Tensor& order_of_calls(c10::DeviceIndex device) {
  auto& order = orders_of_calls()[device];
  if (!order.defined()) order = make_tensor({1}, at::kInt, device);
  return order;
}

}  // namespace

int add_host_function(XlaHostFunction function) { return host_functions().add(std::move(function)); }

// What a call has failed with would stay in its array.
void remove_host_function(int number) {
  const std::lock_guard lock(device_mutex());
  if (host_functions().remove(number)) orders_of_calls().clear();
}

namespace {

std::string layout_text(const Shape& shape) {
  const auto rank = static_cast<std::int64_t>(shape.sizes.size());
  std::vector<std::int64_t> order;
  for (auto dimension = rank; dimension-- > 0;) order.push_back(dimension);
  return "dense<" + (rank == 0 ? "" : list_text(order)) + "> : tensor<" + std::to_string(rank) + "xindex>";
}

std::vector<Named> lower_host_call(Call& call) {
  std::string names, types, layouts;
  std::vector<Shape> shapes;
  for (std::size_t i = 0; i < call.outputs(); ++i) {
    const auto& shape = shapes.emplace_back(call.out(i));
    const char* const comma = i > 0 ? ", " : "";
    names += comma + call.emit.reshape(call.input(i), shape.sizes).name;
    types += comma + type_text(shape);
    layouts += comma + layout_text(shape);
  }
  return call.emit.emit_several(
      "stablehlo.custom_call @" + std::string(kTarget) + "(" + names +
          ") {api_version = 4 : i32, has_side_effect = true, backend_config = {number = " +
          std::to_string(call.list(0).front()) + " : i64}, operand_layouts = [" + layouts +
          "], result_layouts = [" + layouts + "]} : (" + types + ") -> (" + types + ")",
      std::move(shapes));
}

const Row kHostCall{.name = "lockstep::host_call", .lower = &lower_host_call};

}  // namespace

void record_host_call(int number, std::span<const at::Tensor> tensors, bool ends_step) {
  if (tensors.empty()) return;
  rethrow_host_failure();
  const std::lock_guard lock(device_mutex());
  const auto device = tensors.front().device().index();
  std::vector<at::Tensor> all{order_of_calls(device)};
  all.insert(all.end(), tensors.begin(), tensors.end());
  begin_operator(device, ends_step);
  auto node = std::make_shared<Node>();
  node->row = &kHostCall;
  for (const auto& tensor : all) {
    node->arguments.push_back({.first = static_cast<int>(node->inputs.size()), .count = 1});
    node->inputs.push_back(read(tensor));
    node->outputs.push_back({tensor.sizes().vec(), tensor.scalar_type()});
  }
  node->arguments.push_back({.value = c10::IValue(std::vector<std::int64_t>{number})});
  for (std::size_t i = 0; i < all.size(); ++i) write(all[i], {node, i});
  note_operator(device);
}

}  // namespace lockstep::xla
