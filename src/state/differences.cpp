// Comparing trees: bit for bit, and in words.
#include <algorithm>
#include <bit>
#include <cstring>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/ne.h>
#include <c10/util/StringUtil.h>

#include <lockstep/state/state_tree.h>

#include "state/state_path.h"

namespace lockstep {
namespace {

using Lines = std::vector<std::string>;

/// How many elements differ: by value, or bit by bit where LibTorch cannot compare values of such a type.
std::int64_t unequal(const at::Tensor& a, const at::Tensor& b) {
  const auto type = a.scalar_type();
  const bool can_compare = type <= at::kBFloat16 && type != at::kComplexHalf;
  if (can_compare) return a.ne(b).sum().item<std::int64_t>();
  const auto bytes = [&](const at::Tensor& tensor) {
    return tensor.flatten().view(at::kByte).view({a.numel(), static_cast<std::int64_t>(a.element_size())});
  };
  return bytes(a).ne(bytes(b)).any(1).sum().item<std::int64_t>();
}

class Comparison {
 public:
  void trees(const std::string& path, const StateTree& expected, const StateTree& got) {
    for (const auto& [name, value] : expected.entries())
      values(detail::below(path, name), &value, got.find(name));
    for (const auto& [name, value] : got.entries()) {
      if (!expected.contains(name)) values(detail::below(path, name), nullptr, &value);
    }
  }

  Lines lines;

 private:
  void report(const std::string& path, const std::string& expected, const std::string& got) {
    lines.push_back(path + ": expected " + expected + ", got " + got);
  }

  void values(const std::string& path, const StateValue* expected, const StateValue* got) {
    if (!expected || !got || expected->index() != got->index()) {
      report(path, expected ? expected->describe() : "nothing", got ? got->describe() : "nothing");
      return;
    }
    std::visit(
        [&](const auto& value) { same_kind(path, value, std::get<std::decay_t<decltype(value)>>(*got)); },
        *expected);
  }

  void same_kind(const std::string& path, const StateTree& expected, const StateTree& got) {
    if (expected.what_is_unread() != got.what_is_unread())
      return report(path, StateValue(expected).describe(), StateValue(got).describe());
    trees(path, expected, got);
  }

  void same_kind(const std::string& path, const StateList& expected, const StateList& got) {
    for (std::size_t i = 0; i < std::max(expected.size(), got.size()); ++i) {
      values(detail::below(path, std::to_string(i)), i < expected.size() ? &expected.values()[i] : nullptr,
             i < got.size() ? &got.values()[i] : nullptr);
    }
  }

  void same_kind(const std::string& path, double expected, double got) {
    if (std::bit_cast<std::uint64_t>(expected) != std::bit_cast<std::uint64_t>(got)) {
      report(path, StateValue(expected).describe(), StateValue(got).describe());
    }
  }

  void same_kind(const std::string& path, const at::Tensor& expected, const at::Tensor& got) {
    const bool alike = expected.defined() == got.defined() &&
                       (!expected.defined() ||
                        (expected.scalar_type() == got.scalar_type() && expected.sizes() == got.sizes()));
    if (!alike) return report(path, StateValue(expected).describe(), StateValue(got).describe());
    if (!expected.defined()) return;
    const at::NoGradGuard no_grad;
    const auto a = expected.cpu().contiguous(), b = got.cpu().contiguous();
    if (a.nbytes() == 0 || std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0) return;
    const auto differing = unequal(a, b);
    lines.push_back(c10::str(path, ": ", StateValue(expected).describe(), " differs in ", differing, " of ",
                             a.numel(), " elements", differing == 0 ? " by value, but not bit by bit" : ""));
  }

  void same_kind(const std::string& path, const TensorShard& expected, const TensorShard& got) {
    const bool alike = expected.shape == got.shape && expected.begin == got.begin;
    if (!alike) return report(path, StateValue(expected).describe(), StateValue(got).describe());
    same_kind(path, expected.elements, got.elements);
  }

  template <class T>
  void same_kind(const std::string& path, const T& expected, const T& got) {
    if (expected != got) report(path, StateValue(expected).describe(), StateValue(got).describe());
  }
};

}  // namespace

std::vector<std::string> differences(const StateTree& expected, const StateTree& got) {
  Comparison comparison;
  comparison.trees({}, expected, got);
  return std::move(comparison.lines);
}

}  // namespace lockstep
