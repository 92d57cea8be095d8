#include "loggers/tensorboard_events.h"

#include <gtest/gtest.h>

#include <string>

namespace lockstep::detail {
namespace {

// The expected bytes are those that the protobuf package of Python makes of TensorBoard's own messages.
std::string hex(const std::string& bytes) {
  std::string text;
  for (const unsigned char byte : bytes) {
    for (const int digit : {byte / 16, byte % 16}) text += "0123456789abcdef"[digit];
  }
  return text;
}

TEST(TensorBoardEvents, BeginWithTheVersionOfTheFormat) {
  EXPECT_EQ(hex(file_version_event(1.5)),
            "09000000000000f83f1a0d627261696e2e4576656e743a32520a0a086c6f636b73746570");
}

TEST(TensorBoardEvents, ScalarsAreDescribedOncePerName) {
  std::set<std::string> described{"b"};
  const std::vector<Metric> row{{"a", 0.5}, {"b", -1}};
  EXPECT_EQ(hex(scalars_event({.wall_time = 1.5, .step = 300}, row, described)),
            "09000000000000f83f10ac022a210a150a0161150000003f4a0b0a090a077363616c6172730a080a016215000080bf");
  EXPECT_EQ(described, (std::set<std::string>{"a", "b"}));
}

TEST(TensorBoardEvents, SessionsHaveParametersColumnsAndAnEnd) {
  const EventTime time{.wall_time = 1.5, .step = 7};
  const std::vector<Metric> columns{{"m", 0}};
  const auto declared = session_start_events(time, {{"n", 2.0}, {"t", "x"}, {"b", true}}, columns);
  ASSERT_EQ(declared.size(), 2u);
  EXPECT_EQ(hex(declared[0]),
            "09000000000000f83f10072a4d0a4b0a145f68706172616d735f2f6578706572696d656e7442060801120212004a2b0a"
            "290a0768706172616d73121e121c22050a016e200322050a0174200122050a016220022a050a0312016d");
  EXPECT_EQ(hex(session_start_events(time, {{"n", 2}}, columns)[1]),
            "09000000000000f83f10072a520a500a1c5f68706172616d735f2f73657373696f6e5f73746172745f696e666f420608"
            "01120212004a280a260a0768706172616d73121b1a190a0e0a016e120911000000000000004029000000000000f83f");
  EXPECT_EQ(hex(session_end_event(time, false)),
            "09000000000000f83f10072a420a400a1a5f68706172616d735f2f73657373696f6e5f656e645f696e666f4206080112"
            "0212004a1a0a180a0768706172616d73120d220b080211000000000000f83f");
}

TEST(TensorBoardEvents, KeepReadersFromNamesThatAreNoText) {
  std::set<std::string> described;
  const auto event = scalars_event({}, std::vector<Metric>{{"a\xff", 1}, {"h\u00e9", 2}}, described);
  EXPECT_NE(event.find("a?"), std::string::npos);
  EXPECT_NE(event.find("h\u00e9"), std::string::npos);
}

TEST(TensorBoardEvents, HoldNegativeAndLargeSteps) {
  std::set<std::string> described;
  EXPECT_EQ(hex(scalars_event({.wall_time = 1.5, .step = -1}, {}, described)),
            "09000000000000f83f10ffffffffffffffffff012a00");
  EXPECT_EQ(hex(scalars_event({.wall_time = 1.5, .step = 128}, {}, described)),
            "09000000000000f83f1080012a00");
}

}  // namespace
}  // namespace lockstep::detail
