#include "cuda/host_waits.h"

#include <dlfcn.h>

#include <cstdint>
#include <mutex>
#include <set>
#include <string_view>
#include <utility>

#include <lockstep/base/error.h>

namespace lockstep::detail {
namespace {

// Of cupti_callbacks.h: the beginning of CUpti_CallbackData, and values of its enums. All are part of CUPTI's
// binary interface.
struct CuptiCall {
  int site;  // 0: the function is entered
  const char* function;
};
constexpr std::uint32_t kRuntimeApi = 2;

using CuptiCallback = void (*)(void* data, int domain, std::uint32_t id, const void* call);
using CuptiSubscribe = int (*)(void** subscriber, CuptiCallback callback, void* data);
using CuptiEnableDomain = int (*)(std::uint32_t enable, void* subscriber, std::uint32_t domain);
using CuptiUnsubscribe = int (*)(void* subscriber);

const std::set<std::string_view> kWaits{"cudaStreamSynchronize", "cudaDeviceSynchronize",
                                        "cudaEventSynchronize", "cudaMemcpy"};

std::mutex counts_mutex;
std::map<std::string, int> counts;

void note_call(void* /*data*/, int /*domain*/, std::uint32_t /*id*/, const void* data) {
  const auto& call = *static_cast<const CuptiCall*>(data);
  if (call.site != 0 || call.function == nullptr) return;
  std::string_view name = call.function;
  name = name.substr(0, name.find('_'));  // "cudaStreamSynchronize_ptsz", of streams of a thread
  if (!kWaits.contains(name)) return;
  const std::lock_guard lock(counts_mutex);
  ++counts[std::string(name)];
}

// A LibTorch for CUDA needs it, so it is loaded by then, or lies where the loader looks.
void* find_in_cupti(const char* name) {
  auto* found = ::dlsym(RTLD_DEFAULT, name);
  for (const char* library : {"libcupti.so.13", "libcupti.so.12", "libcupti.so"}) {
    if (found != nullptr) break;
    if (void* const handle = ::dlopen(library, RTLD_NOW)) found = ::dlsym(handle, name);
  }
  return found;
}

template <class Function>
Function cupti(const char* name) {
  if (auto* const found = find_in_cupti(name)) return reinterpret_cast<Function>(found);
  throw Error("cuda", {.what = "waits for the GPU cannot be counted",
                       .expected = "libcupti.so, which comes with a LibTorch for CUDA",
                       .got = std::string("no function ") + name});
}

void check_cupti(int status, const char* what) {
  if (status == 0) return;
  throw Error("cuda", {.what = "waits for the GPU cannot be counted",
                       .got = std::string(what) + ": error " + std::to_string(status) + " of CUPTI"});
}

}  // namespace

HostWaits::HostWaits() {
  take();
  check_cupti(cupti<CuptiSubscribe>("cuptiSubscribe")(&subscriber_, &note_call, nullptr), "cuptiSubscribe");
  check_cupti(cupti<CuptiEnableDomain>("cuptiEnableDomain")(1, subscriber_, kRuntimeApi),
              "cuptiEnableDomain");
}

HostWaits::~HostWaits() {
  const auto end = reinterpret_cast<CuptiUnsubscribe>(find_in_cupti("cuptiUnsubscribe"));
  if (end != nullptr && subscriber_ != nullptr) end(subscriber_);
}

std::map<std::string, int> HostWaits::take() {
  const std::lock_guard lock(counts_mutex);
  return std::exchange(counts, {});
}

}  // namespace lockstep::detail
