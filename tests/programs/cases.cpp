#include "program_case.h"

#include <filesystem>
#include <iostream>

int main(int argc, char** argv) {
  const auto name = std::filesystem::path(argv[0]).filename().string();
  for (const ProgramCase* one = ProgramCase::first; one != nullptr; one = one->next)
    if (one->name == name) return one->main(argc, argv);
  std::cerr << name << " is no case of this program.\n";
  return 2;
}
