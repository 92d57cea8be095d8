// The data of a run.
#pragma once

#include <memory>

#include <lockstep/train/data_module.h>

namespace lockstep::detail {

struct RunData {
  std::shared_ptr<AnyDataModule> module;  ///< null where the loaders were given
  std::shared_ptr<AnyLoader> train;
  LoaderList val;  ///< empty: fit does not validate
};

}  // namespace lockstep::detail
