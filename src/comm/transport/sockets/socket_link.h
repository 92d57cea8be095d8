// One connection with another rank: what is sent and received over it, cut into frames.
//
// A frame is a transfer: a header, then its bytes, which go straight from the sender's memory to the place
// that the receiver has posted for them. Where nothing is posted yet, the rest of the connection waits in the
// system's buffers: that is for ranks that have agreed on what they do, so that it soon will be. Other
// transfers wait for a notice that the other rank has posted theirs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <lockstep/base/export.h>
#include <lockstep/base/unique_fd.h>

namespace lockstep::detail {

/// What belongs to one call: its transfers that are not complete yet.
struct SocketCall {
  std::size_t pending = 0;       ///< transfers
  std::deque<int> arrived = {};  ///< numbers of receives that are complete
  std::uint64_t moved = 0;       ///< bytes so far; grows as long as there is progress
  std::string failure = {};      ///< empty: none
};

/// Sends `bytes` from `data` in `stream`.
struct SocketSend {
  std::uint32_t stream = 0;
  const std::byte* data = nullptr;
  std::size_t bytes = 0;
  SocketCall* call = nullptr;  ///< null: of no call
  bool is_urgent = false;      ///< goes before others of other streams
  bool awaits_notice = false;  ///< is sent when the other rank has posted it; as the receive that it meets
  bool is_notice = false;      ///< says that `bytes` bytes may be sent in `stream`
};

struct SocketReceive {
  std::byte* place = nullptr;
  std::size_t bytes = 0;
  SocketCall* call = nullptr;
  int number = -1;
  bool gives_notice = false;
};

/// Not thread-safe. None of its functions blocks.
class LOCKSTEP_API SocketLink {
 public:
  /// Takes over a connected, non-blocking socket; `peer`, such as "rank 2", is for errors.
  SocketLink(UniqueFd socket, std::string peer) : socket_(std::move(socket)), peer_(std::move(peer)) {}

  int fd() const { return socket_.get(); }
  const std::string& peer() const { return peer_; }

  /// Of a connection that has ended they fail their calls.
  void post(const SocketSend& send);
  void post(std::uint32_t stream, const SocketReceive& receive);

  /// What poll() should watch for; 0: nothing.
  short events() const;
  /// Moves what can be moved now, a limited amount.
  void read();
  void write();

  /// Whether `call` has transfers here.
  bool has(const SocketCall& call) const;
  /// Drops the transfers of `call`, which has failed: its memory is not used any more. The connection ends
  /// where one of them was under way.
  void drop(SocketCall& call);
  /// Fails the calls of all transfers, now and from now on.
  void end(const std::string& reason);

 private:
  struct Header {
    std::uint32_t kind = 0;
    std::uint32_t stream = 0;
    std::uint64_t bytes = 0;
  };
  static_assert(sizeof(Header) == 16);
  struct Sending {
    SocketSend send;
    Header header;
    std::size_t done = 0;  // bytes, with the header
  };
  struct Receiving {
    SocketReceive receive;
    std::size_t done = 0;
  };

  void enqueue(const SocketSend& send);
  bool begin_to_send();
  void end_sending(const std::string& reason);
  void end_receiving(const std::string& reason);
  void take(std::size_t got);
  void begin_frame();
  void begin_to_receive();
  void note_notice(std::uint32_t stream);

  UniqueFd socket_;
  std::string peer_;

  // Sending.
  std::deque<SocketSend> urgent_, ordinary_;                  // may be sent
  std::map<std::uint32_t, std::deque<SocketSend>> unposted_;  // by stream; the other rank has not posted them
  std::map<std::uint32_t, std::deque<std::uint64_t>> notices_;  // by stream; bytes that it has posted
  std::optional<Sending> sending_;
  std::string send_failure_;

  // Receiving.
  std::map<std::uint32_t, std::deque<SocketReceive>> posted_;  // by stream
  std::optional<Receiving> receiving_;
  Header next_;                 // the header of the next frame
  std::size_t next_bytes_ = 0;  // of it that are here
  bool is_parked_ = false;      // it is here, and nothing is posted for it
  std::string receive_failure_;
};

}  // namespace lockstep::detail
