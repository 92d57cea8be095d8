#include "parallel/backward_checks.h"

#include <lockstep/base/error.h>

namespace lockstep::detail {
namespace {

std::string text_of_rank(int rank) { return "rank " + std::to_string(rank); }

}  // namespace

void refuse_missing(const std::string& names, bool is_static, int rank) {
  throw CommError(
      "parallel",
      {.what = "backward gave no gradient to some parameters, so that averaging them over ranks never ended",
       .expected = is_static ? "the parameters of the first averaged backward, as static_graph promises"
                             : "a gradient for every trained parameter",
       .got = "none for " + names,
       .where = text_of_rank(rank),
       .hint = is_static ? "set static_graph = false"
                         : "set find_unused_parameters = true, or freeze what the loss does not use"});
}

void refuse_repeated_gradient(const std::string& name, int rank) {
  throw CommError(
      "parallel",
      {.what = "backward gave a parameter two gradients, the second after it had counted as done: " + name,
       .expected = "one gradient per parameter and backward",
       .got = "a backward within backward (a checkpoint) that uses parameters again, or hides them "
              "from find_unused_parameters",
       .where = text_of_rank(rank),
       .hint = "set static_graph = true if every step has the same graph, or call the model once, on the "
               "inputs together"});
}

void refuse_changed_graph(const std::string& name, int rank) {
  throw CommError(
      "parallel",
      {.what = "backward gave a gradient to a parameter that the first averaged backward left out, or more "
               "gradients than that: " +
               name,
       .expected = "the graph of the first averaged backward, as static_graph promises",
       .got = "another graph",
       .where = text_of_rank(rank),
       .hint = "set static_graph = false"});
}

void refuse_sparse_gradient(const std::string& name) {
  throw ConfigError("parallel", {.what = "a sparse gradient cannot be averaged: that of " + name,
                                 .expected = "dense gradients",
                                 .got = "a sparse one",
                                 .hint = "leave out sparse(true) of the embedding"});
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
