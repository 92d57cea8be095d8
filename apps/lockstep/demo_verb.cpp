#include "demo_verb.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include <lockstep/base/build_facts.h>
#include <lockstep/base/error.h>
#include <lockstep/launch/run_on_hosts.h>

namespace {

constexpr auto kDemoProgram = "lockstep-demo";

[[noreturn]] void refuse_demo(const std::string& what, const std::string& expected, const std::string& got,
                              const std::string& hint) {
  throw lockstep::ConfigError("demo", {.what = what, .expected = expected, .got = got, .hint = hint});
}

// The library beside lockstep_core, which this command has loaded.
std::filesystem::path library_file() {
  Dl_info core{};
  if (::dladdr(reinterpret_cast<const void*>(&lockstep::become_node), &core) == 0) return LOCKSTEP_LIBRARY;
  return std::filesystem::path(core.dli_fname).parent_path() / LOCKSTEP_LIBRARY;
}

// The dynamic loader's own words would name a symbol and no remedy.
void check_libtorch_loads(const std::filesystem::path& bin) {
  if (::dlopen(library_file().c_str(), RTLD_NOW) != nullptr) return;
  const std::string why = ::dlerror();
  const auto beside = (bin / "../../torch").lexically_normal().string();
  const auto minor = lockstep::build_facts().torch_minor_version();
  refuse_demo("LibTorch cannot be used",
              "LibTorch " + minor + " in " + beside + ", in /opt/torch or on LD_LIBRARY_PATH", why,
              "pip install \"torch==" + minor + ".*\" brings it");
}

}  // namespace

CLI::App* add_demo(CLI::App& app) {
  auto* verb = app.add_subcommand(
      "demo", "Train a classifier of handwritten digits on two ranks; flags are passed on");
  verb->allow_extras();
  return verb;
}

void demo(const std::vector<std::string>& words) {
  const auto bin = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  const auto program = (bin / kDemoProgram).string();
  if (!std::filesystem::exists(program))
    refuse_demo("its program is not there", program, "no such file", "make build makes it");
  check_libtorch_loads(bin);
  std::vector<char*> arguments{const_cast<char*>(program.c_str())};
  for (const auto& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  ::execv(program.c_str(), arguments.data());
  throw lockstep::Error("demo", {.what = "cannot execute " + program, .got = std::strerror(errno)});
}
