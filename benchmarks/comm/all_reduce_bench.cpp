// All-reduce between two processes of this machine, against c10d's Gloo backend without anything around it.
//
// Usage: bench_all_reduce RESULTS. A case is SIZE/VARIANT. Calls follow each other without a barrier; the
// number is what one took on rank 0, on average over a block of calls.
#include <comm/c10d.h>

#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include <lockstep/launch/join.h>
#include <lockstep/launch/launch.h>
#include <lockstep/lockstep.h>

#include <unistd.h>
#include <algorithm>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "results.h"

namespace {

namespace ls = lockstep;

constexpr int kRanks = 2;
constexpr std::int64_t kBlockBytes = 256 << 20;  // a block is as many calls as move that much, within:
constexpr std::int64_t kMinCalls = 2;
constexpr std::int64_t kMaxCalls = 500;

struct Size {
  const char* name;
  std::int64_t bytes;
};
constexpr Size kSizes[] = {{"64_B", 64},       {"4_KiB", 4 << 10},   {"64_KiB", 64 << 10},
                           {"1_MiB", 1 << 20}, {"16_MiB", 16 << 20}, {"64_MiB", 64 << 20}};

struct Variant {
  std::string name;
  std::function<void(const torch::Tensor&)> all_reduce;
};

int rank() { return static_cast<int>(ls::env::require_int("RANK")); }

// Our ways to do it, by the options that differ.
std::vector<std::pair<std::string, ls::CommOptions>> our_options() {
  return {{"ordered", {}},
          {"fast", {.reduction = ls::Reduction::kFast}},
          {"ordered_unchecked", {.check_collectives = false}}};
}

std::vector<std::pair<std::string, ls::Communicator>> our_communicators() {
  std::vector<std::pair<std::string, ls::Communicator>> communicators;
  for (auto [name, options] : our_options()) {
    options.rank = rank();
    options.world_size = kRanks;
    options.main_port = static_cast<int>(ls::env::require_int("MASTER_PORT"));
    communicators.emplace_back(name, ls::init_communicator(options));
  }
  return communicators;
}

Variant variant_of(const std::string& name, const ls::Communicator& comm) {
  return {name, [comm](const torch::Tensor& tensor) { comm.all_reduce(tensor); }};
}

Variant gloo_variant(const std::string& store_file) {
  using c10d::ProcessGroupGloo;
  const auto options = ProcessGroupGloo::Options::create();
  options->devices = {ProcessGroupGloo::createDeviceForHostname("127.0.0.1")};
  const auto group = c10::make_intrusive<ProcessGroupGloo>(
      c10::make_intrusive<c10d::FileStore>(store_file, kRanks), rank(), kRanks, options);
  return {"gloo", [group](const torch::Tensor& tensor) {
            std::vector<at::Tensor> tensors{tensor};
            group->allreduce(tensors)->wait();
          }};
}

void check(const Variant& variant, const torch::Tensor& tensor) {
  tensor.fill_(1);
  variant.all_reduce(tensor);
  if (!tensor.eq(kRanks).all().item<bool>())
    throw ls::Error("bench", {.what = variant.name + ": a wrong sum"});
  tensor.zero_();
}

double ns_per_call(const Variant& variant, const torch::Tensor& tensor, std::int64_t calls) {
  check(variant, tensor);
  for (std::int64_t call = 0; call < calls / 10; ++call) variant.all_reduce(tensor);
  const auto start = bench::now_ns();
  for (std::int64_t call = 0; call < calls; ++call) variant.all_reduce(tensor);
  return static_cast<double>(bench::now_ns() - start) / static_cast<double>(calls);
}

void run_rank(const bench::Results& results, const std::string& store_file) {
  torch::set_num_threads(1);
  const auto communicators = our_communicators();
  std::vector<Variant> variants;
  for (const auto& [name, comm] : communicators) variants.push_back(variant_of(name, comm));
  variants.push_back(gloo_variant(store_file));
  for (const auto& [size, bytes] : kSizes) {
    const auto tensor = torch::zeros({bytes / 4});
    for (const auto& variant : variants) {
      const auto ns = ns_per_call(variant, tensor, std::clamp(kBlockBytes / bytes, kMinCalls, kMaxCalls));
      if (rank() == 0) results.add(std::string(size) + "/" + variant.name, ns);
    }
  }
  for (const auto& [name, comm] : communicators) comm.close();
}

}  // namespace

int main(int, char** argv) {
  const bench::Results results(argv[1]);
  const auto store_file =
      (std::filesystem::temp_directory_path() / ("bench_all_reduce." + std::to_string(getpid()))).string();
  const int code = ls::launch_forked({.nprocs = kRanks},
                                     [&] { return ls::run_rank([&] { run_rank(results, store_file); }); });
  std::filesystem::remove(store_file);
  return code;
}
