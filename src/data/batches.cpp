// Operations on batches: collating samples, pinning memory, and changing the tensors in them.
#include <lockstep/data/example.h>

#include <sstream>
#include <vector>

#include <ATen/ops/stack.h>
#include <lockstep/base/error.h>
#include <lockstep/data/any_loader.h>

namespace lockstep {
namespace {

std::string shape_of(const at::Tensor& tensor) {
  std::ostringstream text;
  text << at::toString(tensor.scalar_type()) << " " << tensor.sizes();
  return text.str();
}

bool fits(const at::Tensor& first, const at::Tensor& other) {
  return first.defined() == other.defined() &&
         (!first.defined() || (first.sizes() == other.sizes() && first.scalar_type() == other.scalar_type()));
}

void require_fit(const char* what, std::size_t index, const at::Tensor& first, const at::Tensor& other) {
  if (fits(first, other)) return;
  const auto describe = [](const at::Tensor& tensor) { return tensor.defined() ? shape_of(tensor) : "none"; };
  throw DataError("data", {.what = std::string(what) + " of sample " + std::to_string(index) +
                                   " of a batch does not fit the first",
                           .expected = describe(first),
                           .got = describe(other),
                           .hint = "give all samples of a batch the same shape"});
}

at::Tensor stacked(const char* what, const std::vector<at::Tensor>& tensors) {
  for (std::size_t i = 1; i < tensors.size(); ++i) require_fit(what, i, tensors[0], tensors[i]);
  return tensors.empty() || !tensors[0].defined() ? at::Tensor() : at::stack(tensors);
}

}  // namespace

at::Tensor collate(std::span<const at::Tensor> samples) {
  return stacked("the tensor", {samples.begin(), samples.end()});
}

Example collate(std::span<const Example> samples) {
  std::vector<at::Tensor> data;
  std::vector<at::Tensor> targets;
  for (const Example& sample : samples) {
    data.push_back(sample.data);
    targets.push_back(sample.target);
  }
  return {.data = stacked("data", data), .target = stacked("target", targets)};
}

at::Tensor pin_memory(const at::Tensor& batch) { return batch.defined() ? batch.pin_memory() : batch; }

Example pin_memory(const Example& batch) {
  return {.data = pin_memory(batch.data), .target = pin_memory(batch.target)};
}

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
