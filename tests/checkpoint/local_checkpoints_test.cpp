// Checkpoints in the folders of several nodes: ranks that have other roots are on other nodes.
#include "checkpoint/local_checkpoints.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/base/error.h>
#include <lockstep/testing/run_ranks.h>
#include <lockstep/torch.h>

#include <chrono>
#include <fstream>
#include <functional>
#include <set>
#include <thread>

#include "checkpoint/node_folders.h"
#include "support/expect_error.h"
#include "support/temporary_folder.h"

namespace lockstep::detail {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kElements = 100'000;

// A model that all ranks have, an optimizer of which each has a shard, and something of its own.
CheckpointState local_state(std::int64_t step, const Communicator& communicator) {
  const auto part = kElements / communicator.size(), begin = part * communicator.rank();
  const bool is_last = communicator.rank() == communicator.size() - 1;
  const auto all = torch::arange(kElements).to(torch::kFloat) * static_cast<double>(step);
  StateTree model, optimizer, shared, own;
  model.set("weight", all.clone());
  optimizer.set("exp_avg",
                TensorShard{all.narrow(0, begin, is_last ? kElements - begin : part), {kElements}, begin});
  shared.set("model", model);
  shared.set("optimizer", optimizer);
  shared.set("step", step);
  own.set("random", torch::full({7}, communicator.rank() + 100 * step));
  return {.shared = shared, .own = own};
}

std::int64_t checked_step(const Checkpoint& checkpoint, int rank) {
  const auto shared = checkpoint.shared();
  const auto step = shared.get<std::int64_t>("step");
  const auto all = torch::arange(kElements).to(torch::kFloat) * static_cast<double>(step);
  for (const char* entry : {"model", "optimizer"}) {
    const auto& tree = shared.get<StateTree>(entry);
    EXPECT_TRUE(tree.get<at::Tensor>(tree.entries()[0].name).equal(all)) << entry;
  }
  EXPECT_TRUE(checkpoint.own(rank).get<at::Tensor>("random").equal(torch::full({7}, rank + 100 * step)));
  return step;
}

// A job whose rank r is on node `node_of[r]`, each of which has a folder of its own.
class LocalJob {
 public:
  explicit LocalJob(std::vector<int> node_of, int replication_factor = 2)
      : node_of_(std::move(node_of)), replication_factor_(replication_factor) {}

  fs::path root(int node) const { return folder_ / ("node" + std::to_string(node)); }
  // Of its run, which is the only one.
  fs::path run(int node) const {
    const fs::directory_iterator first(root(node));
    return first == fs::directory_iterator() ? root(node) / "none" : first->path();
  }
  std::set<std::string> files(int node, const std::string& name) const {
    std::set<std::string> files;
    std::error_code ignored;
    for (const auto& entry : fs::directory_iterator(run(node) / name, ignored))
      if (entry.path().extension() == ".safetensors") files.insert(entry.path().filename());
    return files;
  }
  std::set<std::string> names(int node) const {
    std::set<std::string> names;
    for (const auto& entry : fs::directory_iterator(run(node))) names.insert(entry.path().filename());
    return names;
  }

  using Body = std::function<void(LocalCheckpoints&, const Communicator&)>;
  void start(const Body& body) const { start(static_cast<int>(node_of_.size()), body); }
  void start(int ranks, const Body& body) const {
    testing::run_ranks(ranks, [&](const Communicator& communicator) {
      LocalCheckpoints local(root(node_of_[static_cast<std::size_t>(communicator.rank())]), "/runs/a",
                             replication_factor_, communicator);
      body(local, communicator);
      communicator.barrier();
    });
  }
  void save(const std::vector<std::int64_t>& steps) const {
    start([&](LocalCheckpoints& local, const Communicator& communicator) {
      for (const auto step : steps) local.save(local_state(step, communicator), {.global_step = step});
      local.close();
    });
  }
  // The step of the newest on each rank.
  void expect_newest(std::int64_t step) const {
    start([&](LocalCheckpoints& local, const Communicator& communicator) {
      const auto found = local.find({"/runs/a"});
      ASSERT_FALSE(found.empty());
      EXPECT_EQ(checked_step(local.open(found.front(), Verify::kAll), communicator.rank()), step);
    });
  }

 private:
  test::TemporaryFolder folder_;
  std::vector<int> node_of_;
  int replication_factor_;
};

TEST(LocalCheckpoints, KeepsTheLatestOfOneNode) {
  const LocalJob job({0, 0});
  job.save({1, 2, 3});
  EXPECT_EQ(job.names(0), std::set<std::string>({"step=3"}));
  EXPECT_EQ(fs::status(job.run(0)).permissions(), fs::perms::owner_all);
  job.expect_newest(3);
}

TEST(LocalCheckpoints, KeepsThatOfOneRank) {
  const LocalJob job({0});
  job.save({1, 2});
  job.expect_newest(2);
}

TEST(LocalCheckpoints, EachNodeHasItsFilesAndThoseOfTheNodeBefore) {
  const LocalJob job({0, 1, 2});
  job.save({5});
  const auto names = [](const std::string& entry, int rank) {
    return entry + "-0000" + std::to_string(rank + 1) + "-of-00003.safetensors";
  };
  EXPECT_EQ(job.files(0, "step=5"),
            std::set<std::string>({"model.safetensors", names("optimizer", 0), "rank_0.safetensors",
                                   names("optimizer", 2), "rank_2.safetensors"}));
  EXPECT_EQ(job.files(2, "step=5"), std::set<std::string>({names("optimizer", 2), "rank_2.safetensors",
                                                           names("optimizer", 1), "rank_1.safetensors"}));
  job.expect_newest(5);
  EXPECT_EQ(job.files(0, "step=5").size(), 7U);
  EXPECT_EQ(job.files(0, "step=5"), job.files(2, "step=5"));
}

TEST(LocalCheckpoints, AnyNodeMayBeReplaced) {
  for (int lost = 0; lost < 3; ++lost) {
    const LocalJob job({0, 1, 2});
    job.save({5});
    fs::remove_all(job.root(lost));
    job.expect_newest(5);
  }
}

TEST(LocalCheckpoints, OfNodesOfSeveralRanksToo) {
  for (int lost = 0; lost < 2; ++lost) {
    const LocalJob job({0, 0, 0, 1});
    job.save({5, 6});
    fs::remove_all(job.root(lost));
    job.expect_newest(6);
  }
}

TEST(LocalCheckpoints, ALargerFactorSurvivesMoreLosses) {
  const LocalJob job({0, 1, 2, 3}, 3);
  job.save({5});
  fs::remove_all(job.root(1));
  fs::remove_all(job.root(2));
  job.expect_newest(5);
}

TEST(LocalCheckpoints, NamesWhatIsLostWithTwoNeighbours) {
  const LocalJob job({0, 1, 2});
  job.save({5});
  fs::remove_all(job.root(1));
  fs::remove_all(job.root(2));
  job.start([&](LocalCheckpoints& local, const Communicator&) {
    const auto found = local.find({"/runs/a"});
    ASSERT_EQ(found.size(), 1U);
    test::expect_error<CheckpointError>([&] { local.open(found[0], Verify::kAll); },
                                        {"step=5", "not whole", "rank_1.safetensors", "replication_factor"});
  });
}

TEST(LocalCheckpoints, RefusesAnotherNumberOfRanks) {
  const LocalJob job({0, 0, 0});
  job.save({5});
  job.start(2, [&](LocalCheckpoints& local, const Communicator&) {
    test::expect_error<CheckpointError>([&] { local.open(local.find({"/runs/a"}).at(0), Verify::kAll); },
                                        {"another number of ranks", "2", "3"});
  });
}

void flip_last_bit(const fs::path& file) {
  std::fstream bytes(file, std::ios::in | std::ios::out | std::ios::binary);
  bytes.seekg(-1, std::ios::end);
  const auto last = static_cast<char>(bytes.peek() ^ 1);
  bytes.seekp(-1, std::ios::end);
  bytes.put(last);
}

TEST(LocalCheckpoints, EveryRankIsToldOfDamage) {
  for (const char* file : {"model.safetensors", "rank_1.safetensors"}) {
    const LocalJob job({0, 1});
    job.save({5});
    for (int node = 0; node < 2; ++node) flip_last_bit(job.run(node) / "step=5" / file);
    job.start([&](LocalCheckpoints& local, const Communicator&) {
      test::expect_error<CheckpointError>([&] { local.open(local.find({"/runs/a"}).at(0), Verify::kAll); },
                                          {file});
    });
  }
}

TEST(LocalCheckpoints, DamagedManifestsAreNoCandidates) {
  const LocalJob job({0});
  job.save({5});
  flip_last_bit(job.run(0) / "step=5" / "manifest.json");
  job.start(
      [](LocalCheckpoints& local, const Communicator&) { EXPECT_TRUE(local.find({"/runs/a"}).empty()); });
}

TEST(LocalCheckpoints, WhatFailsOnOneRankLeavesTheOneBefore) {
  const LocalJob job({0, 1});
  job.start([&](LocalCheckpoints& local, const Communicator& communicator) {
    local.save(local_state(1, communicator), {.global_step = 1});
    local.wait();
    if (communicator.rank() == 1) std::ofstream(job.run(1) / ".step=2.draft") << "in the way";
    communicator.barrier();
    local.save(local_state(2, communicator), {.global_step = 2});
    test::expect_error<IoError>([&] { local.wait(); }, {"step=2", "was not written", "rank 1"});
    communicator.barrier();
    EXPECT_EQ(job.names(communicator.rank()), std::set<std::string>({"step=1"}));
    communicator.barrier();
    local.save(local_state(3, communicator), {.global_step = 3});
    local.close();
  });
  job.expect_newest(3);
}

TEST(LocalCheckpoints, AfterOneThatFailedTheNextIsSaved) {
  const LocalJob job({0, 1});
  ::testing::internal::CaptureStderr();
  job.start([&](LocalCheckpoints& local, const Communicator& communicator) {
    if (communicator.rank() == 1) std::ofstream(job.run(1) / ".step=2.draft") << "in the way";
    communicator.barrier();
    local.save(local_state(2, communicator), {.global_step = 2});
    local.save(local_state(3, communicator), {.global_step = 3});
    local.close();
  });
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              ::testing::AllOf(::testing::HasSubstr("step=2 was not written"),
                               ::testing::HasSubstr("training goes on")));
  job.expect_newest(3);
}

TEST(LocalCheckpoints, ADamagedOneGivesWayToTheNeighbours) {
  for (int damaged = 0; damaged < 2; ++damaged) {
    const LocalJob job({0, 1});
    job.save({5});
    flip_last_bit(job.run(damaged) / "step=5" / "manifest.json");
    job.expect_newest(5);
    EXPECT_EQ(job.names(damaged), std::set<std::string>({"step=5"}));
    EXPECT_EQ(job.files(0, "step=5"), job.files(1, "step=5"));
  }
}

TEST(LocalCheckpoints, NothingIsLeftOfWhatANodeCouldNotGet) {
  const LocalJob job({0, 1});
  job.save({5});
  fs::remove_all(job.run(1) / "step=5");
  job.start([&](LocalCheckpoints& local, const Communicator& communicator) {
    if (communicator.rank() == 1) fs::create_directories(job.run(1) / ".step=5.part/rank_0.safetensors/x");
    if (communicator.rank() == 1) fs::permissions(job.run(1) / ".step=5.part", fs::perms::owner_all);
    communicator.barrier();
    EXPECT_THROW(local.open(local.find({"/runs/a"}).at(0), Verify::kAll), Error);
    communicator.barrier();
    EXPECT_EQ(job.names(0), std::set<std::string>({"step=5"}));
    EXPECT_EQ(job.names(1), std::set<std::string>());
  });
}

TEST(LocalCheckpoints, WhatCouldNotBeReceivedLeavesNoPart) {
  const test::TemporaryFolder folder;
  const FileList files{{"file", 4}};
  IncomingFiles incoming(folder.path(), files);
  fs::create_directories(folder / "file" / "in the way");
  const auto piece = pieces_of(files).at(0);
  incoming.space(piece).zero_();
  incoming.write(piece);
  test::expect_error<IoError>([&] { incoming.finish(); }, {"file", "renamed"});
  EXPECT_FALSE(fs::exists(folder / ".file.part"));
}

TEST(LocalCheckpoints, AllNodesGoByTheClockOfRank0) {
  const LocalJob job({0, 1});
  job.start([&](LocalCheckpoints& local, const Communicator& communicator) {
    if (communicator.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(100));
    local.save(local_state(5, communicator), {.global_step = 5});
    local.close();
  });
  EXPECT_EQ(fs::last_write_time(job.run(0) / "step=5" / "manifest.json"),
            fs::last_write_time(job.run(1) / "step=5" / "manifest.json"));
}

// A job that is killed between the renames of its nodes.
TEST(LocalCheckpoints, OneThatNotAllNodesHaveNamedIsPassedOver) {
  const LocalJob job({0, 1}, 1);
  job.save({1});
  const auto kept = [&](int node) { return fs::path(job.root(node).string() + ".kept"); };
  for (int node = 0; node < 2; ++node) fs::rename(job.run(node) / "step=1", kept(node));
  job.save({2});
  for (int node = 0; node < 2; ++node) fs::rename(kept(node), job.run(node) / "step=1");
  fs::rename(job.run(1) / "step=2", job.run(1) / ".step=2.draft");
  job.start([&](LocalCheckpoints& local, const Communicator& communicator) {
    EXPECT_EQ(job.names(1), std::set<std::string>({"step=1"}));
    const auto found = local.find({"/runs/a"});
    ASSERT_EQ(found.size(), 2U);
    test::expect_error<CheckpointError>([&] { local.open(found[0], Verify::kAll); }, {"step=2", "not whole"});
    EXPECT_EQ(checked_step(local.open(found[1], Verify::kAll), communicator.rank()), 1);
  });
}

TEST(LocalCheckpoints, ForgetsWhatTrainingDoesNotGoOnFrom) {
  const LocalJob job({0});
  job.save({1});
  job.start([&](LocalCheckpoints& local, const Communicator&) {
    (void)local.open(local.find({"/runs/a"}).at(0), Verify::kAll);
    local.forget_others();
    EXPECT_EQ(job.names(0), std::set<std::string>({"step=1"}));
  });
  job.start([&](LocalCheckpoints& local, const Communicator&) { local.forget_others(); });
  EXPECT_TRUE(fs::is_empty(job.root(0)));
}

// By a rank that is alone.
void save_by(LocalCheckpoints& local, std::int64_t step) {
  local.save(local_state(step, Communicator()), {.global_step = step});
  local.wait();
}

TEST(LocalCheckpoints, ThoseOfAnotherRunAreKeptUntilThereIsANewOne) {
  const test::TemporaryFolder folder;
  const auto root = folder / "root";
  const Communicator alone;
  {
    LocalCheckpoints first(root, "/runs/version_0", 1, alone);
    save_by(first, 1);
  }
  LocalCheckpoints second(root, "/runs/version_1", 1, alone);
  const auto found = second.find({"/runs/version_1", "/runs/version_0"});
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(checked_step(second.open(found[0], Verify::kAll), 0), 1);
  second.forget_others();
  EXPECT_EQ(second.find({"/runs/version_0"}).size(), 1U);
  save_by(second, 2);
  EXPECT_TRUE(second.find({"/runs/version_0"}).empty());
  EXPECT_EQ(second.find({"/runs/version_1"}).size(), 1U);
  second.remove();
  EXPECT_TRUE(fs::is_empty(root));
}

TEST(LocalCheckpoints, ThoseOfAnotherRunThatLivesAreLeftAlone) {
  const test::TemporaryFolder folder;
  const auto root = folder / "root";
  const Communicator alone;
  LocalCheckpoints first(root, "/runs/version_0", 1, alone);
  save_by(first, 1);
  LocalCheckpoints second(root, "/runs/version_1", 1, alone);
  (void)second.open(second.find({"/runs/version_0"}).at(0), Verify::kAll);
  second.forget_others();
  for (const std::int64_t step : {2, 3}) {
    save_by(second, step);
    EXPECT_EQ(first.find({"/runs/version_0"}).size(), 1U);
  }
  second.close();
  second.remove();
  save_by(first, 4);
  EXPECT_EQ(checked_step(first.open(first.find({"/runs/version_0"}).at(0), Verify::kAll), 0), 4);
}

TEST(LocalCheckpoints, ARunThatHasGoneOnKeepsWhatItSavedLater) {
  const test::TemporaryFolder folder;
  const auto root = folder / "root";
  const Communicator alone;
  const auto save = [&](std::int64_t step) {
    LocalCheckpoints first(root, "/runs/version_0", 1, alone);
    save_by(first, step);
  };
  save(1);
  LocalCheckpoints second(root, "/runs/version_1", 1, alone);
  (void)second.open(second.find({"/runs/version_0"}).at(0), Verify::kAll);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // beyond the resolution of the files' times
  save(2);
  save_by(second, 3);
  const auto found = second.find({"/runs/version_0"});
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(checked_step(second.open(found[0], Verify::kAll), 0), 2);
}

TEST(LocalCheckpoints, AFolderThatWasRemovedMeanwhileIsMadeAgain) {
  const test::TemporaryFolder folder;
  const Communicator alone;
  LocalCheckpoints local(folder / "root", "/runs/a", 1, alone);
  fs::remove_all(folder / "root");
  save_by(local, 1);
  EXPECT_EQ(local.find({"/runs/a"}).size(), 1U);
}

TEST(LocalCheckpoints, ARunDirectoryMayEndWithASlash) {
  const test::TemporaryFolder folder;
  const Communicator alone;
  LocalCheckpoints local(folder / "root", "/runs/a/", 1, alone);
  save_by(local, 1);
  EXPECT_EQ(local.find({"/runs/a"}).size(), 1U);
}

TEST(LocalCheckpoints, RefusesFoldersThatAreNotThisUsersAlone) {
  const test::TemporaryFolder folder;
  const Communicator alone;
  fs::create_directory(folder / "open");
  fs::permissions(folder / "open", fs::perms::all);
  fs::create_directory_symlink(folder / "open", folder / "link");
  folder.file("file", "");
  const auto refused = [&](const fs::path& root, const char* word) {
    test::expect_error<ConfigError>([&] { LocalCheckpoints(root, "/runs/a", 1, alone); },
                                    {root.string(), word, "local_checkpoint"});
  };
  refused(folder / "open", "mode 0777");
  refused(folder / "link", "symbolic link");
  refused(folder / "file", "no folder");
  test::expect_error<IoError>([&] { LocalCheckpoints("/proc/none/root", "/runs/a", 1, alone); },
                              {"/proc/none/root", "local_checkpoint"});
}

}  // namespace
}  // namespace lockstep::detail
