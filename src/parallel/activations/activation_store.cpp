#include "parallel/activations/activation_store.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include <lockstep/torch.h>

#include "parallel/dispatch/use_key.h"

namespace lockstep::detail {
namespace {

// A small view of a large storage would cost the whole of it.
constexpr std::uint64_t kMostStoragePerTensor = 4;

// How many of those that backward needs next the system is asked to read.
constexpr int kReadAhead = 2;

// Mapped memory as a storage, which gives it back.
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

// Backward takes copies in the opposite order: each knows the one before.
class ActivationStore::Copy final : public KeptMemory {
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

ActivationStore::ActivationStore(offload::SwapFolder folder, std::int64_t min_bytes)
    : pool_(std::make_shared<offload::MappedPool>(std::move(folder))),
      min_bytes_(static_cast<std::uint64_t>(std::max<std::int64_t>(min_bytes, 1))) {}

bool ActivationStore::takes(const at::Tensor& tensor) const {
  if (!tensor.defined() || !tensor.is_cpu() || tensor.layout() != at::kStrided || !tensor.has_storage() ||
      tensor.is_conj() || tensor.is_neg() || tensor.is_inference() || tensor.key_set().has(use_key()))
    return false;
  const auto bytes = static_cast<std::uint64_t>(tensor.storage().nbytes());
  return bytes >= min_bytes_ && bytes / kMostStoragePerTensor <= tensor.nbytes() &&
         tensor.storage().data() != nullptr;
}

KeptTensor ActivationStore::keep(const at::Tensor& tensor) {
  if (!takes(tensor)) return tensor;
  return {TensorPlace(tensor), copy_of(tensor)};
}

std::shared_ptr<ActivationStore::Copy> ActivationStore::copy_of(const at::Tensor& tensor) {
  const auto& memory = tensor.storage();
  const std::lock_guard lock(mutex_);
  forget_what_is_gone();
  const auto [row, is_new] =
      sources_.try_emplace(memory.unsafeGetStorageImpl(), Source{.storage = memory.getWeakStorageImpl()});
  auto& source = row->second;
  if (auto copy = source.copy.lock(); copy && source.version == tensor._version()) return copy;
  auto bytes = leased(pool_, memory.nbytes());
  std::memcpy(bytes.mutable_data(), memory.data(), memory.nbytes());
  auto copy = std::make_shared<Copy>(std::move(bytes), latest_);
  source.version = tensor._version();
  source.copy = latest_ = copy;
  return copy;
}

void ActivationStore::forget_what_is_gone() {
  if (sources_.size() < most_sources_) return;
  std::erase_if(sources_,
                [](const auto& row) { return row.second.storage.expired() || row.second.copy.expired(); });
  most_sources_ = std::max<std::size_t>(2 * sources_.size(), 64);
}

}  // namespace lockstep::detail
