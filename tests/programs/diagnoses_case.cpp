// A program with the problems that runs notice of themselves, each by a flag:
//   --case.eats 64        each step keeps so many MiB more, until there are none
//   --case.reads 10ms     a batch takes so long to be made
//   --case.works 10ms     and a step so long
//   --case.stuck 6s       rank 1 stays so long in the third training_step
//   --case.late 6s        rank 1 stays so long before it joins
#include <lockstep/lockstep.h>

#include <chrono>
#include <thread>
#include <vector>

#include "program_case.h"

namespace ls = lockstep;

namespace diagnoses_case {

using std::chrono::milliseconds;

struct CaseOptions {
  std::int64_t eats = 0;
  milliseconds reads{0};
  milliseconds works{0};
  milliseconds stuck{0};
  milliseconds late{0};
  std::int64_t batches = 8;
  int num_workers = 0;
};

void describe(ls::OptionVisitor& v, CaseOptions& o) {
  v.field("eats", o.eats, "MiB that each step keeps", ls::at_least(0));
  v.field("reads", o.reads, "Time to make a batch");
  v.field("works", o.works, "Time of a step");
  v.field("stuck", o.stuck, "Time that rank 1 stays in its third step");
  v.field("late", o.late, "Time that rank 1 stays away before it joins");
  v.field("batches", o.batches, "Batches of a rank", ls::at_least(1));
  v.field("num_workers", o.num_workers, "Threads of the loader", ls::at_least(0));
}

constexpr std::int64_t kSamples = 4;  // of a batch

class SlowRows final : public ls::Dataset<torch::Tensor> {
 public:
  SlowRows(std::int64_t rows, milliseconds delay) : rows_(rows), delay_(delay) {}
  std::int64_t size() const override { return rows_; }
  torch::Tensor get_batch(std::span<const std::int64_t> indices) const override {
    std::this_thread::sleep_for(delay_);
    return torch::ones({static_cast<std::int64_t>(indices.size()), 256});
  }

 private:
  std::int64_t rows_;
  milliseconds delay_;
};

struct NetImpl : ls::Module<torch::Tensor> {
  explicit NetImpl(const CaseOptions& options) : options_(options) { register_module("layer", layer); }

  torch::Tensor training_step(const torch::Tensor& batch, ls::StepContext& step) override {
    std::this_thread::sleep_for(options_.works);
    if (step.global_rank() == 1 && step.global_step() == 2) std::this_thread::sleep_for(options_.stuck);
    if (options_.eats > 0) eaten_.push_back(torch::ones({options_.eats << 18}));
    return layer->forward(batch).pow(2).mean();
  }
  ls::Optimizers configure_optimizers() override { return {.optimizer = ls::AdamW{.lr = 0.001}}; }

  torch::nn::Linear layer{256, 4096};

 private:
  const CaseOptions& options_;
  std::vector<torch::Tensor> eaten_;
};
TORCH_MODULE(Net);

int start(int argc, char** argv) {
  CaseOptions options;
  const ls::Program program{.name = "diagnoses_case",
                            .trainer = {.max_epochs = 1, .enable_checkpointing = false},
                            .options = {ls::options("case", options)}};
  return ls::run(argc, argv, program, [&](ls::Cli& cli) {
    ls::Trainer trainer(cli.trainer());
    if (trainer.global_rank() == 1) std::this_thread::sleep_for(options.late);
    const auto rows = options.batches * kSamples * trainer.world_size();
    trainer.fit(Net(options), ls::loader(std::make_shared<SlowRows>(rows, options.reads),
                                         {.batch_size = kSamples, .num_workers = options.num_workers}));
  });
}

const ProgramCase kCase{"diagnoses_case", start};

}  // namespace diagnoses_case
