#include "xla/generator.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>

#include <ATen/ATen.h>
#include <c10/core/GeneratorImpl.h>

#include "xla/capture.h"
#include "xla/device.h"

namespace lockstep::xla {
namespace {

struct RandomState {
  std::uint64_t seed = c10::default_rng_seed_val;
  std::uint64_t drawn = 0;  // operators so far
};

class DeviceGenerator final : public c10::GeneratorImpl {
 public:
  explicit DeviceGenerator(c10::DeviceIndex device)
      : GeneratorImpl(c10::Device(c10::kXLA, device), c10::DispatchKeySet(c10::DispatchKey::XLA)) {}

  void set_current_seed(std::uint64_t seed) override { state_ = {.seed = seed}; }
  std::uint64_t current_seed() const override { return state_.seed; }
  std::uint64_t seed() override {
    set_current_seed(c10::detail::getNonDeterministicRandom());
    return state_.seed;
  }
  void set_offset(std::uint64_t offset) override { state_.drawn = offset; }
  std::uint64_t get_offset() const override { return state_.drawn; }
  void set_state(const c10::TensorImpl& state) override {
    TORCH_CHECK(state.numel() == sizeof state_, "the state of a generator of an XLA device has ",
                sizeof state_, " bytes; got ", state.numel());
    std::memcpy(&state_, state.data(), sizeof state_);
  }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
    auto state = at::empty({static_cast<std::int64_t>(sizeof state_)}, at::kByte);
    std::memcpy(state.mutable_data_ptr(), &state_, sizeof state_);
    return state.getIntrusivePtr();
  }
  DeviceGenerator* clone_impl() const override {
    auto* const copy = new DeviceGenerator(device_.index());
    copy->state_ = state_;
    return copy;
  }

  RandomState take(std::int64_t count) {
    const std::lock_guard lock(mutex_);
    const auto now = state_;
    state_.drawn += static_cast<std::uint64_t>(count);
    return now;
  }

 private:
  RandomState state_;
};

}  // namespace

at::Generator make_device_generator(c10::DeviceIndex device) {
  return at::make_generator<DeviceGenerator>(device);
}

// A process may see one device and know it by the number of its rank.
const at::Generator& default_generator(c10::DeviceIndex device) {
  static auto* const all = new std::map<c10::DeviceIndex, at::Generator>;
  const std::lock_guard lock(device_mutex());
  auto& generator = (*all)[std::max<c10::DeviceIndex>(device, 0)];
  if (!generator.defined()) generator = make_device_generator(std::max<c10::DeviceIndex>(device, 0));
  return generator;
}

Value random_state_of(const at::Generator& generator, std::int64_t count, c10::DeviceIndex device) {
  const auto now = static_cast<DeviceGenerator*>(generator.unsafeGetGeneratorImpl())->take(count);
  auto state = at::empty({2}, at::kLong);
  std::memcpy(state.mutable_data_ptr(), &now, sizeof now);
  return host_value(state, device);
}

Value next_random_state(const std::optional<at::Generator>& generator, c10::DeviceIndex device) {
  const auto& used = generator && generator->defined() ? *generator : default_generator(device);
  TORCH_CHECK(used.device().type() == c10::kXLA, "expected a generator of an XLA device; got one of ",
              used.device());
  auto* const capture = current_capture();
  return capture != nullptr ? capture->random_state(used) : random_state_of(used, 1, device);
}

}  // namespace lockstep::xla
