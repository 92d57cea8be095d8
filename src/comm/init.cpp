#include <lockstep/comm/init.h>

#include <c10/util/Logging.h>

#include <lockstep/base/env.h>
#include <lockstep/base/error.h>

#include "comm/backends/gloo.h"
#include "comm/roll_call.h"
#include "comm/shared_store.h"

namespace lockstep {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

void require(bool is_right, const char* option, const std::string& expected, const std::string& got) {
  if (is_right) return;
  throw ConfigError("comm", {.what = option, .expected = expected, .got = got, .where = "", .hint = ""});
}

void validate(const CommOptions& options) {
  require(options.backend == "gloo", "backend is not available", "gloo", options.backend);
  require(options.world_size >= 1, "world_size is out of range", ">= 1", std::to_string(options.world_size));
  require(options.rank >= 0 && options.rank < options.world_size, "rank is out of range",
          "0 to " + std::to_string(options.world_size - 1), std::to_string(options.rank));
  require(options.timeout > milliseconds(0), "timeout is out of range", "more than 0 ms",
          std::to_string(options.timeout.count()) + " ms");
}

Communicator join(const CommOptions& options, Store store, steady_clock::time_point deadline) {
  detail::roll_call(store, options.rank, options.world_size, deadline, options.timeout);
  return Communicator(detail::make_gloo_group(options, store));
}

// c10d prints stack frames of what we report by exceptions. Whoever wants them sets the variable.
void quieten_c10d() {
  c10::initLogging();
  if (!env::get("TORCH_CPP_LOG_LEVEL")) FLAGS_caffe2_log_level = c10::GLOG_ERROR;
}

}  // namespace

Communicator init_communicator(const CommOptions& options, Store store) {
  validate(options);
  if (options.world_size == 1) return Communicator();
  return join(options, std::move(store), steady_clock::now() + options.timeout);
}

Communicator init_communicator(const CommOptions& options) {
  validate(options);
  if (options.world_size == 1) return Communicator();
  require(options.main_port > 0 && options.main_port < 65536, "main_port is out of range", "1 to 65535",
          std::to_string(options.main_port));
  quieten_c10d();
  const auto deadline = steady_clock::now() + options.timeout;
  return join(options, detail::shared_store(options), deadline);
}

}  // namespace lockstep
