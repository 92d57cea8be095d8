// Time that grows with the number of tensors, and not with its square.
#include <gmock/gmock.h>

#include <ctime>

#include <lockstep/formats/zip_archive.h>

#include "formats/weight_files.h"
#include "formats/zero_checkpoint.h"
#include "support/temporary_folder.h"

namespace lockstep::detail {
namespace {

using pickle::Dict;
using pickle::List;
using pickle::Value;

constexpr std::size_t kTensors = 100'000;

/// A file of torch.save with that pickle and one storage of float32, "0".
std::string file_of(const Dict& root) {
  std::string file;
  zip::Writer writer([&](std::span<const std::byte> bytes) {
    file.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  });
  writer.add("a/data.pkl", pickle::write(root));
  writer.add("a/data/0", std::string(4 * kTensors, '\0'));
  writer.finish();
  return file;
}

std::string name_of(std::size_t number) { return "layers." + std::to_string(kTensors + number) + ".weight"; }

/// A model of stage 0: its second half is tied to tensors of the first.
std::string half_tied_model() {
  const auto storage = std::make_shared<const pickle::Storage>(
      pickle::Storage{.key = "0", .bytes = 4 * kTensors, .dtype = pickle::Dtype::kF32});
  Dict module;
  for (std::size_t number = 0; number < kTensors; ++number)
    module.set(name_of(number), pickle::Tensor{.storage = storage,
                                               .offset = static_cast<std::int64_t>(number % (kTensors / 2)),
                                               .shape = {1},
                                               .stride = {1}});
  Dict root;
  root.set("module", std::move(module));
  return file_of(root);
}

/// Seconds of the processor that `body` takes.
template <class Body>
double seconds_of(const Body& body) {
  const auto begin = std::clock();
  body();
  return static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
}

TEST(ManyTensors, TakeNoSquareOfTheTime) {
  const auto model = half_tied_model();
  ZeroFiles files{.folder = "f", .stage = 0, .models = {}, .optimizers = {}};
  const auto to_read =
      seconds_of([&] { files.models.emplace_back("model", std::as_bytes(std::span(model))); });
  const ZeroCheckpoint checkpoint(std::move(files));
  std::vector<StoredTensorView> tensors;
  EXPECT_LT(seconds_of([&] { tensors = zero_weights(checkpoint); }), 10 * to_read);
  ASSERT_EQ(tensors.size(), kTensors);
  EXPECT_EQ(tensors.back().tied_to, name_of(kTensors / 2 - 1));
  const test::TemporaryFolder folder;
  EXPECT_LT(seconds_of([&] { write_state_dict(folder / "out.pt", tensors); }), 10 * to_read);
}

}  // namespace
}  // namespace lockstep::detail
