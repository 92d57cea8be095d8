// What ranks tell each other of what they do, in a form that travels.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::rendezvous {

enum class Doing {
  kElse,     ///< nothing that other ranks take part in
  kWaiting,  ///< it waits for others to come
  kWorking   ///< all came; it carries out what they met for
};

/// What a rank is doing, as it tells others.
struct Whereabouts {
  Doing doing = Doing::kElse;
  std::vector<int> missing = {};  ///< kWaiting: ranks that it waits for
  std::string text = {};          ///< what it waits for, or carries out, in words
};

/// A rank that is stuck: in a meeting of `group`, which is its `number`-th; `text` says what for.
struct Hop {
  int rank = 0;
  std::uint64_t number = 0;
  std::uint64_t group = 0;
  std::string text = {};
};

/// Who waits for whom: the second hop's rank is one that the first waits for, and so on; the last waits for
/// who gets this. A rank is there once.
struct Trail {
  std::uint64_t number = 0;  ///< among those that began with this first hop
  std::vector<Hop> hops = {};
};

std::string to_payload(const Whereabouts& whereabouts);
std::string to_payload(const Trail& trail);
Whereabouts whereabouts_from(std::string_view payload);
Trail trail_from(std::string_view payload);

}  // namespace lockstep::rendezvous
