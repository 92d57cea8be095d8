// Activations that are kept on the host or on disk from forward to backward.
#include "parallel/activations/offloaded_activations.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include <sys/mman.h>

#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <lockstep/base/error.h>
#include <lockstep/device/torch_device.h>
#include <lockstep/parallel/dispatch/engine_hooks.h>
#include <lockstep/torch.h>

#include "base/system.h"
#include "device/step_recording.h"
#include "offload/swap_folder.h"
#include "parallel/dispatch/backward_thread.h"
#include "parallel/dispatch/operator_dispatch.h"

namespace lockstep::detail {
namespace {

at::TensorOptions bytes_on(at::Device device) { return at::TensorOptions(device).dtype(at::kByte); }

// Its memory is given to others only once that stream is done with it.
void use_on(const c10::Storage& memory, const c10::Stream& stream) {
  c10::impl::VirtualGuardImpl(stream.device_type()).recordDataPtrOnStream(memory.data_ptr(), stream);
}

}  // namespace

HostCopy::HostCopy(const c10::Storage& memory, at::Tensor bytes, std::shared_ptr<PinnedStaging> staging,
                   std::weak_ptr<HostCopy> previous)
    : device_(memory.device()),
      stream_(offload_stream(device_)),
      staging_(std::move(staging)),
      previous_(std::move(previous)),
      bytes_(std::move(bytes)) {
  refuse_in_recording("offloaded activations, whose memory on the host is another one each time,");
  const at::NoGradGuard no_grad;
  const auto size = static_cast<std::int64_t>(memory.nbytes());
  const auto source = at::empty({0}, bytes_on(device_)).set_(memory, 0, {size}, {1});
  order_streams(current_stream(device_), stream_);
  const c10::StreamGuard guard(stream_);
  if (staging_)
    staging_->to_host(source, bytes_);
  else
    bytes_.copy_(source, /*non_blocking=*/true);
  use_on(memory, stream_);
}

void HostCopy::fetch() {
  if (fetched_.defined()) return;
  const at::NoGradGuard no_grad;
  const c10::StreamGuard guard(stream_);
  fetched_ = at::empty(bytes_.sizes(), bytes_on(device_));
  if (staging_)
    staging_->to_device(bytes_, fetched_);
  else
    fetched_.copy_(bytes_, /*non_blocking=*/true);
}

// Of a file.
void HostCopy::read_ahead() const {
  if (staging_) ::madvise(bytes_.mutable_data_ptr(), bytes_.nbytes(), MADV_WILLNEED);
}

// What another tensor of the same memory has fetched is used again.
c10::Storage HostCopy::storage() {
  if (in_use_) {
    if (auto known = in_use_->lock()) return c10::Storage(std::move(known));
  }
  fetch();
  const auto current = current_stream(device_);
  order_streams(stream_, current);
  auto storage = std::exchange(fetched_, {}).storage();
  use_on(storage, current);
  in_use_ = storage.getWeakStorageImpl();
  if (const auto next = previous_.lock()) {
    if (const auto second = next->previous_.lock()) second->read_ahead();
    next->fetch();
  }
  return storage;
}

namespace {

// The largest ratio of a storage to the tensor in it: for a small view of a large storage, all of the storage
// would be copied.
constexpr std::uint64_t kMostStoragePerTensor = 4;

// The number of copies, of those that backward needs next, that the system is asked to read ahead.
constexpr int kReadAhead = 2;

// Mapped memory of a pool as a storage, which returns it to the pool.
struct Lease {
  std::shared_ptr<offload::MappedPool> pool;
  std::unique_ptr<offload::MappedMemory> memory;
};

void end_lease(void* of) {
  const std::unique_ptr<Lease> lease(static_cast<Lease*>(of));
  lease->pool->give_back(std::move(lease->memory));
}

c10::Storage leased(std::shared_ptr<offload::MappedPool> pool, std::uint64_t bytes) {
  auto memory = pool->take(bytes);
  auto* const address = memory->bytes().data();
  auto* const lease = new Lease{std::move(pool), std::move(memory)};
  return {c10::Storage::use_byte_size_t(), bytes,
          c10::DataPtr(address, lease, &end_lease, c10::Device(c10::kCPU)), /*allocator=*/nullptr,
          /*resizable=*/false};
}

}  // namespace

// Backward uses copies in the opposite order: each knows the previous one.
class ActivationStore::Copy final : public SavedMemory {
 public:
  Copy(c10::Storage storage, std::weak_ptr<Copy> previous)
      : storage_(std::move(storage)), previous_(std::move(previous)) {}

  c10::Storage storage() override {
    auto next = previous_.lock();
    for (int i = 0; i < kReadAhead && next; ++i, next = next->previous_.lock()) next->read_ahead();
    return storage_;
  }

 private:
  void read_ahead() const { ::madvise(storage_.mutable_data(), storage_.nbytes(), MADV_WILLNEED); }

  const c10::Storage storage_;
  const std::weak_ptr<Copy> previous_;
};

ActivationStore::ActivationStore(std::optional<offload::SwapFolder> folder, std::int64_t min_bytes)
    : pool_(folder ? std::make_shared<offload::MappedPool>(*std::move(folder)) : nullptr),
      min_bytes_(static_cast<std::uint64_t>(std::max<std::int64_t>(min_bytes, 1))) {}

bool ActivationStore::takes(const at::Tensor& tensor) const {
  if (!tensor.defined() || (tensor.is_cpu() && !pool_) || tensor.layout() != at::kStrided ||
      !tensor.has_storage() || tensor.is_conj() || tensor.is_neg() || tensor.is_inference() ||
      tensor.key_set().has(use_key()))
    return false;
  const auto bytes = static_cast<std::uint64_t>(tensor.storage().nbytes());
  return bytes >= min_bytes_ && bytes / kMostStoragePerTensor <= tensor.nbytes() &&
         tensor.storage().data() != nullptr;
}

SavedTensor ActivationStore::keep(const at::Tensor& tensor) {
  if (!takes(tensor)) return tensor;
  return {TensorPlace(tensor), copy_of(tensor)};
}

std::shared_ptr<SavedMemory> ActivationStore::copied(const c10::Storage& memory) {
  if (!memory.device().is_cpu()) return copied_from_device(memory);
  auto bytes = leased(pool_, memory.nbytes());
  std::memcpy(bytes.mutable_data(), memory.data(), memory.nbytes());
  auto copy = std::make_shared<Copy>(std::move(bytes), latest_);
  latest_ = copy;
  return copy;
}

std::shared_ptr<SavedMemory> ActivationStore::copied_from_device(const c10::Storage& memory) {
  const auto size = static_cast<std::int64_t>(memory.nbytes());
  if (pool_ && !staging_) staging_ = std::make_shared<PinnedStaging>();
  const auto bytes =
      pool_ ? at::empty({0}, bytes_on(at::kCPU)).set_(leased(pool_, memory.nbytes()), 0, {size}, {1})
            : at::empty({size}, bytes_on(at::kCPU).pinned_memory(true));
  auto copy = std::make_shared<HostCopy>(memory, bytes, staging_, latest_on_host_);
  latest_on_host_ = copy;
  return copy;
}

std::shared_ptr<SavedMemory> ActivationStore::copy_of(const at::Tensor& tensor) {
  const auto& memory = tensor.storage();
  const std::lock_guard lock(mutex_);
  forget_what_is_gone();
  const auto [row, is_new] =
      sources_.try_emplace(memory.unsafeGetStorageImpl(), Source{.storage = memory.getWeakStorageImpl()});
  auto& source = row->second;
  if (auto copy = source.copy.lock(); copy && source.version == tensor._version()) return copy;
  auto copy = copied(memory);
  source.version = tensor._version();
  source.copy = copy;
  return copy;
}

void ActivationStore::forget_what_is_gone() {
  if (sources_.size() < most_sources_) return;
  std::erase_if(sources_,
                [](const auto& row) { return row.second.storage.expired() || row.second.copy.expired(); });
  most_sources_ = std::max<std::size_t>(2 * sources_.size(), 64);
}

}  // namespace lockstep::detail

namespace lockstep {
namespace detail {
namespace {

std::optional<offload::SwapFolder> folder_of(const ActivationOffload& options, int rank, at::Device device) {
  if (options.min_bytes < 1)
    throw ConfigError("parallel", {.what = "min_bytes of offloaded activations",
                                   .expected = "1 or more",
                                   .got = std::to_string(options.min_bytes)});
  if (!device.is_cpu() && options.directory.empty()) return std::nullopt;
  const auto directory =
      options.directory.empty() ? offload::temporary_directory(options.option) : options.directory;
  if (rank == 0) offload::warn_of_tmpfs(directory, options.option);
  return offload::SwapFolder({.directory = directory, .rank = rank, .option = options.option});
}

std::vector<at::Tensor> marked_tensors(const torch::nn::Module& module) {
  auto parameters = module.parameters();
  std::erase_if(parameters, [](const at::Tensor& tensor) { return !tensor.defined(); });
  if (!parameters.empty()) return parameters;
  throw ConfigError("parallel", {.what = "offloaded activations of " + module.name(),
                                 .expected = "a module with parameters: their uses tell when it runs",
                                 .got = "one without"});
}

// LibTorch saves the slopes that it draws before it has drawn them: a copy made then is of other memory.
void refuse_rrelu(const torch::nn::Module& module) {
  for (const auto& part : module.named_modules("", /*include_self=*/false)) {
    if (dynamic_cast<const torch::nn::RReLUImpl*>(part.value().get()) == nullptr) continue;
    throw ConfigError("parallel",
                      {.what = "offloaded activations of " + part.key(),
                       .expected = "layers whose values can be copied while forward runs",
                       .got = "RReLU, whose random slopes LibTorch saves before it draws them",
                       .hint = "use another activation, or activation checkpointing without offloading"});
  }
}

}  // namespace

OffloadedActivations::OffloadedActivations(const torch::nn::Module& module, const ActivationOffload& options,
                                           int rank, at::Device device)
    : store_(std::make_shared<ActivationStore>(folder_of(options, rank, device), options.min_bytes)),
      parameters_(marked_tensors(module)) {
  refuse_rrelu(module);
  // Activations are freed once they are copied to disk; small tensors between them would keep the heap at its
  // size.
  if (device.is_cpu()) return_freed_memory();
  install_autograd_engine();
  mark();
}

void OffloadedActivations::mark() {
  for (const auto& parameter : parameters_) marks_.push_back(std::make_unique<TensorMark>(parameter, *this));
}

void OffloadedActivations::mark_again() {
  if (std::ranges::all_of(marks_, [](const auto& mark) { return mark->is_intact(); })) return;
  marks_.clear();
  mark();
}

void OffloadedActivations::announce(std::span<const TensorUse>) {
  if (at::GradMode::is_enabled() && !in_backward()) set_saved_tensor_store(store_);
}

}  // namespace detail

void offload_activations(const torch::nn::Module& module, const ActivationOffload& options) {
  detail::set_policy<detail::OffloadedActivations>(module, "offloaded activations", options, /*rank=*/0,
                                                   device_in_use());
}

}  // namespace lockstep
