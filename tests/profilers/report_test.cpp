// The texts are the output of Lightning 2.6's SimpleProfiler for the same durations.
#include <gtest/gtest.h>

#include "profilers/report_table.h"

namespace lockstep::detail {
namespace {

std::vector<SimpleRow> lightnings_rows() {
  return {{"[Strategy]SingleDeviceStrategy.backward", 3, 0.75123456789},
          {"run_training_epoch", 2, 12.345678},
          {"save_checkpoint", 1, 0.0000071},
          {"gr\u00f6\u00dfe", 1, 1.5}};
}

// clang-format off
constexpr const char* kExtended = R"(FIT Profiler Report

--------------------------------------------------------------------------------------------------------------------------------------------------
|  Action                                 	|  Mean duration (s)	|  Num calls      	|  Total time (s) 	|  Percentage %   	|
--------------------------------------------------------------------------------------------------------------------------------------------------
|  Total                                  	|  -              	|  7              	|  16.0           	|  100 %          	|
--------------------------------------------------------------------------------------------------------------------------------------------------
|  run_training_epoch                     	|  6.1728         	|  2              	|  12.346         	|  77.16          	|
|  größe                                  	|  1.5            	|  1              	|  1.5            	|  9.375          	|
|  [Strategy]SingleDeviceStrategy.backward	|  0.25041        	|  3              	|  0.75123        	|  4.6952         	|
|  save_checkpoint                        	|  7.1e-06        	|  1              	|  7.1e-06        	|  4.4375e-05     	|
--------------------------------------------------------------------------------------------------------------------------------------------------
)";
constexpr const char* kShort = R"(Profiler Report

--------------------------------------------------------------------------------------------------
|  Action                                 	|  Mean duration (s)	|  Total time (s) 	|
--------------------------------------------------------------------------------------------------
|  run_training_epoch                     	|  6.1728         	|  12.346         	|
|  größe                                  	|  1.5            	|  1.5            	|
|  [Strategy]SingleDeviceStrategy.backward	|  0.25041        	|  0.75123        	|
|  save_checkpoint                        	|  7.1e-06        	|  7.1e-06        	|
--------------------------------------------------------------------------------------------------
)";
// clang-format on

TEST(SimpleReport, IsLightningsTable) {
  EXPECT_EQ(simple_report("FIT Profiler Report", lightnings_rows(), 16, true), kExtended);
}

TEST(SimpleReport, IsLightningsShortTable) {
  EXPECT_EQ(simple_report("Profiler Report", lightnings_rows(), 16, false), kShort);
}

TEST(SimpleReport, SortsTheShortTableByMean) {
  const auto text = simple_report("", {{"many", 10, 5.0}, {"one", 1, 1.0}}, 6, false);
  EXPECT_LT(text.find("one"), text.find("many"));
}

TEST(SimpleReport, OfNothingIsTheHeading) {
  EXPECT_EQ(simple_report("Profiler Report", {}, 1, true), "Profiler Report\n\n");
  EXPECT_EQ(simple_report("Profiler Report", {}, 1, false), "Profiler Report\n\n");
}

TEST(ReportNumber, IsPythons) {
  const std::vector<std::pair<double, std::string>> cases = {{0.0, "0.0"},
                                                             {1.0, "1.0"},
                                                             {16.0, "16.0"},
                                                             {100.0, "100.0"},
                                                             {1234.5, "1234.5"},
                                                             {9999.94, "9999.9"},
                                                             {9999.96, "1e+04"},
                                                             {12345.6, "1.2346e+04"},
                                                             {99999.4, "9.9999e+04"},
                                                             {1e10, "1e+10"},
                                                             {0.1 + 0.2, "0.3"},
                                                             {3.14159265, "3.1416"},
                                                             {0.001, "0.001"},
                                                             {0.00012345678, "0.00012346"},
                                                             {0.00009999999, "0.0001"},
                                                             {1e-5, "1e-05"},
                                                             {1.23456789e-9, "1.2346e-09"}};
  for (const auto& [number, text] : cases) EXPECT_EQ(report_number(number), text);
}

TEST(ReportFileName, IsLightnings) {
  EXPECT_EQ(report_file_name("fit", "perf", 0, ".txt"), "fit-perf-0.txt");
  EXPECT_EQ(report_file_name("validate", "a/b:c__d", 3, ".txt"), "validate-a_b_c_d-3.txt");
  EXPECT_EQ(report_file_name({}, "", {}, ".txt"), "profile.txt");
  EXPECT_EQ(report_file_name({}, " x ", {}, ".txt"), "x.txt");
  EXPECT_EQ(report_file_name({}, "perf", 2, ".json"), "perf-2.json");
}

}  // namespace
}  // namespace lockstep::detail
