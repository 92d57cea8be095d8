// Usage: plugin_case [PLUGIN [OPTIONS]]. Loads the plug-in, or the one of LOCKSTEP_PJRT_PLUGIN, and says what
// it has; the next arguments are loaded as further plug-ins. Exit status 2 and the error on stderr where that
// cannot be.
#include <cstdio>
#include <exception>

#include "xla/client.h"

int main(int argc, char** argv) {
  using namespace lockstep::xla;
  try {
    std::optional<std::filesystem::path> option;
    if (argc > 1 && argv[1][0] != '\0') option = argv[1];
    const auto file = plugin_file(option);
    if (!file) {
      std::puts("no plug-in");
      return 0;
    }
    const auto client =
        std::make_shared<Client>(Plugin::load(*file), parse_create_options(argc > 2 ? argv[2] : ""));
    std::printf("%s %d devices, PJRT %s\n", client->platform().c_str(), client->device_count(),
                client->plugin().version().c_str());
    for (int i = 3; i < argc; ++i) Plugin::load(argv[i]);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 2;
  }
}
