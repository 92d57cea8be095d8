#include <lockstep/train/data_module.h>

namespace lockstep {

AnyDataModule::~AnyDataModule() = default;

void detail::begin_stage(AnyDataModule& data, Stage stage, int local_rank, int global_rank,
                         const std::function<void()>& barrier) {
  const int rank = data.prepare_data_per_node() ? local_rank : global_rank;
  if (rank == 0) data.prepare_data();
  barrier();
  data.setup(stage);
}

}  // namespace lockstep
