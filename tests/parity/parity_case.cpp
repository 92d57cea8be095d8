// parity_case CASE_DIR OUT_DIR [flags]: repeats a golden run of the Python peers through the Trainer
// and writes result.json and final.safetensors for compare.py.
#include <cstdio>
#include <fstream>

#include "models.h"

namespace parity {
namespace {

using nlohmann::json;

std::filesystem::path part_file(const std::filesystem::path& out, int rank) {
  return out / ("rank_" + std::to_string(rank) + ".json");
}

// In float32, whatever the run computed in.
json evaluate(ls::TrainerOptions options, const std::shared_ptr<GoldenModule>& model, const Data& data) {
  options.precision = ls::Fp32{};
  options.run.run_dir /= "evaluation";
  options.run.init_weights.clear();
  const auto metrics = ls::Trainer(options).test(model, data.evaluation());
  const double correct = metrics.at("eval_correct");
  return {{"eval_loss", metrics.at("eval_loss")},
          {"eval_correct", static_cast<std::int64_t>(correct)},
          {"eval_accuracy", correct / metrics.at("eval_predictions")}};
}

json part_of(const Case& golden, const Record& record, std::int64_t steps) {
  json part{{"losses", record.losses},
            {"lrs", record.lrs_per_group.at(0)},
            {"grad_norms", record.grad_norms},
            {"batch_sizes", record.batch_sizes},
            {"first_batches", record.first_batches},
            {"steps", steps}};
  if (golden.json.at("optimizer").contains("groups")) part["lrs_per_group"] = record.lrs_per_group;
  if (golden.json.contains("validation")) {
    part["val_loss"] = record.val_loss;
    part["val_accuracy"] = record.val_accuracy;
  }
  return part;
}

json train(const ls::TrainerOptions& options, const Case& golden, const Data& data, const Record& record,
           const std::shared_ptr<GoldenModule>& model) {
  ls::Trainer trainer(options);
  trainer.fit(model, data.training(), data.validation());
  auto part = part_of(golden, record, trainer.global_step());
  part["rank"] = trainer.global_rank();
  return part;
}

void run_rank(const Case& golden, const std::filesystem::path& out, ls::Cli& cli) {
  auto options = cli.trainer();
  options.run.save_weights = out / "final.safetensors";
  const Data data(golden);
  Record record;
  const auto model = make_model(golden, record);
  auto part = train(options, golden, data, record, model);
  part.update(evaluate(options, model, data));
  std::ofstream(part_file(out, part.at("rank"))) << part;
}

// The ranks have ended: their parts become one result.
void merge(const std::filesystem::path& out, int world_size) {
  json result{{"losses_per_rank", json::array()},
              {"first_batches_per_rank", json::array()},
              {"batch_sizes_per_rank", json::array()}};
  for (int rank = 0; rank < world_size; ++rank) {
    const auto part = json::parse(std::ifstream(part_file(out, rank)));
    result["losses_per_rank"].push_back(part.at("losses"));
    result["first_batches_per_rank"].push_back(part.at("first_batches"));
    result["batch_sizes_per_rank"].push_back(part.at("batch_sizes"));
    if (rank > 0) continue;
    result["micro_batches"] = part.at("losses").size();
    for (const char* key : {"lrs", "lrs_per_group", "grad_norms", "steps", "val_loss", "val_accuracy",
                            "eval_loss", "eval_correct", "eval_accuracy"}) {
      if (part.contains(key)) result[key] = part.at(key);
    }
  }
  std::ofstream(out / "result.json") << result.dump(1) << '\n';
}

}  // namespace
}  // namespace parity

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: parity_case CASE_DIR OUT_DIR [flags]\n");
    return 2;
  }
  try {
    const auto golden = parity::Case::read(argv[1]);
    const std::filesystem::path out = argv[2];
    std::filesystem::create_directories(out);
    auto trainer = golden.trainer();
    trainer.run.run_dir = out / "run";
    const lockstep::Program program{.name = "parity_case", .trainer = trainer};
    argv[2] = argv[0];
    const int code = lockstep::run(argc - 2, argv + 2, program,
                                   [&](lockstep::Cli& cli) { parity::run_rank(golden, out, cli); });
    if (code == 0) parity::merge(out, golden.json.at("world_size"));
    return code;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "parity_case: %s\n", error.what());
    return 1;
  }
}
