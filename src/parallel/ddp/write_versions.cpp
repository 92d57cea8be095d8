#include "parallel/ddp/write_versions.h"

#include <utility>

namespace lockstep::detail {
namespace {

std::int64_t writes_to(const at::Tensor& tensor) { return tensor.is_inference() ? 0 : tensor._version(); }

}  // namespace

WriteVersions::WriteVersions(std::vector<at::Tensor> parameters)
    : parameters_(std::move(parameters)), versions_(parameters_.size()) {
  settle();
}

void WriteVersions::note_writes(ReplicaCheck& check) const {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (writes_to(parameters_[i]) != versions_[i]) check.note_write(i);
  }
}

void WriteVersions::settle() {
  for (std::size_t i = 0; i < parameters_.size(); ++i) versions_[i] = writes_to(parameters_[i]);
}

}  // namespace lockstep::detail
