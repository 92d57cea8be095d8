#include "comm/join/store_client.h"

#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <stdexcept>

#include <lockstep/base/error.h>

#include "base/format.h"
#include "comm/compat.h"
#include "comm/waiting.h"

namespace lockstep::detail {
namespace {

using c10d::detail::CheckResponseType;
using c10d::detail::QueryType;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr auto kLastLook = milliseconds(500);  // for the answer, when the time of a wait is up
constexpr auto kKeyPrefix = "/";               // of c10d's clients

// The bytes of a request. Numbers and lengths have 8 bytes.
class Request {
 public:
  explicit Request(QueryType type) { append(type); }

  template <class T>
  Request& append(const T& value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
    return *this;
  }
  Request& bytes(std::string_view bytes) {
    append(std::uint64_t{bytes.size()});
    bytes_ += bytes;
    return *this;
  }
  Request& key(const std::string& key) { return bytes(kKeyPrefix + key); }

  std::string_view view() const { return bytes_; }

 private:
  std::string bytes_;
};

[[noreturn]] void fail(int error) { throw std::runtime_error(system_error_text(error)); }

// Nagle's algorithm would hold small requests back, whose answers are awaited.
void send_at_once(int socket) {
  const int on = 1;
  ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

}  // namespace

std::string store_greeting() {
  return std::string(Request(QueryType::VALIDATE).append(c10d::detail::validationMagicNumber).view());
}

StoreConnection::StoreConnection(std::string address, int port, UniqueFd socket,
                                 std::shared_ptr<const void> server)
    : address_(std::move(address)),
      port_(port),
      server_(std::move(server)),
      socket_(std::move(socket)),
      guard_([this] { socket_.reset(); }) {
  if (socket_) send_at_once(socket_.get());
}

// An answer that did not come in time may come later: the next question needs a new connection.
template <class Receive>
auto StoreConnection::exchange(std::string_view request, Deadline deadline, Receive receive) {
  const std::unique_lock lock(mutex_, deadline);
  if (!lock) give_up();
  try {
    if (!socket_) connect(deadline);
    send(request, deadline);
    return receive(deadline);
  } catch (...) {
    socket_.reset();
    throw;
  }
}

void StoreConnection::connect(Deadline deadline) {
  auto socket = connect_to(address_, port_, deadline);
  if (!socket) throw std::runtime_error(socket.error());
  socket_ = std::move(*socket);
  send_at_once(socket_.get());
  send(store_greeting(), deadline);
}

void StoreConnection::send(std::string_view bytes, Deadline deadline) {
  while (!bytes.empty()) {
    const auto count = ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (count >= 0) {
      bytes.remove_prefix(static_cast<std::size_t>(count));
    } else if (!is_transient(errno)) {
      fail(errno);
    } else if (!await_ready(socket_.get(), POLLOUT, deadline)) {
      give_up();
    }
  }
}

void StoreConnection::receive(void* data, std::size_t bytes, Deadline deadline) {
  auto* to = static_cast<char*>(data);
  for (const char* const end = to + bytes; to < end;) {
    const auto count = ::recv(socket_.get(), to, static_cast<std::size_t>(end - to), 0);
    if (count > 0) {
      to += count;
    } else if (count == 0) {
      fail(ECONNRESET);
    } else if (!is_transient(errno)) {
      fail(errno);
    } else if (!await_ready(socket_.get(), POLLIN, deadline)) {
      give_up();
    }
  }
}

std::int64_t StoreConnection::receive_number(Deadline deadline) {
  std::int64_t number = 0;
  receive(&number, sizeof number, deadline);
  return number;
}

void StoreConnection::give_up() const {
  throw Timeout("comm", {.what = "store: no answer from " + address_ + ":" + std::to_string(port_),
                         .hint = "rank 0, which serves the store, is stopped or its host cannot be reached"});
}

StoreClient::StoreClient(std::shared_ptr<StoreConnection> connection, milliseconds timeout)
    : c10d::Store(timeout), connection_(std::move(connection)) {}

c10::intrusive_ptr<c10d::Store> StoreClient::clone() {
  return c10::make_intrusive<StoreClient>(connection_, timeout_);
}

void StoreClient::set(const std::string& key, const std::vector<std::uint8_t>& value) {
  const std::string_view bytes(reinterpret_cast<const char*>(value.data()), value.size());
  connection_->exchange(Request(QueryType::SET).key(key).bytes(bytes).view(), own_deadline(),
                        [](Deadline) {});
}

std::vector<std::uint8_t> StoreClient::get(const std::string& key) {
  wait({key});
  const auto receive = [this](Deadline deadline) {
    std::vector<std::uint8_t> value(static_cast<std::size_t>(connection_->receive_number(deadline)));
    connection_->receive(value.data(), value.size(), deadline);
    return value;
  };
  return connection_->exchange(Request(QueryType::GET).key(key).view(), own_deadline(), receive);
}

std::int64_t StoreClient::add(const std::string& key, std::int64_t value) {
  return ask_number(Request(QueryType::ADD).key(key).append(value).view());
}

bool StoreClient::deleteKey(const std::string& key) {
  return ask_number(Request(QueryType::DELETE_KEY).key(key).view()) == 1;
}

std::int64_t StoreClient::getNumKeys() { return ask_number(Request(QueryType::GETNUMKEYS).view()); }

std::int64_t StoreClient::ask_number(std::string_view request) {
  return connection_->exchange(request, own_deadline(),
                               [this](Deadline deadline) { return connection_->receive_number(deadline); });
}

bool StoreClient::check(const std::vector<std::string>& keys) { return check(keys, own_deadline()); }

bool StoreClient::check(const std::vector<std::string>& keys, Deadline deadline) {
  Request request(QueryType::CHECK);
  request.append(std::uint64_t{keys.size()});
  for (const auto& key : keys) request.key(key);
  return connection_->exchange(request.view(), deadline, [this](Deadline until) {
    CheckResponseType answer{};
    connection_->receive(&answer, sizeof answer, until);
    return answer == CheckResponseType::READY;
  });
}

void StoreClient::wait(const std::vector<std::string>& keys) { wait(keys, timeout_); }

// Polls: a connection on which the server was asked to wait can carry no other request meanwhile.
void StoreClient::wait(const std::vector<std::string>& keys, const milliseconds& timeout) {
  const auto deadline = steady_clock::now() + bounded(timeout);
  const auto are_set = [&] { return check(keys, std::max(deadline, steady_clock::now() + kLastLook)); };
  if (!poll_until(deadline, are_set))
    throw Timeout("comm", {.what = "store: a key was not set in time", .got = keys.front()});
}

Deadline StoreClient::own_deadline() const { return steady_clock::now() + bounded(timeout_); }

}  // namespace lockstep::detail
