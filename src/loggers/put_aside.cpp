#include "loggers/put_aside.h"

#include <string>

namespace lockstep::detail {

void put_aside(const std::filesystem::path& file) {
  if (!std::filesystem::is_regular_file(file)) return;
  for (int number = 1;; ++number) {
    auto aside = file;
    aside.replace_filename(file.stem().string() + "." + std::to_string(number) + file.extension().string());
    if (!std::filesystem::exists(aside)) return std::filesystem::rename(file, aside);
  }
}

}  // namespace lockstep::detail
