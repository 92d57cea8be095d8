// Limited-memory BFGS. State belongs to all parameters together and is kept under the first one's name.
#include <algorithm>
#include <array>
#include <cmath>
#include <deque>
#include <functional>
#include <optional>
#include <utility>

#include <ATen/core/Tensor.h>

#include <lockstep/optim/optimizer.h>
#include <lockstep/torch.h>

#include "optim/make_optimizer.h"

namespace lockstep::detail {
namespace {

// The loss along a direction.
struct LinePoint {
  double length = 0;  ///< of the step from the start
  double loss = 0;
  double slope = 0;          ///< of the loss, along the direction
  at::Tensor gradient = {};  ///< flat
};

struct LineSearchResult {
  LinePoint point;
  int evaluations = 0;
};

constexpr double kSufficientDecrease = 1e-4;
constexpr double kCurvature = 0.9;
constexpr int kMaxIterations = 25;

struct Bounds {
  double low;
  double high;
};

Bounds between(const LinePoint& a, const LinePoint& b) {
  return {std::min(a.length, b.length), std::max(a.length, b.length)};
}

// Where the cubic through both points, with their slopes, is lowest.
double cubic_minimum(const LinePoint& a, const LinePoint& b, const Bounds& bounds) {
  const auto& left = a.length <= b.length ? a : b;
  const auto& right = a.length <= b.length ? b : a;
  const double d1 = a.slope + b.slope - 3 * (a.loss - b.loss) / (a.length - b.length);
  const double square = d1 * d1 - a.slope * b.slope;
  if (!(square >= 0)) return (bounds.low + bounds.high) / 2;
  const double d2 = std::sqrt(square);
  const double part = (right.slope + d2 - d1) / (right.slope - left.slope + 2 * d2);
  return std::min(std::max(right.length - (right.length - left.length) * part, bounds.low), bounds.high);
}

class Search {
 public:
  Search(const LinePoint& start, double direction_max, double tolerance_change,
         const std::function<LinePoint(double)>& evaluate)
      : start_(start),
        direction_max_(direction_max),
        tolerance_change_(tolerance_change),
        evaluate_(evaluate) {}

  LineSearchResult run(double first_length) {
    if (const auto found = find_bracket(first_length)) return {*found, evaluations_};
    return {narrow(), evaluations_};
  }

 private:
  LinePoint at(double length) {
    ++evaluations_;
    return evaluate_(length);
  }

  bool lowers_too_little(const LinePoint& point) const {
    return point.loss > start_.loss + kSufficientDecrease * point.length * start_.slope;
  }
  bool is_flat(const LinePoint& point) const { return std::abs(point.slope) <= -kCurvature * start_.slope; }

  // Longer and longer steps; a point that meets the conditions, or none and a bracket around one.
  std::optional<LinePoint> find_bracket(double length) {
    auto previous = start_;
    auto point = at(length);
    for (; iterations_ < kMaxIterations; ++iterations_) {
      const bool rises = lowers_too_little(point) || (iterations_ > 1 && point.loss >= previous.loss);
      if (!rises && is_flat(point)) return point;
      if (rises || point.slope >= 0) {
        bracket_ = {previous, point};
        return std::nullopt;
      }
      const double next = cubic_minimum(
          previous, point, {point.length + 0.01 * (point.length - previous.length), point.length * 10});
      previous = std::exchange(point, at(next));
    }
    bracket_ = {start_, point};
    return std::nullopt;
  }

  // A length within the bracket; not too near to its ends twice in a row.
  double next_length() {
    const auto bounds = between(bracket_[0], bracket_[1]);
    const double length = cubic_minimum(bracket_[0], bracket_[1], bounds);
    const double margin = 0.1 * (bounds.high - bounds.low);
    if (std::min(bounds.high - length, length - bounds.low) >= margin) {
      stalled_ = false;
      return length;
    }
    if (!std::exchange(stalled_, true) && length < bounds.high && length > bounds.low) return length;
    stalled_ = false;
    return std::abs(length - bounds.high) < std::abs(length - bounds.low) ? bounds.high - margin
                                                                          : bounds.low + margin;
  }

  LinePoint narrow() {
    std::size_t low = bracket_[0].loss <= bracket_[1].loss ? 0 : 1;
    while (iterations_ < kMaxIterations) {
      const auto bounds = between(bracket_[0], bracket_[1]);
      if ((bounds.high - bounds.low) * direction_max_ < tolerance_change_) break;
      const auto point = at(next_length());
      ++iterations_;
      const std::size_t high = 1 - low;
      if (lowers_too_little(point) || point.loss >= bracket_[low].loss) {
        bracket_[high] = point;
        low = bracket_[0].loss <= bracket_[1].loss ? 0 : 1;
        continue;
      }
      if (is_flat(point)) return point;
      if (point.slope * (bracket_[high].length - bracket_[low].length) >= 0) bracket_[high] = bracket_[low];
      bracket_[low] = point;
    }
    return bracket_[low];
  }

  const LinePoint& start_;
  double direction_max_;
  double tolerance_change_;
  const std::function<LinePoint(double)>& evaluate_;
  std::array<LinePoint, 2> bracket_;
  bool stalled_ = false;
  int iterations_ = 0;
  int evaluations_ = 0;
};

// Brackets a step that lowers the loss enough and flattens its slope enough, then narrows the bracket by
// cubic interpolation; at most 25 evaluations. `start` is the point of length 0, `evaluate` gives the point
// of a length, `direction_max` is the direction's largest element. As torch's strong_wolfe; Nocedal, Wright:
// Numerical Optimization, algorithms 3.5 and 3.6.
LineSearchResult strong_wolfe(const LinePoint& start, double first_length, double direction_max,
                              double tolerance_change,
                              const std::function<LinePoint(double length)>& evaluate) {
  return Search(start, direction_max, tolerance_change, evaluate).run(first_length);
}

// How parameters and gradients changed in one iteration, both flat.
struct Curvature {
  at::Tensor gradient;
  at::Tensor parameters;
  double inverse_curvature = 0;  // 1 / (gradient . parameters); 0 where not computed yet
};

// What is kept between steps beside tensors, in one float64 tensor that state() can alias.
enum Kept : std::int64_t { kIterations, kEvaluations, kLength, kScale, kLoss, kKept };

class LbfgsOptimizer final : public Optimizer {
 public:
  LbfgsOptimizer(std::vector<NamedParameter> parameters, std::vector<Group> groups, const LBFGS& options)
      : Optimizer(std::move(parameters), std::move(groups)),
        options_(options),
        kept_(torch::zeros({kKept}, torch::kDouble)) {
    const auto dtype = this->parameters().front().tensor.scalar_type();
    for (const auto& [name, tensor] : this->parameters()) {
      size_ += tensor.numel();
      if (tensor.scalar_type() != dtype)
        refuse("LBFGS over parameters of several element types", c10::str(dtype) + " as the first one has",
               c10::str(tensor.scalar_type()) + " of " + name);
    }
  }

  std::string_view name() const override { return "LBFGS"; }
  bool is_elementwise() const override { return false; }
  bool needs_closure() const override { return true; }

  void step(double) override {
    refuse("LBFGS evaluates the loss itself", "a closure", "a step without one",
           "call step() with a closure");
  }

  double step_with(const Closure& closure) override;

  std::vector<OptimizerState> state() override {
    const auto& owner = parameters().front().name;
    std::vector<OptimizerState> all{{owner, "step", kept_}};
    if (direction_.defined()) {
      all.push_back({owner, "d", direction_});
      all.push_back({owner, "prev_flat_grad", previous_gradient_});
    }
    for (std::size_t i = 0; i < history_.size(); ++i) {
      all.push_back({owner, "old_dirs." + std::to_string(i), history_[i].gradient});
      all.push_back({owner, "old_stps." + std::to_string(i), history_[i].parameters});
    }
    return all;
  }

 protected:
  void prepare_state(std::span<const OptimizerState> saved) override {
    const auto count =
        std::ranges::count_if(saved, [](const auto& entry) { return entry.kind.starts_with("old_dirs."); });
    const bool has_direction =
        std::ranges::any_of(saved, [](const auto& entry) { return entry.kind == "d"; });
    direction_ = has_direction ? flat_zeros() : at::Tensor();
    previous_gradient_ = has_direction ? flat_zeros() : at::Tensor();
    history_.clear();
    for (std::ptrdiff_t i = 0; i < count; ++i) history_.push_back({flat_zeros(), flat_zeros()});
  }

 private:
  double& kept(Kept which) { return kept_.data_ptr<double>()[which]; }
  at::Tensor flat_zeros() const { return torch::zeros({size_}, parameters().front().tensor.options()); }

  at::Tensor flat_gradient() const {
    std::vector<at::Tensor> parts;
    for (const auto& [name, tensor] : parameters()) {
      const auto& gradient = tensor.grad();
      parts.push_back(gradient.defined() ? gradient.reshape(-1).to(tensor.scalar_type())
                                         : torch::zeros({tensor.numel()}, tensor.options()));
    }
    return torch::cat(parts);
  }

  // Moves every parameter along the direction.
  void move(double length) {
    std::int64_t offset = 0;
    for (const auto& [name, tensor] : parameters()) {
      const auto part = direction_.narrow(0, offset, tensor.numel());
      at::Tensor(tensor).add_(part.view(tensor.sizes()), length);
      offset += tensor.numel();
    }
  }

  std::vector<at::Tensor> copies() const {
    std::vector<at::Tensor> all;
    for (const auto& [name, tensor] : parameters()) all.push_back(tensor.clone());
    return all;
  }

  void restore(const std::vector<at::Tensor>& saved) {
    for (std::size_t i = 0; i < saved.size(); ++i) at::Tensor(parameters()[i].tensor).copy_(saved[i]);
  }

  void remember(const at::Tensor& gradient);
  void find_direction(const at::Tensor& gradient);
  LinePoint evaluate(const Closure& closure, double length);
  LineSearchResult search(const Closure& closure, const LinePoint& start, double length);

  LBFGS options_;
  std::int64_t size_ = 0;
  at::Tensor kept_;
  at::Tensor direction_;
  at::Tensor previous_gradient_;
  std::deque<Curvature> history_;  // the oldest first
};

double dot_product(const at::Tensor& a, const at::Tensor& b) { return a.dot(b).item<double>(); }
double largest(const at::Tensor& flat) { return flat.abs().max().item<double>(); }

void LbfgsOptimizer::remember(const at::Tensor& gradient) {
  Curvature update{gradient - previous_gradient_, direction_ * kept(kLength)};
  const double curvature = dot_product(update.gradient, update.parameters);
  if (curvature <= 1e-10) return;
  if (std::ssize(history_) == options_.history_size) history_.pop_front();
  kept(kScale) = curvature / dot_product(update.gradient, update.gradient);
  history_.push_back(std::move(update));
}

// The two loops over the history that apply the inverse Hessian to the gradient.
void LbfgsOptimizer::find_direction(const at::Tensor& gradient) {
  for (auto& [y, s, inverse_curvature] : history_) {
    if (inverse_curvature == 0) inverse_curvature = 1 / dot_product(y, s);
  }
  std::vector<double> coefficients(history_.size());
  auto q = gradient.neg();
  for (std::size_t i = history_.size(); i-- > 0;) {
    coefficients[i] = dot_product(history_[i].parameters, q) * history_[i].inverse_curvature;
    q.add_(history_[i].gradient, -coefficients[i]);
  }
  direction_ = q.mul_(kept(kScale));
  for (std::size_t i = 0; i < history_.size(); ++i) {
    const double back = dot_product(history_[i].gradient, direction_) * history_[i].inverse_curvature;
    direction_.add_(history_[i].parameters, coefficients[i] - back);
  }
}

// The point where the parameters are now.
LinePoint LbfgsOptimizer::evaluate(const Closure& closure, double length) {
  LinePoint point{.length = length};
  {
    const torch::AutoGradMode grad_mode(true);
    point.loss = closure();
  }
  point.gradient = flat_gradient();
  point.slope = dot_product(point.gradient, direction_);
  return point;
}

LineSearchResult LbfgsOptimizer::search(const Closure& closure, const LinePoint& start, double length) {
  if (options_.line_search_fn == LineSearch::kNone) {
    move(length);
    return {{.length = length, .loss = start.loss, .gradient = start.gradient}, 0};
  }
  const auto origin = copies();
  auto found = strong_wolfe(start, length, largest(direction_), options_.tolerance_change, [&](double tried) {
    move(tried);
    auto point = evaluate(closure, tried);
    restore(origin);
    return point;
  });
  move(found.point.length);
  return found;
}

double LbfgsOptimizer::step_with(const Closure& closure) {
  const at::NoGradGuard no_grad;
  const int max_evaluations = options_.max_eval.value_or(options_.max_iter * 5 / 4);
  if (!direction_.defined()) {
    direction_ = flat_zeros();
    previous_gradient_ = flat_zeros();
  }
  LinePoint now = evaluate(closure, 0);
  const double first_loss = now.loss;
  int evaluations = 1;
  kept(kEvaluations) += 1;
  const double lr = groups().front().lr;
  for (int iteration = 1; largest(now.gradient) > options_.tolerance_grad; ++iteration) {
    const bool is_first = kept(kIterations)++ == 0;
    if (is_first) {
      kept(kScale) = 1;
    } else {
      remember(now.gradient);
    }
    find_direction(now.gradient);
    previous_gradient_ = now.gradient;
    kept(kLoss) = now.loss;
    kept(kLength) = is_first ? std::min(1.0, 1 / now.gradient.abs().sum().item<double>()) * lr : lr;
    now.length = 0;  // a line of its own begins here
    now.slope = dot_product(now.gradient, direction_);
    if (now.slope > -options_.tolerance_change) break;
    auto [point, searched] = search(closure, now, kept(kLength));
    kept(kLength) = point.length;
    const bool is_last = iteration == options_.max_iter;
    // Without a search the loss is not known where the step ends; of the last one nobody asks.
    if (searched == 0 && !is_last) {
      point = evaluate(closure, point.length);
      searched = 1;
    }
    const double change = std::abs(point.loss - kept(kLoss));
    now = std::move(point);
    evaluations += searched;
    kept(kEvaluations) += searched;
    if (is_last || evaluations >= max_evaluations) break;
    if (largest(direction_) * std::abs(kept(kLength)) <= options_.tolerance_change) break;
    if (change < options_.tolerance_change) break;
  }
  return first_loss;
}

}  // namespace

std::unique_ptr<Optimizer> make_optimizer(const LBFGS& options, std::vector<NamedParameter> parameters) {
  Optimizer::Group all{.pattern = "", .lr = options.lr, .initial_lr = options.lr};
  for (const auto& parameter : parameters) all.parameters.push_back(parameter.name);
  return std::make_unique<LbfgsOptimizer>(std::move(parameters), std::vector{all}, options);
}

}  // namespace lockstep::detail

namespace lockstep {

std::span<const OptionName<LineSearch>> option_names(LineSearch) {
  static constexpr OptionName<LineSearch> kNames[] = {{"none", LineSearch::kNone},
                                                      {"strong_wolfe", LineSearch::kStrongWolfe}};
  return kNames;
}

}  // namespace lockstep
