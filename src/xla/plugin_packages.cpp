#include "xla/plugin_packages.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdio>
#include <memory>
#include <vector>

#include <lockstep/base/error.h>

namespace lockstep::xla {
namespace {

namespace fs = std::filesystem;

// In the order in which they are looked for. `file` is relative to where packages are.
struct Package {
  const char* kind;
  const char* name;  // what pip installs
  const char* file;
};

constexpr std::array kPackages{
    Package{"tpu", "libtpu", "libtpu/libtpu.so"},
    Package{"cuda", "jax-cuda13-pjrt", "jax_plugins/xla_cuda13/xla_cuda_plugin.so"},
    Package{"cuda", "jax-cuda12-pjrt", "jax_plugins/xla_cuda12/xla_cuda_plugin.so"},
    Package{"cpu", "lammps-jax-pjrt-cpu", "lammps_jax_pjrt_cpu/pjrt_c_api_cpu_plugin.so"},
    Package{"cpu", "xla-cpu-pjrt", "xla_plugins/xla_cpu_pjrt/xla_cpu_pjrt.so"}};

// torch_xla calls GPUs CUDA; Lightning, gpu.
std::string kind_of(std::string text) {
  std::ranges::transform(text, text.begin(),
                         [](unsigned char letter) { return static_cast<char>(std::tolower(letter)); });
  return text == "gpu" ? "cuda" : text;
}

[[noreturn]] void refuse_kind(const std::string& kind, const std::string& named_by, const std::string& what,
                              const std::string& expected, const std::string& hint) {
  throw ConfigError(
      "xla", {.what = what, .expected = expected, .got = named_by + " " + kind, .where = {}, .hint = hint});
}

constexpr auto kHowToName = "LOCKSTEP_PJRT_PLUGIN names the file of any plug-in";

// The folders that Python imports from, one a line. Nothing is imported.
std::vector<fs::path> python_folders(const std::string& kind, const std::string& named_by) {
  constexpr auto kCommand =
      "python3 -c 'import sys; print(\"\\n\".join(p for p in sys.path if p))' 2>/dev/null";
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> output(::popen(kCommand, "re"), &::pclose);
  std::vector<fs::path> folders;
  std::array<char, 4096> line{};
  while (output && std::fgets(line.data(), line.size(), output.get()) != nullptr) {
    std::string text = line.data();
    while (!text.empty() && text.back() == '\n') text.pop_back();
    if (!text.empty()) folders.emplace_back(std::move(text));
  }
  if (folders.empty())
    refuse_kind(kind, named_by, "a PJRT plug-in is looked for in the Python on PATH, and there is none",
                "python3 on PATH", kHowToName);
  return folders;
}

}  // namespace

bool is_device_kind(const std::string& text) {
  const auto kind = kind_of(text);
  return std::ranges::any_of(kPackages, [&](const Package& package) { return kind == package.kind; });
}

fs::path plugin_in_python(const std::string& named, const std::string& named_by) {
  const auto kind = kind_of(named);
  if (!is_device_kind(kind))
    refuse_kind(named, named_by, "no PJRT plug-in is known for this kind of device", "CPU, CUDA or TPU",
                kHowToName);
  const auto folders = python_folders(named, named_by);
  std::string names;
  std::error_code none;
  for (const auto& package : kPackages) {
    if (kind != package.kind) continue;
    names += (names.empty() ? "" : " or ") + std::string(package.name);
    for (const auto& folder : folders)
      if (fs::exists(folder / package.file, none)) return folder / package.file;
  }
  refuse_kind(named, named_by, "the Python on PATH has no PJRT plug-in for this kind of device",
              "the package " + names, "install it with pip; " + std::string(kHowToName));
}

}  // namespace lockstep::xla
