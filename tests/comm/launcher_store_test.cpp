// Ranks that meet in the store of `lockstep run`, which is in this process here; ranks are threads.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <filesystem>
#include <future>

#include <lockstep/base/env.h>
#include <lockstep/base/error.h>
#include <lockstep/comm/init.h>

#include "comm/listener.h"
#include "rendezvous/client.h"
#include "rendezvous/store_server.h"

namespace lockstep {
namespace {

using namespace std::chrono_literals;
using rendezvous::KvClient;
using std::chrono::steady_clock;

class LauncherStore : public ::testing::Test {
 protected:
  LauncherStore() : port_(test::free_port()), key_file_(::memfd_create("lockstep-key-of-test", MFD_CLOEXEC)) {
    EXPECT_EQ(::write(key_file_, kKey.data(), kKey.size()), static_cast<ssize_t>(kKey.size()));
    env::set("MASTER_ADDR", "127.0.0.1");
    env::set("MASTER_PORT", std::to_string(port_));
    env::set("LOCKSTEP_STORE", server_.endpoint().text());
    env::set("LOCKSTEP_STORE_SCOPE", "round-3");
    env::set("LOCKSTEP_STORE_TOKEN_FD", std::to_string(key_file_));
  }
  ~LauncherStore() override {
    for (const auto* name :
         {"MASTER_ADDR", "MASTER_PORT", "LOCKSTEP_STORE", "LOCKSTEP_STORE_SCOPE", "LOCKSTEP_STORE_TOKEN_FD"})
      env::unset(name);
  }

  // Another file may have its number by then.
  bool has_key_file() const {
    std::error_code none;
    const auto name = std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(key_file_), none);
    return name.string().find("memfd:lockstep-key-of-test") != std::string::npos;
  }
  static void join_and_sum(int port, int rank) {
    const auto comm = init_communicator({.main_port = port, .rank = rank, .world_size = 2});
    const auto tensor = at::ones({3});
    comm.all_reduce(tensor);
    EXPECT_EQ(tensor[0].item<int>(), 2);
    comm.close();
  }
  static void form_group(int port) {
    const auto other = std::async(std::launch::async, [=] { join_and_sum(port, 1); });
    join_and_sum(port, 0);
  }

  const std::string kKey = "a key with \xff bytes";
  rendezvous::StoreServer server_{rendezvous::listen_by({"127.0.0.1", 0}, steady_clock::now() + 5s), kKey};
  int port_;
  int key_file_;
};

// One test, since a process reads the key once.
TEST_F(LauncherStore, IsUsedInPlaceOfAnotherOneAtTheMainPort) {
  EXPECT_TRUE(has_key_file());
  const test::Listener nobody_else_can_serve;  // who served or called there would fail, or wait
  env::set("MASTER_PORT", std::to_string(nobody_else_can_serve.port()));
  form_group(nobody_else_can_serve.port());
  KvClient client(server_.endpoint(), kKey, 5s);
  EXPECT_GT(client.num_keys(), 0);
  const std::string room[] = {"round-3/communicator/0/is_open"};
  EXPECT_TRUE(client.check(room));
  EXPECT_FALSE(env::get("LOCKSTEP_STORE_TOKEN_FD"));
  EXPECT_FALSE(has_key_file()) << "the key is read once";

  const auto before = client.num_keys();
  form_group(test::free_port());
  EXPECT_EQ(client.num_keys(), before) << "ranks that meet elsewhere need it not";
}

}  // namespace
}  // namespace lockstep
