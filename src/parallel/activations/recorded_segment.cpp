#include "parallel/activations/recorded_segment.h"

#include <utility>

namespace lockstep::detail {
namespace {

// Operators after which a segment of which autograd has saved nothing yet is given up.
constexpr std::size_t kIdleOperators = 64;

}  // namespace

class RecordedSegment::SavedByNumber final : public torch::autograd::SavedVariableHooks {
 public:
  explicit SavedByNumber(std::shared_ptr<RecordedSegment> segment) : segment_(std::move(segment)) {
    ++segment_->saved_;
  }
  ~SavedByNumber() override { --segment_->saved_; }

  void call_pack_hook(const at::Tensor& tensor) override {
    number_ = segment_->tape_.leave_out(tensor);
    if (!segment_->tape_.keeps(tensor) || tensor.is_inference()) return;
    kept_ = keep(tensor);
    version_ = tensor._version();
  }

  // A backward that needs nothing but what came in, such as that of an embedding, runs nothing again.
  at::Tensor call_unpack_hook() override {
    const auto tensor = kept_.get();
    const bool is_unchanged = kept_.is_copy() || (tensor.defined() && tensor._version() == version_);
    return is_unchanged ? tensor : segment_->tape_.take(number_);
  }

 private:
  std::shared_ptr<RecordedSegment> segment_;
  std::size_t number_ = 0;
  KeptTensor kept_;
  std::int64_t version_ = 0;
};

bool RecordedSegment::is_wanted() const {
  return saved_ > 0 || (tape_.left_out() == 0 && tape_.operators() < kIdleOperators);
}

void RecordedSegment::record(OperatorCall& call, const std::function<void()>& run) {
  if (!is_wanted() || !tape_.can_record(call)) {
    set_operator_recorder(nullptr);
    return run();
  }
  try {
    tape_.record(call, run);
  } catch (...) {
    set_operator_recorder(nullptr);
    throw;
  }
}

// A tensor that a function of the user's own saves is none that an operator would save again.
std::unique_ptr<torch::autograd::SavedVariableHooks> RecordedSegment::hooks_of_saved_tensor() {
  if (!tape_.is_recording()) return nullptr;
  return std::make_unique<SavedByNumber>(shared_from_this());
}

}  // namespace lockstep::detail
