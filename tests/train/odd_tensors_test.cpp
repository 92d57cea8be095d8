// Parameters and buffers of every type that LibTorch has, laid out in memory in every way: under every
// strategy the same training, and the same again from a checkpoint, or a refusal at setup that names the
// tensor.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/lockstep.h>
#include <lockstep/testing/fork_ranks.h>

#include <bit>
#include <functional>
#include <map>
#include <ranges>
#include <sstream>

#include "state/module_tensors.h"
#include "support/expect_error.h"
#include "support/temporary_folder.h"
#include "train/trainer_rank.h"

namespace lockstep {
namespace {

namespace nn = torch::nn;
using ::testing::HasSubstr;
using Tensors = std::vector<at::Tensor>;

constexpr at::ScalarType kAllTypes[] = {at::kFloat,
                                        at::kDouble,
                                        at::kHalf,
                                        at::kBFloat16,
                                        at::kFloat8_e4m3fn,
                                        at::kFloat8_e5m2,
                                        at::kFloat8_e4m3fnuz,
                                        at::kFloat8_e5m2fnuz,
                                        at::kChar,
                                        at::kShort,
                                        at::kInt,
                                        at::kLong,
                                        at::kByte,
                                        at::kUInt16,
                                        at::kUInt32,
                                        at::kUInt64,
                                        at::kBool,
                                        at::kComplexHalf,
                                        at::kComplexFloat,
                                        at::kComplexDouble};
constexpr at::ScalarType kSomeTypes[] = {at::kFloat, at::kLong, at::kComplexFloat};

at::Tensor values_of(at::ScalarType dtype, at::IntArrayRef sizes) {
  const auto values = (at::arange(1, 1 + c10::multiply_integers(sizes), at::kDouble) % 3).view(sizes);
  return c10::isComplexType(dtype) ? at::complex(values, values + 1).to(dtype) : values.to(dtype);
}

struct Layout {
  const char* name;
  std::function<Tensors(at::ScalarType)> make;
  bool is_of_complex = false;
};

const std::vector<Layout>& layouts() {
  static const std::vector<Layout> all = {
      {"contiguous",
       [](auto dtype) {
         return Tensors{values_of(dtype, {2, 3})};
       }},
      {"transposed",
       [](auto dtype) {
         return Tensors{values_of(dtype, {3, 2}).t()};
       }},
      {"expanded",
       [](auto dtype) {
         return Tensors{values_of(dtype, {1, 3}).expand({2, 3})};
       }},
      {"overlapping",
       [](auto dtype) {
         return Tensors{values_of(dtype, {5}).as_strided({2, 3}, {1, 1})};
       }},
      {"every other",
       [](auto dtype) {
         return Tensors{values_of(dtype, {2, 6}).slice(1, 0, 6, 2)};
       }},
      {"part of a larger one",
       [](auto dtype) {
         return Tensors{values_of(dtype, {9, 3}).narrow(0, 4, 2)};
       }},
      {"no elements",
       [](auto dtype) {
         return Tensors{values_of(dtype, {0, 3})};
       }},
      {"no dimension", [](auto dtype) { return Tensors{values_of(dtype, {})}; }},
      {"COO",
       [](auto dtype) {
         return Tensors{values_of(dtype, {2, 3}).to_sparse()};
       }},
      {"CSR",
       [](auto dtype) {
         return Tensors{values_of(dtype, {2, 3}).to_sparse_csr()};
       }},
      {"conjugated",
       [](auto dtype) {
         return Tensors{values_of(dtype, {2, 3}).conj()};
       },
       true},
      {"negated",
       [](auto dtype) {
         return Tensors{at::_neg_view(values_of(dtype, {2, 3}))};
       }},
      {"registered twice",
       [](auto dtype) {
         return Tensors(2, values_of(dtype, {2, 3}));
       }},
      {"halves of one memory",
       [](auto dtype) {
         return values_of(dtype, {4, 3}).split(2);
       }},
      {"overlapping slices", [](auto dtype) {
         const auto whole = values_of(dtype, {3, 3});
         return Tensors{whole.narrow(0, 0, 2), whole.narrow(0, 1, 2)};
       }}};
  return all;
}

bool is_trained(const at::Tensor& tensor) {
  const auto dtype = tensor.scalar_type();
  return dtype == at::kFloat || dtype == at::kDouble || dtype == at::kHalf || dtype == at::kBFloat16;
}

// Real, dense and in float32, to compute with.
at::Tensor plain(at::Tensor tensor) {
  if (tensor.layout() != at::kStrided) tensor = tensor.to_dense();
  if (tensor.is_complex()) tensor = at::view_as_real(tensor.to(at::kComplexFloat).resolve_conj());
  return tensor.to(at::kFloat);
}

struct OddImpl : Module<Example> {
  OddImpl(const Tensors& odd, bool are_parameters) {
    register_module("linear", linear);
    for (auto& parameter : linear->parameters()) parameter.detach().fill_(0.5);
    for (std::size_t i = 0; i < odd.size(); ++i) {
      const auto name = "odd" + std::to_string(i);
      if (are_parameters) {
        register_parameter(name, odd[i], is_trained(odd[i]));
      } else {
        register_buffer(name, odd[i]);
      }
    }
  }
  Tensors odd() const {
    Tensors found;
    for (const auto& items : {named_parameters(/*recurse=*/false), named_buffers(/*recurse=*/false)})
      for (const auto& item : items) found.push_back(item.value());
    return found;
  }
  at::Tensor forward(const at::Tensor& x) {
    auto loss = linear(x).square().mean();
    for (const auto& tensor : odd()) loss = loss + (plain(tensor) * x.mean()).square().sum();
    return loss;
  }
  torch::Tensor training_step(const Example& batch, StepContext&) override { return forward(batch.data); }
  Optimizers configure_optimizers() override { return {.optimizer = SGD{.lr = 0.01}}; }
  nn::Linear linear{3, 2};
};
TORCH_MODULE(Odd);

std::string bits_of(const Odd& module) {
  std::uint64_t bits = 0;
  auto all = module->odd();
  for (const auto& parameter : module->linear->parameters()) all.push_back(parameter);
  for (const auto& tensor : all) {
    const auto values = plain(tensor.detach()).contiguous().view({-1});
    for (std::int64_t i = 0; i < values.numel(); ++i)
      bits = bits * 31 + std::bit_cast<std::uint32_t>(values.const_data_ptr<float>()[i]);
  }
  return std::to_string(bits);
}

bool is_storable(const Odd& module) try {
  detail::require_storable(*module);
  return true;
} catch (const ConfigError&) {
  return false;
}

void train(Fabric& fabric, Odd& model, const std::shared_ptr<FabricOptimizer>& optimizer) {
  for (int step = 1; step <= 3; ++step) {
    optimizer->zero_grad();
    fabric.backward(model->forward((at::arange(6).view({2, 3}) + step).to(at::kFloat) * 0.1));
    optimizer->step();
  }
}

std::string after_resume(Fabric& fabric, Odd blank, const std::string& folder) {
  const at::NoGradGuard no_grad;
  for (auto& tensor : blank->odd()) tensor.zero_();
  fabric.setup(blank, SGD{.lr = 0.01});
  fabric.load(folder, {{"model", blank}});
  restore_sharded(*blank);
  return bits_of(blank);
}

// The bits after three steps, or what was said at setup; "!" before whatever else came.
std::string outcome(Fabric& fabric, const std::function<Tensors()>& make, bool are_parameters, bool resumes,
                    const std::string& folder) {
  std::shared_ptr<FabricOptimizer> optimizer;
  Odd model(make(), are_parameters);
  const bool is_stored = resumes && is_storable(model);
  try {
    optimizer = std::get<1>(fabric.setup(model, SGD{.lr = 0.01}));
  } catch (const ConfigError& error) {
    const std::string text = error.what();
    return (text.find("odd") == std::string::npos ? "!unnamed: " : "refused: ") + text;
  }
  try {
    train(fabric, model, optimizer);
    if (is_stored) fabric.save(folder, {{"model", model}});
    restore_sharded(*model);
    const auto bits = bits_of(model);
    if (!is_stored) return bits;
    const auto again = after_resume(fabric, Odd(make(), are_parameters), folder);
    return again == bits ? bits : "!resumed with other values";
  } catch (const std::exception& error) {
    return std::string("!") + error.what();
  }
}

StrategyOptions odd_strategy(const std::string& name) {
  for (const auto& row : strategy_choices()) {
    if (row.name == name) return row.value;
  }
  throw std::runtime_error("no strategy " + name);
}

// argument: strategy, folder. Returns a line per row of the table.
LOCKSTEP_RANK_BODY(train_odd_tensors)(Communicator comm, std::string argument)->std::string {
  testing::become_trainer_rank(comm);
  const auto comma = argument.find(',');
  Fabric fabric({.strategy = odd_strategy(argument.substr(0, comma)), .devices = comm.size()});
  fabric.launch();
  std::ostringstream lines;
  int number = 0;
  const auto add = [&](const Layout& layout, at::ScalarType dtype) {
    try {
      for (const auto& tensor : layout.make(dtype)) (void)plain(tensor);
    } catch (const std::exception&) {
      return;  // LibTorch has no such tensor
    }
    const bool is_first = &layout == &layouts().front();
    for (const bool are_parameters : {false, true}) {
      auto text = outcome(
          fabric, [&] { return layout.make(dtype); }, are_parameters,
          /*resumes=*/is_first ? !are_parameters : dtype == at::kFloat,
          argument.substr(comma + 1) + "/" + std::to_string(number++));
      std::ranges::replace(text, '\n', ' ');
      lines << (are_parameters ? "parameter " : "buffer ") << c10::toString(dtype) << ' ' << layout.name
            << '\t' << text << '\n';
    }
  };
  for (const auto dtype : kAllTypes) add(layouts().front(), dtype);
  for (const auto& layout : layouts() | std::views::drop(1)) {
    for (const auto dtype : kSomeTypes)
      if (!layout.is_of_complex || c10::isComplexType(dtype)) add(layout, dtype);
  }
  return lines.str();
}

std::map<std::string, std::string> rows_of(const std::string& text) {
  std::map<std::string, std::string> rows;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);)
    rows[line.substr(0, line.find('\t'))] = line.substr(line.find('\t') + 1);
  return rows;
}

// What is refused nowhere.
bool is_usual(const std::string& row) {
  const auto has = [&](const char* part) { return row.find(part) != std::string::npos; };
  return has("contiguous") || has("transposed") || has("every other") || has("part of") ||
         has("no elements") || has("no dimension") || has("registered twice");
}

TEST(OddTensors, TrainAlikeOrAreRefusedByName) {
  std::map<std::string, std::string> expected;
  for (const std::string strategy :
       {"single_device", "ddp", "fsdp", "deepspeed_stage_1", "deepspeed_stage_2", "deepspeed_stage_3"}) {
    const test::TemporaryFolder folder;
    for (const auto& rank : testing::fork_ranks(strategy == "single_device" ? 1 : 2, "train_odd_tensors",
                                                strategy + "," + folder.path().string())) {
      ASSERT_EQ(rank.error, "") << strategy;
      const auto rows = rows_of(rank.result);
      ASSERT_GT(rows.size(), 100U);
      if (expected.empty()) expected = rows;
      for (const auto& [row, got] : rows) {
        EXPECT_FALSE(got.starts_with("!")) << strategy << ": " << row << ": " << got;
        EXPECT_FALSE(got.starts_with("refused") && is_usual(row)) << strategy << ": " << row << ": " << got;
        if (!got.starts_with("refused")) {
          EXPECT_EQ(got, expected[row]) << strategy << ": " << row;
        }
      }
    }
  }
}

TEST(OddTensors, ThatNoCheckpointHoldsAreNamedBeforeTheFirstStep) {
  const auto fit = [](const at::Tensor& tensor, bool are_parameters, bool enable_checkpointing) {
    const test::TemporaryFolder folder;
    TrainerOptions options{.max_steps = 1, .logger = false, .enable_progress_bar = false};
    options.enable_model_summary = false;
    options.enable_checkpointing = enable_checkpointing;
    options.run.run_dir = folder.path() / "run";
    Odd model(Tensors{tensor}, are_parameters);
    Trainer(options).fit(model, loader(tensor_dataset(at::ones({4, 3})), {.batch_size = 2}));
  };
  const auto sparse = values_of(at::kFloat, {2, 3}).to_sparse(), wide = at::ones({1, 3}).expand({2, 3});
  for (const auto& tensor : {sparse, wide}) {
    test::expect_error<ConfigError>([&] { fit(tensor, false, true); },
                                    {"buffer odd0 cannot be stored", "enable_checkpointing"});
    fit(tensor, false, false);
  }
  test::expect_error<ConfigError>([&] { fit(sparse, true, true); }, {"parameter odd0 cannot be stored"});
}

}  // namespace
}  // namespace lockstep
