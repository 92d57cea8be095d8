// gpu_case steps: what a step of a small network costs as it is and as a graph, and what the sharded engine
// costs a rank that is alone.
#include <algorithm>
#include <chrono>
#include <ctime>
#include <functional>
#include <string>

#include <lockstep/lockstep.h>
#include <lockstep/torch.h>

#include "gpu_case.h"

namespace lockstep::detail {
namespace {

struct StepCost {
  double seconds = 0;      // of the GPU and the host, per step
  double cpu_seconds = 0;  // of this thread, per step
};

double cpu_seconds_now() {
  std::timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// The best of some rounds.
StepCost cost_of(int steps, at::Device device, const std::function<void()>& step) {
  StepCost best{.seconds = 1e9, .cpu_seconds = 1e9};
  for (int round = 0; round < 5; ++round) {
    for (int i = 0; i < 10; ++i) step();
    synchronize(device);
    const auto begin = std::chrono::steady_clock::now();
    const double cpu_begin = cpu_seconds_now();
    for (int i = 0; i < steps; ++i) step();
    const double cpu = cpu_seconds_now() - cpu_begin;
    synchronize(device);
    const double all = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    best.seconds = std::min(best.seconds, all / steps);
    best.cpu_seconds = std::min(best.cpu_seconds, cpu / steps);
  }
  return best;
}

torch::nn::Sequential network(int layers, std::int64_t width) {
  torch::nn::Sequential net;
  for (int i = 0; i < layers; ++i) {
    net->push_back(torch::nn::Linear(width, width));
    net->push_back(torch::nn::ReLU());
  }
  return net;
}

struct Measured {
  StepCost cost;
  std::string refusal;  // why no step was captured
};

// A step of training of `layers` layers, captured or not.
Measured measured(const StrategyOptions& strategy, int layers, std::int64_t width, bool is_captured,
                  int steps) {
  Fabric fabric({.accelerator = "gpu", .strategy = strategy, .devices = 1, .cuda_graphs = is_captured});
  fabric.launch();
  torch::manual_seed(1);
  auto [model, optimizer] = fabric.setup(network(layers, width), AdamW{.lr = 1e-3});
  const Example batch{.data = fabric.to_device(torch::randn({64, width})),
                      .target = fabric.to_device(torch::randn({64, width}))};
  auto step = fabric.capture<Example>([&](const Example& example) {
    optimizer->zero_grad();
    const auto loss = at::mse_loss(model->forward(example.data), example.target);
    fabric.backward(loss);
    optimizer->step();
    return loss;
  });
  const auto cost = cost_of(steps, fabric.device(), [&] { step(batch); });
  return {.cost = cost, .refusal = is_captured ? step.refusal() : ""};
}

}  // namespace

void measure_steps() {
  const auto eager = measured(SingleDevice{}, 3, 128, false, 200);
  const auto graph = measured(SingleDevice{}, 3, 128, true, 200);
  report("step of a small network", true,
         {{"us", 1e6 * eager.cost.seconds}, {"us_of_cpu", 1e6 * eager.cost.cpu_seconds}});
  report("step of a small network as a graph", graph.refusal.empty(),
         {{"us", 1e6 * graph.cost.seconds},
          {"us_of_cpu", 1e6 * graph.cost.cpu_seconds},
          {"why_not_captured", graph.refusal}});
  const auto plain = measured(SingleDevice{}, 12, 2048, false, 50);
  const auto sharded = measured(Fsdp{}, 12, 2048, false, 50);
  report("sharded engine of a rank that is alone", true,
         {{"us", 1e6 * sharded.cost.seconds},
          {"us_of_a_plain_step", 1e6 * plain.cost.seconds},
          {"over_a_plain_step", sharded.cost.seconds / plain.cost.seconds - 1}});
}

}  // namespace lockstep::detail
