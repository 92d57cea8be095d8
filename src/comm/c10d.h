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

#include <lockstep/comm/reduce_op.h>
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

/// What c10d calls a reduction.
inline c10d::ReduceOp native_op(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return c10d::ReduceOp::SUM;
    case ReduceOp::kAvg:
      return c10d::ReduceOp::AVG;
    case ReduceOp::kMin:
      return c10d::ReduceOp::MIN;
    case ReduceOp::kMax:
      return c10d::ReduceOp::MAX;
    case ReduceOp::kProduct:
      return c10d::ReduceOp::PRODUCT;
    case ReduceOp::kBitAnd:
      return c10d::ReduceOp::BAND;
    case ReduceOp::kBitOr:
      return c10d::ReduceOp::BOR;
    case ReduceOp::kBitXor:
      return c10d::ReduceOp::BXOR;
  }
  return c10d::ReduceOp::SUM;
}

}  // namespace lockstep::detail
