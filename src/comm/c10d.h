// c10d as the rest of lockstep sees it: the only way in. The macros are what LibTorch's own CMake
// package would define for every user; here they stay private to the files that need them.
#pragma once

#ifndef USE_DISTRIBUTED
#define USE_DISTRIBUTED
#endif
#ifndef USE_C10D_GLOO
#define USE_C10D_GLOO
#endif

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <lockstep/comm/communicator.h>
#include <lockstep/comm/store.h>

namespace lockstep::detail {

/// The c10d process group behind `comm`; null in a world of one. Its collectives go through the same
/// queue and the same ordered sums as the communicator's.
LOCKSTEP_API c10::intrusive_ptr<c10d::ProcessGroup> process_group(const Communicator& comm);

/// What a Store is made of.
struct StoreImpl {
  c10::intrusive_ptr<c10d::Store> store;
  int port = 0;           ///< of the server, 0 for a store without one
  std::string file = {};  ///< of a file store
};

/// `store` as those see it whose keys all begin with `prefix`, apart from everybody else's; a TCP store with
/// a timeout of its own.
Store scoped(const Store& store, const std::string& prefix);

/// What `store` is a scope of, or a scope of a scope.
c10::intrusive_ptr<c10d::Store> without_scopes(const Store& store);

}  // namespace lockstep::detail
