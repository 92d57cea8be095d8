#include "offload/transfer.h"

#include <string>

#include <lockstep/base/error.h>

#include "base/system_error_text.h"
#include "offload/block.h"

namespace lockstep::offload {
namespace {

[[noreturn]] void throw_failure(const TransferState& transfer, const BlockFailure& failure) {
  const bool is_read = transfer.direction() == Direction::kRead;
  const auto reason = failure.error_number == 0 ? "the end of the file: it was cut short"
                                                : detail::system_error_text(failure.error_number);
  throw IoError("offload", {.what = std::string(is_read ? "cannot read" : "cannot write") + " swap file '" +
                                    transfer.path().string() + "'",
                            .expected = std::to_string(failure.bytes) + " bytes at offset " +
                                        std::to_string(failure.offset),
                            .got = reason});
}

}  // namespace

Transfer& Transfer::operator=(Transfer&& other) noexcept {
  if (state_ && state_ != other.state_) (void)state_->wait();
  state_ = std::move(other.state_);
  return *this;
}

bool Transfer::is_done() const { return !state_ || state_->is_done(); }

Transfer::~Transfer() {
  if (state_) (void)state_->wait();
}

void Transfer::wait() {
  const auto state = std::move(state_);
  if (!state) return;
  if (const auto failure = state->wait()) throw_failure(*state, *failure);
}

}  // namespace lockstep::offload
