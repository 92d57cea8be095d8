// Steps of lockstep's optimizers (optim/device_operators.h): one operator for all parameters with settings in
// common. Numbers that depend on the step's count are computed on the device, in float64.
#include <array>

#include "xla/arithmetic.h"
#include "xla/lowering.h"

namespace lockstep::xla {
namespace {

const Shape kNumber{{}, at::kDouble};

// What all steps have in common.
struct Step {
  explicit Step(Call& made_of)
      : call(made_of),
        parameters(call.tensors("parameters")),
        gradients(call.tensors("gradients")),
        first(call.tensors("first")),
        second(call.tensors("second")),
        steps(call.tensors("steps")) {}

  Named setting(std::string_view name) const { return call.operand(name, at::kDouble, {}); }
  Named lr() const { return call.is_array("lr_tensor") ? setting("lr_tensor") : setting("lr"); }

  // Of the i-th parameter, in its type, scaled.
  Named gradient(std::size_t i) const {
    const Arithmetic all(call.emit, parameters[i].shape);
    auto gradient = call.emit.convert(gradients[i], parameters[i].shape.dtype);
    if (call.is_array("grad_scale")) gradient = all.mul(gradient, all.spread(call.tensor("grad_scale")));
    return call.has("maximize") && call.flag("maximize") ? call.emit.apply("negate", {gradient}) : gradient;
  }

  // The same, with the parameter's decay in it, of optimizers whose decay goes through their moments.
  Named decayed_gradient(std::size_t i) const {
    const auto own = gradient(i);
    if (!has_decay()) return own;
    const Arithmetic all(call.emit, own.shape);
    return all.add(own, all.mul(all.spread(setting("weight_decay")), parameters[i]));
  }

  // The i-th parameter's count of steps, with this one.
  Named count(std::size_t i) const {
    return call.emit.apply("add", {steps[i], call.emit.constant(1.0, steps[i].shape)});
  }

  // Of all parameters.
  std::vector<Named> counts() const {
    return renewed(steps, {}, [](const Arithmetic& all, const Named& before, const Named&) {
      return all.add(before, all.number(1.0));
    });
  }

  // State as `compute` makes it of what was there, and of gradients: all at once where it is an arena.
  template <class Compute>
  std::vector<Named> renewed(const std::vector<Named>& before, const std::vector<Named>& gradients_of,
                             const Compute& compute) const {
    if (const auto arena = Arena::of(before)) {
      const auto gradient = gradients_of.empty() ? Named{} : arena->flat_of(call.emit, gradients_of);
      const Arithmetic all(call.emit, arena->shape());
      return arena->parts(call.emit, compute(all, arena->flat(call.emit), gradient));
    }
    std::vector<Named> made;
    for (std::size_t i = 0; i < before.size(); ++i) {
      const Arithmetic all(call.emit, before[i].shape);
      made.push_back(compute(all, before[i], gradients_of.empty() ? Named{} : gradients_of[i]));
    }
    return made;
  }

  // The i-th parameter as decay leaves it that goes by the learning rate alone.
  Named decayed_parameter(std::size_t i) const {
    if (!has_decay()) return parameters[i];
    const Arithmetic one(call.emit, kNumber), all(call.emit, parameters[i].shape);
    const auto kept = one.sub(one.number(1.0), one.mul(lr(), setting("weight_decay")));
    return all.mul(parameters[i], all.spread(kept));
  }

  // `made`, or what was there where the step is left out.
  Named unless_left_out(const Named& made, const Named& before) const {
    if (!call.is_array("found_inf")) return made;
    const auto is_left_out = call.emit.convert(call.tensor("found_inf"), at::kBool);
    return call.emit.select(call.emit.broadcast(is_left_out, made.shape.sizes), before, made);
  }

  // The same of arrays that may lie in an arena.
  std::vector<Named> unless_left_out(const std::vector<Named>& made, const std::vector<Named>& before) const {
    if (!call.is_array("found_inf")) return made;
    const auto arena = Arena::of(made), earlier = Arena::of(before);
    if (arena && earlier && arena->matches(*earlier))
      return arena->parts(call.emit, unless_left_out(arena->flat(call.emit), earlier->flat(call.emit)));
    std::vector<Named> kept;
    for (std::size_t i = 0; i < made.size(); ++i) kept.push_back(unless_left_out(made[i], before[i]));
    return kept;
  }

  // State that was made array by array as one array, where it lies in an arena.
  std::vector<Named> together(const std::vector<Named>& made, const std::vector<Named>& before) const {
    const auto arena = Arena::of(before);
    if (!arena || made.size() != before.size() || made.front().is_of_arena) return made;
    return arena->parts(call.emit, arena->flat_of(call.emit, made));
  }

  bool has_decay() const { return call.is_array("weight_decay") || call.number("weight_decay") != 0.0; }

  Call& call;
  std::vector<Named> parameters, gradients, first, second, steps;
};

// The results are in the order of the arguments that the row says are written.
struct Written {
  std::vector<Named> parameters = {}, first = {}, second = {}, steps = {};

  std::vector<Named> all(const Step& step) const {
    std::vector<Named> made = parameters;
    for (const auto& part : {step.together(first, step.first), step.together(second, step.second),
                             step.together(steps, step.steps)})
      made.insert(made.end(), part.begin(), part.end());
    return made;
  }
};

// One number of each parameter as one array, for what is computed of them to be one operation.
Named stacked(Emitter& emit, const std::vector<Named>& numbers) {
  if (const auto arena = Arena::of(numbers); arena && numbers.size() > 1) {
    const auto apart = arena->begin_of(1);
    bool is_even = true;
    for (std::size_t i = 0; i < numbers.size(); ++i)
      is_even = is_even && arena->begin_of(i) == static_cast<std::int64_t>(i) * apart;
    const auto end = arena->begin_of(numbers.size() - 1) + 1;
    if (is_even) return emit.slice(arena->flat(emit), 0, end, apart);
  }
  std::vector<Named> rows;
  for (const auto& number : numbers) rows.push_back(emit.reshape(number, {1}));
  return emit.concatenate(rows, 0);
}

// Of the i-th parameter.
Named number_of(Emitter& emit, const Named& numbers, std::size_t i) {
  const auto begin = static_cast<std::int64_t>(i);
  return emit.reshape(emit.slice(numbers, begin, begin + 1), {});
}

struct AdamNumbers {
  Named step_size, over_root_of_second;
};

// lr / (1 - beta1^n) and 1 / sqrt(1 - beta2^n) in steps n.
AdamNumbers adam_numbers(const Step& step, const Named& counts) {
  const Arithmetic all(step.call.emit, {counts.shape.sizes, at::kDouble});
  const auto lr = all.spread(step.lr());
  if (!step.call.flag("bias_correction")) return {lr, all.number(1.0)};
  const auto n = step.call.emit.convert(counts, at::kDouble);
  const auto correction = [&](std::string_view beta) {
    return all.sub(all.number(1.0), all.pow(all.spread(step.setting(beta)), n));
  };
  return {all.div(lr, correction("beta1")), all.div(all.number(1.0), all.sqrt(correction("beta2")))};
}

std::vector<Named> adam_step(Call& call) {
  const Step step(call);
  const double beta1 = call.number("beta1"), beta2 = call.number("beta2");
  const bool is_decoupled = call.flag("decoupled");
  std::vector<Named> gradients;
  for (std::size_t i = 0; i < step.parameters.size(); ++i)
    gradients.push_back(is_decoupled ? step.gradient(i) : step.decayed_gradient(i));
  const auto first =
      step.renewed(step.first, gradients, [&](const auto& all, const auto& old, const auto& gradient) {
        return all.add(all.mul(old, beta1), all.mul(gradient, 1.0 - beta1));
      });
  const auto second =
      step.renewed(step.second, gradients, [&](const auto& all, const auto& old, const auto& gradient) {
        return all.add(all.mul(old, beta2), all.mul(all.mul(gradient, gradient), 1.0 - beta2));
      });
  const auto counts = step.counts();
  const auto numbers = adam_numbers(step, stacked(call.emit, counts));
  Written written;
  for (std::size_t i = 0; i < step.parameters.size(); ++i) {
    const auto& before = step.parameters[i];
    const Arithmetic all(call.emit, before.shape);
    const auto root =
        all.mul(all.sqrt(second[i]), all.spread(number_of(call.emit, numbers.over_root_of_second, i)));
    const auto move = all.div(first[i], all.add(root, all.number(call.number("eps"))));
    const auto length = all.spread(number_of(call.emit, numbers.step_size, i));
    const auto parameter = all.sub(is_decoupled ? step.decayed_parameter(i) : before, all.mul(move, length));
    written.parameters.push_back(step.unless_left_out(parameter, before));
  }
  written.first = step.unless_left_out(first, step.first);
  written.second = step.unless_left_out(second, step.second);
  written.steps = step.unless_left_out(counts, step.steps);
  return written.all(step);
}

// The first step's buffer is its gradient.
Named momentum_buffer(const Step& step, std::size_t i, const Named& gradient) {
  auto& call = step.call;
  const Arithmetic all(call.emit, gradient.shape);
  const auto later = all.add(all.mul(step.first[i], all.spread(step.setting("momentum"))),
                             all.mul(gradient, all.number(1.0 - call.number("dampening"))));
  const auto is_first = call.emit.compare("EQ", step.steps[i], call.emit.constant(0.0, step.steps[i].shape));
  return call.emit.select(call.emit.broadcast(is_first, gradient.shape.sizes), gradient, later);
}

std::vector<Named> sgd_step(Call& call) {
  const Step step(call);
  Written written;
  for (std::size_t i = 0; i < step.parameters.size(); ++i) {
    const auto& before = step.parameters[i];
    const Arithmetic all(call.emit, before.shape);
    const auto gradient = step.decayed_gradient(i);
    auto move = gradient;
    if (!step.first.empty()) {
      const auto buffer = momentum_buffer(step, i, gradient);
      const bool looks_ahead = call.flag("nesterov");
      move = looks_ahead ? all.add(gradient, all.mul(buffer, all.spread(step.setting("momentum")))) : buffer;
      written.first.push_back(step.unless_left_out(buffer, step.first[i]));
      written.steps.push_back(step.unless_left_out(step.count(i), step.steps[i]));
    } else if (i < step.steps.size()) {
      written.steps.push_back(step.steps[i]);
    }
    const auto parameter = all.sub(before, all.mul(move, all.spread(step.lr())));
    written.parameters.push_back(step.unless_left_out(parameter, before));
  }
  return written.all(step);
}

std::vector<Named> adagrad_step(Call& call) {
  const Step step(call);
  const Arithmetic one(call.emit, kNumber);
  Written written;
  for (std::size_t i = 0; i < step.parameters.size(); ++i) {
    const auto& before = step.parameters[i];
    const Arithmetic all(call.emit, before.shape);
    const auto gradient = step.decayed_gradient(i);
    const auto sum = all.add(step.first[i], all.mul(gradient, gradient));
    const auto taken = call.emit.convert(step.steps[i], at::kDouble);
    const auto slower = one.add(one.number(1.0), one.mul(step.setting("lr_decay"), taken));
    const auto rate = one.div(step.lr(), slower);
    const auto move = all.div(gradient, all.add(all.sqrt(sum), all.number(call.number("eps"))));
    written.parameters.push_back(
        step.unless_left_out(all.sub(before, all.mul(move, all.spread(rate))), before));
    written.first.push_back(step.unless_left_out(sum, step.first[i]));
    written.steps.push_back(step.unless_left_out(step.count(i), step.steps[i]));
  }
  return written.all(step);
}

std::vector<Named> lion_step(Call& call) {
  const Step step(call);
  const double beta1 = call.number("beta1"), beta2 = call.number("beta2");
  Written written;
  for (std::size_t i = 0; i < step.parameters.size(); ++i) {
    const auto& before = step.parameters[i];
    const Arithmetic all(call.emit, before.shape);
    const auto gradient = step.gradient(i);
    const auto blend = [&](double beta) {
      return all.add(all.mul(step.first[i], beta), all.mul(gradient, 1.0 - beta));
    };
    const auto moved =
        all.sub(step.decayed_parameter(i), all.mul(all.sign(blend(beta1)), all.spread(step.lr())));
    written.parameters.push_back(step.unless_left_out(moved, before));
    written.first.push_back(step.unless_left_out(blend(beta2), step.first[i]));
    if (i < step.steps.size()) written.steps.push_back(step.unless_left_out(step.count(i), step.steps[i]));
  }
  return written.all(step);
}

// By which Lamb moves the i-th parameter, before its trust ratio.
Named lamb_update(const Step& step, std::size_t i, const Named& first, const Named& second) {
  const auto& call = step.call;
  const Arithmetic all(call.emit, first.shape);
  const auto eps = all.number(call.number("eps"));
  const auto root =
      call.flag("eps_inside_sqrt") ? all.sqrt(all.add(second, eps)) : all.add(all.sqrt(second), eps);
  const auto update = all.div(first, root);
  if (!step.has_decay()) return update;
  return all.add(update, all.mul(all.spread(step.setting("weight_decay")), step.parameters[i]));
}

std::vector<Named> lamb_moments(Call& call) {
  const Step step(call);
  const double beta1 = call.number("beta1"), beta2 = call.number("beta2");
  Written written;
  std::vector<Named> squares;
  for (std::size_t i = 0; i < step.parameters.size(); ++i) {
    const Arithmetic all(call.emit, step.parameters[i].shape);
    const auto gradient = step.gradient(i);
    const auto first = all.add(all.mul(step.first[i], beta1), all.mul(gradient, 1.0 - beta1));
    const auto second =
        all.add(all.mul(step.second[i], beta2), all.mul(all.mul(gradient, gradient), 1.0 - beta2));
    std::vector<Named> columns;
    for (const auto& array : {step.parameters[i], lamb_update(step, i, first, second)}) {
      const auto sums = block_square_sums(call.emit, array);
      columns.push_back(call.emit.reshape(sums, {sums.shape.numel(), 1}));
    }
    squares.push_back(call.emit.concatenate(columns, 1));
    written.first.push_back(step.unless_left_out(first, step.first[i]));
    written.second.push_back(step.unless_left_out(second, step.second[i]));
    written.steps.push_back(step.unless_left_out(step.count(i), step.steps[i]));
  }
  auto made = written.all(step);
  made.push_back(call.emit.concatenate(squares, 0));
  return made;
}

Shapes lamb_squares(const Given& given) {
  std::int64_t blocks = 0;
  for (const at::Tensor& parameter : given["parameters"].toTensorVector())
    blocks += square_sum_blocks(parameter.numel());
  return {Shape{{blocks, 2}, at::kDouble}};
}

// The norm of the parameter over that of its update, from rows [begin, end) of the sums of squares.
Named trust_ratio(Call& call, std::int64_t begin, std::int64_t end) {
  const auto flat = call.emit.reshape(call.tensor("squares"), {call.tensor("squares").shape.numel()});
  const auto rows = call.emit.reshape(call.emit.slice(flat, 2 * begin, 2 * end), {end - begin, 2});
  const auto sums = call.emit.reduce("add", rows, {0});
  const auto norm = [&](std::int64_t column) {
    return call.emit.apply("sqrt", {call.emit.reshape(call.emit.slice(sums, column, column + 1), {})});
  };
  const Arithmetic one(call.emit, kNumber);
  const auto parameter = norm(0), update = norm(1), zero = one.number(0.0);
  const auto ratio = one.min(one.max(one.div(parameter, update), one.number(call.number("min_coeff"))),
                             one.number(call.number("max_coeff")));
  const auto is_of_both = call.emit.apply("and", {one.greater(parameter, zero), one.greater(update, zero)});
  return one.select(is_of_both, ratio, one.number(1.0));
}

std::vector<Named> lamb_move(Call& call) {
  const Step step(call);
  const Arithmetic one(call.emit, kNumber);
  const auto blocks = call.integers("blocks");
  Written written;
  std::int64_t begin = 0;
  for (std::size_t i = 0; i < step.parameters.size(); ++i) {
    const auto& before = step.parameters[i];
    const Arithmetic all(call.emit, before.shape);
    const auto numbers = adam_numbers(step, step.steps[i]);
    const auto length = one.mul(one.div(numbers.step_size, numbers.over_root_of_second),
                                trust_ratio(call, begin, begin + blocks[i]));
    begin += blocks[i];
    const auto update = lamb_update(step, i, step.first[i], step.second[i]);
    written.parameters.push_back(
        step.unless_left_out(all.sub(before, all.mul(update, all.spread(length))), before));
  }
  return written.all(step);
}

}  // namespace

std::span<const Row> optimizer_rows() {
  static const std::array rows{
      Row{.name = "lockstep::adagrad_step",
          .lower = &adagrad_step,
          .numbers = {"lr", "weight_decay", "lr_decay"},
          .written = {"parameters", "first", "steps"},
          .is_optimizer_step = true},
      Row{.name = "lockstep::lion_step",
          .lower = &lion_step,
          .numbers = {"lr", "weight_decay"},
          .written = {"parameters", "first", "steps"},
          .is_optimizer_step = true},
      Row{.name = "lockstep::adam_step",
          .lower = &adam_step,
          .numbers = {"lr", "weight_decay"},
          .written = {"parameters", "first", "second", "steps"},
          .is_optimizer_step = true},
      Row{.name = "lockstep::lamb_moments",
          .lower = &lamb_moments,
          .shapes = &lamb_squares,
          .numbers = {"weight_decay"},
          .written = {"first", "second", "steps"},
          .is_optimizer_step = true},
      Row{.name = "lockstep::lamb_move",
          .lower = &lamb_move,
          .numbers = {"lr", "weight_decay"},
          .written = {"parameters"},
          .is_optimizer_step = true},
      Row{.name = "lockstep::sgd_step",
          .lower = &sgd_step,
          .numbers = {"lr", "momentum", "weight_decay"},
          .written = {"parameters", "first", "steps"},
          .is_optimizer_step = true},
  };
  return rows;
}

}  // namespace lockstep::xla
