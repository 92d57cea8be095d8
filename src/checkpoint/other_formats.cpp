// Reads and writes .pt, .pth and Lightning's .ckpt files, and reads weights of Hugging Face folders.
#include <lockstep/checkpoint/interop.h>

#include <memory>
#include <regex>

#include <lockstep/base/error.h>
#include <lockstep/state/tensor_bytes.h>

#include "checkpoint/state_formats.h"
#include "checkpoint/stored_weights.h"
#include "formats/torch_file.h"

namespace lockstep {
namespace {

// The version of Lightning whose layout is written; later ones migrate what they read.
constexpr auto kLightningVersion = "2.6.6";

/// The progress that Lightning stores for something that was done `count` times.
StateTree progress(std::int64_t count, std::initializer_list<const char*> stages) {
  StateTree done;
  for (const auto* stage : stages) done.set(stage, count);
  StateTree progress;
  progress.set("total", done);
  progress.set("current", std::move(done));
  return progress;
}

/// The progress of Lightning's loops after that many epochs and steps, at the end of an epoch.
StateTree loops(std::int64_t epochs, std::int64_t steps) {
  StateTree optimizer;
  optimizer.set("step", progress(steps, {"ready", "completed"}));
  optimizer.set("zero_grad", progress(steps, {"ready", "completed", "started"}));
  StateTree optim_progress;
  optim_progress.set("optimizer", std::move(optimizer));
  StateTree batches;
  batches.set("_batches_that_stepped", steps);
  StateTree fit_loop;
  fit_loop.set("state_dict", StateTree());
  fit_loop.set("epoch_loop.state_dict", std::move(batches));
  fit_loop.set("epoch_loop.automatic_optimization.optim_progress", std::move(optim_progress));
  fit_loop.set("epoch_progress", progress(epochs, {"ready", "completed", "started", "processed"}));
  StateTree loops;
  loops.set("fit_loop", std::move(fit_loop));
  return loops;
}

/// Adds what Lightning wants and `checkpoint` lacks.
StateTree completed(StateTree checkpoint) {
  const auto add = [&](const char* name, StateValue value) {
    if (!checkpoint.contains(name)) checkpoint.set(name, std::move(value));
  };
  checkpoint.get<StateTree>("state_dict");
  add("epoch", std::int64_t{0});
  add("global_step", std::int64_t{0});
  add("pytorch-lightning_version", std::string(kLightningVersion));
  add("loops", loops(checkpoint.get<std::int64_t>("epoch"), checkpoint.get<std::int64_t>("global_step")));
  add("callbacks", StateTree());
  add("optimizer_states", StateList());
  add("lr_schedulers", StateList());
  return checkpoint;
}

}  // namespace

StateTree read_torch_file(const std::filesystem::path& file) {
  const detail::OpenedTorchFile opened(file);
  return detail::StateOfPickle(opened.contents(), opened.where()).tree(opened.named_values());
}

void write_torch_file(const std::filesystem::path& file, const StateTree& state) {
  detail::PickleOfState pickled;
  const pickle::Value root(pickled.dict(state));
  torch_file::write(file, root, pickled.storages());
}

void write_lightning_checkpoint(const std::filesystem::path& file, const StateTree& checkpoint) {
  write_torch_file(file, completed(checkpoint));
}

namespace detail {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void refuse(const fs::path& file, const std::string& what, const std::string& got,
                         const std::string& expected = "") {
  throw CheckpointError("checkpoint",
                        {.what = "'" + file.string() + "': " + what, .expected = expected, .got = got});
}

StoredTensor stored(std::shared_ptr<const safetensors::File> file, const safetensors::TensorView& view) {
  return {.dtype = view.dtype, .shape = view.shape, .read = [file = std::move(file), &view] {
            return tensor_of(view);
          }};
}

StoredWeights indexed(const fs::path& folder) {
  StoredWeights weights;
  std::map<std::string, std::shared_ptr<const safetensors::File>> files;
  for (const auto& [name, file_name] : read_weight_map(folder / kSafetensorsIndex, ".safetensors")) {
    auto& file = files[file_name];
    if (!file) file = std::make_shared<const safetensors::File>(folder / file_name);
    weights.emplace(name, stored(file, file->at(name)));
  }
  return weights;
}

StoredWeights single(const fs::path& path) {
  const auto file = std::make_shared<const safetensors::File>(path);
  StoredWeights weights;
  for (const auto& view : file->tensors()) weights.emplace(view.name, stored(file, view));
  return weights;
}

}  // namespace

StoredWeights stored_safetensors(const fs::path& path) {
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) return single(path);
  // The index of an earlier model may lie beside it, and transformers reads the one file, too.
  if (fs::exists(path / kSafetensors, ignored)) return single(path / kSafetensors);
  return fs::exists(path / kSafetensorsIndex, ignored) ? indexed(path) : single(path / kSafetensors);
}

}  // namespace detail

namespace {

constexpr std::size_t kMaxNameBytes = 1000;  // std::regex recurses for every letter

struct Row {
  std::regex pattern;
  const Rename* rename;
};

std::vector<Row> compiled(std::span<const Rename> renames) {
  std::vector<Row> rows;
  for (const auto& rename : renames) try {
      rows.push_back({std::regex(rename.pattern), &rename});
    } catch (const std::regex_error& error) {
      throw ConfigError("checkpoint", {.what = "the pattern of a Rename",
                                       .expected = "a regular expression",
                                       .got = rename.pattern + " (" + error.what() + ")"});
    }
  return rows;
}

/// What `name` becomes; nothing when it is left out.
struct Renamed {
  std::string name;
  bool transpose = false;
};

Renamed renamed(const std::string& name, const std::vector<Row>& rows) {
  std::smatch match;
  for (const auto& [pattern, rename] : rows) {
    if (name.size() <= kMaxNameBytes && std::regex_match(name, match, pattern))
      return {.name = match.format(rename->replacement), .transpose = rename->transpose};
  }
  return {.name = name};
}

}  // namespace

NamedTensors read_huggingface(const std::filesystem::path& folder, std::span<const Rename> renames) {
  const auto rows = compiled(renames);
  NamedTensors tensors;
  for (const auto& [stored_name, stored] : detail::stored_safetensors(folder)) {
    const auto [name, transpose] = renamed(stored_name, rows);
    if (name.empty()) continue;
    if (transpose && stored.shape.size() != 2)
      detail::refuse(folder, "tensor '" + stored_name + "' is to be transposed",
                     std::to_string(stored.shape.size()) + " dimensions", "2 dimensions");
    const auto tensor = transpose ? stored.read().t().contiguous() : stored.read();
    if (!tensors.emplace(name, tensor).second)
      detail::refuse(folder, "two tensors get the same name", "'" + name + "'");
  }
  return tensors;
}

}  // namespace lockstep
