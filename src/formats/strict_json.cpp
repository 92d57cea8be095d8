#include "formats/strict_json.h"

#include <algorithm>
#include <vector>

#include <lockstep/base/error.h>

namespace lockstep::detail {
namespace {

using Json = nlohmann::ordered_json;

[[noreturn]] void refuse(const std::string& place, const std::string& why) {
  throw CheckpointError("checkpoint", {.what = place + " is no JSON that can be used", .got = why});
}

// Builds the value from the events of the parser. The builder of nlohmann's library searches all members of
// an object for each new one, and accepts duplicate keys.
class StrictBuilder final : public nlohmann::json_sax<Json> {
 public:
  explicit StrictBuilder(const std::string& place) : place_(place) {}

  Json take() { return std::move(root_); }

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(std::int64_t value) override { return add(value); }
  bool number_unsigned(std::uint64_t value) override { return add(value); }
  bool number_float(double value, const std::string&) override { return add(value); }
  bool string(std::string& value) override { return add(std::move(value)); }
  bool binary(Json::binary_t&) override { return false; }  // JSON has none
  bool start_object(std::size_t) override { return open(Json::object()); }
  bool start_array(std::size_t) override { return open(Json::array()); }
  bool end_array() override { return close(); }
  bool key(std::string& name) override {
    keys_.push_back(std::move(name));
    return true;
  }
  bool end_object() override {
    check_keys();
    return close();
  }
  bool parse_error(std::size_t, const std::string&, const Json::exception& error) override {
    refuse(place_, error.what());
  }

 private:
  bool open(Json value) {
    if (open_.size() == kDeepestJson) refuse(place_, "nested deeper than " + std::to_string(kDeepestJson));
    open_.push_back(std::move(value));
    return true;
  }

  bool close() {
    Json value = std::move(open_.back());
    open_.pop_back();
    return add(std::move(value));
  }

  bool add(Json value) {
    if (open_.empty()) {
      root_ = std::move(value);
    } else if (open_.back().is_array()) {
      open_.back().push_back(std::move(value));
    } else {
      add_member(open_.back(), std::move(keys_.back()), std::move(value));
      keys_.pop_back();
    }
    return true;
  }

  void check_keys() const {
    std::vector<std::string_view> keys;
    for (const auto& [key, value] : open_.back().get_ref<const Json::object_t&>()) keys.push_back(key);
    std::ranges::sort(keys);
    const auto twice = std::ranges::adjacent_find(keys);
    if (twice != keys.end()) refuse(place_, "the key " + Json(*twice).dump() + " twice");
  }

  const std::string& place_;
  Json root_;
  std::vector<Json> open_;         // the objects and arrays that are not complete yet
  std::vector<std::string> keys_;  // the keys of the next values, one for each object among these
};

}  // namespace

Json parse_strictly(std::string_view text, const std::string& place) {
  StrictBuilder builder(place);
  Json::sax_parse(text.begin(), text.end(), &builder);
  return builder.take();
}

}  // namespace lockstep::detail
