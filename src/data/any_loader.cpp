#include <lockstep/data/any_loader.h>

namespace lockstep {
namespace {

class ChangedStream final : public BatchStream {
 public:
  ChangedStream(std::unique_ptr<BatchStream> stream, TensorChange change)
      : stream_(std::move(stream)), change_(std::move(change)) {}

  bool next(AnyBatch& batch) override {
    if (!stream_->next(batch)) return false;
    batch = batch.with_tensors(change_);
    return true;
  }
  bool is_last() const override { return stream_->is_last(); }

 private:
  std::unique_ptr<BatchStream> stream_;
  TensorChange change_;
};

}  // namespace

at::Tensor with_tensors(const at::Tensor& batch, const TensorChange& change) {
  return batch.defined() ? change(batch) : batch;
}

Example with_tensors(const Example& batch, const TensorChange& change) {
  return {with_tensors(batch.data, change), with_tensors(batch.target, change)};
}

std::unique_ptr<BatchStream> with_tensors(std::unique_ptr<BatchStream> stream, TensorChange change) {
  if (!change) return stream;
  return std::make_unique<ChangedStream>(std::move(stream), std::move(change));
}

}  // namespace lockstep
