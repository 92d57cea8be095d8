#include <lockstep/testing/run_ranks.h>

#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include <lockstep/base/error.h>
#include <lockstep/comm/init.h>

namespace lockstep::testing {
namespace {

// The data that the ranks and run_ranks() share. Stuck threads keep it alive after run_ranks() has returned.
struct Shared {
  explicit Shared(int ranks)
      : comms(static_cast<std::size_t>(ranks)), is_done(static_cast<std::size_t>(ranks)) {}

  std::mutex mutex;  // guards all below
  std::condition_variable changed;
  std::vector<std::optional<Communicator>> comms;
  std::vector<bool> is_done;
  std::exception_ptr first_error;
};

void publish(Shared& shared, std::size_t rank, std::optional<Communicator> comm) {
  const std::lock_guard lock(shared.mutex);
  shared.comms[rank] = std::move(comm);
}

void note_error(Shared& shared, std::exception_ptr error) {
  const std::lock_guard lock(shared.mutex);
  if (!shared.first_error) shared.first_error = error;
}

// Destroys the last copy of a failed rank's communicator, by which its peers notice the failure. Its error
// must be recorded before that, so that it is the first one.
void run_rank(Shared& shared, const CommOptions& options, const Store& store,
              const std::function<void(Communicator)>& body) {
  const auto rank = static_cast<std::size_t>(options.rank);
  const auto comm = init_communicator(options, store);
  publish(shared, rank, comm);
  try {
    body(comm);
    comm.close();
  } catch (...) {
    note_error(shared, std::current_exception());
    publish(shared, rank, std::nullopt);
    throw;
  }
  publish(shared, rank, std::nullopt);
}

void run_thread(const std::shared_ptr<Shared>& shared, const CommOptions& options, const Store& store,
                const std::function<void(Communicator)>& body) {
  try {
    run_rank(*shared, options, store, body);
  } catch (...) {
    note_error(*shared, std::current_exception());
  }
  const std::lock_guard lock(shared->mutex);
  shared->is_done[static_cast<std::size_t>(options.rank)] = true;
  shared->changed.notify_all();
}

std::string stuck_ranks(const Shared& shared) {
  std::string text;
  for (std::size_t rank = 0; rank < shared.is_done.size(); ++rank) {
    if (shared.is_done[rank]) continue;
    const auto doing = shared.comms[rank] ? shared.comms[rank]->activity() : "joining";
    text += (text.empty() ? "rank " : ", rank ") + std::to_string(rank);
    text += doing.empty() ? " outside of collectives" : " in " + doing;
  }
  return text;
}

}  // namespace

void run_ranks(int ranks, std::function<void(Communicator)> body, const RunRanksOptions& options) {
  const auto shared = std::make_shared<Shared>(ranks);
  const auto store = make_hash_store();
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    const CommOptions comm{.backend = options.backend,
                           .rank = rank,
                           .world_size = ranks,
                           .timeout = options.comm_timeout,
                           .reduction = options.reduction,
                           .check_collectives = options.check_collectives};
    threads.emplace_back([=] { run_thread(shared, comm, store, body); });
  }
  std::unique_lock lock(shared->mutex);
  const auto all_done = [&] {
    return std::find(shared->is_done.begin(), shared->is_done.end(), false) == shared->is_done.end();
  };
  const bool in_time = shared->changed.wait_for(lock, options.deadline, all_done);
  const auto stuck = stuck_ranks(*shared);
  const auto error = shared->first_error;
  lock.unlock();
  for (auto& thread : threads) in_time ? thread.join() : thread.detach();
  if (error) std::rethrow_exception(error);
  if (in_time) return;
  throw Timeout("testing",
                {.what = "run_ranks: not done within " + std::to_string(options.deadline.count()) + " ms",
                 .expected = "",
                 .got = stuck,
                 .where = "",
                 .hint = ""});
}

}  // namespace lockstep::testing
