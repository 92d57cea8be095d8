// The cases of fabric_case, and what they share.
#pragma once

#include <stdexcept>
#include <string>
#include <vector>

#include <lockstep/lockstep.h>

namespace fabric_case {

namespace ls = lockstep;
namespace nn = torch::nn;
namespace F = torch::nn::functional;

inline void require(bool holds, const std::string& text) {
  if (!holds) throw std::runtime_error("not so: " + text);
}

template <class Body>
inline void require_error(Body body, const std::string& part) {
  try {
    body();
  } catch (const std::exception& error) {
    require(std::string(error.what()).find(part) != std::string::npos, part + " in: " + error.what());
    return;
  }
  throw std::runtime_error("no error that names " + part);
}

struct NetImpl : nn::Module {
  NetImpl(int inputs = 4, int outputs = 1) : net(nn::Linear(inputs, 8), nn::Tanh(), nn::Linear(8, outputs)) {
    register_module("net", net);
  }
  torch::Tensor forward(const torch::Tensor& x) { return net->forward(x); }
  nn::Sequential net;
};
TORCH_MODULE(Net);

inline torch::Tensor flat_weights(const nn::Module& module) {
  std::vector<torch::Tensor> parts;
  for (const auto& parameter : module.parameters()) parts.push_back(parameter.detach().flatten());
  return torch::cat(parts);
}

inline torch::Tensor flat_gradients(const nn::Module& module) {
  std::vector<torch::Tensor> parts;
  for (const auto& parameter : module.parameters()) parts.push_back(parameter.grad().flatten());
  return torch::cat(parts);
}

inline void require_equal_on_all_ranks(const ls::Fabric& fabric, const torch::Tensor& tensor) {
  const auto all = fabric.all_gather(tensor);
  for (int rank = 1; rank < fabric.world_size(); ++rank) {
    require(torch::equal(all[0], all[rank]), "equal on rank 0 and " + std::to_string(rank));
  }
}

// The same rows on every rank; row i is that of rank i % world_size.
inline torch::Tensor all_rows(const ls::Fabric& fabric, int columns = 4) {
  torch::manual_seed(21);
  return torch::randn({6 * fabric.world_size(), columns});
}

inline torch::Tensor rows_of_rank(const ls::Fabric& fabric, const torch::Tensor& rows) {
  using torch::indexing::Slice;
  return rows.index({Slice(fabric.global_rank(), torch::indexing::None, fabric.world_size())});
}

inline Net net_of(std::uint64_t seed) {
  torch::manual_seed(seed);
  return Net();
}

void properties(ls::Fabric& fabric);
void collectives(ls::Fabric& fabric);
void rank_zero_first(ls::Fabric& fabric);
void setup_forms(ls::Fabric& fabric);
void optimizers_of_ranks_differ(ls::Fabric& fabric);
void deferred_models(ls::Fabric& fabric);
void models_come_and_go(ls::Fabric& fabric);
void equals_one_process(ls::Fabric& fabric);
void clipping(ls::Fabric& fabric);
void accumulation(ls::Fabric& fabric);
void precision(ls::Fabric& fabric);
void scaled_gradients(ls::Fabric& fabric);
void overflows(ls::Fabric& fabric);
void overflow_in_one_shard(ls::Fabric& fabric);
void no_gradients(ls::Fabric& fabric);
void scaled_together(ls::Fabric& fabric);
void scaler_state(ls::Fabric& fabric);
void one_element_type(ls::Fabric& fabric);
void gan(ls::Fabric& fabric);
void several_models(ls::Fabric& fabric);
void towers(ls::Fabric& fabric);
void changed_models(ls::Fabric& fabric);
void released_and_frozen(ls::Fabric& fabric);
void released_and_converted(ls::Fabric& fabric);
void released_with_state_on_disk(ls::Fabric& fabric);
void released_amid_accumulation(ls::Fabric& fabric);
void several_optimizers(ls::Fabric& fabric);
void lost_losses(ls::Fabric& fabric);
void compression(ls::Fabric& fabric);
void loaders(ls::Fabric& fabric);
void streams(ls::Fabric& fabric);
void going_on_after_errors(ls::Fabric& fabric);
void callbacks_and_loggers(ls::Fabric& fabric);
void equals_trainer(ls::Fabric& fabric);
void save_and_load(ls::Fabric& fabric);

}  // namespace fabric_case
