// CUPTI as a test wants it: fake_call() is a call of CUDA's runtime, of which the subscriber hears.
// FAKE_CUPTI is the error with which it does not start.
#include <cstdint>
#include <cstdlib>
#include <initializer_list>

#define FAKE_CUPTI_API extern "C" __attribute__((visibility("default")))

namespace {
using Callback = void (*)(void* data, int domain, std::uint32_t id, const void* call);

// As cupti_callbacks.h has it, up to what is used.
struct Call {
  int site;
  const char* function;
  const void* parameters;
  void* result;
};

Callback subscribed = nullptr;
void* data_of_subscriber = nullptr;
bool hears_runtime = false;
}  // namespace

FAKE_CUPTI_API int cuptiSubscribe(void** subscriber, Callback callback, void* data) {
  const char* const error = std::getenv("FAKE_CUPTI");
  if (error != nullptr) return std::atoi(error);
  if (subscribed != nullptr) return 39;  // CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED
  subscribed = callback;
  data_of_subscriber = data;
  *subscriber = &subscribed;
  return 0;
}
FAKE_CUPTI_API int cuptiEnableDomain(std::uint32_t enable, void* subscriber, std::uint32_t domain) {
  if (subscriber != &subscribed) return 1;  // CUPTI_ERROR_INVALID_PARAMETER
  hears_runtime = domain == 2 && enable != 0;
  return 0;
}
FAKE_CUPTI_API int cuptiUnsubscribe(void* /*subscriber*/) {
  subscribed = nullptr;
  return 0;
}
FAKE_CUPTI_API void fake_call(const char* function) {
  for (const int site : {0, 1}) {
    const Call call{.site = site, .function = function, .parameters = nullptr, .result = nullptr};
    if (subscribed != nullptr && hears_runtime) subscribed(data_of_subscriber, 2, 0, &call);
  }
}
