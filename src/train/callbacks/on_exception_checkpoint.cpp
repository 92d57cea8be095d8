#include <lockstep/train/callbacks/on_exception_checkpoint.h>

#include <utility>

#include <lockstep/base/error.h>

#include "checkpoint/staging_directory.h"
#include "train/callbacks/checkpoint_name.h"

namespace lockstep {

OnExceptionCheckpoint::OnExceptionCheckpoint(OnExceptionCheckpointOptions options)
    : options_(std::move(options)), dirpath_(options_.dirpath) {
  const bool is_named = !options_.filename.empty();
  if (is_named && options_.deadline.count() >= 0) return;
  throw ConfigError("train",
                    {.what = std::string("OnExceptionCheckpoint: ") + (is_named ? "deadline" : "filename"),
                     .expected = is_named ? ">= 0" : "a name without .ckpt",
                     .got = is_named ? std::to_string(options_.deadline.count()) + " ms" : "nothing"});
}

std::filesystem::path OnExceptionCheckpoint::ckpt_path() const {
  return dirpath_ / (options_.filename + ".ckpt");
}

void OnExceptionCheckpoint::setup(TrainContext& context) {
  if (options_.dirpath.empty()) dirpath_ = context.run_dir() / "checkpoints";
}

void OnExceptionCheckpoint::on_fit_start(TrainContext& context) { context.prepare_save_after_failure(); }

void OnExceptionCheckpoint::on_exception(TrainContext& context, const std::exception&) {
  if (context.options().fast_dev_run) return;
  saved_ = context.save_after_failure(ckpt_path(), {}, options_.deadline);
}

// A fast_dev_run must not remove the checkpoint of the real fit.
void OnExceptionCheckpoint::on_fit_end(TrainContext& context) {
  if (context.options().fast_dev_run || !context.is_global_zero()) return;
  detail::remove_checkpoint(ckpt_path());
  detail::remove_checkpoint(detail::weights_beside(ckpt_path()));
}

}  // namespace lockstep
