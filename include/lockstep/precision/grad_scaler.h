// GradScaler: loss scaling, so that small gradients survive float16. torch.amp.GradScaler in C++.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <unordered_map>

#include <ATen/core/Tensor.h>

#include <lockstep/base/export.h>
#include <lockstep/base/options.h>
#include <lockstep/device/scalar.h>
#include <lockstep/state/state_tree.h>

namespace lockstep {

class Optimizer;

/// Names and defaults are torch.amp.GradScaler's; from hysteresis on those of DeepSpeed's loss scale,
/// switched off by default.
struct GradScalerOptions {
  double init_scale = 65536.0;          ///< what the first losses are multiplied by, > 0
  double growth_factor = 2.0;           ///< > 1
  double backoff_factor = 0.5;          ///< between 0 and 1
  std::int64_t growth_interval = 2000;  ///< updates without an overflow before the scale grows, > 0
  int hysteresis = 1;                   ///< overflows until the scale backs off, > 0
  bool consecutive_hysteresis = false;  ///< every update without an overflow refills the hysteresis, not only
                                        ///< growth
  std::int64_t growth_delay = 0;        ///< updates that growth waits longer at the beginning and after an
                                        ///< overflow, >= 0
  double min_scale = 0.0;               ///< the scale is never less, >= 0
  bool fails_at_min_scale = true;       ///< an overflow at a min_scale > 0 is an error; false: the step is
                                        ///< left out, and the scale stays
  bool dynamic = true;                  ///< false: the scale stays init_scale, also where a state is loaded
  bool enabled = true;                  ///< false: losses and gradients stay as they are, every step is taken
};

LOCKSTEP_API void describe(OptionVisitor& visitor, GradScalerOptions& options);

/// Names, values and order are torch.amp.GradScaler's:
///
///     scaler.scale(loss).backward();
///     scaler.unscale(optimizer);        // where gradients are looked at or clipped before the step
///     scaler.step(optimizer);           // left out when a gradient is infinite or NaN
///     scaler.update();                  // once all optimizers of the iteration have stepped
///
/// Not thread-safe, and not Collective: ranks whose gradients are equal decide alike, others have to agree on
/// found_inf() between unscale() and step(). On the parameters' device, until has_overflowed() has read it.
class LOCKSTEP_API GradScaler {
 public:
  /// @throws ConfigError unless init_scale > 0, growth_factor > 1, 0 < backoff_factor < 1, growth_interval >
  /// 0
  explicit GradScaler(const GradScalerOptions& options = {});

  /// Whether losses are scaled at all.
  bool is_enabled() const { return options_.enabled; }

  /// `outputs` times the scale; a scalar comes out in float32 at least.
  at::Tensor scale(const at::Tensor& outputs);

  /// Divides the gradients of `optimizer` by the scale, in place, and notes whether one is infinite or NaN.
  /// At most once before its step().
  /// @throws Error before scale(), after step(), or when called twice; for float16 gradients
  void unscale(Optimizer& optimizer);

  /// Beyond torch: in place of unscale() where somebody else divides the gradients, which are of floating
  /// point types of any size; they stay as they are. @throws as unscale()
  void check(Optimizer& optimizer);

  /// What unscale() has found: float32 without dimensions, 0 when all gradients are finite. It aliases the
  /// scaler's: writing to it decides about step(). @throws Error before unscale()
  at::Tensor found_inf(const Optimizer& optimizer);

  /// Has `max_over_ranks` replace found_inf() by its maximum over all ranks, in place, where each rank has a
  /// part of every gradient. Where no rank has any, step() refuses as where gradients are whole. A rank that
  /// has none waits for a device. Collective, as `max_over_ranks` is. @throws Error before unscale()
  void agree(const Optimizer& optimizer, const std::function<void(const at::Tensor&)>& max_over_ranks);

  /// Whether that is 1, so that step() would leave the step out. Waits for a device at the first call after
  /// unscale().
  bool has_overflowed(const Optimizer& optimizer);

  /// unscale() unless that was done, then the optimizer's step(), or `update` in its place, unless
  /// found_inf() says otherwise. Returns whether it was taken.
  /// @throws Error before scale(), when called twice before update(), or when no gradient is defined
  bool step(Optimizer& optimizer);
  /// The same with `update` in place of the optimizer's step().
  bool step(Optimizer& optimizer, const std::function<void()>& update);

  /// Beyond torch: step() that waits for no device where the optimizer can leave a step out by itself
  /// (Optimizer::leave_out_next_step_if) and the scale follows torch's rule; else as step(). Returns 1 where
  /// it was taken, 0 where not.
  Scalar step_lazily(Optimizer& optimizer, const std::function<void()>& update);

  /// Adapts the scale: times backoff_factor when a gradient was not finite since the last update(), times
  /// growth_factor after growth_interval updates without one; or sets it to `new_scale`.
  /// @throws Error before scale(), when nothing was unscaled since the last update(), or for an overflow at
  /// min_scale
  void update(std::optional<double> new_scale = std::nullopt);

  /// Beyond torch: whether the optimizer's gradients are unscaled, its step still to come.
  bool is_unscaled(const Optimizer& optimizer) const;
  /// Beyond torch: whether an optimizer has stepped since the last update().
  bool has_stepped() const;
  /// Beyond torch: drops what unscale() found, for gradients that are thrown away.
  void discard(const Optimizer& optimizer);
  /// Beyond torch: drops what unscale() found and step() did since the last update(): none of it came about.
  void discard_all() { per_optimizer_.clear(); }

  /// Beyond torch: steps since the scaler was made, those of them that were left out, and those of these
  /// since the last that was taken. The latter two wait for a device where steps were taken lazily.
  std::int64_t steps() const { return steps_; }
  /// Those of them that were left out.
  std::int64_t skipped_steps() const { return skipped_ + left_out_on_device().total; }
  /// Those of these since the last that was taken.
  std::int64_t skipped_in_a_row() const;
  /// Beyond torch: those that were left out, also before a state was loaded.
  std::int64_t total_skipped_steps() const { return total_skipped_ + left_out_on_device().total; }

  /// The scale of the next scale(); 1 when disabled. Waits for a device where it is there.
  double get_scale() const;
  /// Beyond torch: whether get_scale() waits for no device.
  bool knows_scale() const { return !scale_.defined() || scale_.is_cpu(); }
  /// What the scale is multiplied by after enough good steps.
  double get_growth_factor() const { return options_.growth_factor; }
  /// What the scale is multiplied by after a bad step.
  double get_backoff_factor() const { return options_.backoff_factor; }
  /// Good steps in a row after which the scale grows.
  std::int64_t get_growth_interval() const { return options_.growth_interval; }

  /// torch's state_dict(): scale, growth_factor, backoff_factor, growth_interval, _growth_tracker; with
  /// hysteresis also _hysteresis_left; not torch's: _skipped_steps, _dynamic. Empty when disabled.
  StateTree state() const;
  /// Takes it back, but a scale only where both are dynamic. @throws CheckpointError when it does not fit
  void load_state(const StateTree& state);

 private:
  enum class Stage { kReady, kUnscaled, kStepped };
  struct PerOptimizer {
    Stage stage = Stage::kReady;
    at::Tensor found_inf = {};
    bool has_gradients = false;
    const void* recording = nullptr;  // in which that was found
  };

  struct LeftOut {
    std::int64_t total = 0;
    std::int64_t in_a_row = 0;
  };

  void require_scale(const char* call) const;
  void require_scale_for(const Optimizer& optimizer, const char* call);
  void place_scale(at::Device device);
  at::Tensor inverse_scale(const at::TensorOptions& options) const;
  PerOptimizer& unscaled(const Optimizer& optimizer, const char* call);
  PerOptimizer& begin_step(Optimizer& optimizer);
  Scalar count_on_device(const at::Tensor& found_inf);
  LeftOut left_out_on_device() const;
  bool follows_torch() const;
  void adapt(const at::Tensor& found_inf);
  void back_off();
  void load_scale(const StateTree& state);
  PerOptimizer& begin(const Optimizer& optimizer, const char* call);
  void unscale_gradients(Optimizer& optimizer, PerOptimizer& found) const;

  GradScalerOptions options_;
  std::int64_t init_growth_tracker_ = 0;
  int hysteresis_left_ = 1;
  bool is_loaded_ = false;  // there may be gradients that another scaler's scale() began
  std::int64_t steps_ = 0, skipped_ = 0, total_skipped_ = 0, skipped_in_a_row_ = 0;
  at::Tensor left_out_ = {};        // of lazy steps, on the device: float64, in all and in a row
  at::Tensor scale_ = {};           // float32, on the device of outputs; none before the first scale()
  at::Tensor growth_tracker_ = {};  // int32: updates in a row without an overflow, and two more counts
  std::unordered_map<const Optimizer*, PerOptimizer> per_optimizer_;
};

}  // namespace lockstep
