// Pickles by hand: pieces of them as text.
#pragma once

#include <string>

namespace lockstep::test {

/// `body` with the frame of protocol 2.
inline std::string pickle_of(const std::string& body) { return "\x80\x02" + body + "."; }

inline std::string pickled_text(const std::string& text) {
  return "X" + std::string{static_cast<char>(text.size()), 0, 0, 0} + text;
}

/// An integer below 128.
inline std::string pickled(int value) { return {'K', static_cast<char>(value)}; }

/// The name `module.name`.
inline std::string pickled_name(const std::string& module, const std::string& name) {
  return "c" + module + "\n" + name + "\n";
}

/// A storage of `count` elements.
inline std::string pickled_storage(const std::string& key, int count,
                                   const std::string& type = "FloatStorage") {
  return "(" + pickled_text("storage") + pickled_name("torch", type) + pickled_text(key) +
         pickled_text("cpu") + pickled(count) + "tQ";
}

/// A tensor in `storage`; `place` are its offset, shape and strides, `rest` ends the call.
inline std::string pickled_tensor(const std::string& storage, const std::string& place,
                                  const std::string& rest = "\x89}t") {
  return pickled_name("torch._utils", "_rebuild_tensor_v2") + "(" + storage + place + rest + "R";
}

}  // namespace lockstep::test
