// Section "optimizer" of DeepSpeed's configuration: one struct for each type, with the type's parameters.
//
// Names and defaults are those of DeepSpeed 0.19's FusedAdam, FusedLamb, ... and of torch.optim, which are
// not always those of lockstep's own optimizers: weight_decay of AdamW is 0 here.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>

#include <lockstep/base/option_visitor.h>
#include <lockstep/deepspeed/auto_or.h>

namespace lockstep::deepspeed {

/// Decay of the running means of gradient and square, each in [0, 1).
struct Betas {
  double beta1 = 0.9;    ///< decay of the mean of gradients
  double beta2 = 0.999;  ///< decay of the mean of their squares

  bool operator==(const Betas&) const = default;
};

/// No section: the program's own optimizer.
struct NoOptimizer {};

/// Adam; decay is decoupled (AdamW's) unless adam_w_mode is false.
struct Adam {
  AutoOr<double> lr = 1e-3;           ///< learning rate
  AutoOr<Betas> betas = Betas{};      ///< decays of the means
  AutoOr<double> eps = 1e-8;          ///< added to the root of the second mean
  AutoOr<double> weight_decay = 0.0;  ///< with torch_adam and decoupled decay, and not given: 0.01
  bool bias_correction = true;
  bool amsgrad = false;  ///< DeepSpeed has none either: true is refused
  bool adam_w_mode = true;
  bool torch_adam = false;
  bool fp32_optimizer_states = true;  ///< the state is float32 whatever the parameters are
};

/// Adam whose decay is decoupled whatever adam_w_mode says.
struct AdamW {
  AutoOr<double> lr = 1e-3;           ///< learning rate
  AutoOr<Betas> betas = Betas{};      ///< decays of the means
  AutoOr<double> eps = 1e-8;          ///< added to the root of the second mean
  AutoOr<double> weight_decay = 0.0;  ///< with torch_adam, and not given: 0.01
  bool bias_correction = true;
  bool amsgrad = false;  ///< DeepSpeed has none either: true is refused
  bool adam_w_mode = true;
  bool torch_adam = false;
  bool fp32_optimizer_states = true;  ///< the state is float32 whatever the parameters are
};

/// Adagrad.
struct Adagrad {
  AutoOr<double> lr = 1e-2;  ///< learning rate
  AutoOr<double> eps = 1e-10;
  AutoOr<double> weight_decay = 0.0;  ///< decay of weights
  double lr_decay = 0.0;
  double initial_accumulator_value = 0.0;
  bool amsgrad = false;               ///< true is refused
  bool fp32_optimizer_states = true;  ///< the state is float32 whatever the parameters are
};

/// Lion.
struct Lion {
  AutoOr<double> lr = 1e-3;  ///< learning rate
  AutoOr<Betas> betas = Betas{};
  AutoOr<double> weight_decay = 0.0;  ///< decay of weights, decoupled
  bool fp32_optimizer_states = true;  ///< the state is float32 whatever the parameters are
};

/// LAMB.
struct Lamb {
  AutoOr<double> lr = 1e-3;           ///< learning rate
  AutoOr<Betas> betas = Betas{};      ///< decays of the means
  AutoOr<double> eps = 1e-8;          ///< added to the root of the second mean
  AutoOr<double> weight_decay = 0.0;  ///< decay of weights
  bool bias_correction = true;
  bool eps_inside_sqrt = false;
  double max_coeff = 10.0;
  double min_coeff = 0.01;
  bool amsgrad = false;  ///< true is refused
};

/// Stochastic gradient descent.
struct Sgd {
  AutoOr<double> lr = 1e-3;  ///< learning rate
  double momentum = 0.0;
  double dampening = 0.0;
  AutoOr<double> weight_decay = 0.0;  ///< decay of weights
  bool nesterov = false;
  bool maximize = false;
};

/// Muon for the parameters it is meant for, Adam for the others.
struct Muon {
  AutoOr<std::optional<double>> lr = {};  ///< none: 0.02 for Muon, 3e-4 for Adam
  double momentum = 0.95;
  AutoOr<Betas> betas = Betas{0.9, 0.95};  ///< of Adam
  AutoOr<double> eps = 1e-10;              ///< of Adam
  AutoOr<double> weight_decay = 0.0;       ///< decay of weights, decoupled
  std::optional<double> muon_lr = {};      ///< none: lr
  std::optional<double> adam_lr = {};      ///< none: lr
  std::string ns_method = "gram";
};

/// An optimizer of the file, or none.
using Optimizer = std::variant<NoOptimizer, Adam, AdamW, Adagrad, Lion, Lamb, Sgd, Muon>;

LOCKSTEP_API void describe(OptionVisitor& v, Adam& o);
LOCKSTEP_API void describe(OptionVisitor& v, AdamW& o);
LOCKSTEP_API void describe(OptionVisitor& v, Adagrad& o);
LOCKSTEP_API void describe(OptionVisitor& v, Lion& o);
LOCKSTEP_API void describe(OptionVisitor& v, Lamb& o);
LOCKSTEP_API void describe(OptionVisitor& v, Sgd& o);
LOCKSTEP_API void describe(OptionVisitor& v, Muon& o);

/// Every value of optimizer.type that is known, including those that are not supported.
LOCKSTEP_API std::span<const Choice<Optimizer>> optimizer_choices();

}  // namespace lockstep::deepspeed

namespace lockstep {

/// `[0.9, 0.999]`
template <>
struct LOCKSTEP_API OptionType<deepspeed::Betas> {
  static Expected<deepspeed::Betas> parse(std::string_view text);
  static std::string print(const deepspeed::Betas& value);
  static std::string accepted();
  static std::string type();
  /// It is written as a list.
  static constexpr bool kIsList = true;
};

}  // namespace lockstep
