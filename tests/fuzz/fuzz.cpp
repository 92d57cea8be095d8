// Gives parsers inputs that were changed at random, as many as asked for, and watches what they do: no
// crash, no exception, no hang, no more memory than the target allows. Every input follows from the number
// of its run, so the same command does the same again.
//
//   fuzz all --inputs 10000000     fuzz zip --seconds 60 --seed 7     fuzz pickle --replay pickle.crash
//
// `fuzz --list` prints the targets, a line each, for whoever runs several at a time.
// What fails leaves its input in TARGET.crash.
#include <charconv>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <stdexcept>

#include "fuzz/last_input.h"
#include "fuzz/memory.h"
#include "fuzz/mutate.h"
#include "fuzz/target.h"

namespace lockstep::fuzz {

void expect(bool is_so, const std::string& what) {
  if (!is_so) throw std::logic_error(what);
}

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint64_t kBatch = 256;  // inputs between two looks at the clock

struct Flags {
  std::string target;
  std::uint64_t inputs = 0;
  std::uint64_t seconds = 0;
  std::uint64_t seed = 1;
  std::string replay;
};

void run_one(const Target& target, const std::string& input) try {
  keep(input);
  limit_memory(target.memory_bytes + target.memory_per_byte * input.size());
  target.run(bytes_of(input));
  lift_memory_limit();
} catch (const std::exception&) {
  lift_memory_limit();
  save_last_input();
  throw;
}

std::uint64_t run_many(const Target& target, const Flags& flags) {
  const auto end = Clock::now() + std::chrono::seconds(flags.seconds);
  const auto goes_on = [&](std::uint64_t done) {
    return flags.seconds != 0 ? Clock::now() < end : done < flags.inputs;
  };
  Random random(flags.seed);
  std::uint64_t done = 0;
  for (; goes_on(done); done += kBatch) {
    renew_deadline();
    for (std::uint64_t i = 0; i < kBatch; ++i) run_one(target, mutated(target, random));
  }
  return done;
}

std::string content(const std::string& file) {
  std::ifstream stream(file, std::ios::binary);
  expect(stream.is_open(), "cannot read " + file);
  return {std::istreambuf_iterator<char>(stream), {}};
}

std::uint64_t number(const std::string& text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  expect(error == std::errc() && end == text.data() + text.size(), "'" + text + "' is no number");
  return value;
}

Flags parse_flags(const std::vector<std::string>& words) {
  expect(words.size() >= 3 && words.size() % 2 == 1,
         "usage: fuzz TARGET [--inputs N] [--seconds N] [--seed N] [--replay FILE]");
  Flags flags;
  flags.target = words[0];
  for (std::size_t i = 1; i < words.size(); i += 2) {
    const auto& [flag, value] = std::pair(words[i], words[i + 1]);
    if (flag == "--replay") {
      flags.replay = value;
    } else if (flag == "--inputs" || flag == "--seconds" || flag == "--seed") {
      (flag == "--inputs" ? flags.inputs : flag == "--seconds" ? flags.seconds : flags.seed) = number(value);
    } else {
      throw std::logic_error("unknown flag " + flag);
    }
  }
  return flags;
}

/// The targets of that name: all of them for "all".
std::vector<Target> targets_named(const std::string& name) {
  std::string known = "all";
  std::vector<Target> named;
  for (auto& target : targets()) {
    known += ", " + target.name;
    if (name == "all" || name == target.name) named.push_back(std::move(target));
  }
  expect(!named.empty(), "no target '" + name + "', but " + known);
  return named;
}

void fuzz(const Target& target, const Flags& flags) {
  const auto start = Clock::now();
  keep_last_input(target.name + ".crash");
  for (const auto& seed : target.seeds) run_one(target, seed);
  const auto done = run_many(target, flags);
  const std::chrono::duration<double> took = Clock::now() - start;
  std::printf("%s: %llu inputs in %.1f s\n", target.name.c_str(), static_cast<unsigned long long>(done),
              took.count());
  std::fflush(stdout);
}

void run(const Flags& flags) {
  for (const auto& target : targets_named(flags.target)) {
    if (flags.replay.empty()) {
      fuzz(target, flags);
    } else {
      run_one(target, content(flags.replay));
    }
  }
}

void list() {
  for (const auto& target : targets()) std::puts(target.name.c_str());
}

}  // namespace
}  // namespace lockstep::fuzz

int main(int argc, char** argv) try {
  const std::vector<std::string> words(argv + 1, argv + argc);
  if (words == std::vector<std::string>{"--list"}) {
    lockstep::fuzz::list();
  } else {
    lockstep::fuzz::run(lockstep::fuzz::parse_flags(words));
  }
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "fuzz: %s\n", error.what());
  return 1;
}
