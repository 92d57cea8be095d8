// Tensors of the device: plain tensors whose storage holds, in place of an address, a value of the graph.
#include <unordered_map>

#include <ATen/ATen.h>
#include <c10/core/StorageImpl.h>

#include <lockstep/base/error.h>
#include <lockstep/base/log.h>

#include "xla/capture.h"
#include "xla/device.h"
#include "xla/lowering.h"
#include "xla/memories.h"

namespace lockstep::xla {
namespace {

Memories& memories() { return Memories::all(); }

Memory& memory_of(const at::Tensor& tensor) {
  return *static_cast<Memory*>(tensor.storage().unsafeGetStorageImpl()->data_ptr().get_context());
}

at::Tensor with_storage(c10::Storage storage, at::ScalarType dtype, at::IntArrayRef sizes,
                        at::IntArrayRef strides, std::int64_t offset) {
  auto tensor = at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(c10::DispatchKey::XLA), c10::scalarTypeToTypeMeta(dtype));
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides, offset);
  return tensor;
}

// Whether the tensor is all of its memory, in its order.
bool is_whole(const at::Tensor& tensor, const Memory& memory) {
  return tensor.storage_offset() == 0 && tensor.numel() == memory.shape.numel() && tensor.is_contiguous();
}

void check_type(const at::Tensor& tensor, const Memory& memory) {
  if (tensor.scalar_type() == memory.shape.dtype) return;
  throw Error("xla", {.what = "a tensor of an XLA device is seen as another element type than its memory's",
                      .expected = c10::toString(memory.shape.dtype),
                      .got = c10::toString(tensor.scalar_type()),
                      .hint = "copy it with .to(dtype)"});
}

std::vector<std::int64_t> strides_of(at::IntArrayRef sizes) {
  std::vector<std::int64_t> strides(sizes.size());
  std::int64_t step = 1;
  for (std::size_t i = sizes.size(); i-- > 0;) {
    strides[i] = step;
    step *= std::max<std::int64_t>(sizes[i], 1);
  }
  return strides;
}

// Memory that was never written holds zeros.
Value content_of(const at::Tensor& tensor) {
  auto& memory = memory_of(tensor);
  if (auto* const capture = current_capture()) return capture->input(memory, tensor.storage());
  return memory.value ? memory.value : made_by(kFill, {}, memory.shape);
}

thread_local int batches_under_way = 0;

bool is_dealt_out(const at::Tensor& tensor) {
  const int partitions = device_client()->partitions();
  if (partitions == 1 || batches_under_way == 0 || tensor.dim() == 0 || tensor.numel() == 0) return false;
  if (tensor.size(0) % partitions == 0) return true;
  warn_once("xla.rows",
            "each of the process's " + std::to_string(partitions) + " devices computes all of a batch of " +
                std::to_string(tensor.size(0)) +
                " rows, which they cannot share evenly: choose a batch_size that is a multiple of "
                "devices_per_process, and drop_last");
  return false;
}

}  // namespace

std::recursive_mutex& device_mutex() {
  static auto* const mutex = new std::recursive_mutex;
  return *mutex;
}

at::Tensor make_tensor(at::IntArrayRef sizes, at::ScalarType dtype, c10::DeviceIndex device) {
  buffer_type(dtype);
  const auto count = c10::multiply_integers(sizes);
  auto* const memory = memories().make({{count}, dtype}, device);
  const auto release = [](void* context) { memories().release(static_cast<Memory*>(context)); };
  const auto bytes = static_cast<std::size_t>(count) * c10::elementSize(dtype);
  c10::DataPtr data(memory, memory, release, c10::Device(c10::kXLA, device));
  c10::Storage storage(c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), bytes,
                                                             std::move(data), nullptr, /*resizable=*/false));
  return with_storage(std::move(storage), dtype, sizes, strides_of(sizes), 0);
}

at::Tensor view_of(const at::Tensor& tensor, at::IntArrayRef sizes, at::IntArrayRef strides,
                   std::int64_t offset) {
  return with_storage(tensor.storage(), tensor.scalar_type(), sizes, strides, offset);
}

Value read(const at::Tensor& tensor) {
  const auto& memory = memory_of(tensor);
  check_type(tensor, memory);
  auto value = content_of(tensor);
  const Shape shape{tensor.sizes().vec(), tensor.scalar_type()};
  if (is_whole(tensor, memory))
    return value.shape() == shape ? value : made_by(kReshape, {std::move(value)}, shape);
  return made_by(kReadStrided, {std::move(value)}, shape,
                 {tensor.strides().vec(), {tensor.storage_offset()}});
}

void write(const at::Tensor& tensor, Value value) {
  auto& memory = memory_of(tensor);
  check_type(tensor, memory);
  if (is_whole(tensor, memory)) return memories().set(memory, std::move(value));
  auto before = content_of(tensor);
  if (before.shape() != memory.shape) before = made_by(kReshape, {std::move(before)}, memory.shape);
  memories().set(memory, made_by(kWriteStrided, {std::move(before), std::move(value)}, memory.shape,
                                 {tensor.strides().vec(), {tensor.storage_offset()}}));
}

DealtOut::DealtOut() { ++batches_under_way; }
DealtOut::~DealtOut() { --batches_under_way; }

Value host_value(const at::Tensor& tensor, c10::DeviceIndex device) {
  const auto dense = tensor.contiguous();
  const auto& client = device_client();
  const auto type = buffer_type(dense.scalar_type());
  auto buffer = is_dealt_out(dense)
                    ? Buffer::rows_of(client, dense.const_data_ptr(), dense.nbytes(), type, dense.sizes())
                    : Buffer::copy_of(client, device, dense.const_data_ptr(), type, dense.sizes());
  return array_value(std::move(buffer), {dense.sizes().vec(), dense.scalar_type()});
}

// Settings change rarely; a learning rate that changes with each step does not fill the memory.
Value number_value(double value, at::ScalarType dtype, c10::DeviceIndex device) {
  constexpr std::size_t kMost = 1000;
  struct Key {
    double value;
    at::ScalarType dtype;
    c10::DeviceIndex device;
    bool operator==(const Key&) const = default;
  };
  struct Hash {
    std::size_t operator()(const Key& key) const {
      return std::hash<double>()(key.value) * 31 + static_cast<std::size_t>(key.dtype) * 7 +
             static_cast<std::size_t>(key.device);
    }
  };
  static auto* const known = new std::unordered_map<Key, std::shared_ptr<Buffer>, Hash>;
  if (known->size() > kMost) known->clear();
  auto& buffer = (*known)[{value, dtype, device}];
  if (!buffer) {
    const auto number = at::scalar_tensor(value, at::TensorOptions().dtype(dtype));
    buffer = Buffer::copy_of(device_client(), device, number.const_data_ptr(), buffer_type(dtype), {});
  }
  // A node of its own: whether two numbers happen to be equal must not make another program.
  return array_value(buffer, {{}, dtype}, /*is_shared=*/true);
}

at::Tensor to_host(const at::Tensor& tensor) {
  auto result = at::empty(tensor.sizes(), at::TensorOptions().dtype(tensor.scalar_type()));
  std::shared_ptr<Buffer> buffer;
  std::vector<std::int64_t> held;
  {
    const std::lock_guard lock(device_mutex());
    refuse_in_capture("the host reads a tensor, as item() does");
    const auto& memory = memory_of(tensor);
    check_type(tensor, memory);
    if (!memory.value) memories().set(memory_of(tensor), made_by(kFill, {}, memory.shape));
    if (!memory.value.node->buffer) run_graph(tensor.device().index());
    buffer = memory.value.node->buffer;
    held = {memory.shape.numel()};
  }
  auto whole = at::empty(held, result.options());
  buffer->read(whole.mutable_data_ptr(), static_cast<std::size_t>(whole.nbytes()));
  if (whole.numel() == result.numel() && tensor.is_contiguous()) return whole.view(tensor.sizes());
  return whole.as_strided(tensor.sizes(), tensor.strides(), tensor.storage_offset()).clone();
}

}  // namespace lockstep::xla
