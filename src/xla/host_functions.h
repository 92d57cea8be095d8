// How a plug-in is told of a function, and how programs call it: XLA's FFI, as far as it is used here. The
// layouts are those of version 0 of that interface, whose later minor versions only add to the ends.
// Source: openxla/xla, xla/ffi/api/c_api.h and xla/pjrt/c/pjrt_c_api_ffi_extension.h
#pragma once

#include <cstddef>
#include <cstdint>

#include "xla/pjrt.h"

namespace lockstep::xla::ffi {

/// What may be chained to any of the structures below.
struct Extension {
  std::size_t size;
  int kind;
  Extension* next;
};

struct Version {
  std::size_t size;
  Extension* extensions;
  int major;
  int minor;
};

/// A function that is asked with this extension says which version it was written for, and does nothing else.
struct Metadata {
  std::size_t size;
  Version version;
  std::uint32_t traits;
};
inline constexpr int kMetadataExtension = 1;
struct MetadataExtension {
  Extension base;
  Metadata* metadata;
};

/// An array, in row-major order unless the call says otherwise.
struct Array {
  std::size_t size;
  Extension* extensions;
  int element_type;  // as in XLA's PrimitiveType
  void* data;
  std::int64_t rank;
  std::int64_t* sizes;
};

/// The arguments of a call, or its results.
struct Arrays {
  std::size_t size;
  Extension* extensions;
  std::int64_t count;
  int* kinds;
  void** values;
};

struct Name {
  const char* text;
  std::size_t size;
};

/// A number among the attributes.
struct Number {
  int element_type;
  void* value;
};
inline constexpr int kNumberAttribute = 3;

struct Attributes {
  std::size_t size;
  Extension* extensions;
  std::int64_t count;
  int* kinds;
  Name** names;
  void** values;
};

struct Error;

struct ErrorText {
  std::size_t size;
  Extension* extensions;
  const char* message;
  int code;
};
inline constexpr int kInternalError = 13;

/// What the plug-in offers to functions; more follows.
struct Services {
  std::size_t size;
  Extension* extensions;
  Version version;
  void* internal;
  Error* (*make_error)(ErrorText*);
};

/// A call.
struct Frame {
  std::size_t size;
  Extension* extensions;
  const Services* services;
  void* context;
  int stage;
  Arrays arguments;
  Arrays results;
  Attributes attributes;
};

using Function = Error* (*)(Frame*);

/// How PJRT takes a function for a platform, since version 0.106 of its interface.
struct Registration {
  std::size_t size;
  const char* name;
  std::size_t name_size;
  void* function;
  const char* platform;
  std::size_t platform_size;
  int traits;
};

/// PJRT's extension PJRT_Extension_Type_FFI.
struct PjrtExtension {
  PJRT_Extension_Base base;
  void* register_type;
  void* add_user_data;
  PJRT_Error* (*register_function)(Registration*);
};

}  // namespace lockstep::xla::ffi
