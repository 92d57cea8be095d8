#include "models.h"

namespace parity {
namespace {

struct Row {
  std::string_view type;
  std::shared_ptr<GoldenModule> (*make)(const Case&, Record&);
};

constexpr Row kModels[] = {
    {"mlp", make_mlp}, {"convnet_bn", make_convnet_bn}, {"transformer_lm", make_transformer_lm}};

// Parameters that the case leaves as they are.
void freeze(torch::nn::Module& module, const nlohmann::json& names) {
  auto parameters = module.named_parameters();
  for (const auto& name : names) parameters[name.get<std::string>()].set_requires_grad(false);
}

}  // namespace

std::shared_ptr<GoldenModule> make_model(const Case& golden, Record& record) {
  const auto& description = golden.json.at("model");
  const std::string type = description.at("type");
  for (const auto& row : kModels) {
    if (row.type != type) continue;
    auto model = row.make(golden, record);
    freeze(*model, description.value("frozen", nlohmann::json::array()));
    return model;
  }
  golden.refuse("model.type", type, "mlp, convnet_bn or transformer_lm");
}

}  // namespace parity
