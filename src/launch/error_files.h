// What ranks write to TORCHELASTIC_ERROR_FILE: torch.distributed.elastic's @record does, in Python programs.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "launch/rank_observer.h"

namespace lockstep::launch {

/// The error of the JSON `text` in one line, such as `ValueError: no such file`; empty where it is none.
std::string message_of_error_file(std::string_view text);

/// The files of one attempt.
class ErrorFiles final : public RankObserver {
 public:
  /// `folder` has a folder for each local rank; empty: there are no files.
  explicit ErrorFiles(std::filesystem::path folder) : folder_(std::move(folder)) {}

  /// Its TORCHELASTIC_ERROR_FILE; empty: none.
  std::filesystem::path file_of(int local_rank) const;

  void add_to(std::vector<pollfd>&) const override {}
  void look() override {}
  std::string last_words(int) const override { return {}; }
  std::string error_of(int local_rank) const override;

 private:
  std::filesystem::path folder_;
};

}  // namespace lockstep::launch
