#include "comm/group/job_mesh.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <string_view>

#include <lockstep/base/error.h>

#include "comm/collectives/signature.h"
#include "comm/transport/endpoints.h"
#include "rendezvous/mesh_sockets.h"

namespace lockstep::detail {
namespace {

using rendezvous::Hello;

constexpr auto kSecondThread = std::chrono::milliseconds(1000);  // until it issues its first collective

std::vector<UniqueFd> connect(const ConnectOptions& options, Store& store, std::uint64_t token,
                              std::vector<int>& numbers) {
  const auto deadline = std::chrono::steady_clock::now() + options.timeout;
  const rendezvous::MeshListener listener(options.own_address);
  const Hello hello{.rank = static_cast<std::uint32_t>(options.rank),
                    .world_size = static_cast<std::uint32_t>(options.world_size),
                    .token = token};
  const auto endpoints = exchange_endpoints(store, "control/", options, listener.endpoint());
  auto connections = rendezvous::connect_mesh(listener, hello, endpoints, deadline);
  for (const auto& connection : connections) numbers.push_back(connection.get());
  return connections;
}

// Names of threads that lockstep, Gloo and LibTorch start; a user's have the name of the program, or another
// one.
constexpr std::array<std::string_view, 3> kLibraryThreads = {"ls_", "gloo_", "pt_"};

bool is_of_library(const std::filesystem::path& thread) {
  std::string name;
  std::getline(std::ifstream(thread / "comm"), name);
  if (name.starts_with("pt_autograd")) return false;  // runs hooks of users
  return std::ranges::any_of(kLibraryThreads,
                             [&](std::string_view prefix) { return name.starts_with(prefix); });
}

// Whether, beside a single thread, this process has only threads that issue no collectives. False when in
// doubt.
bool has_one_user_thread() {
  try {
    int of_user = 0;
    for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task")) {
      if (!is_of_library(thread.path()) && ++of_user > 1) return false;
    }
    return true;
  } catch (const std::filesystem::filesystem_error&) {
    return false;
  }
}

}  // namespace

JobMesh::JobMesh(const ConnectOptions& options, Store store, std::uint64_t token)
    : mesh_(options.rank, connect(options, store, token, connections_),
            {.describe = [this](const auto& announcement) { return describe(announcement); },
             .activity = [this] { return activity(); }}),
      fork_guard_([this] {
        for (const int each : connections_) ::close(each);
      }) {
  // After this meeting no rank opens further connections.
  std::vector<int> everybody(static_cast<std::size_t>(options.world_size));
  std::iota(everybody.begin(), everybody.end(), 0);
  mesh_.meet({.announcement = {.sequence = 1},
              .members = everybody,
              .deadline = std::chrono::steady_clock::now() + options.timeout});
}

void JobMesh::add(const std::shared_ptr<Lane>& lane) {
  const std::lock_guard lock(mutex_);
  lanes_[lane->id] = lane;
  if (!lane->is_of_messages()) lanes_[lane->barrier_id] = lane;
}

void JobMesh::note_caller() {
  const auto self = std::this_thread::get_id();
  std::thread::id first{};
  if (caller_.load(std::memory_order_relaxed) == self || caller_.compare_exchange_strong(first, self)) return;
  has_many_callers_ = true;
}

std::optional<std::chrono::milliseconds> JobMesh::is_stuck_after(const Lane& lane) const {
  if (has_many_callers_ || !lane.queue.is_awaited()) return std::nullopt;
  const std::lock_guard lock(mutex_);
  const bool others_are_idle = std::ranges::all_of(lanes_, [&](const auto& each) {
    const auto other = each.second.lock();
    return !other || other.get() == &lane || other->queue.is_idle();
  });
  if (!others_are_idle) return std::nullopt;
  return has_one_user_thread() ? std::chrono::milliseconds(0) : kSecondThread;
}

std::string JobMesh::activity() const {
  const std::lock_guard lock(mutex_);
  for (const auto& [id, each] : lanes_) {
    const auto lane = each.lock();
    const auto text = lane ? lane->activity_text() : "";
    if (!text.empty()) return text + (lane->is_of_messages() ? "" : lane->place);
  }
  return "";
}

void JobMesh::say_goodbye(Lane& lane) {
  if (!lane.has_said_goodbye.exchange(true)) mesh_.say_goodbye(lane.id, lane.members);
}

void JobMesh::leave(Lane& lane) {
  const bool is_last_group = open_groups_ <= 1;  // the end of the job is told in its place
  if (!lane.is_of_messages() && !is_last_group) say_goodbye(lane);
  mesh_.leave(lane.id, lane.has_said_goodbye ? lane.members : std::vector<int>());
  if (!lane.is_of_messages()) mesh_.leave(lane.barrier_id, {});
  forget(lane);
}

void JobMesh::forget(const Lane& lane) {
  const std::lock_guard lock(mutex_);
  lanes_.erase(lane.id);
  lanes_.erase(lane.barrier_id);
}

void JobMesh::close_group(bool in_peace) {
  if (!in_peace) is_at_peace_ = false;
  if (--open_groups_ == 0 && is_at_peace_) mesh_.leave();
}

std::string JobMesh::describe(const rendezvous::Announcement& announcement) const {
  auto text = detail::describe(std::bit_cast<Signature>(announcement.what));
  const bool is_numbered = announcement.sequence != 0;
  const auto sequence = is_numbered ? " seq " + std::to_string(announcement.sequence) : "";
  const std::lock_guard lock(mutex_);
  const auto found = lanes_.find(announcement.group);
  const auto lane = found == lanes_.end() ? nullptr : found->second.lock();
  return text + (lane ? lane->place : "") + sequence;
}

void require_health(const std::shared_ptr<JobMesh>& job, const std::string& where) {
  if (job) job->mesh().explain({}, where, std::chrono::milliseconds(0));
}

}  // namespace lockstep::detail
