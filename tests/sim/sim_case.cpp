// Trains a small network for 20 steps on ranks with a simulated device each, and the same on CPUs, and
// compares: `sim_case CASE --world N [--drop-wait K] --out FILE.json`. CASE is one of kCases: a strategy, for
// some of them with "_offload" for what is kept on the CPU, "_disk" for what is kept on disk or "_fp16" for
// DeepSpeed's loss scale; zero3_quantized and zero3_plus for ZeRO++ without and with secondary shards and
// error feedback; or a precision, clip or captured, which is single or ddp with captured steps. Each layer is
// a unit under FSDP and ZeRO++. `--capture true` captures those of any other, `--kernels own` has devices
// take kernels of our own. `--drop-wait each` leaves out the waits of each place in the program in its turn,
// and lists those that were not reported. `--references FOLDER` keeps what CPUs give there, for other runs of
// the same case. `--accelerator cuda` takes a real device instead, whose waits are counted by CUPTI.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include <lockstep/lockstep.h>
#include <lockstep/torch.h>

#include "comm/listener.h"
#include "cuda/host_waits.h"
#include "sim/own_kernels.h"
#include "sim/sim.h"
#include "sim/sim_accelerator.h"

namespace lockstep::sim {
namespace {

using nlohmann::json;

constexpr int kSteps = 20;
constexpr int kWarmUp = 5;  // steps

struct Asked {
  std::string name;
  std::string accelerator = "sim";
  std::string optimizer = "adamw";
  std::string backend = "auto";
  int world = 1;
  int drop_wait = -1;
  bool drops_each_wait = false;
  bool is_captured = false;
  bool has_own_kernels = false;
  std::filesystem::path out;
  std::filesystem::path references = {};
  std::filesystem::path folder = {};  // for files of a run
};

// What one rank has found.
struct Found {
  std::string bits;  // of the weights, and of the losses
  std::vector<double> losses;
  std::vector<std::string> races;
  double host_syncs_per_step = 0;
  std::uint64_t segments = 0;
  double waits = 0;                                     // per step
  std::map<std::string, std::string> waits_found = {};  // by place: nothing, or which was not
  std::int64_t captured_steps = 0;
  std::map<std::string, int> own_launches;  // by kernel, in steps that were not replayed
  std::string failure;
};

struct NetImpl : torch::nn::Module {
  explicit NetImpl(bool is_autocast) {
    first = register_module("first", torch::nn::Linear(16, 32));
    if (!is_autocast) norm = register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({32})));
    second = register_module("second", torch::nn::Linear(32, 32));
    third = register_module("third", torch::nn::Linear(32, 32));
    head = register_module("head", torch::nn::Linear(32, 4));
  }
  // Autocast of CPUs has other lists of operators than that of devices: what is in neither is left out.
  at::Tensor forward(const at::Tensor& input) {
    const auto hidden = norm ? torch::gelu(norm(first(input))) : torch::relu(first(input));
    return head(torch::relu(third(torch::relu(second(hidden))))).to(at::kFloat);
  }
  torch::nn::Linear first{nullptr}, second{nullptr}, third{nullptr}, head{nullptr};
  torch::nn::LayerNorm norm{nullptr};
};
TORCH_MODULE(Net);

// What only a file can say of ZeRO++; nothing is too small to be quantised.
std::filesystem::path config_of(const Asked& asked) {
  json zero{{"stage", 3},
            {"stage3_param_persistence_threshold", 0},
            {"stage3_max_live_parameters", 0},
            {"leaf_module", {{"classes", {"LinearImpl"}}}},
            {"zero_quantized_weights", true},
            {"zero_quantized_gradients", true}};
  if (asked.name == "zero3_plus") {
    zero["zero_hpz_partition_size"] = 2;
    zero["zeropp_loco_param"] = {{"err_beta", 0.8}, {"reset_T", 6}};
  }
  const auto file = asked.folder / "ds_config.json";
  if (!std::filesystem::exists(file)) std::ofstream(file) << json{{"zero_optimization", zero}};
  return file;
}

// Nothing for what is not FSDP's.
std::optional<ShardingStrategy> sharding_of(const std::string& name) {
  if (name.starts_with("fsdp")) return ShardingStrategy::kFullShard;
  if (name == "shard_grad_op") return ShardingStrategy::kShardGradOp;
  if (name == "no_shard") return ShardingStrategy::kNoShard;
  if (name == "hybrid") return ShardingStrategy::kHybridShard;
  if (name == "hybrid_grad_op") return ShardingStrategy::kHybridShardZero2;
  return std::nullopt;
}

StrategyOptions strategy_of(const Asked& asked, const std::string& accelerator) {
  const auto& name = asked.name;
  const auto backend = accelerator == "cpu" ? "auto" : asked.backend;
  const bool is_on_disk = name.ends_with("_disk");
  const bool is_offloaded = name.ends_with("_offload") || is_on_disk;
  if (const auto sharding = sharding_of(name))
    return Fsdp{
        .sharding_strategy = *sharding,
        .device_mesh = name.starts_with("hybrid") ? std::vector{2, asked.world / 2} : std::vector<int>(),
        .auto_wrap_policy = WrapPolicy::type_names({"Linear"}),
        .cpu_offload = is_offloaded,
        .offload_dir = is_on_disk ? asked.folder : std::filesystem::path(),
        .process_group_backend = backend};
  if (name == "zero3_quantized" || name == "zero3_plus")
    return DeepSpeed{.config = config_of(asked), .process_group_backend = backend};
  if (name.starts_with("zero")) {
    const auto offload_to = is_on_disk ? deepspeed::OffloadDevice::kNvme : deepspeed::OffloadDevice::kCpu;
    return DeepSpeed{.stage = name[4] - '0',
                     .offload_optimizer = is_offloaded,
                     .offload_parameters = is_offloaded && name[4] == '3',
                     .offload_optimizer_device = offload_to,
                     .offload_params_device = offload_to,
                     .nvme_path = asked.folder,
                     .initial_scale_power = 24,  // steps overflow, and the scale grows again, within a run
                     .loss_scale_window = 3,
                     .process_group_backend = backend};
  }
  if (asked.world > 1) return Ddp{.process_group_backend = backend};
  return SingleDevice{};
}

PrecisionOptions precision_of(const std::string& name) {
  if (name == "bf16") return Bf16Mixed{};
  if (name.ends_with("fp16")) return Fp16Mixed{};
  return Fp32{};
}

OptimizerFactory optimizer_of(const std::string& name) {
  if (name == "lamb") return Lamb{.lr = 1e-2};
  if (name == "muon") return Muon{.lr = 1e-2};
  return AdamW{.lr = 1e-2};
}

std::string bytes_of(const at::Tensor& tensor) {
  const auto host = tensor.detach().to(at::kCPU).contiguous();
  return {static_cast<const char*>(host.const_data_ptr()), host.nbytes()};
}

// What a step that is captured, or not, does from its first call on.
using Step = std::function<void()>;

constexpr int kStepsToCapture = 3;  // before the one that is captured
constexpr int kMostTries = 5;       // to leave out the waits of a place

std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const auto& line : lines) text += (text.empty() ? "" : "; ") + line;
  return text;
}

// What is reported in a few steps of which one lacks the waits of a place.
struct Trial {
  std::string before;  // that step
  std::string after;
  std::vector<WaitPlace> places = {};  // in that step
};

// It is the step that a CapturedStep captures.
Trial step_without(const Step& step, std::uint64_t place) {
  for (int i = 1; i < kStepsToCapture; ++i) step();
  take_reports();  // of an earlier trial
  step();
  Trial trial{.before = joined(take_reports()), .after = {}};
  drop_waits_of(place);
  reset_counters();
  step();
  drop_waits_of(0);
  trial.places = wait_places();
  step();
  trial.after = joined(take_reports());
  return trial;
}

// Leaves out the waits of each place in a step in its turn, each time of a new step. `refusal` says why the
// latest was not captured. Ranks may have other places, and take as many steps as the one that has most.
// A step in which nothing is found is tried again: it may have had no such wait, as its memory was let go of
// later by another thread, or the host may have known already, from one that looks whether a collective is
// over, what the wait would have ordered.
void check_waits(const Fabric& fabric, const std::function<Step()>& make_step,
                 const std::function<std::string()>& refusal, Found& found) {
  const auto most_of_ranks = [&](double value) { return fabric.all_reduce(value, ReduceOp::kMax); };
  const auto whole = step_without(make_step(), 0);
  auto noise = whole.before + whole.after;
  const auto count = whole.places.size();
  found.waits = most_of_ranks(static_cast<double>(count));
  for (std::size_t i = 0; i < static_cast<std::size_t>(found.waits); ++i) {
    const auto place = i < count ? whole.places[i] : WaitPlace{};
    bool is_found = i >= count;
    for (int tries = 0; tries < kMostTries && most_of_ranks(is_found ? 0 : 1) > 0; ++tries) {
      const auto trial = step_without(make_step(), place.id);
      noise += trial.before;
      is_found = is_found || !trial.after.empty() || refusal().find("does not wait for") != std::string::npos;
    }
    if (i < count) found.waits_found[std::to_string(place.id)] = is_found ? "" : place.text;
  }
  if (!noise.empty()) found.failure = "where no wait is left out, there is: " + noise;
}

Found train(const Asked& asked, const std::string& accelerator) {
  Found found;
  const bool on_sim = accelerator == "sim";
  std::optional<OwnKernels> kernels;
  if (on_sim && asked.has_own_kernels) kernels.emplace();
  at::set_num_threads(1);
  Fabric fabric({.accelerator = accelerator,
                 .strategy = strategy_of(asked, accelerator),
                 .precision = precision_of(asked.name),
                 .cuda_graphs = asked.is_captured && accelerator != "cpu"});
  fabric.launch();
  fabric.seed_everything(7);
  const bool is_autocast = asked.name == "bf16" || asked.name.ends_with("fp16");
  auto [model, optimizer] = fabric.setup(Net(is_autocast), optimizer_of(asked.optimizer));
  torch::manual_seed(100 + static_cast<std::uint64_t>(fabric.global_rank()));
  std::vector<at::Tensor> inputs, targets;
  const auto losses = at::zeros({kSteps}, fabric.device());
  for (int step = 0; step < kSteps; ++step) {
    inputs.push_back(torch::randn({8, 16}));
    targets.push_back(torch::randn({8, 4}));
  }
  const auto capture = [&] {
    return fabric.capture<Example>(
        [&](const Example& batch) {
          optimizer->zero_grad();
          at::Tensor loss;
          {
            const auto autocast = fabric.autocast();
            loss = torch::mse_loss(model->forward(batch.data), batch.target);
          }
          fabric.backward(loss);
          if (asked.name == "clip") fabric.strategy().clip_gradients_lazily(*optimizer, {.value = 0.5});
          optimizer->step();
          return loss.detach();
        },
        kStepsToCapture);
  };
  auto train_on = capture();
  if (on_sim && asked.drops_each_wait) {
    const auto make_step = [&]() -> Step {
      train_on = capture();
      return [&] { train_on(fabric.to_device(Example{inputs[0], targets[0]})); };
    };
    check_waits(
        fabric, make_step, [&] { return train_on.refusal(); }, found);
    return found;
  }
  std::optional<lockstep::detail::HostWaits> waits;
  for (int step = 0; step < kSteps; ++step) {
    if (accelerator == "cuda" && step == kWarmUp) waits.emplace();
    if (on_sim && step == kWarmUp) {
      take_host_syncs();
      reset_counters();
      if (asked.drop_wait >= 0) drop_wait(static_cast<std::uint64_t>(asked.drop_wait));
    }
    const auto i = static_cast<std::size_t>(step);
    losses[step].copy_(train_on(fabric.to_device(Example{inputs[i], targets[i]})));
  }
  std::map<std::string, int> syncs;
  if (waits) syncs = waits->take();
  if (on_sim)
    for (const auto& name : take_host_syncs()) ++syncs[name];
  for (const auto& [name, count] : syncs) {
    std::fprintf(stderr, "rank %d: the host waited %d times for %s\n", fabric.global_rank(), count,
                 name.c_str());
    found.host_syncs_per_step += static_cast<double>(count) / (kSteps - kWarmUp);
  }
  if (on_sim) {
    found.segments = counters().segments;
    found.waits = static_cast<double>(counters().waits) / (kSteps - kWarmUp);
  }
  found.captured_steps = train_on.replays();
  if (asked.is_captured && on_sim && fabric.is_global_zero() && !train_on.refusal().empty())
    std::fprintf(stderr, "not captured: %s\n", train_on.refusal().c_str());
  found.bits += bytes_of(losses);
  const auto host_losses = losses.to(at::kCPU);
  for (int step = 0; step < kSteps; ++step) found.losses.push_back(host_losses[step].item<double>());
  for (const auto& [name, tensor] : fabric.strategy().module_state(*model))
    found.bits += name + bytes_of(tensor);
  if (on_sim) found.races = take_reports();
  for (const auto& launch : take_own_launches()) ++found.own_launches[launch.substr(0, launch.find(' '))];
  return found;
}

// Runs one rank in a process of its own, which writes what it has found to `file`.
pid_t start_rank(const Asked& asked, const std::string& accelerator, int rank, int port,
                 const std::filesystem::path& file) {
  const auto child = ::fork();
  if (child != 0) return child;
  ::setenv("RANK", std::to_string(rank).c_str(), 1);
  ::setenv("LOCAL_RANK", std::to_string(rank).c_str(), 1);
  ::setenv("WORLD_SIZE", std::to_string(asked.world).c_str(), 1);
  ::setenv("LOCAL_WORLD_SIZE", std::to_string(asked.world).c_str(), 1);
  ::setenv("GROUP_RANK", "0", 1);
  ::setenv("MASTER_ADDR", "127.0.0.1", 1);
  ::setenv("MASTER_PORT", std::to_string(port).c_str(), 1);
  if (asked.world > 1) ::setenv("TORCHELASTIC_RUN_ID", "sim_case", 1);
  Found found;
  try {
    register_sim();
    register_sim_transport();
    found = train(asked, accelerator);
  } catch (const std::exception& error) {
    found.failure = error.what();
    std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
  }
  std::vector<std::uint8_t> bits(found.bits.begin(), found.bits.end());
  const json result{{"bits", bits},
                    {"losses", found.losses},
                    {"races", found.races},
                    {"host_syncs_per_step", found.host_syncs_per_step},
                    {"segments", found.segments},
                    {"waits", found.waits},
                    {"waits_found", found.waits_found},
                    {"captured_steps", found.captured_steps},
                    {"own_launches", found.own_launches},
                    {"failure", found.failure}};
  std::ofstream(file) << result;
  ::_exit(found.failure.empty() ? 0 : 1);
}

std::vector<json> run_ranks(Asked asked, const std::string& accelerator) {
  const auto folder = std::filesystem::temp_directory_path() / ("sim_case_" + std::to_string(::getpid()));
  asked.folder = folder / "files";
  std::filesystem::create_directories(asked.folder);
  config_of(asked);  // before there are ranks
  const int port = test::free_port();
  std::vector<pid_t> children;
  for (int rank = 0; rank < asked.world; ++rank)
    children.push_back(start_rank(asked, accelerator, rank, port, folder / std::to_string(rank)));
  for (const auto child : children) ::waitpid(child, nullptr, 0);
  std::vector<json> results;
  for (int rank = 0; rank < asked.world; ++rank) {
    json result{
        {"failure", "the rank died"}, {"bits", ""}, {"losses", json::array()}, {"races", json::array()}};
    if (std::ifstream file(folder / std::to_string(rank)); file && file.peek() != EOF)
      result = json::parse(file);
    results.push_back(result);
  }
  std::filesystem::remove_all(folder);
  return results;
}

// JSON has no NaN, which it writes as null.
double loss_in(const json& result, std::size_t step) {
  const auto& loss = result["losses"][step];
  return loss.is_null() ? std::numeric_limits<double>::infinity() : loss.get<double>();
}

// What CPUs give, from the folder of references where it is there.
std::vector<json> run_on_cpus(const Asked& asked) {
  if (asked.references.empty()) return run_ranks(asked, "cpu");
  const auto file =
      asked.references / (asked.name + "_" + asked.optimizer + "_" + std::to_string(asked.world));
  if (std::filesystem::exists(file)) return json::parse(std::ifstream(file)).get<std::vector<json>>();
  auto results = run_ranks(asked, "cpu");
  std::ofstream(file) << json(results);
  return results;
}

// A place that some ranks have found is found: those that have nothing there need no wait.
json drop_each_wait(const Asked& asked) {
  std::map<std::string, std::string> waits;
  std::set<std::string> missing, failures;
  for (const auto& result : run_ranks(asked, asked.accelerator)) {
    for (const auto& [place, text] : result.value("waits_found", std::map<std::string, std::string>())) {
      const auto [row, is_new] = waits.emplace(place, text);
      if (!is_new && text.empty()) row->second.clear();
    }
    if (result["failure"] != "") failures.insert(result["failure"].get<std::string>());
  }
  for (const auto& [place, text] : waits)
    if (!text.empty()) missing.insert(text);
  return {{"case", asked.name},
          {"world", asked.world},
          {"failures", failures},
          {"waits", waits.size()},
          {"waits_not_found", missing}};
}

json compare(const Asked& asked) {
  const auto cpu = run_on_cpus(asked);
  const auto sim = run_ranks(asked, asked.accelerator);
  bool is_equal = true;
  std::set<std::string> races, failures;
  double syncs = 0, difference = 0, waits = 0;
  std::uint64_t segments = 0;
  std::int64_t captured = 0;
  for (std::size_t rank = 0; rank < sim.size(); ++rank) {
    is_equal = is_equal && cpu[rank]["failure"] == "" && cpu[rank]["bits"] == sim[rank]["bits"];
    for (const auto& race : sim[rank]["races"]) races.insert(race.get<std::string>());
    for (const auto* result : {&cpu[rank], &sim[rank]})
      if ((*result)["failure"] != "") failures.insert((*result)["failure"].get<std::string>());
    for (std::size_t step = 0; step < std::min(cpu[rank]["losses"].size(), sim[rank]["losses"].size());
         ++step)
      difference = std::max(difference, std::abs(loss_in(cpu[rank], step) / loss_in(sim[rank], step) - 1));
    syncs = std::max(syncs, sim[rank].value("host_syncs_per_step", 0.0));
    waits = std::max(waits, sim[rank].value("waits", 0.0));
    segments = std::max(segments, sim[rank].value("segments", std::uint64_t{0}));
    captured = std::max(captured, sim[rank].value("captured_steps", std::int64_t{0}));
  }
  return {{"case", asked.name},
          {"world", asked.world},
          {"bits_equal_cpu", is_equal},
          {"races", races},
          {"accelerator", asked.accelerator},
          {"largest_relative_difference_of_losses", difference},
          {"failures", failures},
          {"host_syncs_per_step", syncs},
          {"segments_after_warm_up", segments},
          {"waits_per_step", waits},
          {"captured_steps", captured},
          {"own_launches", sim.front().value("own_launches", json::object())}};
}

int usage() {
  std::fprintf(
      stderr,
      "usage: sim_case single|ddp|no_shard|shard_grad_op|hybrid|hybrid_grad_op|"
      "(fsdp|zero1|zero2|zero3)[_offload|_disk]|(zero1|zero2|zero3)_fp16|"
      "zero3_quantized|zero3_plus|bf16|fp16|clip|captured "
      "--world N [--capture true] [--optimizer adamw|lamb|muon] [--backend auto|sim|nccl] [--kernels own] "
      "[--drop-wait K|each] [--references FOLDER] [--accelerator sim|cuda] "
      "--out FILE.json\n");
  return 2;
}

}  // namespace
}  // namespace lockstep::sim

int main(int argc, char** argv) {
  using namespace lockstep::sim;
  static const std::set<std::string> kCases{
      "single",        "ddp",           "fsdp",          "zero1",      "zero2",           "zero3",
      "bf16",          "fp16",          "clip",          "captured",   "no_shard",        "fsdp_offload",
      "zero1_offload", "zero2_offload", "zero3_offload", "zero1_fp16", "zero2_fp16",      "zero3_fp16",
      "fsdp_disk",     "zero1_disk",    "zero2_disk",    "zero3_disk", "zero3_quantized", "zero3_plus",
      "shard_grad_op", "hybrid",        "hybrid_grad_op"};
  Asked asked;
  if (argc < 2 || !kCases.contains(argv[1])) return usage();
  asked.name = argv[1];
  asked.is_captured = asked.name == "captured";
  for (int i = 2; i + 1 < argc; i += 2) {
    const std::string flag = argv[i];
    if (flag == "--world")
      asked.world = std::atoi(argv[i + 1]);
    else if (flag == "--drop-wait" && std::string_view(argv[i + 1]) == "each")
      asked.drops_each_wait = true;
    else if (flag == "--drop-wait")
      asked.drop_wait = std::atoi(argv[i + 1]);
    else if (flag == "--references")
      asked.references = argv[i + 1];
    else if (flag == "--accelerator")
      asked.accelerator = argv[i + 1];
    else if (flag == "--optimizer")
      asked.optimizer = argv[i + 1];
    else if (flag == "--backend")
      asked.backend = argv[i + 1];
    else if (flag == "--kernels")
      asked.has_own_kernels = std::string_view(argv[i + 1]) == "own";
    else if (flag == "--capture")
      asked.is_captured = std::string_view(argv[i + 1]) == "true";
    else if (flag == "--out")
      asked.out = argv[i + 1];
    else
      return usage();
  }
  if (asked.out.empty() || asked.world < 1 || asked.world > 4) return usage();
  std::ofstream(asked.out) << (asked.drops_each_wait ? drop_each_wait(asked) : compare(asked)).dump(2)
                           << "\n";
  return 0;
}
