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

#include <lockstep/comm/store.h>

namespace lockstep::detail {

/// What a Store is made of.
struct StoreImpl {
  c10::intrusive_ptr<c10d::Store> store;
  int port = 0;           ///< of the server, 0 for a store without one
  std::string file = {};  ///< of a file store
};

/// The store whose keys `store` prefixes, however many prefixes it adds (see scoped() in comm/stores.h).
c10::intrusive_ptr<c10d::Store> without_scopes(const Store& store);

}  // namespace lockstep::detail
