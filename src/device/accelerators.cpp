// The table of accelerators: CPUs, NVIDIA's GPUs, and devices of XLA. To add one, write its class in a file
// of its own, and add a row to table(), or register it.
#include <algorithm>
#include <mutex>
#include <ranges>
#include <string>

#include <lockstep/base/error.h>
#include <lockstep/device/accelerator.h>

namespace lockstep {

// A stream that may go on need not be waited for: nobody will read what it brings.
void StreamGate::await_arrival() {
  std::unique_lock lock(mutex_);
  const auto turn = ++awaited_;
  changed_.wait(lock, [&] { return arrived_ >= turn || opened_ >= turn; });
}

void StreamGate::open() {
  {
    const std::lock_guard lock(mutex_);
    ++opened_;
  }
  changed_.notify_all();
}

void StreamGate::pass() {
  std::unique_lock lock(mutex_);
  const auto turn = ++arrived_;
  changed_.notify_all();
  changed_.wait(lock, [&] { return opened_ >= turn; });
}

}  // namespace lockstep

namespace lockstep::detail {

/// NVIDIA's GPUs (cuda_accelerator.cpp).
std::shared_ptr<const Accelerator> make_cuda_accelerator();

/// Devices of XLA (xla_accelerator.cpp).
std::shared_ptr<const Accelerator> make_xla_accelerator();

}  // namespace lockstep::detail

namespace lockstep {

Accelerator::~Accelerator() = default;

namespace {

class CpuAccelerator final : public Accelerator {
 public:
  std::string_view name() const override { return "cpu"; }
  c10::DeviceType type() const override { return c10::DeviceType::CPU; }
  int count() const override { return 1; }
};

struct Table {
  std::mutex mutex = {};
  std::vector<std::shared_ptr<const Accelerator>> rows;  // the best one last

  std::vector<std::shared_ptr<const Accelerator>> copy() {
    const std::lock_guard lock(mutex);
    return rows;
  }
  // None is ever taken out.
  template <class Predicate>
  const Accelerator* find(const Predicate& is_wanted) {
    const std::lock_guard lock(mutex);
    const auto found = std::ranges::find_if(rows, [&](const auto& row) { return is_wanted(*row); });
    return found == rows.end() ? nullptr : found->get();
  }
};

// Never destroyed: rows are found until the process ends.
Table& table() {
  static auto* const made =
      new Table{.rows = {std::make_shared<const CpuAccelerator>(), detail::make_cuda_accelerator(),
                         detail::make_xla_accelerator()}};
  return *made;
}

bool is_called(const Accelerator& accelerator, std::string_view name) {
  const auto aliases = accelerator.aliases();
  return accelerator.name() == name || std::ranges::find(aliases, name) != aliases.end();
}

}  // namespace

void register_accelerator(std::shared_ptr<const Accelerator> accelerator) {
  auto names = accelerator->aliases();
  names.push_back(accelerator->name());
  for (const auto name : names) {
    if (name != "auto" && find_accelerator(name) == nullptr) continue;
    throw ConfigError("device", {.what = "an accelerator is registered under a name that is taken",
                                 .expected = "another name than auto, " + accelerator_names(),
                                 .got = std::string(name)});
  }
  const std::lock_guard lock(table().mutex);
  table().rows.push_back(std::move(accelerator));
}

const Accelerator* find_accelerator(std::string_view name) {
  return table().find([&](const Accelerator& row) { return is_called(row, name); });
}

const Accelerator* find_accelerator(c10::DeviceType type) {
  return table().find([&](const Accelerator& row) { return row.type() == type; });
}

const Accelerator& best_accelerator() {
  const auto rows = table().copy();
  for (const auto& row : rows | std::views::reverse) {
    if (row->is_automatic() && row->count() > 0) return *row;
  }
  return *rows.front();
}

std::string accelerator_names() {
  std::string names;
  for (const auto& row : table().copy()) names += (names.empty() ? "" : ", ") + std::string(row->name());
  return names;
}

}  // namespace lockstep
