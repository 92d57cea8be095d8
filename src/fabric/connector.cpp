#include "fabric/connector.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <vector>

#include <lockstep/base/env.h>
#include <lockstep/base/error.h>
#include <lockstep/base/log.h>
#include <lockstep/cluster/detect.h>
#include <lockstep/device/accelerator.h>
#include <lockstep/device/allocator.h>
#include <lockstep/device/torch_device.h>
#include <lockstep/launch/join.h>
#include <lockstep/launch/launch.h>
#include <lockstep/parallel/dispatch/engine_hooks.h>

#include "base/job_log.h"
#include "base/system.h"
#include "cluster/environment_end.h"
#include "device/vector_math.h"
#include "launch/outside_ranks.h"
#include "launch/signals.h"

namespace lockstep::detail {
namespace {

// The command line of this process.
std::vector<std::string> own_arguments() {
  std::ifstream file("/proc/self/cmdline");
  std::vector<std::string> arguments;
  for (std::string argument; std::getline(file, argument, '\0');) arguments.push_back(argument);
  return arguments;
}

[[noreturn]] void refuse_devices(int asked, int started, const ClusterEnvironment& environment) {
  const bool is_variable = environment.name() == "torchelastic" && env::get("LOCAL_WORLD_SIZE");
  const std::string source = is_variable ? "LOCAL_WORLD_SIZE" : "cluster environment " + environment.name();
  throw ConfigError("fabric", {.what = "devices differs from what the launcher started on this node",
                               .expected = std::to_string(started) + " (" + source + "), or auto",
                               .got = std::to_string(asked)});
}

// What `asked` leaves open is as it was started.
WorldShape started_shape(const ClusterEnvironment& environment, const WorldShape& asked) {
  const int world = environment.world_size();
  const int local = environment.local_world_size().value_or(world);
  if (world == 1) return {.devices = local, .num_nodes = asked.num_nodes};
  // Nodes with different numbers of ranks count as one: only the product is the world's size.
  if (world % local != 0) return {.devices = world, .num_nodes = 1};
  return {.devices = local, .num_nodes = world / local};
}

DevicePlan device_plan(const ConnectorOptions& options, const ClusterEnvironment& environment) {
  return devices_of_run(options.strategy, options.accelerator, options.devices,
                        environment.name() == "torchelastic");
}

WorldShape world_shape(const ConnectorOptions& options, const ClusterEnvironment& environment, int devices) {
  const WorldShape asked{.devices = devices, .num_nodes = options.num_nodes};
  const bool is_started = environment.creates_processes_externally();
  const auto shape = is_started && options.devices.is_auto() ? started_shape(environment, asked) : asked;
  environment.validate_settings(shape.devices, shape.num_nodes);
  const int local = environment.local_world_size().value_or(shape.devices);
  if (is_started && !options.devices.is_auto() && shape.devices != local)
    refuse_devices(shape.devices, local, environment);
  return shape;
}

std::shared_ptr<ClusterEnvironment> chosen_environment(const ConnectorOptions& options) {
  const auto named = named_environment(options.strategy, options.cluster_environment);
  const auto environment = named ? named : detect_environment();
  if (named) launch::leave_if_started_outside(*named);
  // This process is a rank already, also where the settings do not match.
  if (environment->creates_processes_externally()) cluster::tear_down_at_end(environment);
  return environment;
}

}  // namespace

std::shared_ptr<ClusterEnvironment> named_environment(const StrategyOptions& strategy,
                                                      const std::shared_ptr<ClusterEnvironment>& besides) {
  const auto start = rank_start(strategy);
  const bool is_strategys = start && !start->cluster_environment.is_detected();
  if (is_strategys && besides)
    throw ConfigError("fabric",
                      {.what = "cluster_environment is given to the strategy, and another one besides",
                       .expected = "one of them",
                       .got = start->cluster_environment.name() + " and " + besides->name()});
  return is_strategys ? start->cluster_environment.environment() : besides;
}

Connector::Connector(ConnectorOptions options)
    : options_(std::move(options)),
      environment_(chosen_environment(options_)),
      plan_(device_plan(options_, *environment_)),
      shape_(world_shape(options_, *environment_, plan_.count)) {
  launch::heed_signals_as_first_process();
}

bool Connector::must_start_ranks() const {
  if (world_size() == 1 || environment_->creates_processes_externally()) return false;
  const auto start = rank_start(options_.strategy);
  if (!start || start->start_method != StartMethod::kFork) return true;
  throw ConfigError(
      "fabric", {.what = "strategy ddp_fork: the ranks can no longer be forked",
                 .expected = "devices to be known to ls::run(), by flag, YAML, environment or ls::Program",
                 .got = "devices " + options_.devices.text() + " given in code",
                 .hint = "use strategy ddp, which starts the program anew"});
}

void Connector::start_ranks(const std::filesystem::path& run_dir) const {
  auto arguments = own_arguments();
  std::vector<char*> argv;
  for (auto& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  std::exit(launch_reexec(launch_options(shape_.devices, shape_.num_nodes, run_dir),
                          static_cast<int>(arguments.size()), argv.data()));
}

std::shared_ptr<Strategy> Connector::join() const {
  disable_heap_trimming();
  detail::choose_vector_math();
  join_launcher();
  set_world_ranks(*environment_, shape_);
  cluster::tear_down_at_end(environment_);
  set_rank_of_job_log(environment_->global_rank());
  auto strategy = make_strategy(options_.strategy, world_size(), find_accelerator(plan_.accelerator)->type());
  if (!strategy)
    throw ConfigError("fabric", {.what = "strategy", .expected = "a strategy", .got = "a null pointer"});
  if (options_.expandable_segments && !device().is_cpu()) ask_for_expandable_segments();
  show_device_of_rank(plan_, environment_->local_rank());
  begin_on_device(*find_accelerator(plan_.accelerator), device());
  if (options_.cuda_graphs) leave_default_stream(device());
  if (options_.cuda_graphs && device().is_cpu() && environment_->global_rank() == 0)
    log_warning("cuda_graphs = true has no effect on the CPU: steps are not captured");
  if (!device().is_cpu())
    install_autograd_engine();  // a backward pass starts threads, and then it is too late
  strategy->set_root_device(device());
  return strategy;
}

}  // namespace lockstep::detail
