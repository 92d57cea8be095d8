// What drifts in c10d between LibTorch 2.11 and 2.14, in one place; what drifts elsewhere is in
// src/device/compat.h.
#pragma once

#include <memory>
#include <string>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include "comm/c10d.h"

#include <torch/csrc/distributed/c10d/comm.hpp>
#include <torch/csrc/distributed/c10d/logger.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>
#if __has_include(<torch/csrc/distributed/c10d/store/TCPStoreBackend.hpp>)
#include <torch/csrc/distributed/c10d/store/TCPStoreBackend.hpp>
#else
#include <torch/csrc/distributed/c10d/TCPStoreBackend.hpp>
#endif

namespace lockstep::detail {

/// The arguments of c10d::Reducer that we set.
struct ReducerArgs {
  std::vector<at::Tensor> parameters;
  std::vector<std::vector<std::size_t>> buckets;
  c10::intrusive_ptr<c10d::ProcessGroup> process_group;
  std::int64_t bucket_bytes_cap = c10d::kDefaultBucketBytesCap;
  std::int64_t first_bucket_bytes_cap = c10d::kDefaultFirstBucketBytes;
  bool find_unused_parameters = false;
  bool gradient_as_bucket_view = false;
  bool skip_all_reduce_unused_params = false;
  std::unordered_map<std::size_t, std::string> names;
};

/// Builds a Reducer with whichever of the known constructors is there. A template, so that the calls
/// of the others are never compiled.
template <class Reducer = c10d::Reducer>
std::shared_ptr<Reducer> make_reducer(ReducerArgs args) {
  const std::vector<bool> sparse(args.parameters.size(), false);
  const auto build = [&](auto... drifting) {
    return std::make_shared<Reducer>(std::move(args.parameters), std::move(args.buckets),
                                     std::move(args.process_group), sparse, args.bucket_bytes_cap,
                                     args.find_unused_parameters, args.gradient_as_bucket_view,
                                     std::move(args.names), args.first_bucket_bytes_cap, drifting...);
  };
  using Buckets = std::vector<std::vector<std::size_t>>;
  using Names = std::unordered_map<std::size_t, std::string>;
  using ProcessGroup = c10::intrusive_ptr<c10d::ProcessGroup>;
  using Tensors = std::vector<at::Tensor>;
  using Flags = std::vector<bool>;
  using Caps = std::vector<std::int64_t>;
  constexpr bool kTakesCaps =
      std::is_constructible_v<Reducer, Tensors, Buckets, ProcessGroup, Flags, std::int64_t, bool, bool, Names,
                              std::int64_t, bool, bool, Caps>;
  constexpr bool kTakesFlags =
      std::is_constructible_v<Reducer, Tensors, Buckets, ProcessGroup, Flags, std::int64_t, bool, bool, Names,
                              std::int64_t, bool, bool>;
  if constexpr (kTakesCaps) {
    return build(args.skip_all_reduce_unused_params, /*use_python_reducer=*/false, Caps{});
  } else if constexpr (kTakesFlags) {
    return build(args.skip_all_reduce_unused_params, /*use_python_reducer=*/false);
  } else {
    return build();
  }
}

}  // namespace lockstep::detail
