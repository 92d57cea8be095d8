// Callbacks, loggers, and the Trainer beside a loop of one's own.
#include <cmath>
#include <filesystem>
#include <limits>

#include "cases.h"

namespace fabric_case {

namespace {

// A run that stops after three steps and goes on in new objects does as one that never stopped.
struct Progress {
  int epoch = 0;
  std::int64_t step = 0;
  double best = std::numeric_limits<double>::infinity();
  bool done = false;
  std::string note = "nothing";
  torch::Tensor history = torch::zeros({6});

  ls::NamedStates states(const Net& model, const std::shared_ptr<ls::FabricOptimizer>& optimizer,
                         ls::Scheduler& scheduler) {
    return {{"model", model}, {"optimizer", optimizer}, {"scheduler", scheduler},
            {"epoch", epoch}, {"step", step},           {"best", best},
            {"done", done},   {"note", note},           {"history", history}};
  }
};

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
  for (const auto& odd : {torch::ones({2}), torch::Tensor()})
    require_error([&] { fabric.log("pair", odd); }, "\"pair\" is not a single number");
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

void save_and_load(ls::Fabric& fabric) {
  const auto rows = rows_of_rank(fabric, all_rows(fabric));
  const auto train = [&](Net model, ls::FabricOptimizer& optimizer, ls::Scheduler& scheduler,
                         Progress& progress, int steps) {
    for (; steps > 0; --steps) {
      optimizer.zero_grad();
      const auto loss = model->forward(rows).pow(2).mean();
      fabric.backward(loss, model);
      optimizer.step();
      scheduler.step();
      progress.history[progress.step++] = fabric.all_reduce(loss.item<double>());
    }
  };
  const auto begin = [&](std::uint64_t seed) {
    auto [model, optimizer] = fabric.setup(net_of(seed), ls::AdamW{.lr = 0.05});
    auto scheduler = std::make_unique<ls::Scheduler>(ls::ExponentialLR{.gamma = 0.5}, *optimizer);
    return std::tuple{model, optimizer, std::move(scheduler)};
  };
  const auto [model, optimizer, scheduler] = begin(3);
  Progress progress;
  train(model, *optimizer, *scheduler, progress, 3);
  progress.epoch = 7, progress.done = true, progress.note = "half";
  fabric.save("half.ckpt", progress.states(model, optimizer, *scheduler));
  require(std::filesystem::exists("half.ckpt/model.safetensors"), "on disk when save() is back");
  train(model, *optimizer, *scheduler, progress, 3);

  const auto [other, other_optimizer, other_scheduler] = begin(4);
  Progress resumed;
  const auto rest = fabric.load("half.ckpt", resumed.states(other, other_optimizer, *other_scheduler));
  require(rest.empty() && resumed.epoch == 7 && resumed.step == 3 && resumed.done && resumed.note == "half" &&
              std::isinf(resumed.best),
          "variables");
  train(other, *other_optimizer, *other_scheduler, resumed, 3);
  require(torch::equal(flat_weights(*model), flat_weights(*other)), "the same bits as without the stop");
  require(torch::equal(progress.history, resumed.history), "tensors");

  require(fabric.load("half.ckpt", {{"epoch", resumed.epoch}}).get<bool>("done"), "the rest is given back");
  int missing = 5;
  require_error([&] { fabric.load("half.ckpt", {{"epohc", missing}}); }, "epohc");
  fabric.load("half.ckpt", {{"epohc", missing}}, {.strict = false});
  require(missing == 5, "not strict: left as it is");
  auto smaller = std::make_shared<torch::nn::LinearImpl>(1, 1);
  require_error([&] { fabric.load("half.ckpt", {{"model", smaller}}); }, "weight");
  fabric.load("half.ckpt", {{"model", smaller}}, {.strict = false});
  require_error([&] { fabric.load("half.ckpt", {{"note", missing}}); }, "note");
  require_error([&] { fabric.load("nowhere.ckpt", {{"epoch", missing}}); }, "nowhere.ckpt");
  require_error([&] { fabric.save("/proc/none/x.ckpt", {{"epoch", missing}}); }, "/proc/none");
  require_error([&] { fabric.save("x.ckpt", {{"a/b", missing}}); }, "a/b");
  fabric.barrier();

  const auto is_bias = [](const std::string& name, const ls::StateValue&) { return name.ends_with("bias"); };
  fabric.save("biases.ckpt", {{"model", model}, {"epoch", missing}}, {{"model", is_bias}});
  const auto biases = fabric.load("biases.ckpt").get<ls::StateTree>("model");
  require(biases.contains("net.0.bias") && biases.size() == 2, "what the filter lets through");
  require_error([&] { fabric.save("y.ckpt", {{"model", model}}, {{"modle", is_bias}}); }, "modle");
  require_error([&] { fabric.save("y.ckpt", {{"epoch", missing}}, {{"epoch", is_bias}}); }, "epoch");

  auto raw = Net();
  fabric.load_raw("half.ckpt/model.safetensors", raw);
  require(!torch::equal(flat_weights(*raw), flat_weights(*model)), "the weights of then");
}

}  // namespace fabric_case
