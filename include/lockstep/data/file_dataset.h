// Data sets read from files, whole, into memory.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include <c10/core/ScalarType.h>

#include <lockstep/data/dataset.h>
#include <lockstep/data/example.h>
#include <lockstep/formats/csv.h>

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
/// @throws DataError as idx::read(), and naming both files when they hold different numbers of samples
LOCKSTEP_API DatasetPtr<Example> idx_dataset(const std::filesystem::path& data,
                                             const std::filesystem::path& labels = {},
                                             const IdxDatasetOptions& options = {});

}  // namespace lockstep
