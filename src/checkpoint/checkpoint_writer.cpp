#include <lockstep/checkpoint/checkpoint_writer.h>

#include <utility>

#include <lockstep/base/log.h>
#include <lockstep/torch.h>

#include "checkpoint/saving.h"
#include "checkpoint/together.h"

namespace lockstep {
namespace {

bool fits(const at::Tensor& buffer, const at::Tensor& tensor) {
  return buffer.scalar_type() == tensor.scalar_type() && buffer.sizes() == tensor.sizes() &&
         buffer.strides() == tensor.strides();
}

}  // namespace

CheckpointWriter::CheckpointWriter(const Communicator& communicator)
    : communicator_(detail::own_group(communicator)) {}

CheckpointWriter::~CheckpointWriter() {
  try {
    wait();
  } catch (const std::exception& error) {
    log_warning(error.what());
  }
}

at::Tensor CheckpointWriter::kept_copy(const at::Tensor& tensor, std::size_t number) {
  const at::NoGradGuard no_grad;
  if (number >= buffers_.size()) buffers_.resize(number + 1);
  auto& buffer = buffers_[number];
  if (!buffer.defined() || !fits(buffer, tensor)) buffer = at::empty_like(tensor.detach().cpu());
  return buffer.copy_(tensor);
}

void CheckpointWriter::save(const std::filesystem::path& folder, const CheckpointState& state,
                            const CheckpointInfo& info, const SaveOptions& options) {
  wait();
  std::size_t number = 0;
  const auto copy = [&](const at::Tensor& tensor) { return kept_copy(tensor, number++); };
  CheckpointState snapshot;
  std::exception_ptr no_copy;  // to be told to all ranks
  try {
    snapshot = {.shared = state.shared.with_tensors(copy), .own = state.own.with_tensors(copy)};
  } catch (...) {
    no_copy = std::current_exception();
  }
  is_writing_ = true;
  thread_ = std::jthread([this, folder, no_copy, snapshot = std::move(snapshot), info, options] {
    const auto source = [&]() -> const CheckpointState& {
      if (no_copy) std::rethrow_exception(no_copy);
      return snapshot;
    };
    try {
      detail::save_checkpoint_of(folder, source, info, communicator_, options);
    } catch (...) {
      failure_ = std::current_exception();
    }
    is_writing_ = false;
  });
}

void CheckpointWriter::wait() {
  if (thread_.joinable()) thread_.join();
  if (const auto failure = std::exchange(failure_, nullptr)) std::rethrow_exception(failure);
}

}  // namespace lockstep
