#include <gtest/gtest.h>

#include <lockstep/base/error.h>
#include <lockstep/data/batch_generator.h>

#include "support/expect_error.h"

namespace lockstep {
namespace {

// Reference values from lightning.fabric.utilities.seed._generate_seed_sequence of Lightning 2.6.6.
TEST(WorkerSeed, IsLightnings) {
  EXPECT_EQ(worker_seed(42U, 0, 0), 2645472128837983560U);
  EXPECT_EQ(worker_seed(42U, 3, 0), 5003664254262592271U);
  EXPECT_EQ(worker_seed(42U, 2, 1), 2454990769178668598U);
  EXPECT_EQ(worker_seed(0U, 1, 0), 3544295865682013413U);
  EXPECT_EQ(worker_seed(0U, 0, 1), 17457226417617275581U);
  EXPECT_EQ(worker_seed(0U, 3, 1), 14460517415185701922U);
  EXPECT_EQ(worker_seed(9223372036854775797U, 2, 0), 11483705317788120998U);
  EXPECT_EQ(worker_seed(9223372036854775797U, 1, 1), 7598477135811135596U);
  EXPECT_EQ(worker_seed(9223372036854788153U, 3, 7), 6904338523050881549U);
}

TEST(WorkerSeed, NamesWhatIsOutOfRange) {
  test::expect_error<ConfigError>([] { worker_seed(0, -1, 0); }, {"worker", "got -1"});
  test::expect_error<ConfigError>([] { worker_seed(0, 0, 65536); }, {"rank", "got 65536"});
}

}  // namespace
}  // namespace lockstep
