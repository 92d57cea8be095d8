// Work that is recorded instead of issued. A capture starts on one stream; another joins it when it waits for
// an event of it, and has to be waited for in the end. See Graph.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "sim/races.h"
#include "sim/streams.h"

namespace lockstep::sim {

struct Capture {
 public:
  Capture(int id, int stream);

  int id() const { return id_; }
  bool has(int stream) const { return clocks_.contains(stream); }
  std::size_t kernels() const { return kernels_; }

  void add(int stream, Kernel kernel);
  void add_record(const EventPtr& event, int stream);
  void add_wait(const EventPtr& event, int stream);
  /// Whether `stream` comes to know anything when it waits for an event of this capture.
  bool orders_anything(const Event& event, int stream) const;
  /// end() throws it then.
  void refuse(const std::string& why) { refusal_ = refusal_.empty() ? why : refusal_; }
  /// @throws c10::Error
  void check_end() const;
  /// With Runtime::mutex held.
  void issue_all(int stream) const;

 private:
  enum class StepKind { kKernel, kRecord, kWait };
  struct Step {
    StepKind kind;
    int stream;
    Kernel kernel = {};
    std::size_t record = 0;
  };
  int lane(int stream, int first) const;

  int id_;
  int first_stream_;
  std::size_t kernels_ = 0;
  std::vector<Step> steps_;
  std::map<int, VectorClock> clocks_;  // of the streams that take part
  std::vector<VectorClock> record_clocks_;
  std::string refusal_;
};

// With Runtime::mutex held.
bool is_captured(int stream);
bool is_being_captured(int stream, int graph);
/// Whose work `stream` does now, or 0.
int graph_of(int stream);

}  // namespace lockstep::sim
