// Steps of training on a device of XLA, captured, beside the same on the CPU by LibTorch's kernels.
//
// Usage: bench_xla RESULTS [NETWORK...], with LOCKSTEP_PJRT_PLUGIN. Cases of each network: `captured`, the
// step replayed as one program; `traced`, the step recorded each time; `eager`, LibTorch with
// torch::optim::AdamW; `eager_fused`, LibTorch with our AdamW. They take turns, and the least time of the
// rounds counts. Each gets a batch of the host and ends with the loss on the host; one thread. `plugin` is
// the part of `captured` in which the plug-in runs the program or is waited for.
// Networks buffers_N: steps that change N tensors of 64 elements, which is what a program costs at least.
#include <lockstep/lockstep.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <lockstep/device/accelerator.h>
#include <lockstep/device/captured_step.h>
#include <lockstep/device/torch_device.h>

#include "device/xla_library_interface.h"
#include "gpt.h"
#include "results.h"

namespace {

namespace ls = lockstep;
namespace nn = torch::nn;
using Tensors = ls::CapturedStep::Tensors;

struct Network {
  std::shared_ptr<nn::Module> module;
  std::function<torch::Tensor(const torch::Tensor&)> forward;
  torch::Tensor inputs, targets;
};

template <class Holder>
Network network_of(Holder network, torch::Tensor inputs, torch::Tensor targets) {
  return {network.ptr(), [network](const torch::Tensor& x) mutable { return network->forward(x); }, inputs,
          targets};
}

Network mlp(std::int64_t batch, std::int64_t inputs, std::int64_t hidden, int layers) {
  nn::Sequential net;
  for (auto width = inputs; layers-- > 0; width = hidden) {
    net->push_back(nn::Linear(width, hidden));
    net->push_back(nn::ReLU());
  }
  net->push_back(nn::Linear(hidden, 10));
  return network_of(net, torch::randn({batch, inputs}), torch::randint(10, {batch}));
}

Network convnet(std::int64_t batch) {
  const nn::Sequential net(nn::Conv2d(nn::Conv2dOptions(1, 16, 3).padding(1)), nn::BatchNorm2d(16),
                           nn::ReLU(), nn::MaxPool2d(2), nn::Conv2d(nn::Conv2dOptions(16, 32, 3).padding(1)),
                           nn::BatchNorm2d(32), nn::ReLU(), nn::MaxPool2d(2), nn::Flatten(),
                           nn::Linear(32 * 7 * 7, 10));
  return network_of(net, torch::randn({batch, 1, 28, 28}), torch::randint(10, {batch}));
}

Network transformer(int layers, std::int64_t width, std::int64_t context) {
  const lm::Gpt net(
      lm::GptShape{.layers = layers, .heads = 4, .width = width, .context = context, .vocab = 256});
  return network_of(net, torch::randint(256, {8, context}), torch::randint(256, {8, context}));
}

struct Kind {
  const char* name;
  std::function<Network()> make;
  int steps;  ///< of a round
  int rounds = 5;
};

const std::vector<Kind>& kinds() {
  static const std::vector<Kind> all{
      {"mlp_s", [] { return mlp(32, 64, 128, 1); }, 50, 200},
      {"mlp_m", [] { return mlp(64, 784, 256, 2); }, 20, 50},
      {"mlp_l", [] { return mlp(256, 784, 1024, 2); }, 12},
      {"cnn", [] { return convnet(64); }, 12},
      {"lm_s", [] { return transformer(2, 64, 32); }, 10, 20},
      {"lm_m", [] { return transformer(4, 128, 64); }, 6},
      {"lm_l", [] { return transformer(4, 256, 128); }, 2},
  };
  return all;
}

// A training in one of the ways that are compared.
class Training {
 public:
  virtual ~Training() = default;
  virtual double step() = 0;
};

class Way : public Training {
 public:
  Way(const Kind& kind, torch::Device device, bool is_torchs_optimizer) : device_(device) {
    torch::manual_seed(0);
    network_ = kind.make();
    const auto module = network_.module;
    module->to(device);
    parameters_ = module->parameters();
    std::vector<ls::NamedParameter> named;
    for (const auto& item : module->named_parameters()) named.push_back({item.key(), item.value()});
    if (is_torchs_optimizer)
      torchs_ = std::make_unique<torch::optim::AdamW>(parameters_, torch::optim::AdamWOptions(1e-4));
    else
      ours_ = ls::OptimizerFactory(ls::AdamW{.lr = 1e-4}).create(std::move(named));
  }

  double step() override {
    return run({network_.inputs.to(device_), network_.targets.to(device_)})[0].item<double>();
  }

 protected:
  virtual Tensors run(const Tensors& batch) { return train(batch); }

  Tensors train(const Tensors& batch) {
    for (auto& parameter : parameters_) parameter.mutable_grad().reset();
    const auto scores = network_.forward(batch[0]);
    const auto loss = nn::functional::cross_entropy(scores.view({-1, scores.size(-1)}), batch[1].view({-1}));
    loss.backward();
    if (torchs_) torchs_->step();
    if (ours_) ours_->step();
    return {loss.detach()};
  }

 private:
  torch::Device device_;
  Network network_;
  std::vector<torch::Tensor> parameters_;
  std::unique_ptr<torch::optim::AdamW> torchs_;
  std::unique_ptr<ls::Optimizer> ours_;
};

class Captured final : public Way {
 public:
  Captured(const Kind& kind, torch::Device device)
      : Way(kind, device, false), captured_(device, [this](const Tensors& batch) { return train(batch); }) {}

 protected:
  Tensors run(const Tensors& batch) override { return captured_(batch); }

 private:
  ls::CapturedStep captured_;
};

// Nothing but what a replay costs.
class ManyBuffers final : public Training {
 public:
  explicit ManyBuffers(int count)
      : captured_(torch::Device(torch::kXLA, 0), [this](const Tensors&) {
          for (auto& tensor : tensors_) tensor.add_(1.0);
          return Tensors{};
        }) {
    const auto on_device = torch::dtype(torch::kFloat).device(torch::kXLA);
    for (int i = 0; i < count; ++i) tensors_.push_back(torch::zeros({64}, on_device));
  }

  double step() override {
    captured_({});
    ls::synchronize(torch::Device(torch::kXLA, 0));
    return 0.0;
  }

 private:
  Tensors tensors_;
  ls::CapturedStep captured_;
};

using Ways = std::map<std::string, std::unique_ptr<Training>>;

struct Rounds {
  int rounds, steps;
};

void measure(const std::string& what, const Ways& ways, Rounds rounds, const bench::Results& results) {
  for (const auto& [name, way] : ways)
    for (int i = 0; i < 6; ++i) way->step();
  const auto plugin_ns = [] { return 1e9 * ls::detail::xla_figures().at("run_seconds"); };
  std::map<std::string, double> least;
  for (int round = 0; round < rounds.rounds; ++round) {
    for (const auto& [name, way] : ways) {
      const double plugin_before = plugin_ns();
      const auto begin = bench::now_ns();
      for (int i = 0; i < rounds.steps; ++i) way->step();
      const double took = static_cast<double>(bench::now_ns() - begin) / rounds.steps;
      if (round > 0 && took >= least[name]) continue;
      least[name] = took;
      if (name == "captured") least["plugin"] = (plugin_ns() - plugin_before) / rounds.steps;
    }
  }
  for (const auto& [name, ns] : least) results.add(what + "/" + name, ns);
}

void measure_network(const Kind& kind, const bench::Results& results) {
  const torch::Device xla(torch::kXLA, 0);
  Ways ways;
  ways["captured"] = std::make_unique<Captured>(kind, xla);
  ways["traced"] = std::make_unique<Way>(kind, xla, false);
  ways["eager"] = std::make_unique<Way>(kind, torch::kCPU, true);
  ways["eager_fused"] = std::make_unique<Way>(kind, torch::kCPU, false);
  measure(kind.name, ways, {kind.rounds, kind.steps}, results);
}

void measure_buffers(int count, const bench::Results& results) {
  Ways ways;
  ways["captured"] = std::make_unique<ManyBuffers>(count);
  measure("buffers_" + std::to_string(count), ways, {200, 50}, results);
}

}  // namespace

int main(int argc, char** argv) {
  const bench::Results results(argv[1]);
  const std::vector<std::string> wanted(argv + 2, argv + argc);
  torch::set_num_threads(1);
  ls::find_accelerator("xla")->load();
  const auto is_wanted = [&](const std::string& name) {
    return wanted.empty() || std::ranges::count(wanted, name) > 0;
  };
  for (const int count : {1, 10, 30, 60})
    if (is_wanted("buffers_" + std::to_string(count))) measure_buffers(count, results);
  for (const auto& kind : kinds())
    if (is_wanted(kind.name)) measure_network(kind, results);
}
