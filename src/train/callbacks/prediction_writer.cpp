#include <lockstep/train/callbacks/prediction_writer.h>

#include <sstream>
#include <string>

#include <lockstep/base/atomic_file.h>
#include <lockstep/base/error.h>
#include <lockstep/checkpoint/weights.h>
#include <lockstep/data/any_loader.h>
#include <lockstep/torch.h>

namespace lockstep {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void refuse_missing(const char* function, const char* intervals) {
  throw ConfigError("train",
                    {.what = std::string("this prediction writer has no ") + function,
                     .expected = std::string(function) + " overridden, for write_interval " + intervals,
                     .got = "the base's"});
}

std::string shape_text(const at::Tensor& tensor) {
  std::ostringstream text;
  text << tensor.scalar_type() << ' ' << tensor.sizes();
  return text.str();
}

void require_prediction(const at::Tensor& prediction) {
  if (prediction.defined()) return;
  throw DataError("train", {.what = "PredictionWriter: predict_step gave nothing to write",
                            .expected = "a tensor",
                            .got = "an undefined one"});
}

// Batches may differ only in their number of rows.
void require_rows_of_one(const at::Tensor& first, const at::Tensor& other, std::size_t batch) {
  const bool fits = first.dim() > 0 && other.dim() == first.dim() &&
                    other.scalar_type() == first.scalar_type() &&
                    other.sizes().slice(1) == first.sizes().slice(1);
  if (fits) return;
  throw DataError(
      "train", {.what = "PredictionWriter: the predictions are not rows of one tensor",
                .expected = "of batch " + std::to_string(batch) + " what batch 0 has: " + shape_text(first),
                .got = shape_text(other),
                .hint = "write_interval = WriteInterval::kBatch writes a file for each batch"});
}

at::Tensor rows_of(std::span<const at::Tensor> predictions) {
  if (predictions.empty()) return torch::empty({0});
  for (std::size_t batch = 0; batch < predictions.size(); ++batch) {
    require_prediction(predictions[batch]);
    require_rows_of_one(predictions.front(), predictions[batch], batch);
  }
  return torch::cat(at::TensorList(predictions.data(), predictions.size()));
}

void write(const fs::path& file, const at::Tensor& predictions, const std::vector<std::int64_t>& indices) {
  create_folders(fs::absolute(file).parent_path());
  write_weights(file, {{"predictions", predictions.detach().to(at::kCPU)},
                       {"batch_indices", torch::tensor(indices, torch::kLong)}});
}

}  // namespace

void BasePredictionWriter::write_on_batch_end(StepContext&, const at::Tensor&,
                                              std::span<const std::int64_t>) {
  refuse_missing("write_on_batch_end", "kBatch and kBatchAndEpoch");
}

void BasePredictionWriter::write_on_epoch_end(TrainContext&, std::span<const at::Tensor>,
                                              std::span<const std::vector<std::int64_t>>) {
  refuse_missing("write_on_epoch_end", "kEpoch and kBatchAndEpoch");
}

void BasePredictionWriter::on_predict_epoch_start(TrainContext&) {
  predictions_.clear();
  batch_indices_.clear();
  dataloader_indices_.clear();
}

void BasePredictionWriter::on_predict_batch_end(StepContext& step, const at::Tensor& prediction) {
  const auto indices = step.batch().indices();
  if (interval_ != WriteInterval::kEpoch) write_on_batch_end(step, prediction, indices);
  if (interval_ == WriteInterval::kBatch) return;
  predictions_.push_back(prediction.defined() ? prediction.detach().to(at::kCPU) : prediction);
  batch_indices_.emplace_back(indices.begin(), indices.end());
  dataloader_indices_.push_back(step.dataloader_idx());
}

void BasePredictionWriter::on_predict_epoch_end(TrainContext& context) {
  if (interval_ != WriteInterval::kBatch) write_on_epoch_end(context, predictions_, batch_indices_);
  on_predict_epoch_start(context);
}

PredictionWriter::PredictionWriter(PredictionWriterOptions options)
    : BasePredictionWriter(options.write_interval), options_(std::move(options)) {}

fs::path PredictionWriter::file(const TrainContext& context, const std::string& suffix) const {
  const auto folder = options_.dirpath.empty() ? context.run_dir() / "predictions" : options_.dirpath;
  return folder / ("predictions_" + std::to_string(context.global_rank()) + suffix + ".safetensors");
}

void PredictionWriter::write_on_batch_end(StepContext& step, const at::Tensor& prediction,
                                          std::span<const std::int64_t> batch_indices) {
  require_prediction(prediction);
  const auto loader = step.dataloader_idx() == 0 ? "" : "_" + std::to_string(step.dataloader_idx());
  write(file(step, loader + "_" + std::to_string(step.batch_idx())), prediction,
        {batch_indices.begin(), batch_indices.end()});
}

void PredictionWriter::write_on_epoch_end(TrainContext& context, std::span<const at::Tensor> predictions,
                                          std::span<const std::vector<std::int64_t>> batch_indices) {
  const auto loaders = dataloader_indices();
  std::size_t begin = 0;
  for (int loader = 0; loader == 0 || begin < loaders.size(); ++loader) {
    std::vector<std::int64_t> indices;
    auto end = begin;
    for (; end < loaders.size() && loaders[end] == loader; ++end)
      indices.insert(indices.end(), batch_indices[end].begin(), batch_indices[end].end());
    write(file(context, loader == 0 ? "" : "_loader_" + std::to_string(loader)),
          rows_of(predictions.subspan(begin, end - begin)), indices);
    begin = end;
  }
}

std::span<const OptionName<WriteInterval>> option_names(WriteInterval) {
  static constexpr OptionName<WriteInterval> kNames[] = {{"batch", WriteInterval::kBatch},
                                                         {"epoch", WriteInterval::kEpoch},
                                                         {"batch_and_epoch", WriteInterval::kBatchAndEpoch}};
  return kNames;
}

void describe(OptionVisitor& v, PredictionWriterOptions& o) {
  v.field("dirpath", o.dirpath, "Folder of the files; empty: predictions/ in the run's folder");
  v.field("write_interval", o.write_interval, "Write after each batch, at the end, or both");
}

}  // namespace lockstep
