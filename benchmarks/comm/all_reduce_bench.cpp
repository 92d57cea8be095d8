// All-reduce or all-gather among processes of this machine, against c10d's Gloo backend without anything
// around it.
//
// Usage: bench_all_reduce RESULTS [RANKS [all_reduce | all_gather | copies [any | apart | together | hosts
// [SIZE]]]]. A case is SIZE/VARIANT, where SIZE is what a rank gives, and of an all-gather
// all_gather_SIZE/VARIANT. Calls follow each other without a barrier, and of an all-gather each rank writes
// what it gives before each call; the number is what one took on rank 0, on average over a block of calls.
// With `apart` the ranks share no memory, and have a processor each, as those of different hosts; with
// `together` all have the first processor; with `hosts` each half of them counts as a host: in `one_level`
// all but one of them do, so that each rank tells all others itself, and `host_by_host` makes an all-reduce
// of three collectives: in each host, between the first ranks, and in each host. `copies` has in Gloo's
// place, for an all-reduce, a copy by each rank of as many bytes.
#include <comm/c10d.h>

#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include <lockstep/launch/join.h>
#include <lockstep/launch/launch.h>
#include <lockstep/lockstep.h>

#include <sched.h>
#include <unistd.h>
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "results.h"

namespace {

namespace ls = lockstep;

constexpr std::int64_t kBlockBytes = 256 << 20;  // a block is as many calls as move that much, within:
constexpr std::int64_t kMinCalls = 2;
constexpr std::int64_t kMaxCalls = 500;

struct Size {
  const char* name;
  std::int64_t bytes;
};
constexpr Size kSizes[] = {{"64_B", 64},       {"4_KiB", 4 << 10},   {"64_KiB", 64 << 10},
                           {"1_MiB", 1 << 20}, {"16_MiB", 16 << 20}, {"64_MiB", 64 << 20}};

enum class Places { kAny, kApart, kTogether, kHosts };

struct Job {
  bool gathers = false;
  bool copies = false;
  Places places = Places::kAny;
  std::string only_size = {};  // all where it is empty
};

Job job_of(int argc, char** argv) {
  const auto word = [&](int number) { return std::string(argc > number ? argv[number] : ""); };
  const auto places = word(4) == "apart"      ? Places::kApart
                      : word(4) == "together" ? Places::kTogether
                      : word(4) == "hosts"    ? Places::kHosts
                                              : Places::kAny;
  return {.gathers = word(3) == "all_gather",
          .copies = word(3) == "copies",
          .places = places,
          .only_size = word(5)};
}

struct Variant {
  std::string name;
  std::function<void(const torch::Tensor&)> all_reduce;
  std::function<void(const torch::Tensor& all, const torch::Tensor& own)> all_gather = {};
  bool is_collective = true;
};

int rank() { return static_cast<int>(ls::env::require_int("RANK")); }
int ranks() { return static_cast<int>(ls::env::require_int("WORLD_SIZE")); }

// Our ways to do it, by the options that differ.
std::vector<std::pair<std::string, ls::CommOptions>> our_options(Places places) {
  if (places == Places::kApart) return {{"sockets", {}}, {"sockets_unchecked", {.check_collectives = false}}};
  if (places == Places::kHosts) return {{"one_level", {}}, {"ordered", {}}};
  return {{"ordered", {}},
          {"fast", {.reduction = ls::Reduction::kFast}},
          {"ordered_unchecked", {.check_collectives = false}}};
}

std::vector<std::pair<std::string, ls::Communicator>> our_communicators(Places places) {
  std::vector<std::pair<std::string, ls::Communicator>> communicators;
  for (auto [name, options] : our_options(places)) {
    options.rank = rank();
    options.world_size = ranks();
    options.main_port = static_cast<int>(ls::env::require_int("MASTER_PORT"));
    communicators.emplace_back(name, ls::init_communicator(options));
  }
  return communicators;
}

Variant variant_of(const std::string& name, const ls::Communicator& comm) {
  return {name, [comm](const torch::Tensor& tensor) { comm.all_reduce(tensor); },
          [comm](const torch::Tensor& all, const torch::Tensor& own) { comm.all_gather(all, own); }};
}

int host() { return rank() / (ranks() / 2); }

// Whose ranks have found out by then that this one is on host `host`.
Variant variant_on_host(const std::string& name, const ls::Communicator& comm, int host) {
  ls::env::set("LOCKSTEP_TEST_HOST", std::to_string(host));
  for (int i = 0; i < 5; ++i) comm.barrier();
  return variant_of(name, comm);
}

// What three collectives take that pass between hosts once for each of them.
Variant host_by_host_variant(const ls::Communicator& comm) {
  const auto own = comm.split(host(), rank());
  const auto first_ranks = comm.new_group({0, ranks() / 2});
  return {"host_by_host", [=](const torch::Tensor& tensor) {
            own->all_reduce(tensor);
            if (first_ranks) first_ranks->all_reduce(tensor);
            own->broadcast(tensor, 0);
          }};
}

Variant copy_variant() {
  return {.name = "copy",
          .all_reduce =
              [to = std::make_shared<torch::Tensor>()](const torch::Tensor& from) {
                if (!to->defined() || to->numel() != from.numel()) *to = torch::zeros_like(from);
                to->copy_(from);
              },
          .is_collective = false};
}

Variant gloo_variant(const std::string& store_file) {
  using c10d::ProcessGroupGloo;
  const auto options = ProcessGroupGloo::Options::create();
  options->devices = {ProcessGroupGloo::createDeviceForHostname("127.0.0.1")};
  const auto group = c10::make_intrusive<ProcessGroupGloo>(
      c10::make_intrusive<c10d::FileStore>(store_file, ranks()), rank(), ranks(), options);
  return {"gloo",
          [group](const torch::Tensor& tensor) {
            std::vector<at::Tensor> tensors{tensor};
            group->allreduce(tensors)->wait();
          },
          [group](const torch::Tensor& all, const torch::Tensor& own) {
            auto to = all;
            auto from = own;
            group->_allgather_base(to, from)->wait();
          }};
}

void require(bool is_right, const Variant& variant) {
  if (!is_right) throw ls::Error("bench", {.what = variant.name + ": a wrong result"});
}

// A call to be timed, after the first one has given what it should.
std::function<void()> all_reduce(const Variant& variant, std::int64_t elements) {
  const auto tensor = torch::ones({elements});
  variant.all_reduce(tensor);
  require(!variant.is_collective || tensor.eq(ranks()).all().item<bool>(), variant);
  tensor.zero_();
  return [=] { variant.all_reduce(tensor); };
}

std::function<void()> all_gather(const Variant& variant, std::int64_t elements) {
  const auto own = torch::full({elements}, rank(), torch::kFloat32), all = torch::empty({ranks() * elements});
  variant.all_gather(all, own);
  require(all.view({ranks(), elements}).sum(1).eq(torch::arange(ranks()) * elements).all().item<bool>(),
          variant);
  return [=] {
    own.fill_(1);
    variant.all_gather(all, own);
  };
}

double ns_per_call(const std::function<void()>& call, std::int64_t calls) {
  for (std::int64_t i = 0; i < calls / 10; ++i) call();
  const auto start = bench::now_ns();
  for (std::int64_t i = 0; i < calls; ++i) call();
  return static_cast<double>(bench::now_ns() - start) / static_cast<double>(calls);
}

// Threads that are started later stay there, too.
void stay_on_processor(int number) {
  cpu_set_t processors;
  CPU_ZERO(&processors);
  CPU_SET(static_cast<std::size_t>(number), &processors);
  if (sched_setaffinity(0, sizeof processors, &processors) != 0)
    throw ls::Error("bench", {.what = "there is no processor " + std::to_string(number) + " for a rank"});
}

void run_rank(const bench::Results& results, const std::string& store_file, const Job& job) {
  torch::set_num_threads(1);
  if (job.places == Places::kApart) stay_on_processor(rank());
  if (job.places == Places::kTogether) stay_on_processor(0);
  const auto communicators = our_communicators(job.places);
  std::vector<Variant> variants;
  for (const auto& [name, comm] : communicators) {
    const bool is_uneven = name == "one_level";
    variants.push_back(job.places == Places::kHosts
                           ? variant_on_host(name, comm, is_uneven ? rank() / (ranks() - 1) : host())
                           : variant_of(name, comm));
  }
  if (job.places == Places::kHosts) variants.push_back(host_by_host_variant(communicators.back().second));
  variants.push_back(job.copies ? copy_variant() : gloo_variant(store_file));
  for (const auto& [size, bytes] : kSizes) {
    if (!job.only_size.empty() && job.only_size != size) continue;
    const auto calls = std::clamp(kBlockBytes / bytes, kMinCalls, kMaxCalls);
    for (const auto& variant : variants) {
      const auto call = job.gathers ? all_gather(variant, bytes / 4) : all_reduce(variant, bytes / 4);
      const auto ns = ns_per_call(call, calls);
      if (rank() == 0)
        results.add((job.gathers ? "all_gather_" : "") + std::string(size) + "/" + variant.name, ns);
    }
  }
  for (const auto& [name, comm] : communicators) comm.close();
}

}  // namespace

int main(int argc, char** argv) {
  const bench::Results results(argv[1]);
  const int nprocs = argc > 2 ? std::atoi(argv[2]) : 2;
  const auto job = job_of(argc, argv);
  if (job.places == Places::kApart) ls::env::set("LOCKSTEP_SHARED_MEMORY", "0");
  const auto store_file =
      (std::filesystem::temp_directory_path() / ("bench_all_reduce." + std::to_string(getpid()))).string();
  const int code = ls::launch_forked(
      {.nprocs = nprocs}, [&] { return ls::run_rank([&] { run_rank(results, store_file, job); }); });
  std::filesystem::remove(store_file);
  return code;
}
