#include "sim/generator.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <atomic>
#include <cstring>

namespace lockstep::sim {
namespace {

class DeviceGenerator final : public c10::GeneratorImpl {
 public:
  explicit DeviceGenerator(int device)
      : GeneratorImpl(c10::Device(kDeviceType, static_cast<c10::DeviceIndex>(device)),
                      c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)) {}

  void set_current_seed(std::uint64_t seed) override { state_ = {.seed = seed}; }
  std::uint64_t current_seed() const override { return state_.seed; }
  std::uint64_t seed() override {
    set_current_seed(c10::detail::getNonDeterministicRandom());
    return state_.seed;
  }
  void set_offset(std::uint64_t offset) override { state_.offset = offset; }
  std::uint64_t get_offset() const override { return state_.offset; }
  void set_state(const c10::TensorImpl& state) override {
    TORCH_CHECK(state.numel() == sizeof state_, "sim: expected a state of ", sizeof state_, " bytes; got ",
                state.numel());
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
  RandomState next() {
    const std::lock_guard lock(mutex_);
    ++state_.offset;
    return state_;
  }

 private:
  RandomState state_{.seed = c10::default_rng_seed_val};
};

}  // namespace

const at::Generator& default_generator(int device) {
  static const auto* const all = [] {
    auto* const made = new std::array<at::Generator, kMaxDevices>;
    for (int i = 0; i < kMaxDevices; ++i) (*made)[i] = make_device_generator(i);
    return made;
  }();
  return (*all)[device];
}

at::Generator make_device_generator(int device) { return at::make_generator<DeviceGenerator>(device); }

RandomState next_state(const at::Generator& generator) {
  return static_cast<DeviceGenerator*>(generator.unsafeGetGeneratorImpl())->next();
}

at::Generator host_generator(const RandomState& state) {
  constexpr std::uint64_t kSpread = 0x9e3779b97f4a7c15;
  return at::make_generator<at::CPUGeneratorImpl>(state.seed * kSpread + state.offset);
}

}  // namespace lockstep::sim
