// Data sets in files: those of CSV, safetensors and IDX, read whole into memory, and blocks of tokens in
// mapped files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <c10/core/ScalarType.h>

#include <lockstep/base/export.h>
#include <lockstep/data/dataset.h>
#include <lockstep/formats/csv.h>
#include <lockstep/formats/token_file.h>

namespace lockstep {

/// What csv_dataset() makes of the columns.
struct CsvDatasetOptions {
  std::optional<std::int64_t> label =
      std::nullopt;                        ///< column of the target, -1 is the last; none: no target
  double scale = 1.0;                      ///< factor of all other columns
  at::ScalarType label_dtype = at::kLong;  ///< of the target
  CsvOptions csv = {};                     ///< delimiter and header
};

/// Reads `path`, plain or compressed with gzip: `data` is float32 [rows, columns without the label] times
/// scale, `target` is [rows] of label_dtype. Blocking.
/// @throws DataError as read_csv(), and for a label that label_dtype cannot hold, naming file and line;
///     ConfigError for a label column that the file does not have
LOCKSTEP_API DatasetPtr<Example> csv_dataset(const std::filesystem::path& path,
                                             const CsvDatasetOptions& options = {});

/// Which tensors of the file safetensors_dataset() takes.
struct SafetensorsDatasetOptions {
  std::string x = "x";  ///< name of the data
  std::string y = "y";  ///< name of the targets; empty: no target
};

/// Reads two tensors of `path`, in the file's dtypes. Blocking.
/// @throws DataError naming the file: not readable, damaged, without the tensor; as TensorDataset when the
///     numbers of rows differ
LOCKSTEP_API DatasetPtr<Example> safetensors_dataset(const std::filesystem::path& path,
                                                     const SafetensorsDatasetOptions& options = {});

/// What idx_dataset() makes of the arrays.
struct IdxDatasetOptions {
  double scale = 1.0;                      ///< factor of the data
  bool channel_dim = false;                ///< pictures [n, height, width] become [n, 1, height, width]
  at::ScalarType label_dtype = at::kLong;  ///< of the target
};

/// Reads MNIST's kind of files, plain or compressed with gzip: `data` is float32 times scale, in the shape of
/// the file; `target` is of label_dtype, or undefined where `labels` is empty. Blocking.
/// @throws DataError as idx::read(), for labels that label_dtype cannot hold, for too many or few of them
LOCKSTEP_API DatasetPtr<Example> idx_dataset(const std::filesystem::path& data,
                                             const std::filesystem::path& labels = {},
                                             const IdxDatasetOptions& options = {});

/// How TokenDataset cuts.
struct TokenDatasetOptions {
  std::int64_t block_size = 1024;  ///< tokens of a sample
  std::int64_t stride = 0;         ///< from one sample's first token to the next's; 0: block_size
  std::optional<TokenDtype> dtype = std::nullopt;  ///< of files without a header; none: uint16
};

/// Blocks of tokens of files that are mapped into memory: sample i of a file begins with its token i *
/// stride. `data` is int64 [n, block_size]; `target` is the same one token later. A block lies in one file;
/// tokens that fill none are left out.
class LOCKSTEP_API TokenDataset final : public Dataset<Example> {
 public:
  /// @throws ConfigError for block_size < 1, stride < 0; DataError as TokenFile, and when there is no block
  TokenDataset(const std::vector<std::filesystem::path>& files, const TokenDatasetOptions& options);

  std::int64_t size() const override { return ends_.back(); }
  /// @throws DataError naming an index that is out of range
  Example get_batch(std::span<const std::int64_t> indices) const override;

 private:
  void copy_block(std::int64_t index, std::span<std::int64_t> tokens) const;

  std::vector<TokenFile> files_;
  std::vector<std::int64_t> ends_;  // number of blocks of the files up to each
  std::int64_t block_size_;
  std::int64_t stride_;
};

/// A TokenDataset, to be passed on: `ls::token_dataset({"train.bin"}, {.block_size = 256})`.
LOCKSTEP_API DatasetPtr<Example> token_dataset(const std::vector<std::filesystem::path>& files,
                                               const TokenDatasetOptions& options = {});

}  // namespace lockstep
