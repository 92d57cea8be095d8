// Plan: the graph behind some results as one program.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "xla/graph.h"

namespace lockstep::xla {

class Plan {
 public:
  /// @param results  values that differ, which the program gives in that order
  explicit Plan(std::vector<Value> results);

  const std::vector<Value>& results() const { return results_; }
  /// The arrays that the program takes, in its order. They live as long as the results.
  const std::vector<Node*>& arrays() const { return arrays_; }

  /// Bytes that are the same for graphs that are the same program.
  /// @param overwritten_by  for each array the number of the result that may have its memory; -1: none
  std::string structure(const std::vector<std::int64_t>& overwritten_by) const;
  /// The same without sizes: equal where programs differ in the shapes of their batches alone.
  std::string skeleton() const;
  /// StableHLO, with the shardings of arrays and results where it is for several partitions.
  std::string text(const std::vector<std::int64_t>& overwritten_by, int partitions = 1) const;

 private:
  void visit(Node* root);
  std::vector<bool> written_again() const;
  std::size_t place_of(const Value& value) const { return places_.at(value.node.get()); }

  std::vector<Value> results_;
  std::vector<Node*> nodes_;  ///< each behind its inputs
  std::unordered_map<const Node*, std::size_t> places_;
  std::vector<Node*> arrays_;
};

}  // namespace lockstep::xla
