#include <lockstep/base/option_visitor.h>

#include <algorithm>

namespace lockstep {

OptionField::OptionField(std::string_view name, std::string_view help, OptionRange range)
    : name_(name), help_(help), range_(std::move(range)) {}
OptionField::~OptionField() = default;

OptionChoice::OptionChoice(std::string_view name, std::string_view help, std::vector<Row> rows)
    : name_(name), help_(help), rows_(std::move(rows)) {}
OptionChoice::~OptionChoice() = default;

std::vector<std::string> OptionChoice::names() const {
  std::vector<std::string> names;
  for (const auto& row : rows_) names.push_back(row.name);
  return names;
}

std::optional<std::size_t> OptionChoice::find(std::string_view name) const {
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    if (detail::same_name(rows_[i].name, name)) return i;
  }
  return std::nullopt;
}

std::optional<std::size_t> OptionChoice::held() const {
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    if (rows_[i].alternative == held_alternative()) return i;
  }
  return std::nullopt;
}

bool OptionChoice::is_canonical(std::size_t row) const {
  return std::none_of(rows_.begin(), rows_.begin() + static_cast<std::ptrdiff_t>(row),
                      [&](const Row& other) { return other.alternative == rows_[row].alternative; });
}

OptionVisitor::~OptionVisitor() = default;

}  // namespace lockstep
