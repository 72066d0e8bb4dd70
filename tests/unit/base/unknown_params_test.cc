// Tests of warnings about variables that nobody reads.
#include "base/unknown_params.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace whorl {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<std::string> unknown(std::vector<const char*> environment) {
  environment.push_back(nullptr);
  return describe_unknown_params(environment.data());
}

TEST(UnknownParams, AreNamedWithTheNearestKnownOne) {
  EXPECT_THAT(unknown({"WHORL_TIMEOUT=5", "PATH=/bin", "WHORL_TRANSPORT=tcp", "WHORL_COLOUR=red"}),
              ElementsAre("there is no variable WHORL_TIMEOUT, did you mean WHORL_TIMEOUT_MS?",
                          "there is no variable WHORL_TRANSPORT, did you mean WHORL_TRANSPORTS?",
                          "there is no variable WHORL_COLOUR; docs/parameters.md lists all"));
}

TEST(UnknownParams, AreNotTakenForVariablesOfBuilds) {
  EXPECT_THAT(unknown({"WHORL_ROOT_OF=/opt", "WHORL_WITH_CUDAS=1"}),
              ElementsAre("there is no variable WHORL_ROOT_OF; docs/parameters.md lists all",
                          "there is no variable WHORL_WITH_CUDAS; docs/parameters.md lists all"));
  EXPECT_THAT(unknown({"WHORL_ROOT=/opt", "WHORL_SOURCE_ROOT=/src", "WHORL_WITH_CUDA=1"}),
              IsEmpty());
}

TEST(UnknownParams, KnownOnesAndOthersAreSilent) {
  EXPECT_THAT(unknown({"WHORL_ALGO=", "WHORL_RANK=1", "WHORL_ADDRESS=a:1", "whorl_algo=x",
                       "XWHORL_ALGO=1", "WHORL_TORCH_SHARED_MEMORY=1"}),
              IsEmpty());
  EXPECT_THAT(describe_unknown_params(nullptr), IsEmpty());
}

} // namespace
} // namespace whorl
