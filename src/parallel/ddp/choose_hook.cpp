#include "parallel/ddp/choose_hook.h"

namespace lockstep::detail {
namespace {

CommHook built_in(const Ddp& options, const std::shared_ptr<PowerSgdState>& power_sgd) {
  switch (options.ddp_comm_hook) {
    case DdpCommHook::kAllreduce:
      return allreduce_hook();
    case DdpCommHook::kFp16Compress:
      return fp16_compress_hook();
    case DdpCommHook::kBf16Compress:
      return bf16_compress_hook();
    case DdpCommHook::kPowerSgd:
      return power_sgd_hook(power_sgd);
    case DdpCommHook::kNoop:
      return noop_hook();
  }
  return allreduce_hook();
}

template <class Enum>
std::string name_of(const EnumOption<Enum>& value) {
  return OptionType<Enum>::print(value);
}

}  // namespace

std::shared_ptr<PowerSgdState> make_power_sgd_state(const Ddp& options) {
  if (options.comm_hook || options.ddp_comm_hook != DdpCommHook::kPowerSgd) return nullptr;
  return std::make_shared<PowerSgdState>(options.ddp_comm_state);
}

CommHook make_comm_hook(const Ddp& options, const std::shared_ptr<PowerSgdState>& power_sgd) {
  auto hook = options.comm_hook ? options.comm_hook : built_in(options, power_sgd);
  switch (options.ddp_comm_wrapper) {
    case DdpCommWrapper::kNone:
      return hook;
    case DdpCommWrapper::kFp16Compress:
      return fp16_compress_wrapper(std::move(hook));
    case DdpCommWrapper::kBf16Compress:
      return bf16_compress_wrapper(std::move(hook));
  }
  return hook;
}

std::string name_of_comm_hook(const Ddp& options) {
  const auto hook = options.comm_hook ? "custom" : name_of(options.ddp_comm_hook);
  if (options.ddp_comm_wrapper == DdpCommWrapper::kNone) return hook;
  return name_of(options.ddp_comm_wrapper) + "(" + hook + ")";
}

}  // namespace lockstep::detail
