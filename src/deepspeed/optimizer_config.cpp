// Keys of optimizer.params, for each optimizer.type.
#include <lockstep/deepspeed/optimizer_config.h>

#include <array>

#include <lockstep/base/option_codec.h>

namespace lockstep::deepspeed {
namespace {

constexpr std::string_view kOneBit =
    "DeepSpeed 0.19 has removed the 1-bit optimizers; use Adam, AdamW or Lamb";
constexpr std::string_view kMup = "mup is not supported";

using OptimizerChoice = Choice<Optimizer>;

OptimizerChoice unavailable(std::string_view name, std::string_view why) {
  return {name, NoOptimizer{}, "", why};
}

void describe_decay(OptionVisitor& v, AutoOr<double>& weight_decay) {
  v.field("weight_decay", weight_decay, "Weight decay: factor of the weights, times lr", at_least(0));
}

void describe_state_type(OptionVisitor& v, bool& fp32_optimizer_states) {
  v.field("fp32_optimizer_states", fp32_optimizer_states,
          "Offloaded states are fp32 whatever the parameters");
}

void describe_moments(OptionVisitor& v, AutoOr<Betas>& betas, AutoOr<double>& eps) {
  v.field("betas", betas, "Decay of the running means of gradient and square");
  v.field("eps", eps, "Added to the root of the second moment", at_least(0));
}

void describe_lr(OptionVisitor& v, AutoOr<double>& lr) { v.field("lr", lr, "Learning rate", at_least(0)); }

template <class Options>
void describe_adam(OptionVisitor& v, Options& o) {
  describe_lr(v, o.lr);
  describe_moments(v, o.betas, o.eps);
  describe_decay(v, o.weight_decay);
  v.field("bias_correction", o.bias_correction, "Correct the means for their start at zero");
  v.field("amsgrad", o.amsgrad, "Not supported: only false");
  v.field("adam_w_mode", o.adam_w_mode, "Decoupled weight decay; AdamW always has it");
  v.field("torch_adam", o.torch_adam, "PyTorch's defaults instead of DeepSpeed's");
  describe_state_type(v, o.fp32_optimizer_states);
}

}  // namespace

void describe(OptionVisitor& v, Adam& o) { describe_adam(v, o); }
void describe(OptionVisitor& v, AdamW& o) { describe_adam(v, o); }

void describe(OptionVisitor& v, Adagrad& o) {
  describe_lr(v, o.lr);
  v.field("eps", o.eps, "Added to the root of the sum of squares", at_least(0));
  describe_decay(v, o.weight_decay);
  v.field("lr_decay", o.lr_decay, "How lr falls with the steps", at_least(0));
  v.field("initial_accumulator_value", o.initial_accumulator_value, "Start of the sum of squares",
          at_least(0));
  v.field("amsgrad", o.amsgrad, "Not supported: only false");
  describe_state_type(v, o.fp32_optimizer_states);
}

void describe(OptionVisitor& v, Lion& o) {
  describe_lr(v, o.lr);
  v.field("betas", o.betas, "Decay of the update's mean and of the momentum");
  describe_decay(v, o.weight_decay);
  describe_state_type(v, o.fp32_optimizer_states);
}

void describe(OptionVisitor& v, Lamb& o) {
  describe_lr(v, o.lr);
  describe_moments(v, o.betas, o.eps);
  describe_decay(v, o.weight_decay);
  v.field("bias_correction", o.bias_correction, "Correct the means for their start at zero");
  v.field("eps_inside_sqrt", o.eps_inside_sqrt, "Add eps under the root instead of to it");
  v.field("max_coeff", o.max_coeff, "Largest trust ratio", more_than(0));
  v.field("min_coeff", o.min_coeff, "Smallest trust ratio", at_least(0));
  v.field("amsgrad", o.amsgrad, "Not supported: only false");
}

void describe(OptionVisitor& v, Sgd& o) {
  describe_lr(v, o.lr);
  v.field("momentum", o.momentum, "Share of the previous update in the next one", at_least(0));
  v.field("dampening", o.dampening, "Share of each gradient that does not enter the momentum");
  describe_decay(v, o.weight_decay);
  v.field("nesterov", o.nesterov, "Nesterov momentum; needs momentum and no dampening");
  v.field("maximize", o.maximize, "Maximize the loss instead of minimizing it");
}

void describe(OptionVisitor& v, Muon& o) {
  v.field("lr", o.lr, "Learning rate of both kinds of parameters", at_least(0));
  v.field("momentum", o.momentum, "Share of the previous update in the next one", between(0, 1));
  describe_moments(v, o.betas, o.eps);
  describe_decay(v, o.weight_decay);
  v.field("muon_lr", o.muon_lr, "Learning rate of Muon's parameters", at_least(0));
  v.field("adam_lr", o.adam_lr, "Learning rate of Adam's parameters", at_least(0));
  v.field("ns_method", o.ns_method, "How matrices are made orthogonal");
}

std::span<const OptimizerChoice> optimizer_choices() {
  static const std::array rows{
      OptimizerChoice{"none", NoOptimizer{}, "the program's own"},
      OptimizerChoice{"Adam", Adam{}, "Adam, decay decoupled unless adam_w_mode is false"},
      OptimizerChoice{"AdamW", AdamW{}, "Adam with decoupled decay"},
      OptimizerChoice{"Adagrad", Adagrad{}, "sums of squares"},
      OptimizerChoice{"Lion", Lion{}, "sign of a momentum"},
      OptimizerChoice{"Lamb", Lamb{}, "Adam with a trust ratio for each layer"},
      OptimizerChoice{"SGD", Sgd{}, "gradient descent with momentum"},
      OptimizerChoice{"Muon", Muon{}, "orthogonal updates for matrices, Adam for the rest"},
      unavailable("OneBitAdam", kOneBit),
      unavailable("ZeroOneAdam", kOneBit),
      unavailable("OneBitLamb", kOneBit),
      unavailable("MuAdam", kMup),
      unavailable("MuAdamW", kMup),
      unavailable("MuSGD", kMup),
  };
  return rows;
}

}  // namespace lockstep::deepspeed

namespace lockstep {

using deepspeed::Betas;

Expected<Betas> OptionType<Betas>::parse(std::string_view text) {
  std::vector<double> betas;
  for (const auto& item : detail::items_of({.text = std::string(text)})) {
    const auto beta = OptionType<double>::parse(item.text);
    if (!beta || *beta < 0.0 || *beta >= 1.0) return Unexpected{accepted()};
    betas.push_back(*beta);
  }
  if (betas.size() != 2) return Unexpected{accepted()};
  return Betas{betas[0], betas[1]};
}

std::string OptionType<Betas>::print(const Betas& value) {
  return "[" + OptionType<double>::print(value.beta1) + ", " + OptionType<double>::print(value.beta2) + "]";
}

std::string OptionType<Betas>::accepted() { return "two numbers in [0, 1)"; }
std::string OptionType<Betas>::type() { return "betas"; }

}  // namespace lockstep
