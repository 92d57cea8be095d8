#include "parallel/backward_checks.h"

#include <sstream>

#include <lockstep/base/error.h>

namespace lockstep::detail {
namespace {

// c10d lists the indices of such parameters at the end of its text, after "for rank R: ".
std::string missing_parameters(const std::string& text, const std::vector<NamedTensor>& trained) {
  static const std::string kMarker = "did not receive grad for rank ";
  const auto marker = text.rfind(kMarker);
  const auto colon = marker == std::string::npos ? marker : text.find(':', marker);
  if (colon == std::string::npos) return "some";
  std::istringstream indices(text.substr(colon + 1));
  std::string names;
  for (std::size_t index = 0; indices >> index && index < trained.size();) {
    names += (names.empty() ? "" : ", ") + trained[index].name;
  }
  return names;
}

[[noreturn]] void refuse_missing(const std::string& names, bool is_static, const std::string& where) {
  throw CommError(
      "parallel",
      {.what = "backward gave no gradient to some parameters, so that averaging them over ranks never ended",
       .expected = is_static ? "the parameters of the first averaged backward, as static_graph promises"
                             : "a gradient for every trained parameter",
       .got = "none for " + names,
       .where = where,
       .hint = is_static ? "set static_graph = false"
                         : "set find_unused_parameters = true, or freeze what the loss does not use"});
}

[[noreturn]] void refuse_repeated(const std::string& where) {
  throw CommError(
      "parallel",
      {.what = "backward gave a parameter two gradients, the second after it had counted as done",
       .expected = "one gradient per parameter and backward",
       .got = "a backward within backward (a checkpoint) that uses parameters again, or hides them "
              "from find_unused_parameters",
       .where = where,
       .hint = "set static_graph = true if every step has the same graph"});
}

[[noreturn]] void refuse_changed_graph(const std::string& where) {
  throw CommError(
      "parallel",
      {.what = "backward gave a gradient to a parameter that the first averaged backward left out",
       .expected = "the graph of the first averaged backward, as static_graph promises",
       .got = "another graph",
       .where = where,
       .hint = "set static_graph = false"});
}

}  // namespace

void throw_named(const c10::Error& error, const std::vector<NamedTensor>& trained, const Ddp& options,
                 int rank) {
  const std::string text = error.what_without_backtrace();
  const auto says = [&](const char* part) { return text.find(part) != std::string::npos; };
  const auto where = "rank " + std::to_string(rank);
  if (says("Expected to have finished reduction")) {
    refuse_missing(missing_parameters(text, trained), options.static_graph, where);
  }
  if (says("Expected to mark a variable ready only once")) refuse_repeated(where);
  if (says("Your training graph has changed")) refuse_changed_graph(where);
  throw;
}

void refuse_loss_without_model(const std::vector<NamedTensor>& trained, int rank) {
  throw ConfigError(
      "parallel",
      {.what = "backward reached no parameter of a model whose gradients it averages",
       .expected = "a loss that depends on the model, such as on its parameter " + trained.front().name,
       .got = "a loss that does not",
       .where = "rank " + std::to_string(rank),
       .hint = "name the models that the loss trains, as in backward(loss, model); set "
               "find_unused_parameters = true if some ranks may leave a model out"});
}

void require_gradient(const at::Tensor& loss, const Communicator* comm) {
  if (loss.defined() && loss.requires_grad()) return;
  throw ConfigError(
      "parallel", {.what = "backward of a loss that does not require a gradient",
                   .expected = "a loss computed from trained parameters, with gradients enabled",
                   .got = loss.defined() ? "one that was detached, or computed without gradients or from "
                                           "frozen parameters and data alone"
                                         : "an undefined tensor",
                   .where = comm ? "rank " + std::to_string(comm->global_rank(comm->rank())) : "",
                   .hint = "give the loss itself, not loss.detach(); a batch that is to add nothing can have "
                           "a loss of weight 0"});
}

void refuse_create_graph() {
  throw ConfigError(
      "parallel", {.what = "create_graph in a backward that averages gradients over ranks",
                   .expected = "false: a graph of the gradients would end where they are averaged",
                   .got = "true",
                   .hint = "for a penalty on gradients put autograd_grad(loss, parameters, {.create_graph = "
                           "true}) into the loss"});
}

}  // namespace lockstep::detail
