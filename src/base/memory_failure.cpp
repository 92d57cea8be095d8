#include "base/memory_failure.h"

#include <cxxabi.h>
#include <string.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <typeinfo>

#include <lockstep/base/env.h>
#include <lockstep/base/error.h>

#include "base/cgroup.h"
#include "base/diagnoses.h"
#include "base/failure_place.h"
#include "base/format.h"

namespace lockstep::detail {
namespace {

// Allocators but for CUDA's report failures by text alone.
constexpr std::array<std::string_view, 3> kFailureTexts{"DefaultCPUAllocator: can't allocate memory",
                                                        "DefaultCPUAllocator: not enough memory",
                                                        "out of memory. Tried to allocate"};

constexpr std::array<std::string_view, 3> kAskedTexts{"you tried to allocate ", "Tried to allocate ",
                                                      "not enough memory for a tensor of "};

double factor_of(std::string_view unit) {
  if (unit.starts_with("KiB")) return 1024.0;
  if (unit.starts_with("MiB")) return 1024.0 * 1024;
  return unit.starts_with("GiB") ? 1024.0 * 1024 * 1024 : 1.0;
}

// The number behind `key` in a file of lines "key number"; nothing where there is none.
std::optional<std::int64_t> number_in(const std::filesystem::path& file, std::string_view key) {
  std::ifstream lines(file);
  std::string word;
  std::int64_t number = 0;
  while (lines >> word)
    if (word == key && lines >> number) return number;
  return std::nullopt;
}

std::optional<std::int64_t> kills_in_cgroup(const std::filesystem::path& proc,
                                            const std::filesystem::path& cgroups) {
  for (const auto& group : own_cgroups("memory", proc, cgroups)) {
    const auto* const file = group.is_version_2 ? "memory.events" : "memory.oom_control";
    if (const auto kills = number_in(group.mount / group.path / file, "oom_kill")) return kills;
  }
  return std::nullopt;
}

std::string limit_text() {
  for (const auto& [kind, name] : {std::pair{RLIMIT_DATA, "ulimit -d"}, {RLIMIT_AS, "ulimit -v"}}) {
    rlimit limit{};
    if (::getrlimit(kind, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
      return ", limit " + memory_text(static_cast<std::int64_t>(limit.rlim_cur)) + " (" + name + ")";
  }
  return "";
}

// Errors of lockstep that say where they happened keep that, and so do those about other ranks.
std::string place_to_add(const std::exception& error) {
  const std::string_view text = error.what();
  const auto line = text.substr(0, text.find('\n'));
  const bool is_own = dynamic_cast<const Error*>(&error) != nullptr;
  const bool has_place =
      is_own && (line.find("; at ") != line.npos || dynamic_cast<const CommError*>(&error) != nullptr);
  return has_place ? "" : failure_place();
}

std::string demangled(const char* type) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> name(abi::__cxa_demangle(type, nullptr, nullptr, &status),
                                                         &std::free);
  return name ? name.get() : type;
}

// What an exception says, from its first line that says something.
std::string said_text(const std::exception& error) {
  const std::string_view text = error.what();
  const auto begin = text.find_first_not_of(" \t\r\n");
  if (begin != text.npos) return std::string(text.substr(begin));
  return "an exception without a text (" + demangled(typeid(error).name()) + ")";
}

// What std::throw_with_nested() has kept, outer ones first.
std::string causes_of(const std::exception& error) {
  try {
    std::rethrow_if_nested(error);
  } catch (const std::exception& cause) {
    const auto text = said_text(cause);
    return "; caused by: " + text.substr(0, text.find('\n')) + causes_of(cause);
  } catch (...) {
    return "; caused by an exception that is no std::exception";
  }
  return "";
}

// Place and causes belong to the first line: texts of other libraries continue with stack frames.
std::string text_with_place(const std::exception& error) {
  auto text = said_text(error);
  text.insert(std::min(text.find('\n'), text.size()), place_to_add(error) + causes_of(error));
  return text;
}

}  // namespace

bool is_memory_failure(const std::exception& error) {
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) return true;
  const std::string_view text = error.what();
  return asked_bytes(text).has_value() ||
         std::ranges::any_of(kFailureTexts, [&](auto part) { return text.find(part) != text.npos; });
}

std::optional<std::int64_t> asked_bytes(std::string_view text) {
  for (const auto words : kAskedTexts) {
    const auto at = text.find(words);
    if (at == std::string_view::npos) continue;
    const auto rest = text.substr(at + words.size());
    double number = 0;
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), number);
    if (error != std::errc() || !(number >= 0) || number > 1e18) continue;
    const auto unit = trimmed({end, rest.data() + rest.size()});
    return std::llround(number * factor_of(unit));
  }
  return std::nullopt;
}

std::string memory_report(const RankStatus& status, std::int64_t peak_bytes) {
  if (!diagnoses().memory) return "";
  const auto& memory = status.memory;
  std::string text = "; peak so far " + memory_text(peak_bytes) + limit_text();
  const auto before = memory.before_training.load();
  if (before > 0) {
    const auto parameters = memory.parameters.load(), gradients = memory.gradients.load(),
               optimizer = memory.optimizer.load();
    const auto rest = std::max<std::int64_t>(0, peak_bytes - before - gradients - optimizer);
    text += ": parameters " + memory_text(parameters) + ", gradients " + memory_text(gradients) +
            ", optimizer " + memory_text(optimizer) + ", activations and buffers " + memory_text(rest) +
            ", all else before training " + memory_text(std::max<std::int64_t>(0, before - parameters));
  }
  const std::string advice(memory.advice, ::strnlen(memory.advice, sizeof(memory.advice)));
  return text + (advice.empty() ? "" : "; what makes room, in this order: " + advice);
}

std::string failure_text(const std::exception& error) {
  if (!is_memory_failure(error)) return text_with_place(error);
  const std::string_view all = error.what();
  const std::string what(all.substr(0, all.find('\n')));
  const auto asked = asked_bytes(all);
  auto text = "the system has not enough memory for this process (" + what + ")" + place_to_add(error) +
              (asked ? "; it asked for " + memory_text(*asked) : "");
  text += memory_report(rank_status(), peak_rss_bytes());
  const bool has_advice = rank_status().memory.advice[0] != '\0' && diagnoses().memory;
  return text + (has_advice ? "" : "; use a smaller batch, or a strategy that shards or offloads its state");
}

std::int64_t memory_kills(const std::filesystem::path& proc, const std::filesystem::path& cgroups) {
  if (const auto kills = kills_in_cgroup(proc, cgroups)) return *kills;
  return number_in(proc / "vmstat", "oom_kill").value_or(0);
}

}  // namespace lockstep::detail
