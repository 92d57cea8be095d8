// The promise that sharding rests on: an element's bits depend on the element alone.
#include <gtest/gtest.h>
#include <lockstep/optim/optimizer_factory.h>
#include <lockstep/torch.h>

#include <cstring>

#include "optim/kernels.h"
#include "optim/support.h"

namespace lockstep {
namespace {

constexpr std::int64_t kSize = 100003;
constexpr std::int64_t kLengths[] = {1, 7, 10, 17, 1000, kSize};
constexpr std::int64_t kOffsets[] = {0, 1, 3, 16, 40};

struct Threads {
  explicit Threads(int count) : before(at::get_num_threads()) { at::set_num_threads(count); }
  ~Threads() { at::set_num_threads(before); }
  int before;
};

struct Data {
  explicit Data(at::ScalarType dtype) {
    torch::manual_seed(3);
    values = torch::randn({kSize + 64}).to(dtype);
    for (int step = 0; step < 3; ++step) gradients.push_back(torch::randn({kSize + 64}).to(dtype));
  }
  torch::Tensor values;
  std::vector<torch::Tensor> gradients;
};

// The elements [offset, offset + size) of the data after three steps on them alone.
torch::Tensor after_steps(const OptimizerFactory& factory, const Data& data, std::int64_t offset,
                          std::int64_t size) {
  auto parameter = data.values.narrow(0, offset, size).clone();
  auto optimizer = factory.create({{"p", parameter}});
  for (const auto& gradient : data.gradients) {
    parameter.mutable_grad() = gradient.narrow(0, offset, size).clone();
    optimizer->step(0.7);
  }
  return parameter;
}

bool same_bits(const torch::Tensor& a, const torch::Tensor& b) {
  return a.nbytes() == b.nbytes() && std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0;
}

std::vector<OptimizerFactory> factories() {
  return {AdamW{.lr = 3e-3},
          Adam{.lr = 3e-3, .weight_decay = 0.1},
          SGD{.lr = 0.05, .weight_decay = 0.1},
          SGD{.lr = 0.05, .momentum = 0.9, .dampening = 0.1, .weight_decay = 0.1},
          SGD{.lr = 0.05, .momentum = 0.9, .nesterov = true},
          Adagrad{.weight_decay = 0.1},
          Lion{.lr = 0.05, .weight_decay = 0.1}};
}

TEST(KernelBits, DoNotDependOnPositionLengthOrThreads) {
  for (const auto dtype : {at::kFloat, at::kDouble}) {
    const Data data(dtype);
    for (const auto& factory : factories()) {
      const auto whole = after_steps(factory, data, 0, kSize + 64);
      for (const int threads : {1, 2}) {
        const Threads guard(threads);
        for (const auto length : kLengths) {
          for (const auto offset : kOffsets) {
            EXPECT_TRUE(
                same_bits(after_steps(factory, data, offset, length), whole.narrow(0, offset, length)))
                << "length " << length << " offset " << offset << " threads " << threads;
          }
        }
      }
    }
  }
}

TEST(KernelBits, DoNotDependOnNeighbours) {
  const Data data(at::kFloat);
  const auto alone = after_steps(AdamW{}, data, 5, 100);
  std::vector<NamedParameter> parameters;
  for (const std::int64_t size : {17, 1, 33}) {
    parameters.push_back({"n" + std::to_string(size), torch::randn({size})});
  }
  parameters.push_back({"p", data.values.narrow(0, 5, 100).clone()});
  auto optimizer = OptimizerFactory(AdamW{}).create(parameters);
  for (const auto& gradient : data.gradients) {
    for (auto& [name, tensor] : parameters)
      tensor.mutable_grad() = gradient.narrow(0, 5, tensor.numel()).clone();
    optimizer->step(0.7);
  }
  EXPECT_TRUE(same_bits(alone, parameters.back().tensor));
}

template <class T>
void compare_instruction_sets() {
  constexpr std::int64_t n = 1003;
  const auto dtype = c10::CppTypeToScalarType<T>::value;
  const auto start = torch::rand({4, n}).to(dtype);
  torch::Tensor reference;
  for (const auto isa : {detail::Isa::kBaseline, detail::Isa::kAvx2, detail::Isa::kAvx512}) {
    if (isa > detail::best_isa()) continue;
    auto adam = start.clone(), sgd = start.clone(), adagrad = start.clone(), lion = start.clone();
    const auto row = [&](torch::Tensor& of, int i) { return of.data_ptr<T>() + i * n; };
    detail::update(detail::AdamSegment<T>{row(adam, 0),
                                          row(adam, 1),
                                          row(adam, 2),
                                          row(adam, 3),
                                          n,
                                          {.l2 = 0.1, .decay = 0.99, .step_size = 0.01, .root_bias2 = 0.3}},
                   0, n, isa);
    detail::update(
        detail::SgdSegment<T>{row(sgd, 0),
                              row(sgd, 1),
                              row(sgd, 2),
                              n,
                              {.l2 = 0.1, .lr = 0.1, .momentum = 0.9, .lookahead = 0.9, .nesterov = true}},
        0, n, isa);
    detail::update(
        detail::AdagradSegment<T>{
            row(adagrad, 0), row(adagrad, 1), row(adagrad, 2), n, {.l2 = 0.1, .step_size = 0.1}},
        0, n, isa);
    detail::update(
        detail::LionSegment<T>{row(lion, 0), row(lion, 1), row(lion, 2), n, {.decay = 0.99, .lr = 0.1}}, 0, n,
        isa);
    const auto sum = torch::full({1, n}, detail::square_sum(row(adam, 0), n, isa), dtype);
    const auto all = torch::cat({adam, sgd, adagrad, lion, sum});
    if (!reference.defined()) reference = all;
    EXPECT_TRUE(same_bits(all, reference)) << "instruction set " << static_cast<int>(isa);
  }
  EXPECT_FALSE(torch::equal(reference.narrow(0, 0, 4), start));
}

TEST(KernelBits, DoNotDependOnTheInstructionSet) {
  compare_instruction_sets<float>();
  compare_instruction_sets<double>();
}

}  // namespace
}  // namespace lockstep
