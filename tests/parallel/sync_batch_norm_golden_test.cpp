// 87 steps of a convolutional net on two processes against PyTorch's one process over the global batch:
// tests/parity/ddp_syncbn, whose README says what the files hold.
#include <filesystem>
#include <fstream>

#include <nlohmann/json.hpp>

#include <lockstep/checkpoint/weights.h>
#include <lockstep/data/file_dataset.h>
#include <lockstep/data/sampler.h>
#include <lockstep/parallel/ddp/ddp_engine.h>
#include <lockstep/parallel/sync_batch_norm.h>
#include <lockstep/testing/fork_ranks.h>

#include "sync_batch_norm_support.h"

namespace lockstep {
namespace {

using nlohmann::json;

const std::filesystem::path kCase = LOCKSTEP_SOURCE_DIR "/tests/parity/ddp_syncbn";

torch::nn::Sequential make_convnet() {
  using namespace torch::nn;
  return Sequential(Conv2d(1, 8, 3), BatchNorm2d(8), ReLU(), Conv2d(8, 16, 3), BatchNorm2d(16), ReLU(),
                    Flatten(), Linear(256, 10));
}

struct Golden {
  json expected = json::parse(std::ifstream(kCase / "expected.json"));
  DatasetPtr<Example> digits = safetensors_dataset(kCase.parent_path() / "digits.safetensors");
};

void expect_within(double got, double expected, const json& tolerance, const std::string& what) {
  const double bound = tolerance.at("atol").get<double>() + tolerance.at("rtol").get<double>() * expected;
  EXPECT_NEAR(got, expected, bound) << what;
}

class GoldenRun {
 public:
  explicit GoldenRun(const Communicator& comm)
      : comm_(comm),
        sync_(*model_, comm),
        engine_(*model_, comm),
        sampler_(golden_.digits->size(), 2, comm.rank()) {}

  void train() {
    for (int epoch = 0; epoch < 3; ++epoch) {
      sampler_.set_epoch(epoch);
      const auto rows = sampler_.indices();
      for (std::size_t first = 0; first < rows.size(); first += 32) {
        step(std::span(rows).subspan(first, std::min<std::size_t>(32, rows.size() - first)));
      }
    }
    EXPECT_EQ(steps_, golden_.expected.at("steps").get<std::size_t>());
  }

  void expect_final_weights() {
    const auto got = named_tensors(*model_);
    const auto& tolerance = golden_.expected.at("tolerance").at("final");
    auto expected = make_convnet();
    load_weights(kCase / "final.safetensors", *expected);
    for (const auto& [name, tensor] : named_tensors(*expected)) {
      EXPECT_TRUE(got.at(name).allclose(tensor, tolerance.at("rtol").get<double>(),
                                        tolerance.at("atol").get<double>()))
          << name;
    }
  }

 private:
  void step(std::span<const std::int64_t> rows) {
    const auto batch = golden_.digits->get_batch(rows);
    optimizer_.zero_grad();
    const auto logits = model_->forward(batch.data.view({-1, 1, 8, 8}));
    const auto loss = at::cross_entropy_loss(logits, batch.target);
    engine_.backward(loss);
    compare("losses_per_rank", golden_.expected.at("losses_per_rank").at(comm_.rank()), loss.item<double>());
    compare("grad_norms", golden_.expected.at("grad_norms"),
            torch::nn::utils::clip_grad_norm_(model_->parameters(), 1e9));
    optimizer_.step();
    ++steps_;
  }

  void compare(const char* what, const json& expected, double got) {
    expect_within(got, expected.at(steps_), golden_.expected.at("tolerance").at(what),
                  std::string(what) + " of step " + std::to_string(steps_));
  }

  static torch::nn::Sequential start() {
    auto model = make_convnet();
    load_weights(kCase / "init.safetensors", *model);
    return model;
  }

  Golden golden_;
  Communicator comm_;
  torch::nn::Sequential model_ = start();
  torch::optim::SGD optimizer_{model_->parameters(), torch::optim::SGDOptions(0.05).momentum(0.9)};
  SyncBatchNorm sync_;
  DdpEngine engine_;
  DistributedSampler sampler_;
  std::size_t steps_ = 0;
};

LOCKSTEP_RANK_BODY(golden_sync_batch_norm)(Communicator comm, std::string)->std::string {
  GoldenRun run(comm);
  run.train();
  run.expect_final_weights();
  return "compared";
}

TEST(SyncBatchNorm, TrainsAsPyTorchOnTheGlobalBatch) {
  for (const auto& rank : testing::fork_ranks(2, "golden_sync_batch_norm")) {
    EXPECT_EQ(rank.result, "compared") << rank.error;
  }
}

}  // namespace
}  // namespace lockstep
