#include <lockstep/train/fast_dev_run.h>

namespace lockstep {

Expected<FastDevRun> FastDevRun::parse(std::string_view text) {
  if (const auto batches = OptionType<int>::parse(text)) {
    if (*batches < 0) return Unexpected{OptionType<FastDevRun>::accepted()};
    return FastDevRun(*batches);
  }
  if (const auto one = OptionType<bool>::parse(text)) return FastDevRun(*one);
  return Unexpected{OptionType<FastDevRun>::accepted()};
}

std::string FastDevRun::print() const { return batches_ == 0 ? "false" : std::to_string(batches_); }

}  // namespace lockstep
