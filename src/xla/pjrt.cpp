#include "xla/pjrt.h"

#include <atomic>

#include <lockstep/base/error.h>

#include "xla/host_failure.h"

namespace lockstep::xla {

namespace {

std::atomic<std::chrono::nanoseconds::rep> counted_nanoseconds = 0;

}  // namespace

InPlugin::~InPlugin() {
  const auto took = std::chrono::steady_clock::now() - begin_;
  counted_nanoseconds += std::chrono::duration_cast<std::chrono::nanoseconds>(took).count();
}

double InPlugin::seconds() { return 1e-9 * static_cast<double>(counted_nanoseconds.load()); }

std::string take_message(const PJRT_Api& api, PJRT_Error* error) {
  if (error == nullptr) return {};
  LOCKSTEP_PJRT_ARGS(PJRT_Error_Message_Args, message);
  message.error = error;
  api.PJRT_Error_Message(&message);
  std::string text(message.message, message.message_size);
  LOCKSTEP_PJRT_ARGS(PJRT_Error_Destroy_Args, destroy);
  destroy.error = error;
  api.PJRT_Error_Destroy(&destroy);
  return text.empty() ? "an error without words" : text;
}

void check(const PJRT_Api& api, PJRT_Error* error, std::string_view doing) {
  if (error == nullptr) return;
  auto message = take_message(api, error);
  rethrow_host_failure();  // the plug-in's words would hide who has failed
  throw Error("xla", {.what = "the PJRT plug-in failed to " + std::string(doing), .got = std::move(message)});
}

void await(const PJRT_Api& api, PJRT_Event* event, std::string_view doing) {
  LOCKSTEP_PJRT_ARGS(PJRT_Event_Await_Args, wait);
  wait.event = event;
  auto* const error = api.PJRT_Event_Await(&wait);
  LOCKSTEP_PJRT_ARGS(PJRT_Event_Destroy_Args, destroy);
  destroy.event = event;
  check(api, api.PJRT_Event_Destroy(&destroy), "free an event");
  check(api, error, doing);
}

}  // namespace lockstep::xla
