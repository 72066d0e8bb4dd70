#include "perf/common/workload.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

namespace perf {
namespace {

using ::testing::ElementsAre;

std::size_t elements_of(const std::vector<Parameter>& parameters) {
  std::size_t total = 0;
  for (const Parameter& parameter : parameters) total += parameter.elements;
  return total;
}

TEST(Workload, ModelsHaveTheirPublishedParameterCounts) {
  EXPECT_EQ(elements_of(model_parameters("resnet50")), 25'557'032u);
  EXPECT_EQ(elements_of(model_parameters("bert-base")), 109'482'240u);
  EXPECT_EQ(elements_of(model_parameters("gpt2")), 124'439'808u);
}

TEST(Workload, ModelsHaveTheirPublishedTensorCounts) {
  EXPECT_EQ(model_parameters("resnet50").size(), 161u);
  EXPECT_EQ(model_parameters("bert-base").size(), 199u);
  EXPECT_EQ(model_parameters("gpt2").size(), 148u);
}

TEST(Workload, UnknownModelsAreNotKnown) {
  EXPECT_FALSE(known_workload("lenet"));
  EXPECT_FALSE(known_workload(""));
  for (const char* name : {"resnet50", "bert-base", "gpt2"}) {
    EXPECT_TRUE(known_workload(name));
    EXPECT_NE(workload_names().find(name), std::string::npos);
  }
}

TEST(Workload, BucketsHoldEveryElementOnce) {
  for (const char* name : {"resnet50", "bert-base", "gpt2"}) {
    const auto parameters = model_parameters(name);
    for (std::size_t bytes : {std::size_t{2}, std::size_t{4}}) {
      const auto buckets = gradient_buckets(parameters, bytes);
      EXPECT_EQ(std::accumulate(buckets.begin(), buckets.end(), std::size_t{0}),
                elements_of(parameters));
      // Every bucket but the last reached its cap.
      for (std::size_t b = 0; b + 1 < buckets.size(); ++b) {
        EXPECT_GE(buckets[b] * bytes, (b == 0 ? std::size_t{1} : std::size_t{25}) << 20) << name;
      }
    }
  }
}

TEST(Workload, BucketsFillInReverseOrderAndCloseWhenTheCapIsReached) {
  const std::vector<Parameter> parameters{{"a", 5}, {"b", 4}, {"c", 3}, {"d", 2}, {"e", 1}};
  // e + d reach 12 bytes; then c + b reach 24; a is left over.
  EXPECT_THAT(gradient_buckets(parameters, 4, 12, 24), ElementsAre(3, 7, 5));
  EXPECT_THAT(gradient_buckets(parameters, 4, 1, 1), ElementsAre(1, 2, 3, 4, 5));
  EXPECT_THAT(gradient_buckets(parameters, 4, 1000, 1000), ElementsAre(15));
  EXPECT_THAT(gradient_buckets({}, 4), ElementsAre());
}

TEST(Workload, TheFirstBucketOfResNet50IsItsClassifier) {
  const auto buckets = gradient_buckets(model_parameters("resnet50"), 4);
  EXPECT_EQ(buckets.front(), 2048u * 1000 + 1000);
}

} // namespace
} // namespace perf
