// spawn(): a function in several processes, as torch.multiprocessing.spawn().
#pragma once

#include <cstring>
#include <functional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <lockstep/base/export.h>
#include <lockstep/launch/errors.h>

namespace lockstep {

/// How many processes spawn() starts.
struct SpawnOptions {
  int nprocs = 1;  ///< processes on this machine, >= 1; their ranks are 0 to nprocs - 1
};

/// How a result of rank 0 becomes bytes and a value again. Specialise it for types of your own; built are
/// strings and, as they lie in memory, trivially copyable types and vectors of them.
template <class T>
struct SpawnResult {
  static_assert(std::is_trivially_copyable_v<T>, "specialise lockstep::SpawnResult for this type");
  /// The bytes that travel to the parent.
  static std::string to_bytes(const T& value) {
    return std::string(reinterpret_cast<const char*>(&value), sizeof value);
  }
  /// The value of what to_bytes() gave.
  static T from_bytes(const std::string& bytes) {
    T value;
    std::memcpy(&value, bytes.data(), sizeof value);
    return value;
  }
};

/// A text travels as it is.
template <>
struct SpawnResult<std::string> {
  /// The text itself.
  static std::string to_bytes(std::string value) { return value; }
  /// The text itself.
  static std::string from_bytes(std::string bytes) { return bytes; }
};

/// Items travel as they lie in memory, one after the other.
template <class T>
struct SpawnResult<std::vector<T>> {
  static_assert(std::is_trivially_copyable_v<T>, "specialise lockstep::SpawnResult for this type");
  /// The bytes that travel to the parent.
  static std::string to_bytes(const std::vector<T>& values) {
    return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
  }
  /// The value of what to_bytes() gave.
  static std::vector<T> from_bytes(const std::string& bytes) {
    std::vector<T> values(bytes.size() / sizeof(T));
    if (!values.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }
};

namespace detail {

/// Runs `body` in forked processes.
LOCKSTEP_API void spawn_processes(const SpawnOptions& options, const std::function<void(int rank)>& body);

/// The same; returns the bytes that it returned on rank 0.
LOCKSTEP_API std::string spawn_for_result(const SpawnOptions& options,
                                          const std::function<std::string(int rank)>& body);

}  // namespace detail

/// Calls `fn(rank, args...)` in `options.nprocs` processes forked from this one, and returns what it
/// returned on rank 0. Blocks until all have ended. They are ranks as launch_forked() makes them: their
/// environment has RANK, WORLD_SIZE, MASTER_ADDR and the MASTER_PORT of a free port (unless `fn` sets its
/// own), so that init_process_group() needs no options; they die with this process; static destructors do
/// not run in them. Set their threads by at::set_num_threads(threads_per_rank()).
///
/// When one fails, the others are stopped within a second. A process that calls exit(0) has succeeded.
/// @throws ProcessError when a process throws, exits with a code or is killed, when rank 0 calls exit(0) and
///   `fn` has a result, and when SIGINT or SIGTERM asks this one to stop
/// @throws ConfigError when options are out of range, this process is a rank already or has more than one
///   thread: call it before the first tensor operation, which starts threads that a fork would lose
template <class Fn, class... Args>
auto spawn(const Fn& fn, const std::tuple<Args...>& args, const SpawnOptions& options) {
  using Result = std::invoke_result_t<const Fn&, int, const Args&...>;
  const auto call = [&](int rank) {
    return std::apply([&](const Args&... each) { return std::invoke(fn, rank, each...); }, args);
  };
  if constexpr (std::is_void_v<Result>) {
    detail::spawn_processes(options, call);
  } else {
    using Codec = SpawnResult<std::remove_cvref_t<Result>>;
    return Codec::from_bytes(
        detail::spawn_for_result(options, [&](int rank) { return Codec::to_bytes(call(rank)); }));
  }
}

/// The same for a function of the rank alone.
template <class Fn>
auto spawn(const Fn& fn, const SpawnOptions& options) {
  return spawn(fn, std::tuple<>(), options);
}

}  // namespace lockstep
