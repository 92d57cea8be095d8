// Keys of fp16, bf16, data_types, torch_autocast and amp.
#include <lockstep/deepspeed/precision_config.h>

#include <array>

namespace lockstep::deepspeed {

void describe(OptionVisitor& v, Fp16& o) {
  v.field("enabled", o.enabled, "Train in fp16");
  v.field("auto_cast", o.auto_cast, "Cast inputs to fp16");
  v.field("loss_scale", o.loss_scale, "Factor of the loss; 0: dynamic", at_least(0));
  v.field("initial_scale_power", o.initial_scale_power, "The first factor is 2 to this power",
          between(0, 127));  // larger ones are infinite in fp32
  v.field("loss_scale_window", o.loss_scale_window, "Steps without overflow before the factor doubles");
  v.field("hysteresis", o.hysteresis, "Overflows that are tolerated before the factor is halved",
          at_least(1));
  v.field("consecutive_hysteresis", o.consecutive_hysteresis,
          "Tolerate as many overflows again after each step without one");
  v.field("min_loss_scale", o.min_loss_scale, "Smallest factor");
  v.field("fp16_master_weights_and_grads", o.fp16_master_weights_and_grads,
          "No fp32 copy of weights; stages 1 to 3");
}

void describe(OptionVisitor& v, Bf16& o) {
  v.field("enabled", o.enabled, "Train in bf16");
  v.field("immediate_grad_update", o.immediate_grad_update,
          "Accumulate gradients in fp32 as they are computed");
  v.field("check_grad_overflow", o.check_grad_overflow,
          "Stages 1 and 2: skip steps whose gradients are not finite");
  v.field("bf16_master_weights_and_grads", o.bf16_master_weights_and_grads,
          "No fp32 copy of weights; stages 1 to 3");
  v.field("bf16_optimizer_states", o.bf16_optimizer_states,
          "Optimizer states in bf16; needs bf16_master_weights_and_grads");
}

void describe(OptionVisitor& v, DataTypes& o) {
  v.field("grad_accum_dtype", o.grad_accum_dtype, "Element type of gradients while they are accumulated");
  v.field("param_dtype", o.param_dtype, "Element type of parameters");
  v.field("buffer_dtype", o.buffer_dtype, "Element type of buffers");
}

void describe(OptionVisitor& v, TorchAutocast& o) {
  v.field("enabled", o.enabled, "Operators choose their type; the module is not cast");
  v.field("dtype", o.dtype, "The lower-precision element type");
  v.field("lower_precision_safe_modules", o.lower_precision_safe_modules,
          "Types of modules that may use the lower precision");
}

void describe(OptionVisitor& v, Amp& o) { v.field("enabled", o.enabled, "Apex's mixed precision"); }

std::span<const OptionName<Dtype>> option_names(Dtype) {
  static constexpr std::array<OptionName<Dtype>, 10> rows{{{"fp32", Dtype::kFp32},
                                                           {"fp16", Dtype::kFp16},
                                                           {"bf16", Dtype::kBf16},
                                                           {"float32", Dtype::kFp32},
                                                           {"float", Dtype::kFp32},
                                                           {"float16", Dtype::kFp16},
                                                           {"half", Dtype::kFp16},
                                                           {"bfloat16", Dtype::kBf16},
                                                           {"torch.float16", Dtype::kFp16},
                                                           {"torch.bfloat16", Dtype::kBf16}}};
  return rows;
}

}  // namespace lockstep::deepspeed
