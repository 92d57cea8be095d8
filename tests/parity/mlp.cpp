// mlp: Linear layers of the sizes `layers` with `activation` between them, numbered as in a PyTorch
// Sequential, where activations count too.
#include "models.h"

namespace parity {
namespace {

class Mlp final : public GoldenModule {
 public:
  Mlp(const Case& golden, Record& record)
      : GoldenModule(golden, record), relu_(model().at("activation") == "relu") {
    if (!relu_ && model().at("activation") != "tanh")
      golden.refuse("model.activation", model().at("activation"), "relu or tanh");
    const auto sizes = model().at("layers").get<std::vector<std::int64_t>>();
    for (std::size_t i = 0; i + 1 < sizes.size(); ++i) {
      layers_.push_back(register_module(std::to_string(2 * i), torch::nn::Linear(sizes[i], sizes[i + 1])));
    }
    if (!model().contains("unused")) return;
    const auto& unused = model().at("unused");
    register_module(unused.at("name"),
                    torch::nn::Linear(unused.at("in").get<std::int64_t>(), unused.at("out")));
  }

 private:
  torch::Tensor forward(torch::Tensor x) override {
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      x = layers_[i]->forward(x);
      if (i + 1 < layers_.size()) x = relu_ ? torch::relu(x) : torch::tanh(x);
    }
    return x;
  }

  bool relu_;
  std::vector<torch::nn::Linear> layers_;
};

}  // namespace

std::shared_ptr<GoldenModule> make_mlp(const Case& golden, Record& record) {
  return std::make_shared<Mlp>(golden, record);
}

}  // namespace parity
