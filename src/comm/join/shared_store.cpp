#include "comm/join/shared_store.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <tuple>

#include <lockstep/base/env.h>
#include <lockstep/base/error.h>

#include "comm/c10d.h"
#include "comm/join/launcher_socket.h"
#include "comm/join/launcher_store.h"
#include "comm/join/tcp_store.h"

namespace lockstep::detail {
namespace {

constexpr auto kAnswerTime = std::chrono::milliseconds(1000);  // of a store that is there

struct MeetingPoint {
  std::mutex mutex;  // held while the store is made, which may take as long as rank 0 does
  std::optional<Store> store;
  std::atomic<int> next_room = 0;
};

// By rank, too: ranks may be threads of one process.
using Place = std::tuple<std::string, int, int>;
constexpr int kNoRank = -1;  // for numbers that are none

// Never destroyed: a thread may still be in a collective when static objects are.
MeetingPoint& meeting_point(const Place& place) {
  static std::mutex mutex;
  static auto& points = *new std::map<Place, MeetingPoint>;
  const std::lock_guard lock(mutex);
  return points[place];
}

MeetingPoint& meeting_point(const CommOptions& options) {
  const bool is_rank = options.rank >= 0 && options.rank < options.world_size;
  return meeting_point({options.main_address, options.main_port, is_rank ? options.rank : kNoRank});
}

// The room that this process has not been in, whatever number it gave itself then.
int next_room(const CommOptions& options) {
  const int of_strangers = meeting_point({options.main_address, options.main_port, kNoRank}).next_room;
  return std::max<int>(meeting_point(options).next_room, of_strangers);
}

// torchrun may serve the store itself.
bool serves(const CommOptions& options) {
  return options.rank == 0 && env::get("TORCHELASTIC_USE_AGENT_STORE") != "True";
}

TcpStoreOptions tcp_options(const CommOptions& options) {
  TcpStoreOptions tcp{.address = options.main_address,
                      .port = options.main_port,
                      .is_server = serves(options),
                      .timeout = options.timeout};
  if (tcp.is_server)
    tcp.listen_fd = options.listen_fd ? options.listen_fd : take_launcher_socket(options.main_port);
  return tcp;
}

// Where the port of a second rank 0 is taken, the first one has it: the roll call there will name both.
Store connect(const CommOptions& options) {
  if (auto store = launcher_store(options)) return std::move(*store);
  auto tcp = tcp_options(options);
  try {
    return make_tcp_store(tcp);
  } catch (const CommError&) {
    if (!tcp.is_server || !is_store_server(tcp.address, tcp.port, kAnswerTime)) throw;
    tcp.is_server = false;
    return make_tcp_store(tcp);
  }
}

std::string name_of_room(int number) { return "communicator/" + std::to_string(number); }

// Who could not join, or came too late, has missed rooms that others have left: they are in the newest.
int newest_room(Store& store, int first) {
  const auto is_open = [](int number) { return name_of_room(number) + "/is_open"; };
  int number = first;
  while (store.check(is_open(number + 1))) ++number;
  store.set(is_open(number), "");
  return number;
}

Store enter_room(MeetingPoint& point, const CommOptions& options, std::chrono::milliseconds patience) {
  limit_answers(*point.store, patience);
  const int number = newest_room(*point.store, next_room(options));
  point.next_room = number + 1;
  return scoped(*point.store, name_of_room(number));
}

}  // namespace

Store shared_store(const CommOptions& options) {
  auto& point = meeting_point(options);
  const std::lock_guard lock(point.mutex);
  if (!point.store) point.store = connect(options);
  return enter_room(point, options, options.timeout);
}

std::optional<Store> shared_store_if_served(const CommOptions& options) {
  auto& point = meeting_point(options);
  const std::lock_guard lock(point.mutex);
  if (!point.store) point.store = launcher_store(options);
  if (!point.store) {
    if (!is_store_server(options.main_address, options.main_port, kAnswerTime)) return std::nullopt;
    point.store = make_tcp_store({.address = options.main_address, .port = options.main_port});
  }
  return enter_room(point, options, kAnswerTime);
}

// What Gloo notes for others who connect.
bool is_pytorch_rank(const Store& room, int rank) {
  return Store(std::make_shared<StoreImpl>(StoreImpl{without_scopes(room)}))
      .check("default_pg/0//cpu//0/" + std::to_string(rank));
}

Store pytorch_store(const CommOptions& options) {
  return make_pytorch_store(tcp_options(options), options.world_size);
}

}  // namespace lockstep::detail
