// A run with all that makes resuming hard: dropout, batch norm, random transforms, a watched schedule,
// windows of several micro-batches, metrics that are logged as a whole, a module that counts and averages in
// its hooks. It saves wherever it is
// told to.
#include <lockstep/lockstep.h>

#include <unistd.h>

#include <cmath>
#include <fstream>
#include <sstream>

#include "program_case.h"

namespace ls = lockstep;
namespace nn = torch::nn;
namespace F = torch::nn::functional;

namespace resume_case {

// Samples with noise of their own each time they are drawn. Notes the batches in RECORD.PID, a line for each.
class NoisyDataset final : public ls::Dataset<ls::Example> {
 public:
  explicit NoisyDataset(std::int64_t size, std::string record = {})
      : size_(size), record_(std::move(record)) {}
  std::int64_t size() const override { return size_; }
  ls::Example get_batch(std::span<const std::int64_t> indices) const override {
    const auto count = static_cast<std::int64_t>(indices.size());
    auto data = torch::empty({count, 8});
    for (std::int64_t row = 0; row < count; ++row) {
      data[row] =
          torch::arange(8.0F).add_(static_cast<double>(indices[static_cast<std::size_t>(row)])).sin_();
    }
    note(indices);
    const auto target = data.sum(1, true);
    data += 0.1 * torch::randn(data.sizes(), ls::batch_generator());
    return {data, target};
  }

 private:
  void note(std::span<const std::int64_t> indices) const {
    if (record_.empty()) return;
    std::ofstream file(record_ + "." + std::to_string(::getpid()), std::ios::app);
    for (const auto index : indices) file << index << ' ';
    file << std::endl;
  }

  std::int64_t size_;
  std::string record_;
};

struct NetImpl : ls::Module<ls::Example> {
  explicit NetImpl(bool has_optimizer = true) : has_optimizer_(has_optimizer) {
    register_module("layers", layers);
    average = register_buffer("average", torch::zeros({1}));
  }
  torch::Tensor training_step(const ls::Example& batch, ls::StepContext& step) override {
    const auto scale =
        1.0 + 0.01 * static_cast<double>(batches % 7) + 0.1 * std::tanh(average.item<double>());
    const auto loss = scale * F::mse_loss(layers->forward(batch.data), batch.target);
    step.log("train_loss", loss, {.on_epoch = true, .sync_dist = true});
    trained.update(loss.detach());
    step.log("trained", trained);
    return loss;
  }
  void validation_step(const ls::Example& batch, ls::StepContext& step) override {
    const auto noise = 0.01 * torch::randn({1});  // of torch's own generator
    step.log("val_loss", F::mse_loss(layers->forward(batch.data), batch.target) + noise,
             {.sync_dist = true, .add_dataloader_idx = false});
    validated.update(batch.target);
    step.log("validated", validated, {.add_dataloader_idx = false});
  }
  ls::Optimizers configure_optimizers() override {
    if (!has_optimizer_) return {};
    return {.optimizer = ls::AdamW{.lr = 0.01},
            .lr_scheduler = ls::LRScheduler{.scheduler = ls::ReduceLROnPlateau{.factor = 0.5, .patience = 0},
                                            .monitor = "val_loss"}};
  }
  // Hooks of the module come after those of callbacks, one of which saves.
  void on_train_batch_end(ls::StepContext&, const ls::TrainOutput& output) override {
    ++batches;
    average.mul_(0.9).add_(0.1 * output.loss);
  }
  // What metrics have come to is in the weights from then on.
  void on_train_epoch_start(ls::TrainContext& context) override { take_up("trained", context); }
  void on_validation_end(ls::TrainContext& context) override {
    if (context.stage() == ls::Stage::kFit) take_up("validated", context);
  }
  ls::StateTree state() const override {
    ls::StateTree state;
    state.set("batches", batches);
    return state;
  }
  void load_state(const ls::StateTree& state) override { batches = state.get<std::int64_t>("batches"); }

  void take_up(const char* metric, ls::TrainContext& context) {
    const auto& metrics = context.callback_metrics();
    if (metrics.contains(metric)) average.add_(0.01 * metrics.find(metric)->second);
  }

  bool has_optimizer_;
  std::int64_t batches = 0;
  ls::metrics::Mean trained, validated;
  torch::Tensor average;
  nn::Sequential layers{nn::Linear(8, 16), nn::BatchNorm1d(16), nn::ReLU(), nn::Dropout(0.3),
                        nn::Linear(16, 1)};
};
TORCH_MODULE(Net);

struct CaseOptions {
  std::string save_at = {};  // moments, as HOOK:NUMBER, with commas between them
  std::filesystem::path save_dir = {};
  std::filesystem::path save_after = {};
  std::filesystem::path save_weights_after = {};
  std::string stop_at = {};
  std::string record = {};
  std::string callback = {};
  int num_workers = 0;
  std::int64_t batch_size = 4;
  std::int64_t num_samples = 88;
  bool own_sampler = false;
  int val_loaders = 1;
  int every_n_train_steps = 0;
  bool has_optimizer = true;
};

void describe(ls::OptionVisitor& v, CaseOptions& o) {
  v.field("save_at", o.save_at, "Moments to save at: HOOK:NUMBER,...");
  v.field("save_dir", o.save_dir, "Where to save");
  v.field("save_after", o.save_after, "Where to save after fit");
  v.field("save_weights_after", o.save_weights_after, "Where to save the weights alone, after fit");
  v.field("stop_at", o.stop_at, "Moment to ask for the end of the run at");
  v.field("record", o.record, "File name to note the batches of training under");
  v.field("callback", o.callback, "A callback that changes weights");
  v.field("num_workers", o.num_workers, "Worker threads of the loader");
  v.field("batch_size", o.batch_size, "Samples per batch and rank");
  v.field("num_samples", o.num_samples, "Size of the data set");
  v.field("own_sampler", o.own_sampler, "The loader has a sampler that divides the data itself");
  v.field("val_loaders", o.val_loaders, "Loaders of validation");
  v.field("every_n_train_steps", o.every_n_train_steps,
          "Steps between checkpoints of ModelCheckpoint; 0: none");
  v.field("has_optimizer", o.has_optimizer, "The module has an optimizer and a schedule of its own");
}

int variable(const char* name, int otherwise) {
  const auto* const text = std::getenv(name);
  return text == nullptr ? otherwise : std::stoi(text);
}

// Its order is another one wherever it is asked anew.
class Data final : public ls::DataModule<ls::Example> {
 public:
  explicit Data(const CaseOptions& options)
      : options_(options),
        train_(std::make_shared<NoisyDataset>(options.num_samples, options.record)),
        val_(std::make_shared<NoisyDataset>(20)) {}

  std::optional<ls::Loader<ls::Example>> train_dataloader() override {
    ls::LoaderOptions with{
        .batch_size = options_.batch_size, .shuffle = true, .num_workers = options_.num_workers};
    if (options_.own_sampler)
      with = {.batch_size = options_.batch_size,
              .sampler = std::make_shared<ls::DistributedSampler>(
                  options_.num_samples, variable("WORLD_SIZE", 1), variable("RANK", 0))};
    else if (current_epoch() > 0)
      with.seed = static_cast<std::uint64_t>(current_epoch());
    return ls::loader(train_, with);
  }
  ls::Loaders<ls::Example> val_dataloaders() override {
    const auto loader = ls::loader(val_, {.batch_size = 4 + current_epoch()});
    return std::vector(static_cast<std::size_t>(options_.val_loaders), loader);
  }

 private:
  const CaseOptions& options_;
  ls::DatasetPtr<ls::Example> train_, val_;
};

// Counts each hook from the beginning of fit, also across a resume, and saves at the moments it was given.
class Saver final : public ls::Callback {
 public:
  Saver(const CaseOptions& options, ls::CallbackPlace place)
      : place_(place), folder_(options.save_dir), stop_at_(options.stop_at) {
    std::istringstream moments(options.save_at);
    for (std::string moment; std::getline(moments, moment, ',');) wanted_.insert(moment);
  }
  void on_train_start(ls::TrainContext& context) override { at("train_start", context); }
  void on_train_end(ls::TrainContext& context) override { at("train_end", context); }
  void on_train_epoch_start(ls::TrainContext& context) override { at("epoch_start", context); }
  void on_train_batch_end(ls::StepContext& step, const ls::TrainOutput&) override { at("batch_end", step); }
  void on_validation_start(ls::TrainContext& context) override { at_validation("validation_start", context); }
  void on_validation_batch_end(ls::StepContext& step) override {
    at_validation("validation_batch_end", step);
  }
  void on_validation_end(ls::TrainContext& context) override { at_validation("validation_end", context); }
  void on_train_epoch_end(ls::TrainContext& context) override { at("epoch_end", context); }

  ls::CallbackPlace place() const override { return place_; }
  std::string state_key() const override {
    return place_ == ls::CallbackPlace::kOrdinary ? "Saver" : "MonitoringSaver";
  }
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
    const auto name = place_ == ls::CallbackPlace::kOrdinary ? hook : "monitored_" + hook;
    const auto moment = name + ":" + std::to_string(counts_[hook]++);
    if (moment == stop_at_) context.stop();
    if (wanted_.contains(moment)) context.save_checkpoint(folder_ / (moment + ".ckpt"));
  }

  ls::CallbackPlace place_;
  std::filesystem::path folder_;
  std::string stop_at_;
  std::set<std::string> wanted_;
  std::map<std::string, std::int64_t> counts_;
};

// Ends a run whose ranks have other weights than rank 0.
class RankComparison final : public ls::Callback {
 public:
  ls::CallbackPlace place() const override { return ls::CallbackPlace::kMonitor; }
  void on_train_end(ls::TrainContext& context) override {
    std::ostringstream weights;
    for (const auto& parameter : context.module().parameters())
      weights.write(static_cast<const char*>(parameter.data_ptr()),
                    static_cast<std::streamsize>(parameter.nbytes()));
    for (const auto& other : context.strategy().communicator().all_gather_bytes(weights.str()))
      if (other != weights.str()) throw ls::Error("resume_case", {.what = "ranks have other weights"});
  }
};

nn::Module& first_layers(ls::AnyModule& module) { return *dynamic_cast<NetImpl&>(module).layers->ptr(0); }

std::shared_ptr<ls::Callback> callback_named(const std::string& name) {
  if (name == "accumulation")
    return std::make_shared<ls::GradientAccumulationScheduler>(ls::AccumulationSchedule::Steps{{1, 2}});
  if (name == "ema")
    return std::make_shared<ls::EMAWeightAveraging>(
        ls::EMAWeightAveragingOptions{.decay = 0.9, .update_starting_at_epoch = 1});
  if (name == "swa")
    return std::make_shared<ls::StochasticWeightAveraging>(ls::StochasticWeightAveragingOptions{
        .swa_lrs = {0.005}, .swa_epoch_start = 1, .annealing_epochs = 1});
  if (name == "finetuning")
    return std::make_shared<ls::BackboneFinetuning>(
        ls::BackboneFinetuningOptions{.unfreeze_backbone_at_epoch = 1, .backbone = first_layers});
  if (name == "pruning")
    return std::make_shared<ls::ModelPruning>(ls::ModelPruningOptions{
        .pruning_fn = "random_unstructured", .amount = 0.3, .use_lottery_ticket_hypothesis = false});
  throw ls::ConfigError("resume_case", {.what = "case.callback", .got = name});
}

int start(int argc, char** argv) {
  CaseOptions options;
  return ls::run(argc, argv, {.options = {ls::options("case", options)}}, [&](ls::Cli& cli) {
    auto trainer_options = cli.trainer({.max_epochs = 3, .enable_progress_bar = false});
    for (const auto place : {ls::CallbackPlace::kOrdinary, ls::CallbackPlace::kMonitor})
      trainer_options.callbacks.push_back(std::make_shared<Saver>(options, place));
    if (!options.callback.empty()) {
      trainer_options.callbacks.push_back(callback_named(options.callback));
      trainer_options.callbacks.push_back(std::make_shared<RankComparison>());
    }
    if (options.every_n_train_steps > 0)
      trainer_options.callbacks.push_back(std::make_shared<ls::ModelCheckpoint>(
          ls::ModelCheckpointOptions{.every_n_train_steps = options.every_n_train_steps}));
    ls::Trainer trainer(std::move(trainer_options));
    trainer.fit(Net(options.has_optimizer), std::make_shared<Data>(options));
    if (!options.save_after.empty()) trainer.save_checkpoint(options.save_after);
    if (!options.save_weights_after.empty()) trainer.save_checkpoint(options.save_weights_after, true);
  });
}

const ProgramCase kCase{"resume_case", start};

}  // namespace resume_case
