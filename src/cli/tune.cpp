#include <lockstep/cli/tune.h>

#include <cstdio>

#include <lockstep/base/atomic_file.h>
#include <lockstep/base/error.h>
#include <lockstep/base/option_sources.h>

#include "cli/settings.h"

namespace lockstep {
namespace {

using Row = std::pair<std::string, std::string>;  // key and value of an option

std::string table_of(const std::vector<Row>& rows) {
  std::string table = "option                     found";
  for (const auto& [key, value] : rows) {
    char line[160];
    std::snprintf(line, sizeof line, "\n--%-22s   %s", key.c_str(), value.c_str());
    table += line;
  }
  return table;
}

// The saved configuration with other values; what the command line said stays.
std::string with_values(Program& program, const std::filesystem::path& config, const std::vector<Row>& rows) {
  detail::Settings settings{.trainer = program.trainer, .run = program.trainer.run, .tune = program.tune};
  const auto tree = detail::tree_of(program, settings);
  auto assignments = read_yaml_file(config);
  tree.apply(assignments);
  for (const auto& [key, value] : rows) tree.apply(std::vector{Assignment{key, {.text = value}, {}}});
  return tree.to_yaml();
}

}  // namespace

void describe(OptionVisitor& v, TuneOptions& o) {
  v.field("batch_size", o.batch_size, "Look for the largest batch that fits into memory");
  v.field("lr", o.lr, "Look for a learning rate");
  v.group("scale_batch_size", o.scale_batch_size, "how the size of batches is looked for");
  v.group("lr_find", o.lr_find, "how the learning rate is looked for");
}

void Cli::set_option(const std::string& key, const std::string& value) const {
  OptionTree tree;
  for (const auto& options : program_.options) options.add_to(tree);
  tree.apply(std::vector{Assignment{key, {.text = value}, {}}});
}

std::optional<ScaleBatchSizeOptions> Cli::batch_size_search(const TuneTargets& targets) const {
  if (targets.batch_size.empty() || !tune_.batch_size) return std::nullopt;
  auto options = tune_.scale_batch_size;
  options.apply = [this, key = targets.batch_size](std::int64_t size) {
    set_option(key, OptionType<std::int64_t>::print(size));
  };
  return options;
}

std::optional<LrFindOptions> Cli::lr_search(const TuneTargets& targets) const {
  if (targets.lr.empty() || !tune_.lr) return std::nullopt;
  auto options = tune_.lr_find;
  options.apply = [this, key = targets.lr](double lr) { set_option(key, OptionType<double>::print(lr)); };
  return options;
}

void Cli::report(const Tuned& tuned, const TuneTargets& targets, const Trainer& trainer) const {
  if (trainer.is_global_zero()) write_report(tuned, targets, trainer);
  if (!tuned.lr_curve || tuned.lr_curve->suggestion()) return;
  throw Error("tuner", {.what = "no learning rate was found for --" + targets.lr,
                        .expected = "a loss that falls, over more than a few steps",
                        .got = std::to_string(tuned.lr_curve->lr.size()) + " steps",
                        .hint = "--tune.lr_find.num_training sets how many there are"});
}

void Cli::write_report(const Tuned& tuned, const TuneTargets& targets, const Trainer& trainer) const {
  std::vector<Row> rows;
  if (tuned.batch_size) rows.emplace_back(targets.batch_size, std::to_string(*tuned.batch_size));
  if (tuned.lr_curve) {
    const auto lr = tuned.lr_curve->suggestion();
    if (lr) rows.emplace_back(targets.lr, OptionType<double>::print(*lr));
    tuned.lr_curve->plot(trainer.run_dir() / "lr_find.svg");
  }
  trainer.print(table_of(rows));
  if (trainer.run_dir().empty()) return;  // nothing was looked for, or nothing is to be written
  const auto config = trainer.run_dir() / "config.yaml";
  write_file_atomically(config, with_values(program_, config, rows));
}

}  // namespace lockstep
