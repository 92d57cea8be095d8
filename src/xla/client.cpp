#include "xla/client.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include <lockstep/base/error.h>

namespace lockstep::xla {
namespace {

template <class Number>
std::optional<Number> number_in(const std::string& text) {
  Number number = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (status != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return number;
}

PJRT_NamedValue named_value(const std::string& name, const std::string& text) {
  LOCKSTEP_PJRT_ARGS(PJRT_NamedValue, value);
  value.name = name.c_str();
  value.name_size = name.size();
  value.value_size = 1;
  if (const auto whole = number_in<std::int64_t>(text)) {
    value.type = PJRT_NamedValue_kInt64;
    value.int64_value = *whole;
  } else if (const auto number = number_in<float>(text)) {
    value.type = PJRT_NamedValue_kFloat;
    value.float_value = *number;
  } else if (text == "true" || text == "false") {
    value.type = PJRT_NamedValue_kBool;
    value.bool_value = text == "true";
  } else {
    value.type = PJRT_NamedValue_kString;
    value.string_value = text.c_str();
    value.value_size = text.size();
  }
  return value;
}

std::string text_of(const CreateOptions& options) {
  std::string text;
  for (const auto& [name, value] : options) text += (text.empty() ? "" : ",") + name + "=" + value;
  return text.empty() ? "none" : text;
}

}  // namespace

CreateOptions parse_create_options(std::string_view text) {
  CreateOptions options;
  while (!text.empty()) {
    const auto comma = std::min(text.find(','), text.size());
    const auto part = text.substr(0, comma);
    text.remove_prefix(std::min(comma + 1, text.size()));
    const auto equals = part.find('=');
    if (equals == std::string_view::npos || equals == 0)
      throw ConfigError("xla", {.what = "options of a PJRT plug-in",
                                .expected = "NAME=VALUE, separated by commas",
                                .got = '"' + std::string(part) + '"'});
    options[std::string(part.substr(0, equals))] = part.substr(equals + 1);
  }
  return options;
}

Client::Client(std::shared_ptr<const Plugin> plugin, const CreateOptions& options, int partitions)
    : plugin_(std::move(plugin)), partitions_(partitions) {
  std::vector<PJRT_NamedValue> values;
  for (const auto& [name, text] : options) values.push_back(named_value(name, text));
  LOCKSTEP_PJRT_ARGS(PJRT_Client_Create_Args, create);
  create.create_options = values.data();
  create.num_options = values.size();
  if (auto* const error = api().PJRT_Client_Create(&create))
    throw ConfigError("xla", {.what = "the PJRT plug-in makes no client with the options " + text_of(options),
                              .expected = "options that it knows, and a device",
                              .got = take_message(api(), error),
                              .where = plugin_->file().string(),
                              .hint = "look whether the device and its driver are there"});
  client_ = create.client;
  try {
    find_devices();
  } catch (...) {
    LOCKSTEP_PJRT_ARGS(PJRT_Client_Destroy_Args, destroy);
    destroy.client = client_;
    take_message(api(), api().PJRT_Client_Destroy(&destroy));
    throw;
  }
}

void Client::find_devices() {
  LOCKSTEP_PJRT_ARGS(PJRT_Client_PlatformName_Args, name);
  name.client = client_;
  check(api(), api().PJRT_Client_PlatformName(&name), "name its platform");
  platform_.assign(name.platform_name, name.platform_name_size);
  LOCKSTEP_PJRT_ARGS(PJRT_Client_AddressableDevices_Args, devices);
  devices.client = client_;
  check(api(), api().PJRT_Client_AddressableDevices(&devices), "list its devices");
  devices_.assign(devices.addressable_devices, devices.addressable_devices + devices.num_addressable_devices);
  if (partitions_ > std::max(device_count(), 1))
    throw ConfigError("xla", {.what = "the PJRT plug-in has fewer devices than devices_per_process says",
                              .expected = "at most " + std::to_string(device_count()),
                              .got = std::to_string(partitions_),
                              .where = plugin_->file().string(),
                              .hint = "for CPUs, LOCKSTEP_PJRT_OPTIONS=cpu_device_count=N makes as many"});
  if (!devices_.empty()) return;
  throw ConfigError("xla", {.what = "the PJRT plug-in has no device",
                            .expected = "a device that this process may use",
                            .got = "platform " + platform_ + " with 0 devices",
                            .where = plugin_->file().string(),
                            .hint = "look whether the device is there, and not in use by another process"});
}

Client::~Client() {
  LOCKSTEP_PJRT_ARGS(PJRT_Client_Destroy_Args, destroy);
  destroy.client = client_;
  take_message(api(), api().PJRT_Client_Destroy(&destroy));
}

}  // namespace lockstep::xla
