#include "xla/capture.h"

#include <c10/util/Exception.h>

namespace lockstep::xla {
namespace {

Capture* under_way = nullptr;

}  // namespace

Capture* current_capture() { return under_way; }
void set_current_capture(Capture* capture) { under_way = capture; }

void refuse_in_capture(std::string_view what) {
  TORCH_CHECK(under_way == nullptr, what, ", which a captured step of an XLA device cannot do");
}

}  // namespace lockstep::xla
