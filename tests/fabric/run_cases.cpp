// Callbacks, loggers, and the Trainer beside a loop of one's own.
#include "cases.h"

namespace fabric_case {

namespace {

struct EpochHooks {
  virtual ~EpochHooks() = default;
  virtual void on_epoch_end(int epoch) = 0;
};

struct Counting : ls::FabricCallback, EpochHooks {
  void on_after_optimizer_step(ls::FabricOptimizer& optimizer) override {
    steps += optimizer.name() == "SGD";
  }
  void on_epoch_end(int epoch) override { epochs += epoch; }
  int steps = 0, epochs = 0;
};

struct Listing : ls::Logger {
  void log_metrics(std::span<const ls::Metric> metrics, std::int64_t, std::int64_t step) override {
    for (const auto& [name, value] : metrics)
      rows += name + std::to_string(step) + "=" + std::to_string(static_cast<int>(value)) + " ";
  }
  void finalize(const std::string&) override {}
  std::string rows;
};

struct TrainedImpl : ls::Module<ls::Example> {
  TrainedImpl() { register_module("net", net); }
  torch::Tensor loss(const ls::Example& batch) {
    return F::cross_entropy(net->forward(batch.data), batch.target);
  }
  torch::Tensor training_step(const ls::Example& batch, ls::StepContext&) override { return loss(batch); }
  ls::Optimizers configure_optimizers() override { return {.optimizer = ls::AdamW{.lr = 0.01}}; }
  nn::Sequential net{nn::Linear(5, 16), nn::BatchNorm1d(16), nn::ReLU(), nn::Dropout(0.1), nn::Linear(16, 3)};
};
TORCH_MODULE(Trained);

}  // namespace

void callbacks_and_loggers(ls::Fabric& launched) {
  const auto counting = std::make_shared<Counting>();
  const auto listing = std::make_shared<Listing>();
  ls::Fabric fabric({.loggers = {listing}, .callbacks = {std::make_shared<ls::FabricCallback>(), counting}});
  fabric.launch();
  require(fabric.world_size() == launched.world_size(), "two in one program");
  auto [model, optimizer] = fabric.setup(Net(), ls::SGD{});
  fabric.backward(model->forward(torch::ones({2, 4})).sum());
  optimizer->step();
  fabric.call(&EpochHooks::on_epoch_end, 5);
  require(counting->steps == 1 && counting->epochs == 5, "hooks are called");
  fabric.log("a", 1.0);
  fabric.log("b", torch::tensor(2.0), 7);
  fabric.log_dict({{"c", 3}, {"d", 4}});
  require(listing->rows == (fabric.is_global_zero() ? "a0=1 b7=2 c8=3 d8=4 " : ""),
          "rank 0 logs: " + listing->rows);
}

// The Trainer and a loop of one's own do the same, to the bit.
void equals_trainer(ls::Fabric& fabric) {
  torch::manual_seed(9);
  const auto data = torch::randn({54, 5});
  const auto batches =
      ls::loader(ls::tensor_dataset(data, data.argmax(1).remainder(3)), {.batch_size = 4, .shuffle = true});
  torch::manual_seed(1);
  Trained trained;
  ls::TrainerOptions options{.max_epochs = 3,
                             .strategy = ls::Ddp{},
                             .accumulate_grad_batches = 2,
                             .gradient_clip_val = 0.5,
                             .enable_progress_bar = false};
  options.run.run_dir = "trainer";
  ls::Trainer(options).fit(trained, batches);

  torch::manual_seed(1);
  auto [model, optimizer] = fabric.setup(Trained(), ls::AdamW{.lr = 0.01});
  auto own = fabric.setup_loader(batches);
  for (int epoch = 0; epoch < 3; ++epoch) {
    std::int64_t idx = 0;
    const std::int64_t count = own.num_batches();
    for (const auto& batch : own) {
      const bool is_last = idx % 2 == 1 || idx + 1 == count;
      const double divisor = idx % 2 == 0 && idx + 1 == count ? 1 : 2;
      if (idx++ % 2 == 0) optimizer->zero_grad();
      {
        const auto scope = fabric.no_backward_sync(model, !is_last);
        fabric.backward(model->loss(batch) / divisor);
      }
      if (!is_last) continue;
      fabric.clip_gradients(model, optimizer, {.max_norm = 0.5});
      optimizer->step();
    }
  }
  require(torch::equal(flat_weights(*model), flat_weights(*trained)), "the Trainer's weights");
  for (const auto& buffer : trained->named_buffers()) {
    require(torch::equal(buffer.value(), model->named_buffers()[buffer.key()]),
            "the Trainer's " + buffer.key());
  }
}

}  // namespace fabric_case
