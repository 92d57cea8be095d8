// What the parts of the device ask while a step is captured: nothing is computed then.
#pragma once

#include <string_view>

#include <ATen/core/Generator.h>
#include <c10/core/Storage.h>

#include "xla/graph.h"

namespace lockstep::xla {

struct Memory;

/// A recording of a step. With device_mutex().
class Capture {
 public:
  virtual ~Capture() = default;
  /// What the step reads of `memory`, whose storage lives as long as the recording.
  virtual Value input(Memory& memory, const c10::Storage& storage) = 0;
  /// Before `memory` gets another value. What it had is put back when the recording ends.
  virtual void note_write(const Memory& memory) = 0;
  /// {seed, n} for the next operator that draws numbers, other ones in each replay.
  virtual Value random_state(const at::Generator& generator) = 0;
};

/// The one under way; null while there is none. With device_mutex().
Capture* current_capture();
void set_current_capture(Capture* capture);

/// @throws c10::Error saying that `what` cannot be done while a step is captured
void refuse_in_capture(std::string_view what);

}  // namespace lockstep::xla
