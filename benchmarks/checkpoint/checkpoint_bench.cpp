// Saving and loading 512 MiB of tensors, beside what the disk and memory do at best.
//
// Usage: bench_checkpoint RESULTS FOLDER. Cases are in nanoseconds for all of it; FOLDER is emptied.
#include <fcntl.h>
#include <unistd.h>

#include <lockstep/lockstep.h>

#include "results.h"

namespace {

namespace ls = lockstep;

constexpr int kTensors = 32;
constexpr std::int64_t kElements = 4 << 20;  // 16 MiB of float32

ls::StateTree make_model() {
  ls::StateTree model;
  for (int i = 0; i < kTensors; ++i)
    model.set("layer." + std::to_string(i) + ".weight", torch::randn({kElements}));
  return model;
}

template <class Act>
double ns_of(const Act& act) {
  const auto start = bench::now_ns();
  act();
  return static_cast<double>(bench::now_ns() - start);
}

// The same bytes in one file, as durable.
void write_raw(const std::filesystem::path& file, const ls::StateTree& model, bool durable) {
  const int fd = ::open(file.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  for (const auto& entry : model.entries()) {
    const auto& tensor = model.get<at::Tensor>(entry.name);
    const auto* bytes = static_cast<const char*>(tensor.const_data_ptr());
    for (std::size_t at = 0; at < tensor.nbytes();)
      at += static_cast<std::size_t>(::write(fd, bytes + at, tensor.nbytes() - at));
  }
  if (durable) ::fsync(fd);
  ::close(fd);
}

void copy_into(const ls::StateTree& from, const ls::StateTree& to) {
  for (const auto& entry : to.entries()) from.copy_to(entry.name, to.get<at::Tensor>(entry.name));
}

}  // namespace

int main(int, char** argv) {
  const bench::Results results(argv[1]);
  const std::filesystem::path folder = argv[2];
  const auto model = make_model();
  ls::CheckpointState state;
  state.shared.set("model", model);
  std::filesystem::create_directories(folder);

  std::filesystem::remove_all(folder / "a.ckpt");
  results.add("save", ns_of([&] { ls::save_checkpoint(folder / "a.ckpt", state, {}); }));
  std::filesystem::remove(folder / "raw");
  results.add("raw_write", ns_of([&] { write_raw(folder / "raw", model, true); }));
  std::filesystem::remove(folder / "raw");
  results.add("raw_write_cached", ns_of([&] { write_raw(folder / "raw", model, false); }));
  std::filesystem::remove(folder / "raw");

  results.add("load", ns_of([&] {
                copy_into(ls::Checkpoint(folder / "a.ckpt").shared().get<ls::StateTree>("model"), model);
              }));

  ls::CheckpointWriter writer;
  writer.save(folder / "b.ckpt", state, {});
  writer.wait();
  results.add("snapshot", ns_of([&] { writer.save(folder / "b.ckpt", state, {}); }));
  writer.wait();
  std::filesystem::remove_all(folder);
}
