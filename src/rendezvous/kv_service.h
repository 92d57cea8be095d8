// The key-value store of a frame server: answers questions about its table, those that wait once it can.
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <lockstep/base/export.h>

#include "rendezvous/frame_server.h"
#include "rendezvous/kv_messages.h"
#include "rendezvous/kv_table.h"

namespace lockstep::rendezvous {

/// A client asks one question at a time; who asks while another one of his waits is turned away.
class LOCKSTEP_API KvService final : public FrameService {
 public:
  void on_message(ServerConnection& from, std::string_view payload) override;
  void on_closed(const ServerConnection& connection) override;
  std::optional<Deadline> next_deadline() const override;
  void on_time() override;

 private:
  struct Waiter {
    ServerConnection* client;
    KvQuery query;
    std::vector<std::string> keys;
    Deadline deadline;
  };
  using Waiters = std::map<std::uint64_t, Waiter>;  // by connection

  void answer(ServerConnection& client, KvQuery query, KvReader& question);
  void await(ServerConnection& client, KvQuery query, std::vector<std::string> keys,
             std::int64_t patience_ms);
  void end_wait(Waiters::iterator waiter, KvStatus status);
  void tell_of(const std::string& key);

  KvTable table_;
  Waiters waiters_;
  std::map<std::string, std::set<std::uint64_t>> awaited_;  // waiters by key
  std::set<std::pair<Deadline, std::uint64_t>> waiters_by_deadline_;
};

}  // namespace lockstep::rendezvous
