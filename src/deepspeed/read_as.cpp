// Values that DeepSpeed takes for others: a negative gradient_clipping for none, a stage of true for 1.
#include "base/number_locale.h"
#include "deepspeed/section_reader.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::deepspeed {
namespace {

bool is_word_true(const Hjson& value) { return value.text == "true"; }

/// The number that Python reads, which takes Infinity and -Infinity for numbers, too; NaN for everything
/// else.
double number_of(const Hjson& value) {
  const bool is_infinite = value.text == "Infinity" || value.text == "-Infinity";
  if (value.kind != Hjson::Kind::kNumber && !is_infinite) return std::nan("");
  const lockstep::detail::NumbersWithPoint scope;
  return std::strtod(value.text.c_str(), nullptr);
}

void become_number(Hjson& value, std::string text) {
  value.kind = Hjson::Kind::kNumber;
  value.text = std::move(text);
}

/// Reads one configuration, and says what it reads otherwise than it is written.
class Values {
 public:
  Values(Hjson& root, const std::string& name, std::vector<std::string>& warnings)
      : root_(root), name_(name), warnings_(warnings) {}

  void read_all() {
    for (const auto key : kFalseWhereNull) {
      auto* const value = root_.find(key);
      if (value != nullptr && value->kind == Hjson::Kind::kNull) become_false(*value);
    }
    if (auto* const clipping = root_.find("gradient_clipping")) read_clipping(*clipping);
    if (auto* const steps = root_.find("steps_per_print")) read_steps_per_print(*steps);
    if (auto* const zero = root_.find("zero_optimization")) read_stage(*zero);
    if (auto* const scheduler = root_.find("scheduler")) read_highest_rate(*scheduler);
    if (auto* const aio = root_.find("aio"); aio != nullptr && !uses_disk()) leave_out_unread(*aio);
  }

 private:
  /// Switches of which DeepSpeed only asks whether they are on.
  static constexpr std::array<std::string_view, 7> kFalseWhereNull{"prescale_gradients",
                                                                   "dump_state",
                                                                   "memory_breakdown",
                                                                   "disable_allgather",
                                                                   "zero_allow_untested_optimizer",
                                                                   "zero_force_ds_cpu_optimizer",
                                                                   "dataloader_drop_last"};

  static void become_false(Hjson& value) {
    value.kind = Hjson::Kind::kBool;
    value.text = "false";
  }

  void warn(const std::string& key, const Hjson& value, const std::string& meaning) {
    warnings_.push_back(place_in(name_, value.place) + ": " + key + " " + value.text + " " + meaning);
  }

  void read_clipping(Hjson& value) {
    const auto norm = number_of(value);
    const bool clips_nothing =
        norm < 0 || std::isinf(norm) || (value.kind == Hjson::Kind::kBool && !is_word_true(value));
    const bool is_one = value.kind == Hjson::Kind::kBool && is_word_true(value);
    if (!clips_nothing && !is_one) return;
    warn("gradient_clipping", value, is_one ? "clips at a norm of 1, as in DeepSpeed" : "clips nothing");
    become_number(value, is_one ? "1.0" : "0.0");
  }

  /// DeepSpeed asks whether a step's number divided by this leaves a rest, which is the same for -3 and 3.
  static void read_steps_per_print(Hjson& value) {
    const auto steps = number_of(value);
    if (std::isinf(steps))
      value = {.kind = Hjson::Kind::kNull, .place = value.place};
    else if (value.kind == Hjson::Kind::kBool && is_word_true(value))
      become_number(value, "1");
    else if (steps < 0 && value.text.starts_with('-'))
      value.text.erase(0, 1);
  }

  static void read_stage(Hjson& zero) {
    auto* const stage = zero.find("stage");
    if (stage != nullptr && stage->kind == Hjson::Kind::kBool)
      become_number(*stage, is_word_true(*stage) ? "1" : "0");
  }

  /// null is DeepSpeed's own default: the rates that the groups have. Here that is an empty list.
  static void read_highest_rate(Hjson& scheduler) {
    auto* const params = scheduler.find("params");
    auto* const rate = params == nullptr ? nullptr : params->find("warmup_max_lr");
    if (rate != nullptr && rate->kind == Hjson::Kind::kNull) rate->kind = Hjson::Kind::kArray;
  }

  bool uses_disk() {
    auto* const zero = root_.find("zero_optimization");
    const auto is_on_disk = [&](std::string_view section) {
      auto* const offload = zero->find(section);
      const auto* const device = offload == nullptr ? nullptr : offload->find("device");
      return device != nullptr && device->text == "nvme";
    };
    return zero != nullptr && (is_on_disk("offload_optimizer") || is_on_disk("offload_param"));
  }

  /// Nothing reads values of aio where nothing is on a disk.
  void leave_out_unread(Hjson& aio) {
    std::erase_if(aio.members, [&](const HjsonMember& member) {
      const auto& value = member.value;
      const bool is_usual =
          value.kind == Hjson::Kind::kNumber || value.kind == Hjson::Kind::kBool || value.text == "auto";
      if (is_usual || !is_read_as_setting(member.key)) return false;
      if (value.kind != Hjson::Kind::kNull)
        warn("aio." + member.key, value, "has no effect without device nvme");
      return true;
    });
  }

  static bool is_read_as_setting(std::string_view key) {
    static constexpr std::array<std::string_view, 6> kKeys{
        "block_size", "queue_depth", "intra_op_parallelism", "single_submit", "overlap_events", "use_gds"};
    return std::ranges::find(kKeys, key) != kKeys.end();
  }

  Hjson& root_;
  const std::string& name_;
  std::vector<std::string>& warnings_;
};

}  // namespace

void read_values_as_deepspeed(Hjson& root, const std::string& name, std::vector<std::string>& warnings) {
  Values(root, name, warnings).read_all();
}

}  // namespace lockstep::deepspeed
