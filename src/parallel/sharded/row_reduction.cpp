// RowReduction: the rows of gradients of all ranks become averages, or sums, a chunk of them on each rank.
#include "parallel/sharded/gradient_reduction.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include <ATen/core/Tensor.h>

#include <lockstep/comm/packed_collectives.h>
#include <lockstep/parallel/sharded/sharding_plan.h>
#include <lockstep/torch.h>

#include "device/step_recording.h"
#include "parallel/sharded/quantized_record.h"

namespace lockstep::detail {
namespace {

// An average is divided after each sum, so that sums in 16 bits do not overflow where the average would not.
class PlainReduction final : public RowReduction {
 public:
  PlainReduction(const ShardMesh& mesh, ReduceOp op) : mesh_(mesh), op_(op) {}

  void start(MemoryPool&, at::Tensor row, at::Tensor chunk, std::int64_t number) override {
    chunk_ = std::move(chunk);
    if (mesh_.shards() == 1) return sum_copies();
    work_ = reduce_scatter_flat_async(mesh_.reduce, chunk_, hold(std::move(row)), op_, number);
  }

  void go_on() override {
    if (mesh_.shards() == 1 || mesh_.replicate.size() == 1) return;
    work_.wait();
    sum_copies();
  }

  void finish(MemoryPool& pool) override {
    std::exchange(work_, {}).wait();
    give_back(pool);
  }

 private:
  void sum_copies() {
    if (mesh_.replicate.size() > 1) work_ = mesh_.replicate.all_reduce_async(chunk_, op_);
  }

  const ShardMesh& mesh_;
  const ReduceOp op_;
};

}  // namespace

at::Tensor RowReduction::hold(at::Tensor buffer) { return held_.emplace_back(std::move(buffer)); }

void RowReduction::give_back(MemoryPool& pool, const at::Tensor& buffer) {
  const auto found = std::ranges::find_if(held_, [&](const auto& held) { return held.is_same(buffer); });
  pool.give(std::move(*found));
  held_.erase(found);
}

void RowReduction::give_back(MemoryPool& pool) {
  forget_buffers();
  for (auto& buffer : std::exchange(held_, {})) pool.give(std::move(buffer));
  chunk_.reset();
}

void RowReduction::drop(MemoryPool& pool) noexcept {
  try {
    std::exchange(work_, {}).wait();
  } catch (...) {  // the group is of no further use, and the first error is on its way
  }
  forget_past();
  give_back(pool);
}

std::unique_ptr<RowReduction> plain_reduction(const ShardMesh& mesh, ReduceOp op) {
  return std::make_unique<PlainReduction>(mesh, op);
}

namespace {

// A moving average of errors for each of some chunks, in 8 bits.
class ChunkErrors {
 public:
  ChunkErrors(std::int64_t chunks, std::int64_t elements, const ErrorFeedback& options);

  /// A reduction of what is on `device` begins: forgets all, when it is time.
  void begin(at::Device device);

  /// Forgets all.
  void forget();

  /// Writes `values`, and what was lost of chunk `chunk` before, to `record`; keeps what that loses. Where
  /// numbers are not finite nothing is kept.
  void write(std::int64_t chunk, const at::Tensor& values, const RecordFormat& format,
             const at::Tensor& record);

 private:
  RecordFormat kept_;
  ErrorFeedback options_;
  at::Tensor records_;
  std::int64_t reductions_ = 0;
};

ChunkErrors::ChunkErrors(std::int64_t chunks, std::int64_t elements, const ErrorFeedback& options)
    : kept_(elements, CodeBits::k8),
      options_(options),
      records_(at::zeros({chunks * kept_.bytes()}, at::kByte)) {}

// The host counts reductions, of which replays of a captured step would be none.
void ChunkErrors::begin(at::Device device) {
  refuse_in_recording("error feedback of quantised gradients");
  if (records_.device() != device) records_ = records_.to(device);
  if (++reductions_ <= options_.reset_every) return;
  forget();
  reductions_ = 1;
}

void ChunkErrors::forget() {
  reductions_ = 0;
  records_.zero_();
}

void ChunkErrors::write(std::int64_t chunk, const at::Tensor& values, const RecordFormat& format,
                        const at::Tensor& record) {
  const auto own = records_.narrow(0, chunk * kept_.bytes(), kept_.bytes());
  const auto elements = format.elements();
  const auto tile = values.is_cpu() ? std::min(elements, kRecordTile) : elements;
  const auto room = at::empty({3, tile}, values.options().dtype(at::kFloat));
  for (std::int64_t begin = 0; begin < elements; begin += tile) {
    const auto count = std::min(tile, elements - begin);
    auto error = room[0].narrow(0, 0, count), wanted = room[1].narrow(0, 0, count);
    const auto seen = room[2].narrow(0, 0, count);
    kept_.read_part(own, begin, error);
    wanted.copy_(values.narrow(0, begin, count)).add_(error);
    format.write_part(wanted, record, begin);
    format.read_part(record, begin, seen);
    error.mul_(options_.decay).add_(wanted.sub_(seen), 1.0 - options_.decay).nan_to_num_(0.0, 0.0, 0.0);
    kept_.write_part(error, own, begin);
  }
}

class QuantizedReduction final : public RowReduction {
 public:
  QuantizedReduction(const ShardMesh& mesh, ChunkShape shape, const std::optional<ErrorFeedback>& feedback)
      : near_(mesh.reduce_near.size() > 1 ? mesh.reduce_near : mesh.reduce),
        far_(mesh.reduce_far),
        shape_(shape),
        format_(shape.numbers, CodeBits::k4) {
    if (!feedback) return;
    near_errors_.emplace(near_.size() * far_.size(), shape.numbers, *feedback);
    if (far_.size() > 1) far_errors_.emplace(far_.size(), shape.numbers, *feedback);
  }

  void start(MemoryPool& pool, at::Tensor row, at::Tensor chunk, std::int64_t number) override;
  void go_on() override;
  void finish(MemoryPool& pool) override;

 protected:
  void forget_buffers() override;
  void forget_past() override;

 private:
  using Errors = std::optional<ChunkErrors>;

  int ranks() const { return near_.size() * far_.size(); }
  std::int64_t elements() const { return shape_.numbers + shape_.exact; }
  std::int64_t slot_bytes() const { return format_.bytes() + shape_.exact * 4; }
  at::Tensor slots(const at::Tensor& all, std::int64_t first, std::int64_t count) const;
  at::Tensor exact_in(const at::Tensor& slot) const;
  void write(const at::Tensor& chunk, Errors& errors, std::int64_t index);
  void sum(std::int64_t first, std::int64_t step, std::int64_t count);

  Communicator near_, far_;
  ChunkShape shape_;
  RecordFormat format_;
  Errors near_errors_, far_errors_;
  std::int64_t number_ = 0;
  at::Tensor sent_, received_, sums_;  // while reducing
};

at::Tensor QuantizedReduction::slots(const at::Tensor& all, std::int64_t first, std::int64_t count) const {
  return all.narrow(0, first * slot_bytes(), count * slot_bytes());
}

at::Tensor QuantizedReduction::exact_in(const at::Tensor& slot) const {
  return slot.narrow(0, format_.bytes(), shape_.exact * 4).view(at::kFloat);
}

void QuantizedReduction::write(const at::Tensor& chunk, Errors& errors, std::int64_t index) {
  const auto slot = slots(sent_, index, 1);
  const auto numbers = chunk.narrow(0, 0, shape_.numbers);
  if (errors) {
    errors->write(index, numbers, format_, slot);
  } else {
    format_.write(numbers, slot);
  }
  exact_in(slot).copy_(chunk.narrow(0, shape_.numbers, shape_.exact));
}

// Of the slots that were received. There is at least one.
void QuantizedReduction::sum(std::int64_t first, std::int64_t step, std::int64_t count) {
  const auto numbers = sums_.narrow(0, 0, shape_.numbers);
  auto exact = sums_.narrow(0, shape_.numbers, shape_.exact);
  const auto own = slots(received_, first, 1);
  format_.read(own, numbers);
  exact.copy_(exact_in(own));
  for (std::int64_t i = 1; i < count; ++i) {
    const auto slot = slots(received_, first + i * step, 1);
    format_.add(slot, numbers);
    exact.add_(exact_in(slot));
  }
}

void QuantizedReduction::start(MemoryPool& pool, at::Tensor row, at::Tensor chunk, std::int64_t number) {
  const torch::NoGradGuard no_grad;
  number_ = number;
  chunk_ = std::move(chunk);
  const auto whole = hold(std::move(row));
  sent_ = hold(pool.take(ranks() * slot_bytes(), at::kByte));
  received_ = hold(pool.take(ranks() * slot_bytes(), at::kByte));
  sums_ = chunk_.scalar_type() == at::kFloat ? chunk_ : hold(pool.take(elements(), at::kFloat));
  if (near_errors_) near_errors_->begin(whole.device());
  if (far_errors_) far_errors_->begin(whole.device());
  for (int shard = 0; shard < ranks(); ++shard) {
    const auto node = shard / near_.size(), place = shard % near_.size();
    write(whole.narrow(0, shard * elements(), elements()), near_errors_, place * far_.size() + node);
  }
  give_back(pool, whole);
  work_ = all_to_all_flat_async(near_, received_, sent_, number);
}

void QuantizedReduction::go_on() {
  if (far_.size() == 1) return;
  const torch::NoGradGuard no_grad;
  work_.wait();
  for (int node = 0; node < far_.size(); ++node) {
    sum(node, far_.size(), near_.size());
    write(sums_, far_errors_, node);
  }
  work_ =
      all_to_all_flat_async(far_, slots(received_, 0, far_.size()), slots(sent_, 0, far_.size()), number_);
}

void QuantizedReduction::finish(MemoryPool& pool) {
  const torch::NoGradGuard no_grad;
  std::exchange(work_, {}).wait();
  sum(0, 1, far_.size() > 1 ? far_.size() : near_.size());
  // By a tensor: some devices multiply by the inverse of a number.
  sums_.div_(at::full({}, ranks(), sums_.options()));
  if (!sums_.is_same(chunk_)) chunk_.copy_(sums_);
  give_back(pool);
}

void QuantizedReduction::forget_buffers() {
  sent_.reset();
  received_.reset();
  sums_.reset();
}

// Part of the failed gradients: better none at all.
void QuantizedReduction::forget_past() {
  if (near_errors_) near_errors_->forget();
  if (far_errors_) far_errors_->forget();
}

}  // namespace

std::unique_ptr<RowReduction> quantized_reduction(const ShardMesh& mesh, ChunkShape shape,
                                                  const std::optional<ErrorFeedback>& feedback) {
  return std::make_unique<QuantizedReduction>(mesh, shape, feedback);
}

}  // namespace lockstep::detail
