// What to optimise with: aggregates with torch.optim's names and defaults.
#pragma once

#include <array>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <lockstep/base/export.h>
#include <lockstep/base/option_type.h>

namespace lockstep {

/// Settings for some of the parameters, chosen by name. Fields that are left out keep the optimizer's
/// own value. A field the optimizer does not have (momentum for AdamW) is refused.
struct ParameterGroup {
  std::string pattern;            ///< glob over whole parameter names: `*.bias`, `encoder.*`, `?.weight`
  std::optional<double> lr = {};  ///< learning rate, >= 0
  std::optional<double> weight_decay = {};          ///< >= 0
  std::optional<double> momentum = {};              ///< SGD, Muon: >= 0
  std::optional<std::array<double, 2>> betas = {};  ///< Adam, AdamW, Lion, Lamb: each in [0, 1)
};

/// Stochastic gradient descent with momentum; as torch.optim.SGD.
struct SGD {
  double lr = 1e-3;           ///< learning rate, >= 0
  double momentum = 0.0;      ///< >= 0; 0 keeps no state
  double dampening = 0.0;     ///< the momentum buffer takes (1 - dampening) of each gradient after the first
  double weight_decay = 0.0;  ///< >= 0, added to the gradient
  bool nesterov = false;      ///< needs momentum > 0 and dampening 0
  bool maximize = false;      ///< climb instead of descend
  std::vector<ParameterGroup> groups = {};  ///< first match wins; what matches none forms the last group
};

/// Adam with L2 weight decay (added to the gradient); as torch.optim.Adam. Kingma, Ba: arXiv 1412.6980.
struct Adam {
  double lr = 1e-3;  ///< learning rate, >= 0
  std::array<double, 2> betas = {0.9,
                                 0.999};  ///< decay of the running means of gradient and square, in [0, 1)
  double eps = 1e-8;                      ///< >= 0, added to the root of the second moment
  double weight_decay = 0.0;              ///< >= 0
  bool bias_correction = true;            ///< correct the means for their start at zero, as torch.optim does
  bool maximize = false;                  ///< climb instead of descend
  std::vector<ParameterGroup> groups = {};  ///< first match wins; what matches none forms the last group
};

/// Adam with decoupled weight decay; as torch.optim.AdamW. Loshchilov, Hutter: arXiv 1711.05101.
struct AdamW {
  double lr = 1e-3;  ///< learning rate, >= 0
  std::array<double, 2> betas = {0.9,
                                 0.999};  ///< decay of the running means of gradient and square, in [0, 1)
  double eps = 1e-8;                      ///< >= 0, added to the root of the second moment
  double weight_decay = 1e-2;             ///< >= 0; parameters shrink by lr * weight_decay each step
  bool bias_correction = true;            ///< correct the means for their start at zero, as torch.optim does
  bool maximize = false;                  ///< climb instead of descend
  std::vector<ParameterGroup> groups = {};  ///< first match wins; what matches none forms the last group
};

/// How LBFGS chooses the length of a step.
enum class LineSearch {
  kNone,        ///< lr is the length
  kStrongWolfe  ///< torch's "strong_wolfe"
};

LOCKSTEP_API std::span<const OptionName<LineSearch>> option_names(LineSearch);

/// Limited-memory BFGS; as torch.optim.LBFGS. Liu, Nocedal: Mathematical Programming 45 (1989). Evaluates the
/// loss itself, several times for a step. All parameters have one element type.
struct LBFGS {
  double lr = 1;                     ///< learning rate, >= 0
  int max_iter = 20;                 ///< iterations in a step, >= 1
  std::optional<int> max_eval = {};  ///< evaluations of the loss in a step, >= 1; none: 5/4 of max_iter
  double tolerance_grad = 1e-7;      ///< >= 0: a largest gradient of that ends the step
  double tolerance_change = 1e-9;    ///< >= 0: a smaller change of loss or parameters ends the step
  int history_size = 100;            ///< updates remembered, >= 1; each takes the parameters' memory twice
  EnumOption<LineSearch> line_search_fn = LineSearch::kNone;  ///< how the length of a step is found
};

// Adagrad's settings.

/// Steps that shrink with the sum of all squared gradients; as torch.optim.Adagrad. Duchi, Hazan, Singer:
/// JMLR 12 (2011).
struct Adagrad {
  double lr = 1e-2;                         ///< learning rate, >= 0
  double lr_decay = 0.0;                    ///< >= 0: lr is divided by 1 + lr_decay * (steps done before)
  double weight_decay = 0.0;                ///< >= 0, added to the gradient
  double initial_accumulator_value = 0.0;   ///< >= 0, where the sums start
  double eps = 1e-10;                       ///< >= 0, added to the root of the sum
  bool maximize = false;                    ///< climb instead of descend
  std::vector<ParameterGroup> groups = {};  ///< first match wins; what matches none forms the last group
};

// Lion's settings.

/// Steps of one size, in the direction of the sign of a momentum; as deepspeed.ops.lion, with its defaults.
/// Chen et al.: arXiv 2302.06675, who take betas (0.9, 0.99). Half of AdamW's state, and a learning rate 3 to
/// 10 times smaller. Where the momentum is exactly 0 nothing moves, as in the paper; DeepSpeed's kernels move
/// by lr there, on the CPU down and on the GPU up.
struct Lion {
  double lr = 1e-3;  ///< learning rate, >= 0: how far every element moves
  std::array<double, 2> betas = {
      0.9, 0.999};            ///< decay in the mean that gives the sign, and of the mean that is kept; [0, 1)
  double weight_decay = 0.0;  ///< >= 0; parameters shrink by lr * weight_decay each step
  std::vector<ParameterGroup> groups = {};  ///< first match wins; what matches none forms the last group
};

// Lamb's settings.

/// Adam whose step is scaled, for each parameter tensor, by the trust ratio |parameter| / |update|: for large
/// batches. As DeepSpeed's FusedLamb. You et al.: arXiv 1904.00962. Takes pieces, see PieceExchange.
struct Lamb {
  double lr = 1e-3;  ///< learning rate, >= 0
  std::array<double, 2> betas = {0.9,
                                 0.999};    ///< decay of the running means of gradient and square, in [0, 1)
  double eps = 1e-8;                        ///< >= 0, added to the root of the second moment
  double weight_decay = 0.0;                ///< >= 0, times the parameter, added to the update
  bool bias_correction = true;              ///< correct the means for their start at zero
  bool eps_inside_sqrt = false;             ///< add eps under the root instead of to it
  double max_coeff = 10.0;                  ///< largest trust ratio, >= min_coeff
  double min_coeff = 0.01;                  ///< smallest trust ratio, >= 0
  std::vector<ParameterGroup> groups = {};  ///< first match wins; what matches none forms the last group
};

// Muon's settings.

/// How Muon's learning rate follows the shape of a matrix of `rows` x `columns`.
enum class AdjustLr {
  kOriginal,      ///< times sqrt(max(1, rows / columns)); torch's "original"
  kMatchRmsAdamw  ///< times 0.2 sqrt(max(rows, columns)); torch's "match_rms_adamw"
};

LOCKSTEP_API std::span<const OptionName<AdjustLr>> option_names(AdjustLr);

/// Momentum whose update of a matrix is made nearly orthogonal by Newton-Schulz iterations, in bfloat16; as
/// torch.optim.Muon. Jordan et al.: kellerjordan.github.io/posts/muon. For hidden matrices: parameters that
/// do not have two dimensions, and those whose name contains "embed" or "lm_head" (DeepSpeed's rule), get
/// AdamW with the settings that start with adam_. A group of parameters that has both kinds becomes two,
/// the matrices first. Takes pieces, see PieceExchange. add_param_group() is refused.
struct Muon {
  double lr = 1e-3;           ///< learning rate of the matrices, >= 0
  double weight_decay = 0.1;  ///< of all parameters, >= 0; they shrink by their lr * weight_decay each step
  double momentum = 0.95;     ///< in [0, 1]: share of the momentum that is kept
  bool nesterov = true;       ///< look ahead by one more share of the gradient
  std::array<double, 3> ns_coefficients = {3.4445, -4.7750, 2.0315};  ///< of the iteration's polynomial
  double eps = 1e-7;  ///< >= 0, the least norm that an update is divided by
  int ns_steps = 5;   ///< iterations, 1 to 99
  EnumOption<AdjustLr> adjust_lr_fn = AdjustLr::kOriginal;  ///< how the shape enters the learning rate
  double adam_lr = 3e-4;                                    ///< learning rate of the other parameters, >= 0
  std::array<double, 2> adam_betas = {0.9, 0.95};           ///< as AdamW's betas
  double adam_eps = 1e-10;                                  ///< as AdamW's eps
  bool momentum_in_memory = false;  ///< where state is on disk, all but the momentum of the matrices is
  std::vector<ParameterGroup> groups = {};  ///< first match wins; what matches none forms the last group.
                                            ///< lr is for both kinds, momentum for matrices, betas for others
};

}  // namespace lockstep
