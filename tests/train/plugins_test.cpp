// What a program brings along: its environment, its precision, its way with checkpoints.
#include <gmock/gmock.h>
#include <lockstep/lockstep.h>

#include "support/expect_error.h"
#include "train/slope.h"

namespace lockstep {
namespace {

using testing::SlopeTest;
namespace fs = std::filesystem;

struct Doubled final : Precision {
  std::string_view name() const override { return "doubled"; }
  at::Tensor convert_input(const at::Tensor& input) const override { return input * 2; }
};

// Keeps a copy of each checkpoint, and whatever would be removed.
struct Mirrored final : CheckpointIO {
  explicit Mirrored(fs::path mirror_) : mirror(std::move(mirror_)) {}
  void save(const fs::path& folder, const CheckpointState& state, const CheckpointInfo& info,
            const Communicator& communicator) override {
    CheckpointIO::save(folder, state, info, communicator);
    fs::create_directories(mirror);
    fs::copy(folder, mirror / folder.filename(),
             fs::copy_options::recursive | fs::copy_options::overwrite_existing);
  }
  Checkpoint load(const fs::path& folder, Verify verify, const Communicator& communicator) override {
    return CheckpointIO::load(mirror / folder.filename(), verify, communicator);
  }
  void remove(const fs::path& folder) override { kept.push_back(folder.filename()); }
  fs::path mirror;
  std::vector<fs::path> kept;
};

class Plugins : public SlopeTest {};

TEST_F(Plugins, APrecisionTakesPart) {
  auto chosen = options();
  chosen.plugins = {std::make_shared<Doubled>()};
  Trainer(chosen).fit(model_, batches(3));
  EXPECT_EQ(model_->weight.item<float>(), -6);
}

TEST_F(Plugins, CheckpointsAreWrittenOpenedAndRemovedByTheProgram) {
  auto chosen = options(2);
  const auto io = std::make_shared<Mirrored>(folder_ / "mirror");
  chosen.plugins = {io};
  Trainer(chosen).fit(model_, batches(3));
  EXPECT_THAT(io->kept, ::testing::ElementsAre("epoch=0-step=3.ckpt"));
  EXPECT_TRUE(fs::exists(run_dir() / "checkpoints" / "epoch=0-step=3.ckpt"));

  fs::remove_all(run_dir() / "checkpoints");
  chosen.max_epochs = 3;
  chosen.run.run_dir = folder_ / "resumed";
  Trainer trainer(chosen);
  trainer.fit(model_, batches(3), std::nullopt, run_dir() / "checkpoints" / "last.ckpt");
  EXPECT_EQ(trainer.global_step(), 9);
}

TEST_F(Plugins, MayBeOneOfEachKind) {
  const auto refuse = [&](auto change, std::vector<std::string> words) {
    auto chosen = options();
    change(chosen);
    test::expect_error<ConfigError>([&] { Trainer trainer(chosen); }, words);
  };
  const auto precision = std::make_shared<Doubled>();
  const auto io = std::make_shared<CheckpointIO>();
  const std::shared_ptr<ClusterEnvironment> environment = detect_environment();
  refuse(
      [&](auto& chosen) {
        chosen.plugins = {precision, precision};
      },
      {"plugins", "a Precision, and another one"});
  refuse([&](auto& chosen) { chosen.plugins = {io, io}; }, {"a CheckpointIO, and another one"});
  refuse([&](auto& chosen) { chosen.plugins = {std::shared_ptr<Precision>()}; }, {"plugins", "null"});
  refuse(
      [&](auto& chosen) {
        chosen.plugins = {precision};
        chosen.precision = Bf16Mixed{};
      },
      {"a Precision, and precision names another one"});
  refuse(
      [&](auto& chosen) {
        chosen.plugins = {environment};
        chosen.cluster_environment = environment;
      },
      {"a ClusterEnvironment, and cluster_environment names another one"});
  refuse(
      [&](auto& chosen) {
        chosen.plugins = {io};
        chosen.async_checkpoint = true;
      },
      {"a CheckpointIO, and async_checkpoint"});
}

}  // namespace
}  // namespace lockstep
