#include "report/profiler_table.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <functional>
#include <string_view>

#include <lockstep/base/error.h>

#include "base/trimmed.h"

namespace lockstep::detail {
namespace {

// `|  Action  |  12  |` as its cells.
std::vector<std::string_view> cells_of(std::string_view line) {
  std::vector<std::string_view> cells;
  line.remove_prefix(1);
  for (auto bar = line.find('|'); bar != std::string_view::npos; bar = line.find('|')) {
    cells.push_back(trimmed(line.substr(0, bar), " \t\r"));
    line.remove_prefix(bar + 1);
  }
  return cells;
}

template <class T>
std::optional<T> number(std::string_view text) {
  T value{};
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || stop != text.data() + text.size()) return std::nullopt;
  return value;
}

/// Which columns hold what, counted from the last one: a name may have a bar in it.
class Columns {
 public:
  explicit Columns(const std::vector<std::string_view>& header)
      : total_(place(header, "Total time (s)")), calls_(place(header, "Num calls")), count_(header.size()) {}

  std::optional<ProfiledAction> action(std::string_view line) const {
    const auto cells = cells_of(line);
    if (cells.size() < count_ || total_ == 0) return std::nullopt;
    const auto total = number<double>(cells[cells.size() - total_]);
    if (!total || cells[0] == "Total") return std::nullopt;
    const auto& last_of_name = cells[cells.size() - count_];
    const std::string name(cells[0].data(), last_of_name.data() + last_of_name.size());
    const auto calls = calls_ == 0 ? std::nullopt : number<std::int64_t>(cells[cells.size() - calls_]);
    return ProfiledAction{.name = name, .total_s = *total, .calls = calls};
  }

 private:
  static std::size_t place(const std::vector<std::string_view>& header, std::string_view name) {
    return static_cast<std::size_t>(header.end() - std::ranges::find(header, name));
  }

  std::size_t total_;
  std::size_t calls_;
  std::size_t count_;
};

}  // namespace

std::vector<ProfiledAction> read_profiler_table(const std::filesystem::path& file) {
  std::ifstream stream(file, std::ios::binary);
  if (!stream) throw IoError("report", {.what = "cannot read " + file.string()});
  std::vector<ProfiledAction> actions;
  std::optional<Columns> columns;
  for (std::string line; std::getline(stream, line);) {
    if (!line.starts_with('|')) continue;
    const auto cells = cells_of(line);
    if (!cells.empty() && cells[0] == "Action") {
      columns.emplace(cells);
      actions.clear();
    } else if (columns) {
      if (auto action = columns->action(line)) actions.push_back(std::move(*action));
    }
  }
  std::ranges::stable_sort(actions, std::greater(), &ProfiledAction::total_s);
  return actions;
}

}  // namespace lockstep::detail
