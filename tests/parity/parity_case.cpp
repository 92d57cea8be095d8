// parity_case CASE_DIR OUT_DIR [flags]: repeats a golden run of the Python peers through the Trainer
// and writes result.json and final.safetensors for compare.py.
#include <cstdio>
#include <fstream>

#include "model.h"

namespace parity {
namespace {

using nlohmann::json;

std::filesystem::path part_file(const std::filesystem::path& out, int rank) {
  return out / ("rank_" + std::to_string(rank) + ".json");
}

// Evaluation is one batch with all rows, so that its mean loss is summed as the peers summed it.
json evaluate(ls::Trainer& trainer, const Mlp& model, const ls::DatasetPtr<Rows>& data) {
  const auto metrics = trainer.test(model, ls::loader(data, {.batch_size = data->size()}));
  const double correct = metrics.at("eval_correct");
  return {{"eval_loss", metrics.at("eval_loss")},
          {"eval_correct", static_cast<std::int64_t>(correct)},
          {"eval_accuracy", correct / static_cast<double>(data->size())}};
}

void run_rank(const Case& golden, const std::filesystem::path& out, ls::Cli& cli) {
  auto options = cli.trainer();
  options.run.save_weights = out / "final.safetensors";
  ls::Trainer trainer(options);
  const ls::DatasetPtr<Rows> data = std::make_shared<RowsDataset>(golden);
  const auto& json_case = golden.json;
  Record record;
  Mlp model(golden, record);
  trainer.fit(model, ls::loader(data, {.batch_size = json_case.at("batch_size"),
                                       .shuffle = json_case.at("sampler").at("shuffle"),
                                       .drop_last = json_case.at("loader").at("drop_last")}));
  json part{{"losses", record.losses},
            {"lrs", record.lrs},
            {"grad_norms", record.grad_norms},
            {"batch_sizes", record.batch_sizes},
            {"first_batches", record.first_batches},
            {"steps", trainer.global_step()}};
  part.update(evaluate(trainer, model, data));
  std::ofstream(part_file(out, trainer.global_rank())) << part;
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
    for (const char* key : {"lrs", "grad_norms", "steps", "eval_loss", "eval_correct", "eval_accuracy"}) {
      result[key] = part.at(key);
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
