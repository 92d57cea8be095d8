// One of the programs that are compiled together: LibTorch's headers take far longer than what a case adds.
#pragma once

#include <string_view>
#include <utility>

// A case runs when the program is started by its name, which is a hard link to the one that has them all.
struct ProgramCase {
  using Main = int (*)(int argc, char** argv);

  ProgramCase(std::string_view called, Main starts)
      : name(called), main(starts), next(std::exchange(first, this)) {}
  ProgramCase(const ProgramCase&) = delete;
  ProgramCase& operator=(const ProgramCase&) = delete;

  std::string_view name;
  Main main;
  const ProgramCase* next;
  inline static const ProgramCase* first = nullptr;
};
