// A PJRT plug-in as a test wants it: FAKE_PJRT is what is wrong with it.
#include <cstdlib>
#include <cstring>
#include <string>

#include <pjrt_c_api.h>

// What is opaque to users of the interface.
struct PJRT_Error {
  std::string text;
};
struct PJRT_Client {};

namespace {

bool has_fault(const char* fault) {
  const char* const wanted = std::getenv("FAKE_PJRT");
  return wanted != nullptr && std::strcmp(wanted, fault) == 0;
}

void message_of(PJRT_Error_Message_Args* args) {
  args->message = args->error->text.data();
  args->message_size = args->error->text.size();
}
void destroy_error(PJRT_Error_Destroy_Args* args) { delete args->error; }

PJRT_Error* initialize(PJRT_Plugin_Initialize_Args*) {
  return has_fault("no start") ? new PJRT_Error{"the driver is not there"} : nullptr;
}

PJRT_Error* create_client(PJRT_Client_Create_Args* args) {
  if (args->num_options > 0)
    return new PJRT_Error{"Unexpected option name passed to PJRT_Client_Create: " +
                          std::string(args->create_options[0].name, args->create_options[0].name_size)};
  args->client = new PJRT_Client;
  return nullptr;
}
PJRT_Error* destroy_client(PJRT_Client_Destroy_Args* args) {
  delete args->client;
  return nullptr;
}
PJRT_Error* name_platform(PJRT_Client_PlatformName_Args* args) {
  args->platform_name = "fake";
  args->platform_name_size = 4;
  return nullptr;
}
PJRT_Error* list_devices(PJRT_Client_AddressableDevices_Args*) { return nullptr; }

PJRT_Api make_api() {
  PJRT_Api api{};
  api.struct_size = has_fault("short table") ? 64 : PJRT_Api_STRUCT_SIZE;
  api.pjrt_api_version.struct_size = PJRT_Api_Version_STRUCT_SIZE;
  api.pjrt_api_version.major_version = has_fault("next major") ? 1 : 0;
  api.pjrt_api_version.minor_version = has_fault("too old") ? 40 : 120;
  api.PJRT_Error_Message = &message_of;
  api.PJRT_Error_Destroy = &destroy_error;
  api.PJRT_Plugin_Initialize = &initialize;
  api.PJRT_Client_Create = &create_client;
  api.PJRT_Client_Destroy = &destroy_client;
  api.PJRT_Client_PlatformName = &name_platform;
  api.PJRT_Client_AddressableDevices = &list_devices;
  return api;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) const PJRT_Api* GetPjrtApi() {
  static const PJRT_Api api = make_api();
  return has_fault("nothing") ? nullptr : &api;
}
