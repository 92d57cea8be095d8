// Described structs that the tests of options share: one member of each kind.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include <gtest/gtest.h>
#include <lockstep/base/error.h>
#include <lockstep/base/options.h>

namespace lockstep::demo {

using namespace std::chrono_literals;

enum class Mode { kFast, kExact, kNone };
inline constexpr std::array kModeNames{OptionName<Mode>{"fast", Mode::kFast},
                                       OptionName<Mode>{"EXACT", Mode::kExact},
                                       OptionName<Mode>{"none", Mode::kNone}};
inline std::span<const OptionName<Mode>> option_names(Mode) { return kModeNames; }

/// A type with a specialisation of its own: "3" is a count, "0.5" a share.
struct Limit {
  double value = 1;
  bool is_share = true;
  bool operator==(const Limit&) const = default;
};

struct Inner {
  double rate = 0.1;
  int depth = 2;
};
inline void describe(OptionVisitor& v, Inner& o) {
  v.field("rate", o.rate, "Rate of the inner part", more_than(0));
  v.field("depth", o.depth, "Depth of the inner part", at_least(1));
}

struct Plain {};  // an alternative that is not described

struct Pair {
  std::chrono::milliseconds timeout = 30min;
  bool find_unused = false;
  Inner inner = {};
};
inline void describe(OptionVisitor& v, Pair& o) {
  v.field("timeout", o.timeout, "Give up after this time", more_than(0ms));
  v.field("find_unused", o.find_unused, "Look for unused parameters");
  v.group("inner", o.inner, "Inner part of the pair");
}

struct Small {};
struct Big {
  int factor = 2;
};
inline void describe(OptionVisitor& v, Big& o) { v.field("factor", o.factor, "How big", at_least(1)); }
using Size = std::variant<Small, Big>;
inline const std::array<Choice<Size>, 2> kSizes{{{"small", Small{}}, {"big", Big{}}}};

struct Shard {
  std::chrono::milliseconds timeout = 10min;
  Mode mode = Mode::kFast;
  Size size = Small{};
};
inline void describe(OptionVisitor& v, Shard& o) {
  v.field("timeout", o.timeout, "Give up after this time", more_than(0ms));
  v.field("mode", o.mode, "How to shard");
  v.choice("size", o.size, kSizes, "Size of a shard");
}

struct Custom {};  // no row in the table: can be set in code only

using Strategy = std::variant<Plain, Pair, Shard, Custom>;
inline const std::array<Choice<Strategy>, 5> kStrategies{{
    {"plain", Plain{}},
    {"pair", Pair{}},
    {"pair_find_unused", Pair{.find_unused = true}},
    {"shard", Shard{}},
    {"cloud", Plain{}, "", "this build has no cloud"},
}};

struct Options {
  bool fast = false;
  int epochs = 3;
  std::int64_t steps = -1;
  std::uint64_t seed = 0;
  double lr = 0.1;
  std::string name = "run";
  std::filesystem::path dir = "runs";
  std::chrono::milliseconds timeout = 30min;
  Mode mode = Mode::kFast;
  Limit limit = {};
  std::optional<double> clip = {};
  std::optional<std::string> tag = {};
  std::optional<bool> verbose = {};
  std::vector<int> hidden = {128};
  std::vector<std::string> words = {};
  Inner inner = {};
  Strategy strategy = Plain{};
};
inline void describe(OptionVisitor& v, Options& o) {
  v.field("fast", o.fast, "Be fast");
  v.field("epochs", o.epochs, "Stop after this many epochs; -1: no limit", at_least(-1));
  v.field("steps", o.steps, "Stop after this many steps; -1: no limit", at_least(-1));
  v.field("seed", o.seed, "Seed of all generators");
  v.field("lr", o.lr, "Learning rate", between(0, 1));
  v.field("name", o.name, "Name of the run");
  v.field("dir", o.dir, "Folder of the run");
  v.field("timeout", o.timeout, "Give up after this time", at_least(1ms));
  v.field("mode", o.mode, "Fast or exact");
  v.field("limit", o.limit, "Use this many batches");
  v.field("clip", o.clip, "Clip gradients to this norm", more_than(0));
  v.field("tag", o.tag, "A word for the logs");
  v.field("verbose", o.verbose, "Say more, or less; null: as usual");
  v.field("hidden", o.hidden, "Widths of the hidden layers", at_least(1));
  v.field("words", o.words, "Words");
  v.group("inner", o.inner, "Inner options");
  v.choice("strategy", o.strategy, kStrategies, "How to train");
}

/// A tree with `options` under `demo`.
inline OptionTree tree_of(Options& options) {
  OptionTree tree;
  tree.add("demo", options, "Demo options");
  return tree;
}

/// The text of the ConfigError that `call` throws.
template <class Call>
std::string config_error(const Call& call) {
  try {
    call();
  } catch (const ConfigError& error) {
    return error.what();
  }
  ADD_FAILURE() << "no ConfigError";
  return "";
}

}  // namespace lockstep::demo

template <>
struct lockstep::OptionType<lockstep::demo::Limit> {
  static Expected<demo::Limit> parse(std::string_view text) {
    const bool is_share = text.find('.') != std::string_view::npos;
    const auto number = OptionType<double>::parse(text);
    if (!number || *number < 0) return Unexpected{accepted()};
    if (is_share && *number > 1) return Unexpected{"a share of at most 1.0"};
    return demo::Limit{*number, is_share};
  }
  static std::string print(const demo::Limit& limit) {
    return limit.is_share ? OptionType<double>::print(limit.value)
                          : OptionType<int>::print(static_cast<int>(limit.value));
  }
  static std::string accepted() { return "a count or a share"; }
};
