// PJRT's C interface, with its errors as exceptions and its events waited for.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include <pjrt_c_api.h>

namespace lockstep::xla {

/// Declares `name`, the arguments of a function of PJRT, all zero but their size.
#define LOCKSTEP_PJRT_ARGS(type, name) \
  type name{};                         \
  name.struct_size = type##_STRUCT_SIZE

/// What `error` says, which is freed. Empty for none.
std::string take_message(const PJRT_Api& api, PJRT_Error* error);

/// @throws Error with what was being done and the plug-in's words, for an error, which is freed
void check(const PJRT_Api& api, PJRT_Error* error, std::string_view doing);

/// Blocks until `event` is there, and frees it. @throws as check()
void await(const PJRT_Api& api, PJRT_Event* event, std::string_view doing);

/// While it lives, the plug-in runs a program or is waited for, which is counted.
class InPlugin {
 public:
  InPlugin() : begin_(std::chrono::steady_clock::now()) {}
  ~InPlugin();
  InPlugin(const InPlugin&) = delete;
  InPlugin& operator=(const InPlugin&) = delete;

  /// What was counted in this process, of all threads together. Thread-safe.
  static double seconds();

 private:
  std::chrono::steady_clock::time_point begin_;
};

}  // namespace lockstep::xla
