// The verb `tune`: what it looks for, and which of a program's options it is for.
#pragma once

#include <string>

#include <lockstep/base/options.h>
#include <lockstep/train/tuner_options.h>

namespace lockstep {

/// Keys of the program's own options, such as "data.batch_size" and "optimizer.lr", that `tune` finds values
/// for. What has no key is not looked for.
struct TuneTargets {
  std::string batch_size = {};
  std::string lr = {};
};

/// --tune.*
struct TuneOptions {
  bool batch_size = true;  ///< look for the size of batches, with which the learning rate is looked for then
  bool lr = true;          ///< look for the learning rate
  ScaleBatchSizeOptions scale_batch_size = {};
  LrFindOptions lr_find = {};
};

LOCKSTEP_API void describe(OptionVisitor& visitor, TuneOptions& options);

}  // namespace lockstep
