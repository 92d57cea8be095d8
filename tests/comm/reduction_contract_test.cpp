// The contract of reductions: every dtype with every op, against the same computed by ATen.
#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include <lockstep/base/error.h>

#include "comm/combined.h"
#include "comm/communicator_contract.h"
#include "support/expect_error.h"

namespace lockstep {
namespace {

using test::combined;
using test::divided;
using testing::by_rank;
using testing::values;

constexpr std::array kAllOps = {ReduceOp::kSum,     ReduceOp::kAvg,    ReduceOp::kMin,   ReduceOp::kMax,
                                ReduceOp::kProduct, ReduceOp::kBitAnd, ReduceOp::kBitOr, ReduceOp::kBitXor};

bool is_bitwise(ReduceOp op) { return op >= ReduceOp::kBitAnd; }
bool compares(ReduceOp op) { return op == ReduceOp::kMin || op == ReduceOp::kMax; }

bool is_defined_for(ReduceOp op, at::ScalarType dtype) {
  if (dtype == at::kBool) return compares(op) || is_bitwise(op);
  if (is_bitwise(op)) return at::isIntegralType(dtype, /*includeBool=*/true);
  if (compares(op)) return !at::isComplexType(dtype);
  return op != ReduceOp::kAvg || !at::isIntegralType(dtype, /*includeBool=*/true);
}

// In the widest type of the kind: values() are small, so that every order gives the same.
at::Tensor reference(int ranks, std::int64_t numel, at::ScalarType dtype, ReduceOp op) {
  const auto wide = at::isComplexType(dtype)    ? at::kComplexDouble
                    : at::isFloatingType(dtype) ? at::kDouble
                                                : dtype;
  auto result = values(0, {numel}, dtype).to(wide);
  for (int rank = 1; rank < ranks; ++rank) {
    result = combined(result, values(rank, {numel}, dtype).to(wide), op);
  }
  return (op == ReduceOp::kAvg ? divided(result, ranks) : result).to(dtype);
}

class ReductionContract : public testing::Contract {
 protected:
  // Gloo's own average of 16-bit floats rounds twice.
  static bool matches(const at::Tensor& result, const at::Tensor& expected) {
    const auto tensor = result.to(at::kCPU);
    if (GetParam().reduction == Reduction::kOrdered) return tensor.equal(expected);
    return at::allclose(tensor.to(at::kComplexDouble), expected.to(at::kComplexDouble), 1e-2, 0);
  }

  static void for_each_case(const std::function<void(at::ScalarType, ReduceOp)>& body) {
    for (const auto dtype : test::kCollectiveDtypes) {
      for (const auto op : kAllOps) {
        if (!is_defined_for(op, dtype)) continue;
        SCOPED_TRACE(std::string(c10::toString(dtype)) + " op " + std::to_string(static_cast<int>(op)));
        body(dtype, op);
      }
    }
  }
};

INSTANTIATE_TEST_SUITE_P(Ordered, ReductionContract, ::testing::ValuesIn(testing::worlds()),
                         testing::name_of_world);
INSTANTIATE_TEST_SUITE_P(Fast, ReductionContract, ::testing::ValuesIn(testing::fast_worlds()),
                         testing::name_of_world);

TEST_P(ReductionContract, AllReduce) {
  run([](const Communicator& comm) {
    for_each_case([&](at::ScalarType dtype, ReduceOp op) {
      for (const std::int64_t numel : {0, 1, 7, 1023}) {
        const auto tensor = values(comm.rank(), {numel}, of(dtype));
        comm.all_reduce(tensor, op);
        EXPECT_TRUE(matches(tensor, reference(size(), numel, dtype, op))) << numel;
      }
    });
  });
}

// Of both sizes: the root gets all rows, or chunks that the others have folded.
TEST_P(ReductionContract, ReduceGivesTheRootAloneTheResult) {
  run([](const Communicator& comm) {
    int root = 0;
    for_each_case([&](at::ScalarType dtype, ReduceOp op) {
      for (const std::int64_t numel : {0, 5, 300'001}) {
        if (numel > 1000 && op > ReduceOp::kAvg) continue;
        root = (root + 1) % size();
        const auto tensor = values(comm.rank(), {numel}, of(dtype));
        comm.reduce(tensor, root, op);
        const auto expected =
            comm.rank() == root ? reference(size(), numel, dtype, op) : values(comm.rank(), {numel}, dtype);
        EXPECT_TRUE(matches(tensor, expected)) << numel << " root " << root;
      }
    });
  });
}

TEST_P(ReductionContract, ReduceScatter) {
  run([](const Communicator& comm) {
    for_each_case([&](at::ScalarType dtype, ReduceOp op) {
      for (const std::int64_t part : {0, 1, 503}) {
        const auto output = at::zeros({part}, of(dtype));
        comm.reduce_scatter(output, values(comm.rank(), {part * size()}, of(dtype)), op);
        const auto whole = reference(size(), part * size(), dtype, op);
        EXPECT_TRUE(matches(output, whole.narrow(0, comm.rank() * part, part))) << part;
      }
    });
  });
}

// Values of very different sizes: another order of summing gives other bits.
TEST_P(ReductionContract, ReduceHasTheBitsOfAllReduce) {
  if (GetParam().reduction == Reduction::kFast) return;
  run([](const Communicator& comm) {
    for (const std::int64_t numel : {1001, 3'000'017}) {
      const auto x = at::arange(numel, of()) + 1000.0 * comm.rank();
      const auto sum = (x * 0.7391).sin() * (x * 0.0137).sin().mul(6).exp();
      const auto at_root = sum.clone();
      const int root = size() - 1;
      comm.all_reduce(sum);
      comm.reduce_async(at_root, root).wait();
      if (comm.rank() == root) {
        EXPECT_TRUE(at_root.equal(sum)) << numel;
      }
    }
  });
}

TEST_P(ReductionContract, ComplexTensorsMayBeConjugatedAndStrided) {
  if (!of().device().is_cpu()) return;  // the simulated device has no conjugated views
  run([](const Communicator& comm) {
    const auto base =
        at::complex(at::full({3, 4}, 1.0, of()), at::full({3, 4}, 2.0 * (comm.rank() + 1), of()));
    const auto view = base.t().conj();
    comm.all_reduce(view);
    const auto result = base.to(at::kCPU);
    EXPECT_EQ(result.t().conj()[1][1].item<c10::complex<double>>(),
              (c10::complex<double>(size(), -size() * (size() + 1))));
    EXPECT_EQ(result[1][1].item<c10::complex<double>>(),
              (c10::complex<double>(size(), size() * (size() + 1))));
  });
}

// Of sizes that travel with the announcement, and of those that Gloo carries.
TEST_P(ReductionContract, NanWinsAndHalvesAreSummedInFloat) {
  run([](const Communicator& comm) {
    for (const std::int64_t numel : {4, 100'000}) {
      for (int rank = 0; rank < size(); ++rank) {
        for (const auto op : {ReduceOp::kMin, ReduceOp::kMax}) {
          const auto nan = rank == comm.rank() ? std::nan("") : 1.0;
          for (const auto dtype : {at::kFloat, at::kDouble, at::kHalf}) {
            const auto tensor = at::full({numel}, nan, of(dtype));
            comm.all_reduce(tensor, op);
            EXPECT_TRUE(tensor.isnan().all().item<bool>()) << numel << " rank " << rank;
          }
        }
      }
      const auto large = at::full({numel}, 40'000.0, of(at::kHalf));
      comm.all_reduce(large, ReduceOp::kAvg);
      EXPECT_EQ(large[numel - 1].item<double>(), 40'000.0);
    }
  });
}

TEST_P(ReductionContract, RefusesByNameWhatHasNoMeaning) {
  run([](const Communicator& comm) {
    const auto expect_refusal = [&](at::ScalarType dtype, ReduceOp op,
                                    const std::vector<std::string>& parts) {
      const auto tensor = values(comm.rank(), {size()}, of(dtype));
      test::expect_error<CommError>([&] { comm.all_reduce(tensor, op); }, parts);
      test::expect_error<CommError>([&] { comm.reduce(tensor, 0, op); }, parts);
      test::expect_error<CommError>([&] { comm.reduce_scatter(tensor.narrow(0, 0, 1), tensor, op); }, parts);
    };
    expect_refusal(at::kInt, ReduceOp::kAvg, {"kAvg", "Int"});
    expect_refusal(at::kBool, ReduceOp::kSum, {"bool", "kMin", "kMax"});
    expect_refusal(at::kFloat, ReduceOp::kBitAnd, {"kBitAnd", "Float"});
    expect_refusal(at::kComplexFloat, ReduceOp::kBitXor, {"kBitXor", "ComplexFloat"});
    expect_refusal(at::kComplexFloat, ReduceOp::kMin, {"complex", "kMin", "kSum"});
    expect_refusal(at::kComplexDouble, ReduceOp::kMax, {"complex", "kMax"});
    comm.barrier();  // and is none the worse for it
  });
}

}  // namespace
}  // namespace lockstep
