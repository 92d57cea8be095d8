// The memory of the machine that runs a pickle: its stack, marks and memo.
#include "formats/pickle_machine.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace lockstep::pickle::detail {
namespace {

// Every value takes at least one byte of the pickle, so that only values that are used again can exceed this
// weight.
constexpr std::uint64_t kLeastWeight = 64;
constexpr std::uint64_t kWeightPerByte = 4;
constexpr std::size_t kTextPerWeight = 16;

/// What a value without containers weighs.
std::uint64_t weight_of(const Value& value) {
  if (const auto* text = value.as<std::string>()) return 1 + text->size() / kTextPerWeight;
  if (const auto* bytes = value.as<Bytes>()) return 1 + bytes->size() / kTextPerWeight;
  if (const auto* foreign = value.as<Foreign>()) return 1 + foreign->what.size() / kTextPerWeight;
  if (const auto* tensor = value.as<Tensor>()) return 1 + tensor->shape.size();
  return 1;
}

/// How deep a value without containers is. Protocol 2, which is what write() writes, has no bytes, but a call
/// with a tuple that makes them: counted as one everywhere, so that what is written can be read.
std::uint32_t depth_of(const Value& value) { return value.as<Bytes>() == nullptr ? 0 : 1; }

}  // namespace

Stack::Stack(std::size_t pickle_bytes)
    : limit_(std::min<std::uint64_t>(kLeastWeight + kWeightPerByte * pickle_bytes,
                                     std::numeric_limits<std::uint32_t>::max())) {}

bool Stack::fail(std::string reason) {
  reason_ = std::move(reason);
  return false;
}

bool Stack::spend(std::uint64_t weight) {
  spent_ += weight;
  return spent_ <= limit_ || fail("repeats itself more than its length allows");
}

bool Stack::add(Extent& extent, const Extent& part) {
  const std::uint64_t weight = std::uint64_t{extent.weight} + part.weight;
  extent.depth = std::max(extent.depth, part.depth + 1);
  if (extent.depth > kMaxDepth) return fail("nests deeper than " + std::to_string(kMaxDepth));
  if (weight > limit_) return fail("repeats itself more than its length allows");
  extent.weight = static_cast<std::uint32_t>(weight);
  return true;
}

bool Stack::push(Value value, const Extent& made_of) {
  const std::uint64_t weight = weight_of(value);
  if (!spend(weight)) return false;
  const Extent extent{.depth = std::max(made_of.depth, depth_of(value)),
                      .weight = std::max(made_of.weight, static_cast<std::uint32_t>(weight))};
  slots_.push_back({std::move(value), nullptr, extent});
  return true;
}

bool Stack::push_empty(Container kind) {
  auto open = std::make_shared<Open>();
  open->is_record = kind == Container::kRecord;
  Value value;
  if (kind == Container::kList) {
    auto list = std::make_shared<List>();
    open->list = list.get();
    value = Value(std::shared_ptr<const List>(std::move(list)));
  } else {
    auto dict = std::make_shared<Dict>();
    open->dict = dict.get();
    value = Value(std::shared_ptr<const Dict>(std::move(dict)));
  }
  if (!spend(1)) return false;
  slots_.push_back({std::move(value), std::move(open), {}});
  return true;
}

bool Stack::push_foreign(std::string what) {
  if (!push(Foreign{std::move(what)})) return false;
  slots_.back().open = std::make_shared<Open>();
  slots_.back().open->is_foreign = true;
  slots_.back().open->extent = slots_.back().extent;
  return true;
}

bool Stack::drop(std::size_t begin) {
  slots_.resize(begin);
  return true;
}

void Stack::close_from(std::size_t begin) {
  for (auto slot = slots_.begin() + static_cast<std::ptrdiff_t>(begin); slot != slots_.end(); ++slot) {
    if (!slot->open) continue;
    slot->open->is_closed = true;
    slot->extent = slot->open->extent;
  }
}

bool Stack::pop(Value& value, Extent* extent) {
  if (slots_.size() <= floor()) return fail("needs a value that is not there");
  close_from(slots_.size() - 1);
  value = std::move(slots_.back().value);
  if (extent != nullptr) *extent = slots_.back().extent;
  slots_.pop_back();
  return true;
}

bool Stack::mark() {
  marks_.push_back(slots_.size());
  return true;
}

bool Stack::take_mark(std::size_t& begin) {
  if (marks_.empty()) return fail("needs a mark that is not there");
  begin = marks_.back();
  marks_.pop_back();
  return true;
}

bool Stack::last(std::size_t count, std::size_t& begin) {
  if (slots_.size() - floor() < count) return fail("needs a value that is not there");
  begin = slots_.size() - count;
  return true;
}

bool Stack::make_tuple(std::size_t begin) {
  Tuple tuple;
  Extent extent;
  close_from(begin);
  tuple.items.reserve(slots_.size() - begin);
  for (std::size_t i = begin; i < slots_.size(); ++i) {
    if (!add(extent, slots_[i].extent)) return false;
    tuple.items.push_back(std::move(slots_[i].value));
  }
  slots_.resize(begin);
  if (!spend(1)) return false;
  slots_.push_back({Value(std::move(tuple)), nullptr, extent});
  return true;
}

Stack::Open* Stack::open_below(std::size_t begin) {
  close_from(begin);  // before the container is used, which may be one of them
  if (begin <= floor()) return fail("needs a container that is not there"), nullptr;
  auto* open = slots_[begin - 1].open.get();
  if (open == nullptr) return fail("changes what is no list or dict"), nullptr;
  if (open->is_closed && !open->is_foreign)
    return fail("changes a container that is part of another one"), nullptr;
  return open;
}

bool Stack::append(std::size_t begin) {
  auto* open = open_below(begin);
  if (open == nullptr) return false;
  if (open->is_foreign) return drop(begin);
  if (open->list == nullptr) return fail("appends to what is no list");
  for (std::size_t i = begin; i < slots_.size(); ++i) {
    if (!add(open->extent, slots_[i].extent)) return false;
    open->list->push_back(std::move(slots_[i].value));
  }
  slots_.resize(begin);
  return true;
}

bool Stack::set_items(std::size_t begin) {
  auto* open = open_below(begin);
  if (open == nullptr) return false;
  if (open->is_foreign) return drop(begin);
  if (open->dict == nullptr || (slots_.size() - begin) % 2 != 0) return fail("sets no pairs of a dict");
  for (std::size_t i = begin; i < slots_.size(); i += 2) {
    auto& key = slots_[i];
    auto& value = slots_[i + 1];
    if (!add(open->extent, key.extent) || !add(open->extent, value.extent)) return false;
    open->dict->entries.emplace_back(std::move(key.value), std::move(value.value));
  }
  slots_.resize(begin);
  return true;
}

bool Stack::build() {
  std::size_t begin = 0;
  if (!last(1, begin)) return false;
  auto* open = open_below(begin);
  if (open == nullptr) return false;
  const Slot state = std::move(slots_[begin]);
  slots_.resize(begin);
  if (open->is_foreign) return true;
  if (!open->is_record) return open->dict != nullptr || fail("gives attributes to a list");
  if (!spend(state.extent.weight) || !add(open->extent, state.extent)) return false;
  auto& entries = open->dict->entries;
  if (const auto* attributes = state.value.as<Dict>()) {
    entries.insert(entries.end(), attributes->entries.begin(), attributes->entries.end());
  } else {
    open->dict->set("state", state.value);
  }
  return true;
}

bool Stack::put(std::size_t index) {
  if (slots_.size() <= floor()) return fail("needs a value that is not there");
  if (index > memo_.size())
    return fail("memorises as number " + std::to_string(index) + " before the numbers below it");
  if (index == memo_.size()) {
    memo_.push_back(slots_.back());
  } else {
    memo_[index] = slots_.back();
  }
  return true;
}

bool Stack::get(std::size_t index) {
  if (index >= memo_.size()) return fail("uses value " + std::to_string(index) + ", which is not memorised");
  slots_.push_back(memo_[index]);
  return spend(1);
}

}  // namespace lockstep::pickle::detail
