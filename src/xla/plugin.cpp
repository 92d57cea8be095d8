#include "xla/plugin.h"

#include <array>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <mutex>
#include <vector>

#include <dlfcn.h>
#include <elf.h>
#include <openssl/evp.h>

#include <ATen/Parallel.h>

#include <lockstep/base/env.h>
#include <lockstep/base/error.h>

#include "xla/plugin_packages.h"

namespace lockstep::xla {
namespace {

namespace fs = std::filesystem;

constexpr auto kVariable = "LOCKSTEP_PJRT_PLUGIN";
constexpr auto kHowToGet =
    "tools/xla.sh of the sources fetches one for CPUs; jax-cuda13-pjrt and libtpu are packages that hold "
    "those for GPUs and "
    "TPUs";

#if defined(__x86_64__)
constexpr Elf64_Half kMachine = EM_X86_64;
#elif defined(__aarch64__)
constexpr Elf64_Half kMachine = EM_AARCH64;
#else
constexpr Elf64_Half kMachine = EM_NONE;
#endif

[[noreturn]] void refuse(const fs::path& file, const std::string& what, const std::string& expected,
                         const std::string& got, const std::string& hint = kHowToGet) {
  throw ConfigError("xla",
                    {.what = what, .expected = expected, .got = got, .where = file.string(), .hint = hint});
}

[[noreturn]] void refuse_foreign(const fs::path& file, const std::string& got) {
  refuse(file, "the PJRT plug-in cannot be used", "a shared library for this machine that exports GetPjrtApi",
         got);
}

[[noreturn]] void refuse_truncated(const fs::path& file, std::uintmax_t needed, std::uintmax_t there) {
  refuse(file, "the PJRT plug-in is incomplete", std::to_string(needed) + " bytes or more",
         std::to_string(there) + " bytes", "fetch or unpack it again");
}

// A library that is cut off would end the process by a signal when it is loaded.
void check_library(const fs::path& file) {
  std::error_code error;
  if (!fs::exists(file, error))
    refuse(file, "the PJRT plug-in is not there", "the path of a shared library", "no such file");
  if (!fs::is_regular_file(file, error)) refuse_foreign(file, "something that is not a file");
  const auto size = fs::file_size(file);
  std::ifstream stream(file, std::ios::binary);
  Elf64_Ehdr header{};
  stream.read(reinterpret_cast<char*>(&header), sizeof header);
  if (stream.bad() || (stream.fail() && !stream.eof())) refuse_foreign(file, "a file that cannot be read");
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) refuse_foreign(file, "a file of another kind");
  if (size < sizeof header) refuse_truncated(file, sizeof header, size);
  if (header.e_machine != kMachine || header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_type != ET_DYN)
    refuse_foreign(file, "a library for another machine, or a program");
  std::vector<Elf64_Phdr> segments(header.e_phnum);
  stream.seekg(static_cast<std::streamoff>(header.e_phoff));
  stream.read(reinterpret_cast<char*>(segments.data()),
              static_cast<std::streamsize>(segments.size() * sizeof(Elf64_Phdr)));
  std::uintmax_t needed = header.e_shoff + std::uintmax_t{header.e_shentsize} * header.e_shnum;
  if (stream.fail()) refuse_truncated(file, needed, size);
  for (const auto& segment : segments)
    needed = std::max<std::uintmax_t>(needed, segment.p_offset + segment.p_filesz);
  if (size < needed) refuse_truncated(file, needed, size);
}

const PJRT_Api& open(const fs::path& file) {
  void* const library = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* const error = ::dlerror();
    refuse(file, "the PJRT plug-in cannot be loaded", "a library whose own libraries are installed",
           error != nullptr ? error : "an unknown error");
  }
  const auto get = reinterpret_cast<const PJRT_Api* (*)()>(::dlsym(library, "GetPjrtApi"));
  if (get == nullptr) refuse_foreign(file, "a library without GetPjrtApi");
  const auto* const api = get();
  if (api == nullptr) refuse_foreign(file, "a library whose GetPjrtApi gives nothing");
  return *api;
}

void check_version(const fs::path& file, const PJRT_Api& api) {
  const auto& version = api.pjrt_api_version;
  const auto accepted = "version 0." + std::to_string(kOldestMinor) + " or a later one of 0.x";
  const auto got =
      "version " + std::to_string(version.major_version) + "." + std::to_string(version.minor_version);
  if (version.major_version > PJRT_API_MAJOR)
    refuse(file, "the PJRT plug-in is of a later interface than lockstep", accepted, got,
           "use an older plug-in, or a newer lockstep");
  if (version.major_version < PJRT_API_MAJOR || version.minor_version < kOldestMinor)
    refuse(file, "the PJRT plug-in is too old", accepted, got);
  if (api.struct_size < PJRT_Api_STRUCT_SIZE)
    refuse(file, "the PJRT plug-in lacks functions of its version", accepted,
           got + " with a table of " + std::to_string(api.struct_size) + " bytes");
}

void initialize(const fs::path& file, const PJRT_Api& api) {
  LOCKSTEP_PJRT_ARGS(PJRT_Plugin_Initialize_Args, args);
  auto* const error = api.PJRT_Plugin_Initialize(&args);
  if (error == nullptr) return;
  refuse(file, "the PJRT plug-in does not start", "a plug-in whose hardware and drivers are there",
         take_message(api, error), "look whether the driver of the device is installed");
}

std::string hexadecimal(const unsigned char* bytes, unsigned size) {
  std::string text;
  for (unsigned i = 0; i < size; ++i) {
    text += "0123456789abcdef"[bytes[i] >> 4];
    text += "0123456789abcdef"[bytes[i] & 15];
  }
  return text;
}

class Sha256 {
 public:
  Sha256() : context_(EVP_MD_CTX_new(), &EVP_MD_CTX_free) {
    EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr);
  }
  void add(const char* bytes, std::size_t size) { EVP_DigestUpdate(context_.get(), bytes, size); }
  std::string finish() {
    std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
    unsigned size = 0;
    EVP_DigestFinal_ex(context_.get(), digest.data(), &size);
    return hexadecimal(digest.data(), size);
  }

 private:
  std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context_;
};

}  // namespace

std::string sha256_of(std::string_view bytes) {
  Sha256 sum;
  sum.add(bytes.data(), bytes.size());
  return sum.finish();
}

std::optional<fs::path> plugin_file(const std::optional<fs::path>& option) {
  const auto variable = env::get(kVariable);
  const auto kind = env::get("PJRT_DEVICE");
  if (option && !option->empty()) {
    const auto file =
        is_device_kind(option->string()) ? plugin_in_python(option->string(), "pjrt_plugin") : *option;
    std::error_code none;
    const bool are_equal =
        !variable || variable->empty() || file == *variable || fs::equivalent(file, *variable, none);
    if (are_equal) return file;
    throw ConfigError("xla", {.what = "two PJRT plug-ins are named",
                              .expected = "one, as a process has one plug-in",
                              .got = "pjrt_plugin " + file.string() + " and " + kVariable + "=" + *variable,
                              .hint = "leave out the option, or unset the variable"});
  }
  if (variable && !variable->empty()) return fs::path(*variable);
  if (kind && !kind->empty()) return plugin_in_python(*kind, "PJRT_DEVICE");
  return std::nullopt;
}

std::shared_ptr<const Plugin> Plugin::load(const fs::path& file) {
  static std::mutex mutex;
  static std::shared_ptr<const Plugin> loaded;
  const std::lock_guard lock(mutex);
  std::error_code error;
  if (loaded && fs::equivalent(loaded->file_, file, error)) return loaded;
  check_library(file);
  if (loaded)
    refuse(file, "this process has a PJRT plug-in already", loaded->file_.string(), "another file",
           "use one plug-in per process");
  // What plug-ins say of their own start goes to stderr otherwise.
  if (!env::get("TF_CPP_MIN_LOG_LEVEL")) env::set("TF_CPP_MIN_LOG_LEVEL", "3");
  // Those for CPUs take all processors otherwise, which the ranks of a machine share.
  if (!env::get("PJRT_NPROC") && !env::get("NPROC"))
    env::set("PJRT_NPROC", std::to_string(at::get_num_threads()));
  const auto whole = fs::absolute(file);
  const auto& api = open(whole);
  check_version(whole, api);
  initialize(whole, api);
  loaded = std::shared_ptr<const Plugin>(new Plugin(whole, api));
  return loaded;
}

std::string Plugin::version() const {
  return std::to_string(api_->pjrt_api_version.major_version) + "." +
         std::to_string(api_->pjrt_api_version.minor_version);
}

const std::string& Plugin::sha256() const {
  static std::mutex mutex;
  static std::string sum;  // of the only plug-in
  const std::lock_guard lock(mutex);
  if (!sum.empty()) return sum;
  Sha256 made;
  std::ifstream stream(file_, std::ios::binary);
  std::vector<char> part(1 << 20);
  while (stream.read(part.data(), static_cast<std::streamsize>(part.size())), stream.gcount() > 0)
    made.add(part.data(), static_cast<std::size_t>(stream.gcount()));
  return sum = made.finish();
}

}  // namespace lockstep::xla
