// Options of loggers as keys of YAML.
#include <gtest/gtest.h>
#include <lockstep/base/options.h>
#include <lockstep/loggers/loggers.h>

#include <lockstep/base/error.h>

#include "support/expect_error.h"

namespace lockstep {
namespace {

// Every key gets another value than its default, and must be printed with it.
template <class Options>
void expect_keys(const std::string& yaml) {
  Options options;
  OptionTree tree;
  tree.add("logger", options);
  tree.apply(read_yaml(yaml, "a.yaml"));
  EXPECT_EQ(tree.to_yaml(), yaml);
}

TEST(LoggerOptions, AreKeys) {
  expect_keys<TensorBoardOptions>(
      "logger:\n  save_dir: a\n  name: b\n  version: \"3\"\n  sub_dir: c\n  prefix: d\n  default_hp_metric: "
      "false\n"
      "  flush_every_n_rows: 7\n");
  expect_keys<MlflowOptions>(
      "logger:\n  save_dir: a\n  experiment_name: b\n  run_name: c\n  run_id: d\n  prefix: e\n"
      "  flush_every_n_rows: 7\n");
}

TEST(LoggerOptions, RefuseBatchesOfNoRows) {
  TensorBoardOptions options{.flush_every_n_rows = 0};
  OptionTree tree;
  tree.add("logger", options);
  test::expect_error<ConfigError>([&] { tree.validate(); }, {"logger.flush_every_n_rows", ">= 1"});
}

}  // namespace
}  // namespace lockstep
