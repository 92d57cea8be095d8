#include <lockstep/train/callbacks/model_summary.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <set>
#include <vector>

#include <lockstep/train/module.h>

#include "base/number_locale.h"
#include "train/callbacks/named_options.h"
#include "train/logging/class_name.h"

namespace lockstep {
namespace {

using Row = std::array<std::string, 5>;

struct Counts {
  std::int64_t trainable = 0;
  std::int64_t frozen = 0;
  std::int64_t bytes = 0;
  std::int64_t all() const { return trainable + frozen; }
};

// A parameter that several modules share counts once.
Counts count(const torch::nn::Module& module) {
  Counts counts;
  std::set<const c10::TensorImpl*> seen;
  for (const auto& parameter : module.parameters()) {
    if (!seen.insert(parameter.unsafeGetTensorImpl()).second) continue;
    (parameter.requires_grad() ? counts.trainable : counts.frozen) += parameter.numel();
    counts.bytes += static_cast<std::int64_t>(parameter.nbytes());
  }
  return counts;
}

// 1.5 K, 12.3 M: three digits, as Lightning.
std::string short_count(std::int64_t number) {
  static constexpr std::array<const char*, 5> kUnits{" ", "K", "M", "B", "T"};
  double value = static_cast<double>(number);
  std::size_t unit = 0;
  for (; value >= 1000 && unit + 1 < kUnits.size(); value /= 1000) ++unit;
  const detail::NumbersWithPoint scope;
  char text[32];
  std::snprintf(text, sizeof text, unit == 0 || value >= 100 ? "%.0f %s" : "%.1f %s", value, kUnits[unit]);
  return text;
}

bool is_deeper(const std::string& name, int max_depth) {
  return max_depth >= 0 && std::ranges::count(name, '.') >= max_depth;
}

std::vector<Row> rows_of(const AnyModule& module, int max_depth) {
  std::vector<Row> rows{{"", "Name", "Type", "Params", "Mode"}};
  for (const auto& child : module.named_modules(/*name_prefix=*/"", /*include_self=*/false)) {
    if (is_deeper(child.key(), max_depth)) continue;
    const auto& held = *child.value();
    rows.push_back({std::to_string(rows.size() - 1), child.key(),
                    detail::short_class_name(child.value()->name()), short_count(count(held).all()),
                    held.is_training() ? "train" : "eval"});
  }
  return rows;
}

std::string rule(std::size_t width) { return std::string(width, '-') + '\n'; }

std::string table(const std::vector<Row>& rows) {
  std::array<std::size_t, std::tuple_size_v<Row>> widths{};
  for (const auto& row : rows)
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i)
      line += (i == 0 ? "" : " | ") + row[i] + std::string(widths[i] - row[i].size(), ' ');
    if (&row == &rows[1]) text += rule(line.size());
    text += line + '\n';
    if (&row == &rows.back()) text += rule(line.size());
  }
  return text;
}

}  // namespace

std::string summarize(const AnyModule& module, int max_depth) {
  const auto counts = count(module);
  std::string text;
  if (max_depth != 0) {
    const auto rows = rows_of(module, max_depth);
    if (rows.size() > 1) text = table(rows);
  }
  const auto line = [&](const std::string& number, const char* what) {
    text += number + std::string(10 - std::min<std::size_t>(number.size(), 9), ' ') + what + '\n';
  };
  line(short_count(counts.trainable), "Trainable params");
  line(short_count(counts.frozen), "Non-trainable params");
  line(short_count(counts.all()), "Total params");
  const detail::NumbersWithPoint scope;
  char megabytes[32];
  std::snprintf(megabytes, sizeof megabytes, "%.3f", static_cast<double>(counts.bytes) / 1e6);
  line(megabytes, "Total estimated model params size (MB)");
  return text;
}

void ModelSummary::on_fit_start(TrainContext& context) {
  if (!context.is_global_zero()) return;
  auto text = summarize(context.module(), max_depth_);
  text.pop_back();
  context.print(text);
}

void describe(OptionVisitor& v, SummaryOptions& o) {
  v.field("max_depth", o.max_depth, "Modules so far below the model have a line; -1: all, 0: only the sums",
          at_least(-1));
}

}  // namespace lockstep
