#include "xla/buffer.h"

#include <cstddef>

namespace lockstep::xla {
namespace {

PJRT_Client_BufferFromHostBuffer_Args arguments_of(const Client& client, PJRT_Device* device,
                                                   const void* data, PJRT_Buffer_Type type,
                                                   std::span<const std::int64_t> sizes) {
  LOCKSTEP_PJRT_ARGS(PJRT_Client_BufferFromHostBuffer_Args, args);
  args.client = client.get();
  args.data = data;
  args.type = type;
  args.dims = sizes.data();
  args.num_dims = sizes.size();
  args.device = device;
  return args;
}

PJRT_Buffer* copied(const Client& client, PJRT_Device* device, const void* data, PJRT_Buffer_Type type,
                    std::span<const std::int64_t> sizes) {
  auto args = arguments_of(client, device, data, type, sizes);
  args.host_buffer_semantics = PJRT_HostBufferSemantics_kImmutableOnlyDuringCall;
  const auto& api = client.api();
  check(api, api.PJRT_Client_BufferFromHostBuffer(&args), "copy an array to a device");
  LOCKSTEP_PJRT_ARGS(PJRT_Event_Destroy_Args, destroy);
  destroy.event = args.done_with_host_buffer;
  take_message(api, api.PJRT_Event_Destroy(&destroy));
  return args.buffer;
}

void read_part(const PJRT_Api& api, PJRT_Buffer* buffer, void* data, std::size_t bytes) {
  LOCKSTEP_PJRT_ARGS(PJRT_Buffer_ToHostBuffer_Args, args);
  args.src = buffer;
  args.dst = data;
  args.dst_size = bytes;
  check(api, api.PJRT_Buffer_ToHostBuffer(&args), "read an array");
  await(api, args.event, "read an array");
}

void wait_for_part(const PJRT_Api& api, PJRT_Buffer* buffer) {
  LOCKSTEP_PJRT_ARGS(PJRT_Buffer_ReadyEvent_Args, args);
  args.buffer = buffer;
  check(api, api.PJRT_Buffer_ReadyEvent(&args), "compute an array");
  await(api, args.event, "compute an array");
}

// Keeps the owner of a host's memory until the plug-in says that it is done with it.
struct Kept {
  std::shared_ptr<const Client> client;
  std::shared_ptr<void> owner;
};

void let_go(PJRT_Error* error, void* kept) {
  const std::unique_ptr<Kept> held(static_cast<Kept*>(kept));
  take_message(held->client->api(), error);
}

}  // namespace

std::shared_ptr<Buffer> Buffer::copy_of(const std::shared_ptr<const Client>& client, int device,
                                        const void* data, PJRT_Buffer_Type type,
                                        std::span<const std::int64_t> sizes) {
  Parts made{copied(*client, client->device(device), data, type, sizes)};
  for (std::size_t i = 1; i < static_cast<std::size_t>(client->partitions()); ++i)
    made.push_back(copied(*client, client->partition_device(i), data, type, sizes));
  return std::make_shared<Buffer>(client, std::move(made));
}

std::shared_ptr<Buffer> Buffer::rows_of(const std::shared_ptr<const Client>& client, const void* data,
                                        std::size_t bytes, PJRT_Buffer_Type type,
                                        std::span<const std::int64_t> sizes) {
  const auto parts = static_cast<std::size_t>(client->partitions());
  std::vector<std::int64_t> share(sizes.begin(), sizes.end());
  share.front() /= client->partitions();
  Parts made;
  for (std::size_t i = 0; i < parts; ++i)
    made.push_back(copied(*client, client->partition_device(i),
                          static_cast<const std::byte*>(data) + i * (bytes / parts), type, share));
  return std::make_shared<Buffer>(client, std::move(made), Layout::kRows);
}

std::shared_ptr<Buffer> Buffer::view_of(const std::shared_ptr<const Client>& client, int device,
                                        const void* data, PJRT_Buffer_Type type,
                                        std::span<const std::int64_t> sizes, std::shared_ptr<void> owner) {
  if (reinterpret_cast<std::uintptr_t>(data) % kHostAlignment != 0 || client->partitions() > 1)
    return copy_of(client, device, data, type, sizes);
  auto args = arguments_of(*client, client->device(device), data, type, sizes);
  args.host_buffer_semantics = PJRT_HostBufferSemantics_kImmutableZeroCopy;
  const auto& api = client->api();
  check(api, api.PJRT_Client_BufferFromHostBuffer(&args), "share an array with a device");
  auto made = std::make_shared<Buffer>(client, Parts{args.buffer});
  LOCKSTEP_PJRT_ARGS(PJRT_Event_OnReady_Args, ready);
  ready.event = args.done_with_host_buffer;
  ready.callback = &let_go;
  auto kept = std::make_unique<Kept>(Kept{client, std::move(owner)});
  ready.user_arg = kept.get();
  check(api, api.PJRT_Event_OnReady(&ready), "tell when an array is free");
  static_cast<void>(kept.release());
  LOCKSTEP_PJRT_ARGS(PJRT_Event_Destroy_Args, destroy);
  destroy.event = args.done_with_host_buffer;
  take_message(api, api.PJRT_Event_Destroy(&destroy));
  return made;
}

Buffer::~Buffer() { free(); }

void Buffer::replace(Parts parts) {
  free();
  parts_ = std::move(parts);
}

void Buffer::free() {
  for (auto* const part : parts_) {
    LOCKSTEP_PJRT_ARGS(PJRT_Buffer_Destroy_Args, destroy);
    destroy.buffer = part;
    take_message(client_->api(), client_->api().PJRT_Buffer_Destroy(&destroy));
  }
}

// Without an address PJRT would only say how large the array is.
void Buffer::read(void* data, std::size_t bytes) const {
  if (bytes == 0) return wait();
  const InPlugin counted;
  if (layout_ == Layout::kCopies) return read_part(client_->api(), parts_.front(), data, bytes);
  const auto share = bytes / parts_.size();
  for (std::size_t i = 0; i < parts_.size(); ++i)
    read_part(client_->api(), parts_[i], static_cast<std::byte*>(data) + i * share, share);
}

void Buffer::wait() const {
  const InPlugin counted;
  for (auto* const part : parts_) wait_for_part(client_->api(), part);
}

bool Buffer::is_donated() const {
  LOCKSTEP_PJRT_ARGS(PJRT_Buffer_IsDeleted_Args, args);
  args.buffer = parts_.front();
  check(client_->api(), client_->api().PJRT_Buffer_IsDeleted(&args), "look at an array");
  return args.is_deleted;
}

std::uintptr_t Buffer::address() const {
  LOCKSTEP_PJRT_ARGS(PJRT_Buffer_UnsafePointer_Args, args);
  args.buffer = parts_.front();
  check(client_->api(), client_->api().PJRT_Buffer_UnsafePointer(&args), "find an array");
  return args.buffer_pointer;
}

}  // namespace lockstep::xla
