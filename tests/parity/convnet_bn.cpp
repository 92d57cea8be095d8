// convnet_bn: rows as 1x8x8 images through the layers listed, numbered by their positions.
#include <cstdio>

#include "models.h"

namespace parity {
namespace {

namespace nn = torch::nn;

class ConvnetBn final : public GoldenModule {
 public:
  ConvnetBn(const Case& golden, Record& record) : GoldenModule(golden, record) {
    for (const auto& layer : model().at("layers")) add(golden, layer);
    for (const auto& child : layers_->named_children()) register_module(child.key(), child.value());
  }

 private:
  void add(const Case& golden, const std::string& layer) {
    int in = 0, out = 0, kernel = 0;
    if (std::sscanf(layer.c_str(), "conv2d %d->%d k%d", &in, &out, &kernel) == 3) {
      layers_->push_back(nn::Conv2d(nn::Conv2dOptions(in, out, kernel)));
    } else if (std::sscanf(layer.c_str(), "batchnorm2d %d", &in) == 1) {
      layers_->push_back(nn::BatchNorm2d(nn::BatchNorm2dOptions(in)
                                             .eps(model().at("bn_eps").get<double>())
                                             .momentum(model().at("bn_momentum").get<double>())));
    } else if (std::sscanf(layer.c_str(), "linear %d->%d", &in, &out) == 2) {
      layers_->push_back(nn::Linear(in, out));
    } else if (layer == "relu") {
      layers_->push_back(nn::ReLU());
    } else if (layer == "flatten") {
      layers_->push_back(nn::Flatten());
    } else {
      golden.refuse("model.layers", layer, "conv2d, batchnorm2d, linear, relu or flatten");
    }
  }

  torch::Tensor forward(torch::Tensor x) override {
    auto shape = model().at("input").get<std::vector<std::int64_t>>();
    shape.insert(shape.begin(), x.size(0));
    return layers_->forward(x.view(shape));
  }

  nn::Sequential layers_;
};

}  // namespace

std::shared_ptr<GoldenModule> make_convnet_bn(const Case& golden, Record& record) {
  return std::make_shared<ConvnetBn>(golden, record);
}

}  // namespace parity
