// The sections of DeepSpeed's configuration about element types.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <lockstep/base/option_visitor.h>
#include <lockstep/deepspeed/auto_or.h>

namespace lockstep::deepspeed {

/// Element types by DeepSpeed's names.
enum class Dtype { kFp32, kFp16, kBf16 };

/// "fp16"
struct Fp16 {
  AutoOr<bool> enabled = false;
  bool auto_cast = false;
  double loss_scale = 0.0;                ///< 0: dynamic
  int initial_scale_power = 16;           ///< a dynamic scale starts at 2 to this power
  std::int64_t loss_scale_window = 1000;  ///< steps without overflow before the scale doubles
  int hysteresis = 2;                     ///< overflows that are tolerated before the scale is halved
  bool consecutive_hysteresis = false;
  std::int64_t min_loss_scale = 1;
  bool fp16_master_weights_and_grads = false;
};

/// "bf16"
struct Bf16 {
  AutoOr<bool> enabled = false;
  bool immediate_grad_update = false;
  bool check_grad_overflow = true;
  bool bf16_master_weights_and_grads = false;
  bool bf16_optimizer_states = false;
};

/// "data_types"; none: the model's
struct DataTypes {
  std::optional<Dtype> grad_accum_dtype = {};
  std::optional<Dtype> param_dtype = {};
  std::optional<Dtype> buffer_dtype = {};
};

/// "torch_autocast"
struct TorchAutocast {
  bool enabled = false;
  std::optional<Dtype> dtype = {};
  std::vector<std::string> lower_precision_safe_modules = {};
};

/// "amp": Apex, which is not supported; the section is read so that files which switch it off work.
struct Amp {
  AutoOr<bool> enabled = false;
};

LOCKSTEP_API void describe(OptionVisitor& v, Fp16& o);
LOCKSTEP_API void describe(OptionVisitor& v, Bf16& o);
LOCKSTEP_API void describe(OptionVisitor& v, DataTypes& o);
LOCKSTEP_API void describe(OptionVisitor& v, TorchAutocast& o);
LOCKSTEP_API void describe(OptionVisitor& v, Amp& o);
LOCKSTEP_API std::span<const OptionName<Dtype>> option_names(Dtype);

}  // namespace lockstep::deepspeed
