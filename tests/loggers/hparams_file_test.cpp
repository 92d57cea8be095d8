#include "loggers/log_records.h"

#include <gtest/gtest.h>

#include <limits>

#include <lockstep/base/error.h>

#include "support/temporary_folder.h"

namespace lockstep::detail {
namespace {

TEST(HparamsYaml, IsSortedAndNested) {
  EXPECT_EQ(hparams_yaml({{"optimizer/name", "adamw"},
                          {"optimizer/schedule/warmup", 10},
                          {"batch_size", 32},
                          {"optimizer/lr", 0.5}}),
            "batch_size: 32\noptimizer:\n  lr: 0.5\n  name: adamw\n  schedule:\n    warmup: 10\n");
  EXPECT_EQ(hparams_yaml({}), "{}\n");
}

TEST(HparamsYaml, KeepsTheTypesOfValues) {
  const double infinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(
      hparams_yaml({{"a", true}, {"b", "true"}, {"c", 3}, {"d", "3"}, {"e", 3.0}, {"f", 1e-5}, {"g", 1e30}}),
      "a: true\nb: \"true\"\nc: 3\nd: \"3\"\ne: 3.0\nf: 1.0e-05\ng: 1.0e+30\n");
  EXPECT_EQ(
      hparams_yaml({{"a", infinity}, {"b", -infinity}, {"c", std::numeric_limits<double>::quiet_NaN()}}),
      "a: .inf\nb: -.inf\nc: .nan\n");
}

TEST(HparamsYaml, QuotesTextThatNeedsIt) {
  EXPECT_EQ(hparams_yaml({{"a: b", "x: \"y\"\n"}, {"", ""}}),
            "\"\": \"\"\n\"a: b\": \"x: \\\"y\\\"\\x0a\"\n");
}

// PyYAML refuses a file that holds them, or takes them for ends of lines.
TEST(HparamsYaml, EscapesWhatReadersRefuse) {
  EXPECT_EQ(hparams_yaml({{"a", "\xc2\x80\xc2\x9f\xc2\xa0"}}), "a: \"\\u0080\\u009f\xc2\xa0\"\n");
  EXPECT_EQ(hparams_yaml({{"a", "\xe2\x80\xa8\xef\xbf\xbf\xe2\x82\xac"}}),
            "a: \"\\u2028\\uffff\xe2\x82\xac\"\n");
  EXPECT_EQ(hparams_yaml({{"a\x80", "b\xff"}}), "\"a\xef\xbf\xbd\": \"b\xef\xbf\xbd\"\n");
}

TEST(HparamsYaml, KeepsTheSlashOfANameThatIsAlsoAGroup) {
  EXPECT_EQ(hparams_yaml({{"a", 1}, {"a-b", 2}, {"a/b", 3}, {"c/d", 4}, {"c/d/e", 5}}),
            "a: 1\na-b: 2\na/b: 3\nc:\n  d: 4\n  d/e: 5\n");
}

TEST(HparamsFile, IsWrittenWhenThereIsSomethingNew) {
  const test::TemporaryFolder folder;
  HparamsFile file;
  file.write(folder.path());
  EXPECT_EQ(folder.entries(), 0);
  file.update({{"lr", 0.5}, {"layers", 2}});
  EXPECT_THROW(file.write(folder / "absent"), IoError);
  EXPECT_TRUE(file.changed());
  file.write(folder.path());
  file.update({{"lr", 0.25}});
  file.write(folder.path());
  EXPECT_FALSE(file.changed());
  EXPECT_EQ(test::content(folder / "hparams.yaml"), "layers: 2\nlr: 0.25\n");
}

}  // namespace
}  // namespace lockstep::detail
