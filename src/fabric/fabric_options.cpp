#include <lockstep/fabric/fabric_options.h>

#include <lockstep/fabric/fabric_callback.h>

namespace lockstep {

FabricCallback::~FabricCallback() = default;

void describe(OptionVisitor& v, FabricOptions& o) {
  v.field("accelerator", o.accelerator, "Kind of device: auto or cpu");
  v.choice("strategy", o.strategy, strategy_choices(), "How models are spread over ranks");
  v.choice("precision", o.precision, precision_choices(),
           "Element types of the forward pass and of what is kept");
  v.field("devices", o.devices, "Ranks on this node: auto (1) or a number >= 1");
  v.field("num_nodes", o.num_nodes, "Number of nodes", at_least(1));
}

void describe(OptionVisitor& v, FabricRunOptions& o) {
  v.field("run_dir", o.run_dir, "The exact folder of this run; empty: runs/NAME/version_N");
  v.field("seed_everything", o.seed_everything, "Seed of all random generators and samplers");
}

}  // namespace lockstep
