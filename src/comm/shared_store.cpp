#include "comm/shared_store.h"

#include <map>
#include <mutex>
#include <tuple>

#include "comm/c10d.h"

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

namespace lockstep::detail {
namespace {

struct MeetingPoint {
  std::mutex mutex;  // held while the store is made, which may take as long as rank 0 does
  std::optional<Store> store;
  int rooms = 0;
};

// By rank, too: ranks may be threads of one process.
using Place = std::tuple<std::string, int, int>;

// Never destroyed: a thread may still be in a collective when static objects are.
MeetingPoint& meeting_point(const Place& place) {
  static std::mutex mutex;
  static auto& points = *new std::map<Place, MeetingPoint>;
  const std::lock_guard lock(mutex);
  return points[place];
}

Store connect(const CommOptions& options) {
  return make_tcp_store({.address = options.main_address,
                         .port = options.main_port,
                         .is_server = options.rank == 0,
                         .listen_fd = options.listen_fd,
                         .timeout = options.timeout});
}

Store room_of(const Store& store, int number) {
  const auto name = "communicator/" + std::to_string(number);
  auto room = c10::make_intrusive<c10d::PrefixStore>(name, store.impl().store);
  return Store(std::make_shared<StoreImpl>(StoreImpl{std::move(room), store.impl().port}));
}

}  // namespace

Store shared_store(const CommOptions& options) {
  auto& point = meeting_point({options.main_address, options.main_port, options.rank});
  const std::lock_guard lock(point.mutex);
  if (!point.store) point.store = connect(options);
  point.store->impl().store->setTimeout(options.timeout);
  return room_of(*point.store, point.rooms++);
}

}  // namespace lockstep::detail
