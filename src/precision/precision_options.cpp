// The precisions that ship with lockstep, by their options, and what all of them have in common.
#include <lockstep/precision/precision_options.h>

#include <array>
#include <string>

#include <lockstep/base/error.h>
#include <lockstep/precision/grad_scaler.h>
#include <lockstep/precision/precision.h>
#include <lockstep/torch.h>

#include "base/job_log.h"

namespace lockstep {

Precision::~Precision() = default;

void Precision::set_grad_scaler(const GradScalerOptions& options) {
  scaler_ = std::make_shared<GradScaler>(options);
}

StateTree Precision::state() const { return scaler_ ? scaler_->state() : StateTree(); }

void Precision::load_state(const StateTree& state) {
  if (scaler_) scaler_->load_state(state);
}

namespace {

// Bf16Mixed: torch.autocast with bfloat16. No scaler: bfloat16 has float32's range.
class Bf16MixedPrecision final : public Precision {
 public:
  std::string_view name() const override { return "bf16-mixed"; }
  bool converts_inputs() const override { return false; }
  at::ScalarType compute_dtype() const override { return at::kBFloat16; }
  ForwardScope forward_scope() const override { return ForwardScope(compute_dtype()); }
};

// Fp16Mixed: torch.autocast with float16, and a scaler that keeps gradients within its range.
class Fp16MixedPrecision final : public Precision {
 public:
  explicit Fp16MixedPrecision(const GradScalerOptions& scaler) { set_grad_scaler(scaler); }

  std::string_view name() const override { return "16-mixed"; }
  bool converts_inputs() const override { return false; }
  at::ScalarType compute_dtype() const override { return at::kHalf; }
  ForwardScope forward_scope() const override { return ForwardScope(compute_dtype()); }
  std::string_view state_key() const override { return "MixedPrecision"; }
};

// Fp32: everything as the model has it.
class Fp32Precision final : public Precision {
 public:
  std::string_view name() const override { return "32-true"; }
  bool converts_inputs() const override { return false; }
};

// Everything in one element type: "64-true", "bf16-true", "16-true".
class TruePrecision final : public Precision {
 public:
  TruePrecision(std::string_view name, at::ScalarType dtype) : name_(name), dtype_(dtype) {}

  std::string_view name() const override { return name_; }
  ForwardScope forward_scope() const override { return ForwardScope::of_new_tensors(dtype_); }
  at::ScalarType init_dtype() const override { return dtype_; }
  void convert_module(torch::nn::Module& module) const override;
  at::Tensor convert_input(const at::Tensor& input) const override;

 private:
  std::string_view name_;
  at::ScalarType dtype_;
};

// In place: optimizers and whoever else holds the tensor see the new one.
void convert(at::Tensor& tensor, at::ScalarType dtype) {
  if (at::isFloatingType(tensor.scalar_type())) tensor.set_data(tensor.detach().to(dtype));
}

// torch::nn::Module::to() would convert integers too, such as a BatchNorm's count of batches.
void TruePrecision::convert_module(torch::nn::Module& module) const {
  for (auto& parameter : module.parameters()) {
    auto gradient = std::exchange(parameter.mutable_grad(), {});
    convert(parameter, dtype_);
    if (gradient.defined()) parameter.mutable_grad() = gradient.to(dtype_);
  }
  for (auto& buffer : module.buffers()) convert(buffer, dtype_);
}

at::Tensor TruePrecision::convert_input(const at::Tensor& input) const {
  return at::isFloatingType(input.scalar_type()) ? input.to(dtype_) : input;
}

using PrecisionRow = Choice<PrecisionOptions>;

constexpr std::string_view kNotBuilt = "known but not built yet; docs/status.md of the sources says what is";

PrecisionRow not_built(std::string_view name) { return {name, Fp32{}, "not built yet", kNotBuilt}; }

void note_old_name(std::string_view old, std::string_view name) {
  if (old.empty()) return;
  detail::log_info_of_job("precision \"" + std::string(old) + "\" is an old name: write \"" +
                          std::string(name) + "\"");
}

template <class... Arguments>
std::shared_ptr<Precision> make_true(Arguments... arguments) {
  return std::make_shared<TruePrecision>(arguments...);
}

std::shared_ptr<Precision> make(const Fp32&) { return std::make_shared<Fp32Precision>(); }
std::shared_ptr<Precision> make(const Fp64&) { return make_true("64-true", at::kDouble); }
std::shared_ptr<Precision> make(const Fp16True&) { return make_true("16-true", at::kHalf); }
std::shared_ptr<Precision> make(const Bf16True&) { return make_true("bf16-true", at::kBFloat16); }

std::shared_ptr<Precision> make(const Bf16Mixed& bf16) {
  note_old_name(bf16.given_as, "bf16-mixed");
  return std::make_shared<Bf16MixedPrecision>();
}

std::shared_ptr<Precision> make(const Fp16Mixed& fp16) {
  note_old_name(fp16.given_as, "16-mixed");
  return std::make_shared<Fp16MixedPrecision>(fp16.scaler);
}

std::shared_ptr<Precision> make(const std::shared_ptr<Precision>& own) {
  if (own) return own;
  throw ConfigError("precision", {.what = "precision", .expected = "a Precision", .got = "a null pointer"});
}

}  // namespace

void describe(OptionVisitor& visitor, Fp16Mixed& options) { describe(visitor, options.scaler); }

std::span<const PrecisionRow> precision_choices() {
  static const std::array rows{
      PrecisionRow{"32-true", Fp32{}, "float32 throughout"},
      PrecisionRow{"32", Fp32{}, "32-true"},
      PrecisionRow{"bf16-mixed", Bf16Mixed{},
                   "autocast to bfloat16 in the forward pass, all that is kept in float32"},
      PrecisionRow{"bf16", Bf16Mixed{.given_as = "bf16"}, "bf16-mixed, by its old name"},
      PrecisionRow{"16-mixed", Fp16Mixed{},
                   "autocast to float16, with a scaler of losses; else as bf16-mixed"},
      PrecisionRow{"16", Fp16Mixed{.given_as = "16"}, "16-mixed, by its old name"},
      PrecisionRow{"64-true", Fp64{}, "float64 throughout"},
      PrecisionRow{"64", Fp64{}, "64-true"},
      PrecisionRow{"16-true", Fp16True{}, "float16 throughout"},
      PrecisionRow{"bf16-true", Bf16True{}, "bfloat16 throughout"},
      not_built("transformer-engine"),
      not_built("transformer-engine-float16"),
  };
  return rows;
}

PrecisionOptions::PrecisionOptions(std::string_view name) { pick(name, precision_choices()); }

std::shared_ptr<Precision> make_precision(const PrecisionOptions& options) {
  return std::visit([](const auto& held) { return make(held); }, options);
}

}  // namespace lockstep
