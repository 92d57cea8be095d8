// What to optimise with: aggregates with torch.optim's names and defaults.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

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

/// Limited-memory BFGS; as torch.optim.LBFGS. Liu, Nocedal: Mathematical Programming 45 (1989). Evaluates the
/// loss itself, several times for a step. All parameters have one element type.
struct LBFGS {
  double lr = 1;                     ///< learning rate, >= 0
  int max_iter = 20;                 ///< iterations in a step, >= 1
  std::optional<int> max_eval = {};  ///< evaluations of the loss in a step, >= 1; none: 5/4 of max_iter
  double tolerance_grad = 1e-7;      ///< >= 0: a largest gradient of that ends the step
  double tolerance_change = 1e-9;    ///< >= 0: a smaller change of loss or parameters ends the step
  int history_size = 100;            ///< updates remembered, >= 1; each takes the parameters' memory twice
  LineSearch line_search_fn = LineSearch::kNone;
};

}  // namespace lockstep
