// A user's program, built against the installed package: narrow headers only.
#include <lockstep/base/version.h>
#include <lockstep/comm/communicator.h>

#include <cstdio>

#include <ATen/ops/ones.h>

int main() {
  const lockstep::Communicator alone;
  const auto tensor = at::ones({3});
  alone.all_reduce(tensor);
  std::printf("lockstep %s, %d rank, sum %g\n", lockstep::kVersion, alone.size(),
              tensor.data_ptr<float>()[0]);
  return 0;
}
