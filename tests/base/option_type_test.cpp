#include <lockstep/base/error.h>
#include <lockstep/base/option_type.h>

#include <limits>
#include <string>
#include <type_traits>

#include "base/demo_options.h"
#include "support/expect_error.h"

namespace lockstep {
namespace {

using namespace std::chrono_literals;
using std::chrono::milliseconds;

template <class T>
void expect_refused(std::initializer_list<const char*> texts) {
  for (const char* text : texts) EXPECT_FALSE(OptionType<T>::parse(text)) << text;
}

template <class T>
void expect_round_trip(std::initializer_list<T> values) {
  for (const T& value : values) {
    const auto text = OptionType<T>::print(value);
    const auto parsed = OptionType<T>::parse(text);
    ASSERT_TRUE(parsed) << text;
    EXPECT_EQ(*parsed, value) << text;
  }
}

TEST(OptionType, ReadsWhatItPrints) {
  expect_round_trip<bool>({true, false});
  expect_round_trip<int>({0, -1, std::numeric_limits<int>::max(), std::numeric_limits<int>::min()});
  expect_round_trip<std::int64_t>(
      {std::numeric_limits<std::int64_t>::max(), std::numeric_limits<std::int64_t>::min()});
  expect_round_trip<std::uint64_t>({0, std::numeric_limits<std::uint64_t>::max()});
  expect_round_trip<double>({0.0, 1.0, 0.1, -1e-300, 1e300, 3e-4, std::numeric_limits<double>::denorm_min()});
  expect_round_trip<std::string>({"", "null", "a b"});
  expect_round_trip<milliseconds>({0ms, 1ms, 1500ms, 30s, 90s, 5min, 1h, 48h, -3s});
  expect_round_trip<demo::Mode>({demo::Mode::kFast, demo::Mode::kExact});
}

TEST(OptionType, ReadsNumbersAsPythonWritesThem) {
  EXPECT_EQ(*OptionType<int>::parse("+7"), 7);
  EXPECT_EQ(*OptionType<int>::parse("-1_000"), -1000);
  EXPECT_EQ(*OptionType<std::uint64_t>::parse("18_446_744_073_709_551_615"),
            std::numeric_limits<std::uint64_t>::max());
  EXPECT_EQ(*OptionType<double>::parse("+1_0.5e-0_1"), 1.05);
  EXPECT_EQ(*OptionType<double>::parse("+.5"), 0.5);
  expect_refused<int>({"_1", "1_", "1__0", "++1", "+-1", "+", "+_1"});
  expect_refused<double>({"1_.5", "1._5", "+inf", "+"});
}

TEST(OptionType, RefusesWhatIsNoValue) {
  expect_refused<bool>({"", "2", "tru"});
  expect_refused<int>({"", "x", "1x", " 1", "1.0", "1e3", "2147483648", "0x10"});
  expect_refused<std::uint64_t>({"-1", "18446744073709551616"});
  expect_refused<double>({"", "nan", "inf", "-inf", ".nan", "1e999", "1,5", "x"});
  expect_refused<milliseconds>({"", "30", "s", "5 s", "5x", "00:30", "1:2:3:4:5", "00:-1:00", "::", "1e3s",
                                "99999999999d", "nans", "1 day", "1 day, 2", "{hour: 1}", "{hours}",
                                "{hours: x}", "{hours: 1h}"});
  expect_refused<demo::Mode>({"", "fas"});
}

TEST(EnumOption, IsGivenByValueOrByName) {
  struct Options {
    EnumOption<demo::Mode> mode = demo::Mode::kFast;
  };
  EXPECT_EQ(Options().mode, demo::Mode::kFast);
  EXPECT_EQ(Options{.mode = demo::Mode::kExact}.mode, demo::Mode::kExact);
  EXPECT_EQ(Options{.mode = "exact"}.mode, demo::Mode::kExact);
  EXPECT_EQ(Options{.mode = std::string("Exact")}.mode, demo::Mode::kExact);
  expect_round_trip<EnumOption<demo::Mode>>({demo::Mode::kFast, demo::Mode::kExact});
  expect_refused<EnumOption<demo::Mode>>({"", "fas"});
  static_assert(!std::is_constructible_v<EnumOption<demo::Mode>, bool>);
  test::expect_error<ConfigError>([] { return Options{.mode = "exakt"}; },
                                  {"'exakt'", "one of fast, EXACT, none"});
}

TEST(OptionType, SaysTheRangeOfTheTypeWhenANumberIsTooLarge) {
  EXPECT_EQ(OptionType<int>::parse("3000000000").error(), "an integer from -2147483648 to 2147483647");
}

TEST(OptionType, ReadsDurations) {
  EXPECT_EQ(*OptionType<milliseconds>::parse("00:30:00"), 30min);
  EXPECT_EQ(*OptionType<milliseconds>::parse("01:02:03:04"), 24h + 2h + 3min + 4s);
  EXPECT_EQ(*OptionType<milliseconds>::parse("1.5h"), 90min);
  EXPECT_EQ(*OptionType<milliseconds>::parse("250ms"), 250ms);
  EXPECT_EQ(*OptionType<milliseconds>::parse("1 day, 2:00:00"), 26h);
  EXPECT_EQ(*OptionType<milliseconds>::parse("2 days, 0:00:01"), 48h + 1s);
  EXPECT_EQ(*OptionType<milliseconds>::parse("0:30:00"), 30min);
  EXPECT_EQ(*OptionType<milliseconds>::parse("{days: 1, hours: 2}"), 26h);
  EXPECT_EQ(*OptionType<milliseconds>::parse("{weeks: 1,minutes: 0.5, seconds: 3, milliseconds: 4}"),
            7 * 24h + 33s + 4ms);
  EXPECT_EQ(OptionType<milliseconds>::print(90min), "90m");
  EXPECT_EQ(OptionType<milliseconds>::print(250ms), "250ms");
}

TEST(OptionType, PrintsWholeNumbersOfTypeDoubleWithAPoint) {
  EXPECT_EQ(OptionType<double>::print(1), "1.0");
  EXPECT_EQ(OptionType<double>::print(0.1), "0.1");
}

TEST(OptionType, ReadsNamesInAnyCase) {
  EXPECT_EQ(*OptionType<demo::Mode>::parse("exact"), demo::Mode::kExact);
}

TEST(OptionRange, HoldsItsEnds) {
  EXPECT_TRUE(at_least(1).holds(1));
  EXPECT_FALSE(more_than(1).holds(1));
  EXPECT_TRUE(between(0, 1).holds(1));
  EXPECT_FALSE(between(0, 1).holds(1.5));
  EXPECT_EQ(at_least(30s).text, ">= 30s");
  EXPECT_EQ(more_than(0).text, "> 0");
  EXPECT_EQ(between(0, 1).text, "0..1");
}

}  // namespace
}  // namespace lockstep
