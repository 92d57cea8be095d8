// A loop of its own that saves and loads by DeepSpeed's names. The model has the tensors of those that
// tests/formats/deepspeed/make_folders.py trains.
//
//   zero_case save --case.dir DIR      trains and saves, by the tag of --case.tag or the number of steps
//   zero_case load --case.dir DIR --case.out CKPT     loads, and saves what it has then to CKPT
#include <sstream>

#include <lockstep/lockstep.h>

#include "program_case.h"

namespace ls = lockstep;
namespace nn = torch::nn;

namespace zero_case {

struct CaseOptions {
  std::string dir;
  std::string tag;
  std::string out;
  std::int64_t steps = 3;
  bool odd_rank = false;
  bool module_only = false;
  bool latest = true;
  bool schedule = false;
  bool optimizer_states = true;
  bool lr_scheduler_states = true;
  bool strict = true;
  bool two_groups = false;
  bool renamed = false;
  std::string filter;
  std::string tag_validation;
  std::string dir_of_rank_1;
};

void describe(ls::OptionVisitor& v, CaseOptions& o) {
  v.field("dir", o.dir, "Where checkpoints are");
  v.field("tag", o.tag, "Which one");
  v.field("out", o.out, "Checkpoint to write in the end");
  v.field("steps", o.steps, "Steps to train");
  v.field("odd_rank", o.odd_rank, "Let rank 1 have a tag of its own");
  v.field("module_only", o.module_only, "Load nothing but the model");
  v.field("schedule", o.schedule, "Load how far a schedule has come");
  v.field("optimizer_states", o.optimizer_states, "Load what optimizers keep");
  v.field("lr_scheduler_states", o.lr_scheduler_states, "Load how far schedules have come");
  v.field("latest", o.latest, "Write the file latest");
  v.field("strict", o.strict, "Load every tensor of the model, or fail");
  v.field("two_groups", o.two_groups, "Let matrices be a group of their own");
  v.field("renamed", o.renamed, "Let the layer norm have another name");
  v.field("filter", o.filter, "Save of the model what begins so");
  v.field("dir_of_rank_1", o.dir_of_rank_1,
          "Let rank 1 load by Fabric::load() from here, the others from dir");
  v.field("tag_validation", o.tag_validation, "What tags that differ are: warn or fail");
}

struct HeadImpl : nn::Module {
  explicit HeadImpl(const torch::Tensor& tied) { weight = register_parameter("weight", tied); }
  torch::Tensor weight;
};
TORCH_MODULE(Head);

struct NetImpl : nn::Module {
  explicit NetImpl(bool renamed) {
    scale = register_parameter("scale", torch::ones({1}));
    frozen = register_parameter("frozen", torch::zeros({7, 5}), false);
    shift = register_buffer("shift", torch::zeros({7}));
    calls = register_buffer("calls", torch::zeros({}, torch::kLong));
    register_module("embed", embed);
    register_module("hidden", hidden);
    register_module(renamed ? "other" : "norm", norm);
    register_module("back", back);
    head = register_module("head", Head(embed->weight));
  }
  torch::Tensor forward(const torch::Tensor& tokens) {
    auto x = norm->forward(hidden->forward(embed->forward(tokens))) + shift;
    x = x + torch::mm(embed->forward(tokens), frozen.t());
    return torch::mm(back->forward(torch::tanh(x)), head->weight.t()) * scale;
  }

  torch::Tensor scale, frozen, shift, calls;
  nn::Embedding embed{3, 5};
  nn::Linear hidden{5, 7};
  nn::LayerNorm norm{nn::LayerNormOptions({7})};
  nn::Linear back{nn::LinearOptions(7, 5).bias(false)};
  Head head{nullptr};
};
TORCH_MODULE(Net);

void train(ls::Fabric& fabric, Net& model, ls::FabricOptimizer& optimizer, std::int64_t steps) {
  for (std::int64_t step = 0; step < steps; ++step) {
    torch::manual_seed(static_cast<std::uint64_t>(100 * step + fabric.global_rank()));
    const auto tokens = torch::randint(3, {4}, torch::kLong);
    optimizer.zero_grad();
    const auto scope = fabric.autocast();
    fabric.backward(torch::nn::functional::cross_entropy(model->forward(tokens), (tokens + 1) % 3));
    optimizer.step();
  }
}

/// With groups as make_folders.py has them, if so asked.
ls::AdamW adamw(const CaseOptions& options) {
  ls::AdamW adamw{.lr = 0.5, .betas = {0.8, 0.9}};
  if (options.two_groups) adamw.groups = {{.pattern = "norm.*"}, {.pattern = "*.bias"}, {.pattern = "scale"}};
  return adamw;
}

ls::deepspeed::SaveCheckpointOptions save_options(const CaseOptions& options, const std::string& tag) {
  ls::deepspeed::SaveCheckpointOptions how{
      .tag = tag, .global_step = options.steps, .save_latest = options.latest};
  if (!options.filter.empty())
    how.filter["model"] = [start = options.filter](const std::string& entry, const ls::StateValue&) {
      return entry.starts_with(start);
    };
  if (options.tag_validation == "warn") how.tag_validation = ls::deepspeed::TagValidation::kWarn;
  if (options.tag_validation == "fail") how.tag_validation = ls::deepspeed::TagValidation::kFail;
  return how;
}

void print_groups(const ls::Fabric& fabric, ls::FabricOptimizer& optimizer) {
  for (const auto& group : optimizer.groups()) {
    std::ostringstream line;
    line << "group " << (group.pattern.empty() ? "rest" : group.pattern) << ": " << group.weight_decay << ", "
         << group.betas->at(0) << " " << group.betas->at(1);
    fabric.print(line.str());
  }
}

void print_client_state(const ls::Fabric& fabric, const ls::StateTree& client_state) {
  std::string names = "client state:";
  for (const auto& entry : client_state.entries()) names += " " + entry.name;
  fabric.print(names);
  if (client_state.contains("note")) fabric.print(client_state.get<std::string>("note"));
}

int start(int argc, char** argv) {
  CaseOptions options;
  const ls::Program program{.verbs = {"save", "load"},
                            .fabric = ls::FabricOptions{.strategy = ls::Ddp{}},
                            .options = {ls::options("case", options)}};
  return ls::run(argc, argv, program, [&](ls::Cli& cli) {
    ls::Fabric fabric(cli.fabric());
    fabric.launch();
    fabric.seed_everything(1);
    auto [model, optimizer] = fabric.setup(Net(options.renamed), adamw(options));
    const ls::NamedStates states{{"model", model}, {"optimizer", optimizer}};
    if (cli.verb() == "save") {
      train(fabric, model, *optimizer, options.steps);
      const auto own = options.odd_rank && fabric.global_rank() == 1 ? "odd" : options.tag;
      auto all = states;
      all.emplace_back("global_steps", options.steps);
      const auto folder =
          ls::deepspeed::save_checkpoint(fabric, options.dir, all, save_options(options, own));
      return fabric.print("saved " + folder.filename().string());
    }
    if (!options.dir_of_rank_1.empty()) {
      fabric.load(fabric.global_rank() == 1 ? options.dir_of_rank_1 : options.dir, states);
      return fabric.save(options.out, states);
    }
    std::int64_t global_steps = -1;
    auto all = states;
    all.emplace_back("global_steps", global_steps);
    const ls::deepspeed::WarmupLR warmup{.warmup_max_lr = {{0.01}}, .warmup_num_steps = 4};
    std::optional<ls::Scheduler> schedule;
    if (options.schedule) {
      schedule.emplace(ls::DeepSpeedLR{.scheduler = warmup}, *optimizer);
      all.emplace_back("schedule", *schedule);
    }
    const auto loaded =
        ls::deepspeed::load_checkpoint(fabric, options.dir, all,
                                       {.tag = options.tag,
                                        .load_module_strict = options.strict,
                                        .load_optimizer_states = options.optimizer_states,
                                        .load_lr_scheduler_states = options.lr_scheduler_states,
                                        .load_module_only = options.module_only});
    fabric.save(options.out, states);
    fabric.print(!loaded ? "nothing" : "loaded " + loaded->folder.filename().string());
    fabric.print("global_steps " + std::to_string(global_steps));
    fabric.print("lr " + std::to_string(optimizer->groups().front().lr));
    if (schedule) {
      schedule->step();
      fabric.print("next lr " + std::to_string(optimizer->groups().front().lr));
    }
    print_groups(fabric, *optimizer);
    if (loaded) print_client_state(fabric, loaded->client_state);
  });
}

const ProgramCase kCase{"zero_case", start};

}  // namespace zero_case
