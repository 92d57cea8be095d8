// A run with all that makes resuming hard: dropout, batch norm, random transforms, a watched schedule,
// windows of several micro-batches. It saves wherever it is told to.
#include <lockstep/lockstep.h>

#include <sstream>

namespace ls = lockstep;
namespace nn = torch::nn;
namespace F = torch::nn::functional;

namespace {

// Samples with noise of their own each time they are drawn.
class NoisyDataset final : public ls::Dataset<ls::Example> {
 public:
  explicit NoisyDataset(std::int64_t size) : size_(size) {}
  std::int64_t size() const override { return size_; }
  ls::Example get_batch(std::span<const std::int64_t> indices) const override {
    const auto count = static_cast<std::int64_t>(indices.size());
    auto data = torch::empty({count, 8});
    for (std::int64_t row = 0; row < count; ++row) {
      data[row] =
          torch::arange(8.0F).add_(static_cast<double>(indices[static_cast<std::size_t>(row)])).sin_();
    }
    const auto target = data.sum(1, true);
    data += 0.1 * torch::randn(data.sizes(), ls::batch_generator());
    return {data, target};
  }

 private:
  std::int64_t size_;
};

struct NetImpl : ls::Module<ls::Example> {
  NetImpl() { register_module("layers", layers); }
  torch::Tensor training_step(const ls::Example& batch, ls::StepContext& step) override {
    const auto loss = F::mse_loss(layers->forward(batch.data), batch.target);
    step.log("train_loss", loss, {.on_epoch = true, .sync_dist = true});
    return loss;
  }
  void validation_step(const ls::Example& batch, ls::StepContext& step) override {
    const auto noise = 0.01 * torch::randn({1});  // of torch's own generator
    step.log("val_loss", F::mse_loss(layers->forward(batch.data), batch.target) + noise, {.sync_dist = true});
  }
  ls::Optimizers configure_optimizers() override {
    return {.optimizer = ls::AdamW{.lr = 0.01},
            .lr_scheduler = ls::LRScheduler{.scheduler = ls::ReduceLROnPlateau{.factor = 0.5, .patience = 0},
                                            .monitor = "val_loss"}};
  }
  nn::Sequential layers{nn::Linear(8, 16), nn::BatchNorm1d(16), nn::ReLU(), nn::Dropout(0.3),
                        nn::Linear(16, 1)};
};
TORCH_MODULE(Net);

struct CaseOptions {
  std::string save_at = {};  // moments, as HOOK:NUMBER, with commas between them
  std::filesystem::path save_dir = {};
  int num_workers = 0;
  std::int64_t batch_size = 4;
  std::int64_t num_samples = 88;
};

void describe(ls::OptionVisitor& v, CaseOptions& o) {
  v.field("save_at", o.save_at, "Moments to save at: HOOK:NUMBER,...");
  v.field("save_dir", o.save_dir, "Where to save");
  v.field("num_workers", o.num_workers, "Worker threads of the loader");
  v.field("batch_size", o.batch_size, "Samples per batch and rank");
  v.field("num_samples", o.num_samples, "Size of the data set");
}

// Counts each hook from the beginning of fit, also across a resume, and saves at the moments it was given.
class Saver final : public ls::Callback {
 public:
  explicit Saver(const CaseOptions& options) : folder_(options.save_dir) {
    std::istringstream moments(options.save_at);
    for (std::string moment; std::getline(moments, moment, ',');) wanted_.insert(moment);
  }
  void on_train_epoch_start(ls::TrainContext& context) override { at("epoch_start", context); }
  void on_train_batch_end(ls::StepContext& step, const ls::TrainOutput&) override { at("batch_end", step); }
  void on_validation_start(ls::TrainContext& context) override { at_validation("validation_start", context); }
  void on_validation_batch_end(ls::StepContext& step) override {
    at_validation("validation_batch_end", step);
  }
  void on_validation_end(ls::TrainContext& context) override { at_validation("validation_end", context); }
  void on_train_epoch_end(ls::TrainContext& context) override { at("epoch_end", context); }

  ls::StateTree state() const override {
    ls::StateTree state;
    for (const auto& [hook, count] : counts_) state.set(hook, count);
    return state;
  }
  void load_state(const ls::StateTree& state) override {
    for (const auto& entry : state.entries()) counts_[entry.name] = state.get<std::int64_t>(entry.name);
  }

 private:
  void at_validation(const std::string& hook, ls::TrainContext& context) {
    if (context.stage() == ls::Stage::kFit) at(hook, context);
  }
  void at(const std::string& hook, ls::TrainContext& context) {
    const auto moment = hook + ":" + std::to_string(counts_[hook]++);
    if (wanted_.contains(moment) && !context.save_checkpoint(folder_ / (moment + ".ckpt")))
      context.print("NOT SAVED " + moment);
  }

  std::filesystem::path folder_;
  std::set<std::string> wanted_;
  std::map<std::string, std::int64_t> counts_;
};

}  // namespace

int main(int argc, char** argv) {
  CaseOptions options;
  return ls::run(argc, argv, {.options = {ls::options("case", options)}}, [&](ls::Cli& cli) {
    auto trainer_options = cli.trainer({.max_epochs = 3, .enable_progress_bar = false});
    trainer_options.callbacks = {std::make_shared<Saver>(options)};
    ls::Trainer trainer(std::move(trainer_options));
    const auto train = std::make_shared<NoisyDataset>(options.num_samples);
    const auto val = std::make_shared<NoisyDataset>(20);
    trainer.fit(
        Net(),
        ls::loader(train,
                   {.batch_size = options.batch_size, .shuffle = true, .num_workers = options.num_workers}),
        ls::loader(val, {.batch_size = 4}));
  });
}
