// Callbacks that write predictions: each rank those of its own data.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

#include <lockstep/base/option_visitor.h>
#include <lockstep/train/hooks.h>

namespace lockstep {

/// When predictions are written.
enum class WriteInterval {
  kBatch,         ///< after each batch
  kEpoch,         ///< at the end
  kBatchAndEpoch  ///< both
};

LOCKSTEP_API std::span<const OptionName<WriteInterval>> option_names(WriteInterval);

/// Base of those that write predictions: override what the interval calls. With `return_predictions` false,
/// Trainer::predict keeps none beside them. Lightning's BasePredictionWriter.
class LOCKSTEP_API BasePredictionWriter : public Callback {
 public:
  explicit BasePredictionWriter(EnumOption<WriteInterval> write_interval = WriteInterval::kBatch)
      : interval_(write_interval) {}

  /// Takes one batch's prediction, as predict_step gave it, and the numbers of its samples in the data set;
  /// none where the loader does not number them. @throws ConfigError unless overridden
  virtual void write_on_batch_end(StepContext& step, const at::Tensor& prediction,
                                  std::span<const std::int64_t> batch_indices);

  /// Takes those of all batches of this rank, on the CPU, by batch. @throws ConfigError unless overridden
  virtual void write_on_epoch_end(TrainContext& context, std::span<const at::Tensor> predictions,
                                  std::span<const std::vector<std::int64_t>> batch_indices);

  void on_predict_epoch_start(TrainContext& context) override;
  void on_predict_batch_end(StepContext& step, const at::Tensor& prediction) override;
  void on_predict_epoch_end(TrainContext& context) override;

 protected:
  /// The number of each batch's loader, for write_on_epoch_end().
  std::span<const int> dataloader_indices() const { return dataloader_indices_; }

 private:
  WriteInterval interval_;
  std::vector<at::Tensor> predictions_;
  std::vector<std::vector<std::int64_t>> batch_indices_;
  std::vector<int> dataloader_indices_;
};

/// What is written, and when.
struct PredictionWriterOptions {
  std::filesystem::path dirpath = {};  ///< empty: predictions/ in the run's folder
  EnumOption<WriteInterval> write_interval = WriteInterval::kEpoch;  ///< when predictions are written
};

LOCKSTEP_API void describe(OptionVisitor& visitor, PredictionWriterOptions& options);

/// Writes safetensors files: predictions_RANK.safetensors at the end, predictions_RANK_BATCH.safetensors
/// after each batch; of the second loader predictions_RANK_loader_1.safetensors and
/// predictions_RANK_1_BATCH.safetensors. In them "predictions" has a row per sample, and "batch_indices"
/// (int64) says which sample of the data set a row is about.
class LOCKSTEP_API PredictionWriter final : public BasePredictionWriter {
 public:
  explicit PredictionWriter(PredictionWriterOptions options = {});

  /// @throws IoError
  void write_on_batch_end(StepContext& step, const at::Tensor& prediction,
                          std::span<const std::int64_t> batch_indices) override;
  /// @throws DataError naming two batches whose predictions are not rows of one tensor; IoError
  void write_on_epoch_end(TrainContext& context, std::span<const at::Tensor> predictions,
                          std::span<const std::vector<std::int64_t>> batch_indices) override;

 private:
  std::filesystem::path file(const TrainContext& context, const std::string& suffix) const;

  PredictionWriterOptions options_;
};

}  // namespace lockstep
