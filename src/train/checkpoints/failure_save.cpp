// Saving a fit that fails, once all ranks have agreed that all of them can.
#include <algorithm>
#include <utility>
#include <vector>

#include <c10/util/ScopeExit.h>
#include <lockstep/base/error.h>
#include <lockstep/base/log.h>
#include <lockstep/launch/errors.h>

#include "comm/stores.h"
#include "train/callbacks/checkpoint_rules.h"
#include "train/checkpoints/failure_barrier.h"
#include "train/checkpoints/fit_checkpoint.h"

namespace lockstep::detail {
namespace {

using std::chrono::milliseconds;

constexpr const char* kCome = "come";
constexpr const char* kDecisions = "decisions";
constexpr const char* kWord = "word";
constexpr const char* kComplete = "complete";
constexpr const char* kIncomplete = "incomplete";

std::string place_key(int rank) { return "place/" + std::to_string(rank); }

Store shared_store(const Communicator& communicator, const std::string& address) {
  const bool serves = communicator.rank() == 0;
  std::optional<Store> own;
  if (serves) own = make_tcp_store({.address = address, .is_server = true});
  const auto port = communicator.broadcast_bytes(own ? std::to_string(store_port(*own)) : "", 0);
  return own ? *own : make_tcp_store({.address = address, .port = std::stoi(port)});
}

}  // namespace

FailureBarrier::FailureBarrier(const Communicator& communicator, const std::string& address)
    : store_(shared_store(communicator, address)), rank_(communicator.rank()), size_(communicator.size()) {}

bool FailureBarrier::is_complete(const std::string& place, milliseconds deadline) {
  if (!was_complete_) was_complete_ = meet(place, deadline);
  return *was_complete_;
}

bool FailureBarrier::meet(const std::string& place, milliseconds deadline) try {
  limit_answers(store_, deadline);
  store_.set(place_key(rank_), place);
  const bool is_last = store_.add(kCome, 1) == size_;
  if (is_last) return decide(places_agree(place, deadline) ? kComplete : kIncomplete, deadline) == kComplete;
  const std::vector<std::string> decided{kWord};
  if (store_.wait(decided, deadline)) return store_.get(kWord, deadline) == kComplete;
  return decide(kIncomplete, deadline) == kComplete;
} catch (const CommError&) {
  return false;
}

bool FailureBarrier::places_agree(const std::string& place, milliseconds deadline) {
  for (int rank = 0; rank < size_; ++rank)
    if (store_.get(place_key(rank), deadline) != place) return false;
  return true;
}

std::string FailureBarrier::decide(const std::string& word, milliseconds deadline) {
  if (store_.add(kDecisions, 1) == 1) store_.set(kWord, word);
  return store_.get(kWord, deadline);
}

namespace {

namespace fs = std::filesystem;

// A fit that fails before its first batch has nothing worth saving.
bool has_begun(const FitParts& fit) {
  return fit.setup.stage == Stage::kFit && fit.progress.num_training_batches > 0;
}

// A run that a signal ends has little time, and has saved itself where checkpoints are enabled.
bool is_saved(const FitParts& fit) {
  return dynamic_cast<const Terminated*>(fit.checkpoints.failure) != nullptr &&
         fit.setup.options.enable_checkpointing && !fit.checkpoints.save_failure;
}

// The place from which a resumed run goes on. A batch whose optimizer has stepped counts as done. Otherwise
// the whole window is trained on again, since its gradients may be incomplete.
FitProgress place_to_go_on(const FitParts& fit) {
  auto progress = fit.progress;
  if (progress.phase != FitPhase::kInBatch) return progress;
  if (progress.global_step != progress.steps_before_batch) {
    ++progress.batches;
    progress.phase = FitPhase::kBatchEnd;
  } else {
    progress.batches -= std::min(progress.batches, progress.window.done);
    progress.phase = FitPhase::kBatches;
  }
  progress.window = {};
  return progress;
}

// A text that is equal on ranks whose parts of a checkpoint fit together.
std::string place_text(const FitProgress& progress) {
  return std::to_string(progress.epoch) + '/' + std::to_string(progress.batches) + '/' +
         std::to_string(progress.global_step) + '/' + std::to_string(static_cast<int>(progress.phase)) + '/' +
         std::to_string(static_cast<int>(progress.validation.phase)) + '/' +
         std::to_string(progress.validation.loader) + '/' + std::to_string(progress.validation.batches);
}

const CommError* comm_error(const FitParts& fit) {
  return dynamic_cast<const CommError*>(fit.checkpoints.failure);
}

bool all_are_here(const FitParts& fit, std::chrono::milliseconds deadline) {
  if (fit.setup.communicator().size() == 1) return true;
  if (comm_error(fit) != nullptr || !fit.checkpoints.failure_barrier) return false;
  return fit.checkpoints.failure_barrier->is_complete(place_text(place_to_go_on(fit)), deadline);
}

// Of the ranks that have lost a peer the lowest writes. A rank that failed by itself does not know of others.
bool writes_weights(const FitParts& fit) {
  const auto* error = comm_error(fit);
  if (error == nullptr) return true;
  int writer = 0;
  while (std::ranges::count(error->ranks(), writer) > 0) ++writer;
  const bool exists = writer < fit.setup.communicator().size();
  return fit.setup.environment->global_rank() == (exists ? writer : 0);
}

void save_run(const FitParts& fit, const fs::path& folder, const SaveRequest& request) {
  const fs::path agreed = fit.setup.communicator().broadcast_bytes(folder.string(), 0);
  // The progress is put back, since reports about the failure name where it happened.
  const auto failed_at = std::exchange(fit.progress, place_to_go_on(fit));
  const auto put_back = c10::make_scope_exit([&] { fit.progress = failed_at; });
  save_fit(fit, agreed, request, WriteMode::kInForeground);
  if (fit.setup.is_global_zero()) log_info("after the failure, the run was saved to " + agreed.string());
}

void save_weights(const FitParts& fit, const fs::path& folder) {
  const CheckpointInfo info{.epoch = fit.progress.epoch,
                            .global_step = fit.progress.global_step,
                            .strategy = std::string(fit.setup.strategy->name()),
                            .mesh = {{"replicate", 1}}};
  fit.setup.checkpoint_io->save(folder, {.shared = weights_of(fit)}, info, Communicator());
  log_warning("not all ranks failed together: the run cannot be saved, but the weights of step " +
              std::to_string(fit.progress.global_step) + " are in " + folder.string());
}

SavedAfterFailure save_what_there_is(const FitParts& fit, const fs::path& folder, const SaveRequest& request,
                                     std::chrono::milliseconds deadline) {
  if (all_are_here(fit, deadline)) {
    save_run(fit, folder, request);
    return request.weights_only ? SavedAfterFailure::kWeights : SavedAfterFailure::kRun;
  }
  if (fit.setup.strategy->shards_gradients()) {
    log_warning("not all ranks failed together: nothing was saved, as each has a part of the model");
    return SavedAfterFailure::kNothing;
  }
  if (!writes_weights(fit)) return SavedAfterFailure::kNothing;
  save_weights(fit, weights_beside(folder));
  return SavedAfterFailure::kWeights;
}

}  // namespace

SavedAfterFailure save_after_failure(const FitParts& fit, fs::path folder, const SaveRequest& request,
                                     std::chrono::milliseconds deadline) try {
  if (fit.checkpoints.failure == nullptr || !has_begun(fit) || is_saved(fit))
    return SavedAfterFailure::kNothing;
  return save_what_there_is(fit, folder, request, deadline);
} catch (const std::exception& error) {
  log_warning("after the failure, " + folder.string() + " could not be saved: " + error.what());
  return SavedAfterFailure::kNothing;
}

}  // namespace lockstep::detail
