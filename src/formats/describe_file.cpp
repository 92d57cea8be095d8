#include "formats/describe_file.h"

#include <sstream>

#include "formats/in_quotes.h"
#include "formats/opened_torch_file.h"

namespace lockstep::detail {
namespace {

/// Lines by what they are about, in the order of the file.
struct Lines {
  std::string tensors, values, unread;
};

std::string plain_text(const pickle::Value& value) {
  std::ostringstream text;
  if (const auto* flag = value.as<bool>()) text << (*flag ? "true" : "false");
  if (const auto* number = value.as<std::int64_t>()) text << *number;
  if (const auto* number = value.as<double>()) text << *number;
  if (const auto* string = value.as<std::string>()) text << '"' << *string << '"';
  if (const auto* bytes = value.as<pickle::Bytes>()) text << bytes->size() << " bytes";
  if (const auto* name = value.as<pickle::Name>()) text << name->text;
  return text.str().empty() ? std::string(value.kind()) : text.str();
}

std::string key_text(const pickle::Value& key) {
  if (const auto* text = key.as<std::string>()) return *text;
  if (const auto* foreign = key.as<pickle::Foreign>()) return foreign->what;
  return plain_text(key);
}

std::string tensor_text(const pickle::Tensor& tensor) {
  std::uint64_t bytes = safetensors::dtype_bytes(tensor.dtype);
  for (const auto extent : tensor.shape) bytes *= static_cast<std::uint64_t>(extent);
  return kind_text(tensor.dtype, tensor.shape) + " " + std::to_string(bytes) + " bytes";
}

void collect(const pickle::Value& value, const std::string& path, Lines& lines);

template <class Items>
void collect_items(const Items& items, const std::string& path, Lines& lines) {
  std::size_t number = 0;
  for (const auto& item : items) collect(item, path + "/" + std::to_string(number++), lines);
}

void collect(const pickle::Value& value, const std::string& path, Lines& lines) {
  const auto line = [&](const std::string& text) { return "  " + printable(path + ": " + text) + "\n"; };
  if (const auto* dict = value.as<pickle::Dict>()) {
    for (const auto& [key, held] : dict->entries)
      collect(held, (path.empty() ? "" : path + "/") + key_text(key), lines);
  } else if (const auto* list = value.as<pickle::List>()) {
    collect_items(*list, path, lines);
  } else if (const auto* tuple = value.as<pickle::Tuple>()) {
    collect_items(tuple->items, path, lines);
  } else if (const auto* tensor = value.as<pickle::Tensor>()) {
    lines.tensors += line(tensor_text(*tensor));
  } else if (const auto* foreign = value.as<pickle::Foreign>()) {
    lines.unread += line(foreign->what);
  } else {
    lines.values += line(plain_text(value));
  }
}

std::string describe_torch_file(const std::filesystem::path& path, MappedFile mapping) {
  const OpenedTorchFile file(path, std::move(mapping));
  Lines lines;
  collect(file.named_values(), "", lines);
  auto text = printable(file.where()) + ": a file of torch.save\ntensors\n" + lines.tensors + "values\n" +
              lines.values;
  if (!lines.unread.empty())
    text += "not read: objects of Python, of which nothing is executed\n" + lines.unread;
  return text;
}

}  // namespace

std::string kind_text(safetensors::Dtype dtype, const std::vector<std::int64_t>& shape) {
  std::string text(safetensors::dtype_name(dtype));
  text += " [";
  for (std::size_t dim = 0; dim < shape.size(); ++dim)
    text += (dim > 0 ? ", " : "") + std::to_string(shape[dim]);
  return text + "]";
}

std::string describe_file(const std::filesystem::path& path) {
  MappedFile mapping(path);
  if (torch_file::is_torch_file(mapping.bytes())) return describe_torch_file(path, std::move(mapping));
  const safetensors::File file(path);
  auto text = printable(path.string()) + ": a safetensors file\ntensors\n";
  for (const auto& tensor : file.tensors())
    text += "  " + printable(tensor.name + ": " + kind_text(tensor.dtype, tensor.shape)) + " " +
            std::to_string(tensor.bytes.size()) + " bytes\n";
  if (!file.metadata().empty()) text += "values\n";
  for (const auto& [key, value] : file.metadata())
    text += "  " + printable(key + ": \"" + value + '"') + "\n";
  return text;
}

}  // namespace lockstep::detail
