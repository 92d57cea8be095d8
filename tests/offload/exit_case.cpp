// Ends by exit() without having destroyed its swap folder, after a forked child did the same: exit_case
// DIRECTORY. Status 7; another one when the child removed the folder.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "offload/swap_folder.h"

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const auto* const folder = new lockstep::offload::SwapFolder({.directory = argv[1]});
  const pid_t child = ::fork();
  if (child == 0) std::exit(0);
  int status = -1;
  ::waitpid(child, &status, 0);
  if (status != 0 || !std::filesystem::is_directory(folder->path())) ::_exit(1);
  std::exit(7);
}
