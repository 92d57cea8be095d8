// A folder of its own for one test, inside the build folder, removed with all it holds.
#pragma once

#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <string_view>

#include "support/paths.h"

namespace lockstep::test {

class TemporaryFolder {
 public:
  TemporaryFolder() {
    const auto all = in_build("test_files");
    std::filesystem::create_directories(all);
    path_ = (all / "XXXXXX").string();
    if (!::mkdtemp(path_.data())) throw std::runtime_error("cannot make the folder " + path_);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  std::filesystem::path path() const { return path_; }
  std::filesystem::path operator/(std::string_view name) const { return path() / name; }

  /// The path of the new file `name` that holds `text`.
  std::filesystem::path file(std::string_view name, std::string_view text) const {
    std::ofstream(*this / name, std::ios::binary) << text;
    return *this / name;
  }

  /// How many files and folders it holds.
  std::ptrdiff_t entries() const {
    return std::distance(std::filesystem::directory_iterator(path_), std::filesystem::directory_iterator());
  }

 private:
  std::string path_;
};

/// The bytes of a file; empty when there is none.
inline std::string content(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace lockstep::test
