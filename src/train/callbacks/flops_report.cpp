#include "train/callbacks/flops_report.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <utility>

#include <lockstep/base/atomic_file.h>
#include <lockstep/train/module.h>

#include "base/format.h"
#include "base/number_locale.h"
#include "loggers/logger_files.h"

namespace lockstep::detail {
namespace {

using Module = FlopCounter::ModuleWork;

constexpr double kSecondsPerNanosecond = 1e-9;

// `%g` of a number that is rounded to two digits.
std::string rounded(double number) {
  const NumbersWithPoint scope;
  char text[64];
  std::snprintf(text, sizeof text, "%g", std::round(number * 100) / 100);
  return text;
}

// `1.23 G`, a unit to follow.
std::string scaled(double number) {
  constexpr std::pair<double, const char*> kScales[] = {{1e12, "T"}, {1e9, "G"}, {1e6, "M"},
                                                        {1e3, "K"},  {1, ""},    {1e-3, "m"}};
  for (const auto& [scale, letter] : kScales) {
    if (number >= scale || (number == 0 && scale == 1)) return rounded(number / scale) + " " + letter;
  }
  return rounded(number * 1e6) + " u";
}

// A number of parameters: billions are B, and no unit follows.
std::string parameters_text(std::int64_t parameters) {
  auto text = scaled(static_cast<double>(parameters));
  if (text.back() == 'G') text.back() = 'B';
  if (text.back() == ' ') text.pop_back();
  return text;
}

double seconds_of(const Module& module) {
  return static_cast<double>(module.work.time.count()) * kSecondsPerNanosecond;
}

double rate(double flops, double seconds) { return seconds > 0 ? flops / seconds : 0; }

std::string share(double part, double whole) { return rounded(whole > 0 ? 100 * part / whole : 0) + "%"; }

void add_line(std::string& page, std::string label, const std::string& value) {
  label.resize(std::max<std::size_t>(label.size(), 70), ' ');
  page += label + "  " + value + "\n";
}

std::string summary(const ProfiledBatch& batch, double recompute_factor) {
  const auto& model = batch.modules.front();
  const double flops = model.work.flops(), backward_factor = 2 + recompute_factor;
  const double forward = batch.forward.count(), backward = batch.backward.count();
  const double iteration = forward + backward + batch.update.count();
  const auto times = [](double factor) { return rounded(factor) + " * fwd flops per GPU / "; };
  std::string page;
  add_line(page, "world size: ", std::to_string(batch.world_size));
  add_line(page, "data parallel size: ", std::to_string(batch.world_size));
  add_line(page, "model parallel size: ", "1");
  add_line(page, "batch size per GPU: ", std::to_string(batch.batch_size));
  add_line(page, "params per GPU: ", parameters_text(model.parameters));
  add_line(page, "params of model = params per GPU * mp_size: ", parameters_text(model.parameters));
  add_line(page, "fwd MACs per GPU: ", scaled(model.work.macs) + "MACs");
  add_line(page, "fwd flops per GPU: ", scaled(flops));
  add_line(page, "fwd flops of model = fwd flops per GPU * mp_size: ", scaled(flops));
  add_line(page, "fwd latency: ", scaled(forward) + "s");
  add_line(page,
           "fwd FLOPS per GPU = fwd flops per GPU / fwd latency: ", scaled(rate(flops, forward)) + "FLOPS");
  add_line(page, "bwd latency: ", scaled(backward) + "s");
  add_line(page, "bwd FLOPS per GPU = " + times(backward_factor) + "bwd latency: ",
           scaled(rate(backward_factor * flops, backward)) + "FLOPS");
  add_line(page, "fwd+bwd FLOPS per GPU = " + times(backward_factor + 1) + "(fwd+bwd latency): ",
           scaled(rate((backward_factor + 1) * flops, forward + backward)) + "FLOPS");
  add_line(page, "step latency: ", scaled(batch.update.count()) + "s");
  add_line(page, "iter latency: ", scaled(iteration) + "s");
  add_line(page, "FLOPS per GPU = " + times(backward_factor + 1) + "iter latency: ",
           scaled(rate((backward_factor + 1) * flops, iteration)) + "FLOPS");
  const auto samples = static_cast<double>(batch.batch_size) * batch.world_size;
  add_line(page, "samples/second: ", rounded(rate(samples, iteration)));
  return page;
}

std::size_t depth_of(const Module& module) {
  if (module.path.empty()) return 0;
  return 1 + static_cast<std::size_t>(std::ranges::count(module.path, '.'));
}

// All modules of one type at one depth.
struct Kind {
  std::int64_t parameters = 0;
  double macs = 0;
  double seconds = 0;
};

using Kinds = std::map<std::string, Kind>;

// The largest ones, as Python prints a dict.
template <class Value, class Text>
std::string largest(const Kinds& kinds, std::int64_t count, Value Kind::*value, const Text& text) {
  std::vector<const Kinds::value_type*> sorted;
  for (const auto& kind : kinds) sorted.push_back(&kind);
  std::ranges::stable_sort(sorted, std::ranges::greater(),
                           [value](const auto* kind) { return kind->second.*value; });
  std::vector<std::string> texts;
  for (const auto* kind : sorted) {
    if (static_cast<std::int64_t>(texts.size()) >= count) break;
    texts.push_back("'" + kind->first + "': '" + text(kind->second.*value) + "'");
  }
  return "{" + lockstep::joined(texts) + "}";
}

std::string aggregated(const std::vector<Module>& modules, const deepspeed::FlopsProfiler& options) {
  std::vector<Kinds> by_depth;
  for (const auto& module : modules) {
    const auto depth = depth_of(module);
    if (by_depth.size() <= depth) by_depth.resize(depth + 1);
    auto& kind = by_depth[depth][module.type];
    kind.parameters += module.parameters;
    kind.macs += module.work.macs;
    kind.seconds += seconds_of(module);
  }
  std::string page = "Top " + std::to_string(options.top_modules) +
                     " modules in terms of params, MACs or fwd latency at different model depths:\n";
  for (std::size_t depth = 0; depth < by_depth.size(); ++depth) {
    if (options.module_depth >= 0 && static_cast<std::int64_t>(depth) >= options.module_depth) break;
    const auto& kinds = by_depth[depth];
    const auto count = options.top_modules;
    page += "depth " + std::to_string(depth) + ":\n    params      - " +
            largest(kinds, count, &Kind::parameters, &parameters_text) + "\n    MACs        - " +
            largest(kinds, count, &Kind::macs, [](double macs) { return scaled(macs) + "MACs"; }) +
            "\n    fwd latency - " +
            largest(kinds, count, &Kind::seconds, [](double seconds) { return scaled(seconds) + "s"; }) +
            "\n";
  }
  return page;
}

std::string work_text(const Module& module, const Module& model) {
  const double seconds = seconds_of(module);
  return parameters_text(module.parameters) + " = " +
         share(static_cast<double>(module.parameters), static_cast<double>(model.parameters)) + " Params, " +
         scaled(module.work.macs) + "MACs = " + share(module.work.macs, model.work.macs) + " MACs, " +
         scaled(seconds) + "s = " + share(seconds, seconds_of(model)) + " latency, " +
         scaled(rate(module.work.flops(), seconds)) + "FLOPS";
}

bool is_part(const Module& part, const Module& whole) {
  return whole.path.empty() ? !part.path.empty() : part.path.starts_with(whole.path + ".");
}

// Module `at` and its parts, which follow it; returns the place behind them. As PyTorch prints modules.
std::size_t add_tree(std::string& page, const std::vector<Module>& modules, std::size_t at,
                     const std::string& margin) {
  const auto& module = modules[at];
  const auto name = module.path.substr(module.path.rfind('.') + 1);
  const auto work = work_text(module, modules.front());
  page += margin + (module.path.empty() ? "" : "(" + name + "): ") + module.type + "(";
  auto next = at + 1;
  const bool has_parts = next < modules.size() && is_part(modules[next], module);
  page += has_parts ? "\n" + margin + "  " + work + "\n" : work;
  while (next < modules.size() && is_part(modules[next], module))
    next = add_tree(page, modules, next, margin + "  ");
  page += has_parts ? margin + ")\n" : ")\n";
  return next;
}

}  // namespace

std::string flops_page(const ProfiledBatch& batch, const deepspeed::FlopsProfiler& options) {
  std::string page =
      "\n-------------------------- DeepSpeed Flops Profiler --------------------------\n"
      "Profile Summary at step " +
      std::to_string(batch.step) + ":\n" + summary(batch, options.recompute_fwd_factor) +
      "\n----------------------------- Aggregated Profile per GPU -----------------------------\n" +
      aggregated(batch.modules, options);
  if (options.detailed) {
    page +=
        "\n------------------------------ Detailed Profile per GPU ------------------------------\n"
        "Of each module: parameters, MACs, and the time of its operators in forward, with their shares of "
        "the\n"
        "model's; then operations per second. An operator without parameters counts for the module around "
        "the\n"
        "parameters before and after it.\n\n";
    add_tree(page, batch.modules, 0, "");
  }
  return page + "------------------------------------------------------------------------------";
}

FlopsReport::FlopsReport(deepspeed::FlopsProfiler options) : options_(std::move(options)) {}

void FlopsReport::begin_run(std::int64_t done) {
  is_done_ = !options_.enabled || done > options_.profile_step;
}

void FlopsReport::begin(StepContext& step) {
  if (is_done_ || step.global_step() < options_.profile_step) return;
  batch_ = {.step = step.global_step() + 1, .world_size = step.world_size(), .batch_size = step.batch_size()};
  counter_.emplace(step.module());
}

void FlopsReport::end_forward() {
  if (counter_) batch_.modules = counter_->modules();
  counter_.reset();
}

void FlopsReport::end(const StepContext& step, const PhaseClock::Times& times) {
  counter_.reset();
  if (is_done_ || batch_.modules.empty() || step.global_step() < batch_.step) return;
  is_done_ = true;
  give(step, times);
}

void FlopsReport::give(const TrainContext& context, const PhaseClock::Times& times) {
  batch_.forward = times.of(StepPhase::kForward);
  batch_.backward = times.of(StepPhase::kBackward);
  batch_.update = times.of(StepPhase::kStep);
  const auto page = flops_page(std::exchange(batch_, {}), options_);
  if (!options_.output_file) return context.print(page);
  const auto& file = *options_.output_file;
  write_or_warn(file, [&] {
    if (file.has_parent_path()) create_folders(file.parent_path());
    write_file_atomically(file, page + "\n");
  });
}

}  // namespace lockstep::detail
