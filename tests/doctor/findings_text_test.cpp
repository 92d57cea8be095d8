// The findings of a machine as text and as JSON, and the table of checks as a whole.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>

#include "doctor/support.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

std::vector<Finding> some_findings() {
  auto all =
      std::vector{doctor::ok("all is well"), doctor::note("a note"), doctor::warning("slow", "do this"),
                  doctor::with_value(doctor::error("broken", "do that"), 16, "files")};
  for (auto& each : all) each.check = "limits";
  all.front().check = "memory";
  return all;
}

TEST(DoctorText, NamesACheckOnceAndAddsAdvice) {
  const auto text = findings_text(some_findings());
  EXPECT_THAT(text, HasSubstr("[ok]      memory         all is well\n"
                              "[note]    limits         a note\n"
                              "[warning]                slow\n"
                              "                         -> do this\n"
                              "[error]                  broken\n"
                              "                         -> do that\n\n"
                              "1 error, 1 warning, 1 note.\n"));
}

TEST(DoctorText, LinesAreWrappedAndThoseOfAProgramKept) {
  std::string words = "first\nsecond";
  for (int i = 0; i < 40; ++i) words += " word";
  const auto text = findings_text(std::vector{doctor::ok(words)});
  EXPECT_THAT(text, HasSubstr("first\n                         second word"));
  std::istringstream lines(text.substr(0, text.find("\n\n")));
  for (std::string line; std::getline(lines, line);) {
    EXPECT_LE(line.size(), 110U);
    EXPECT_FALSE(line.ends_with(' '));
  }
}

TEST(DoctorText, JsonHoldsTheSame) {
  const auto json = nlohmann::json::parse(findings_json(some_findings(), "abc"));
  EXPECT_EQ(json["commit"], "abc");
  EXPECT_EQ(json["healthy"], false);
  EXPECT_EQ(json["counts"]["warning"], 1);
  EXPECT_EQ(json["findings"].size(), 4U);
  EXPECT_EQ(json["findings"][3]["state"], "error");
  EXPECT_EQ(json["findings"][3]["value"], 16);
  EXPECT_EQ(json["findings"][3]["unit"], "files");
  EXPECT_EQ(json["findings"][0]["value"], nullptr);
}

TEST(DoctorText, OnlyErrorsAreUnhealthy) {
  auto findings = some_findings();
  EXPECT_FALSE(is_healthy(findings));
  findings.pop_back();
  EXPECT_TRUE(is_healthy(findings));
}

TEST(DoctorExamination, EveryCheckSaysSomethingAlsoWithoutThePrograms) {
  const auto findings = examine({.command = "/nowhere/lockstep",
                                 .self_test = "/nowhere/lockstep-self-test",
                                 .hosts = {"no host has this name"}});
  std::set<std::string> checks;
  for (const auto& each : findings) checks.insert(each.check);
  EXPECT_EQ(checks, (std::set<std::string>{"LibTorch", "accelerators", "cluster", "host names", "interfaces",
                                           "limits", "lockstep", "memory", "ports", "processors", "self-test",
                                           "shared memory", "system", "variables"}));
  const auto errors = doctor::errors(findings);
  EXPECT_THAT(errors, HasSubstr("/nowhere/lockstep-self-test"));
  EXPECT_THAT(errors, HasSubstr("The host no host has this name cannot be resolved"));
}

}  // namespace
}  // namespace lockstep
