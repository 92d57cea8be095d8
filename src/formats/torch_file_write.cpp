#include "formats/torch_file_write.h"

#include <lockstep/base/atomic_file.h>

namespace lockstep::torch_file {

void write_each(zip::Writer& archive, const pickle::Value& root, std::span<const StorageSource> storages) {
  const std::string folder = "archive/";
  archive.add(folder + "data.pkl", pickle::write(root));
  archive.add(folder + "byteorder", "little");
  for (const auto& storage : storages) archive.add(folder + "data/" + storage.key, storage.bytes());
  archive.add(folder + "version", "3\n");
  archive.finish();
}

void write(zip::Writer& archive, const pickle::Value& root, std::span<const StorageBytes> storages) {
  std::vector<StorageSource> sources;
  for (const auto& storage : storages)
    sources.push_back({.key = storage.key, .bytes = [&storage] { return storage.bytes; }});
  write_each(archive, root, sources);
}

void write(const std::filesystem::path& path, const pickle::Value& root,
           std::span<const StorageBytes> storages, const zip::WriterOptions& options) {
  write_file_atomically(path, [&](FileWriter& file) {
    zip::Writer archive([&](std::span<const std::byte> bytes) { file.write(bytes); }, options);
    write(archive, root, storages);
  });
}

}  // namespace lockstep::torch_file
