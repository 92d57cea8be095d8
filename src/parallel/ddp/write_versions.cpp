#include "parallel/ddp/write_versions.h"

#include <utility>

namespace lockstep::detail {
namespace {

std::int64_t writes_to(const at::Tensor& tensor) { return tensor.is_inference() ? 0 : tensor._version(); }

c10::StorageImpl* memory_of(const at::Tensor& tensor) {
  return tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
}

}  // namespace

WriteVersions::WriteVersions(const std::vector<at::Tensor>& parameters) {
  for (const auto& parameter : parameters) {
    known_.push_back({.parameter = parameter,
                      .version = writes_to(parameter),
                      .memory = parameter.storage().getWeakStorageImpl()});
  }
}

void WriteVersions::note_writes(ReplicaCheck& check) const {
  for (std::size_t i = 0; i < known_.size(); ++i) {
    const auto& [parameter, version, memory] = known_[i];
    if (writes_to(parameter) != version || memory_of(parameter) != memory._unsafe_get_target())
      check.note_write(i);
  }
}

void WriteVersions::settle() {
  for (auto& [parameter, version, memory] : known_) {
    version = writes_to(parameter);
    if (memory_of(parameter) != memory._unsafe_get_target())
      memory = parameter.storage().getWeakStorageImpl();
  }
}

}  // namespace lockstep::detail
