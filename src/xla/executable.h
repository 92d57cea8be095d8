// Executable: a compiled program.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "xla/buffer.h"

namespace lockstep::xla {

/// What a program takes or gives: a list of arrays for each device that it runs on, in the form that PJRT
/// takes. Whoever runs a program again and again keeps it, and nothing is allocated then.
class ArrayLists {
 public:
  ArrayLists() = default;
  /// Places for `arrays` arrays of each of `devices` devices.
  ArrayLists(int devices, std::size_t arrays);
  ArrayLists(ArrayLists&&) = default;
  ArrayLists& operator=(ArrayLists&&) = default;

  std::size_t arrays() const { return arrays_; }
  /// Puts in what `buffer`, which stays the owner, holds on each device.
  void set(std::size_t array, const Buffer& buffer);
  /// Takes out what a program has given, which belongs to the caller.
  Buffer::Parts take(std::size_t array);
  /// One list for each device.
  std::span<PJRT_Buffer** const> lists() const { return lists_; }

 private:
  std::size_t arrays_ = 0;
  std::vector<PJRT_Buffer*> places_;  ///< those of a device one after the other
  std::vector<PJRT_Buffer**> lists_;
};

class Executable {
 public:
  /// Compiles StableHLO in its textual form, whose function main takes and gives arrays, for one device of
  /// any number, or for all partitions of the client, by the shardings in its text. Blocks, for as long as
  /// seconds. @throws Error with the compiler's words
  static std::shared_ptr<const Executable> compile(const std::shared_ptr<const Client>& client,
                                                   std::string_view text);
  /// What serialize() gave, by the same plug-in on the same kind of processor: others load without complaint
  /// what they then run wrongly. @throws Error where the plug-in notices that it cannot be read
  static std::shared_ptr<const Executable> deserialize(const std::shared_ptr<const Client>& client,
                                                       std::string_view bytes);
  ~Executable();
  Executable(const Executable&) = delete;
  Executable& operator=(const Executable&) = delete;

  /// The compiled program as bytes. @throws Error where the plug-in cannot
  std::string serialize() const;
  /// Runs it on the device of that number, where all inputs are, or on the client's partitions. Does not
  /// block where the plug-in works in the background: an error may come when a result is read.
  /// @param kept  the numbers of inputs that it must not overwrite, although its text says so
  std::vector<std::shared_ptr<Buffer>> run(int device, std::span<const std::shared_ptr<Buffer>> inputs,
                                           std::span<const std::int64_t> kept = {}) const;
  /// The same, of lists that the caller keeps. The results are to be taken out.
  void run(int device, const ArrayLists& inputs, const ArrayLists& results,
           std::span<const std::int64_t> kept) const;

 private:
  Executable(std::shared_ptr<const Client> client, PJRT_LoadedExecutable* loaded);

  std::shared_ptr<const Client> client_;
  PJRT_LoadedExecutable* loaded_;
  PJRT_Executable* executable_ = nullptr;
  std::size_t outputs_ = 0;
};

/// How programs of so many partitions are compiled, in the form that PJRT takes
/// (xla/pjrt/proto/compile_options.proto).
std::string compile_options(int partitions);

}  // namespace lockstep::xla
