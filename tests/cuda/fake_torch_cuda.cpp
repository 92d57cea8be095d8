// LibTorch's library for CUDA as a test wants it: it was built with CUDA 13.0 and NCCL 2.29.7, finds devices
// where FAKE_DEVICES says so, the driver is new enough and FAKE_BLIND is not set, and runs nothing. FAKE_NCCL
// is the version of the NCCL that is loaded. It keeps what its allocator and the driver were told when it was
// loaded.
#include <cstdint>
#include <cstdlib>
#include <string>

#include <ATen/detail/CUDAHooksInterface.h>

#define FAKE_TORCH_API __attribute__((visibility("default")))

namespace {

int number_of(const char* name, int otherwise) {
  const char* const text = std::getenv(name);
  return text != nullptr ? std::atoi(text) : otherwise;
}

std::string text_of(const char* name) {
  const char* const text = std::getenv(name);
  return text != nullptr ? text : "";
}

const std::string settings_at_load = text_of("PYTORCH_ALLOC_CONF") + text_of("PYTORCH_CUDA_ALLOC_CONF");
const std::string visible_at_load = text_of("CUDA_VISIBLE_DEVICES");

// LibTorch asks for the class of that name.
struct CUDAHooks final : at::CUDAHooksInterface {
  explicit CUDAHooks(at::CUDAHooksArgs /*none*/) {}
  bool hasCUDA() const override {
    if (number_of("FAKE_BLIND", 0) != 0) return false;
    return number_of("FAKE_DEVICES", 2) > 0 && number_of("FAKE_START", 0) == 0 &&
           number_of("FAKE_DRIVER", 13000) >= 13000;
  }
  long versionCUDART() const override { return 13000; }
};

}  // namespace

namespace at {
using ::CUDAHooks;
REGISTER_CUDA_HOOKS(CUDAHooks)
}  // namespace at

namespace torch::cuda::nccl {
FAKE_TORCH_API std::uint64_t version() {
  return std::uint64_t{2} << 32 | std::uint64_t{29} << 16 | std::uint64_t{7};
}
}  // namespace torch::cuda::nccl

extern "C" FAKE_TORCH_API int ncclGetVersion(int* version) {
  *version = number_of("FAKE_NCCL", 22907);
  return 0;
}
extern "C" FAKE_TORCH_API const char* fake_settings_at_load() { return settings_at_load.c_str(); }
extern "C" FAKE_TORCH_API const char* fake_visible_at_load() { return visible_at_load.c_str(); }
