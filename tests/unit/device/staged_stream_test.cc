// Tests which of a program's streams the library still knows when there have been many.
#include "device/staged/stream.h"

#include <gtest/gtest.h>

#include <memory>

#include "tests/support/device.h"

namespace whorl {
namespace {

std::shared_ptr<Stream> known(const test::DeviceQueue& queue) {
  auto found = device_stream(queue.get());
  EXPECT_TRUE(found.ok()) << found.status().message();
  return found.ok() ? *std::move(found) : nullptr;
}

/// Queues an operation without buffers and returns its number.
std::uint64_t queue_operation(Stream& stream) {
  EXPECT_EQ(stream.prepare({}, true).message(), "");
  const auto number = stream.issue({});
  EXPECT_TRUE(number.ok()) << number.status().message();
  EXPECT_EQ(stream.follow(number.ok() ? *number : 1).message(), "");
  return number.ok() ? *number : 0;
}

/// Makes, uses and destroys streams, more than the library keeps.
void use_many_streams() {
  for (int i = 0; i < 1100; ++i) {
    const test::DeviceQueue queue;
    ASSERT_NE(known(queue), nullptr);
  }
}

TEST(DeviceStreams, AreForgottenWhenTheyAreIdleAndThereAreMany) {
  const test::DeviceContext context;
  const test::DeviceQueue idle, busy, held;
  std::weak_ptr<Stream> idle_stream = known(idle), busy_stream = known(busy);
  const std::shared_ptr<Stream> held_stream = known(held);
  const std::uint64_t id = known(idle)->id();
  for (std::uint64_t i = 1; i <= 3; ++i) {
    EXPECT_EQ(queue_operation(*known(idle)), i);
    known(idle)->complete(i, {});
  }
  idle.synchronize();
  EXPECT_EQ(queue_operation(*known(busy)), 1U);

  use_many_streams();
  EXPECT_TRUE(idle_stream.expired());
  EXPECT_FALSE(busy_stream.expired()) << "its operation has not been carried out";
  EXPECT_EQ(known(held), held_stream);

  // A stream that is still used is made again, and its operations are counted from 1.
  EXPECT_NE(known(idle)->id(), id);
  EXPECT_EQ(queue_operation(*known(idle)), 1U);
  idle_stream = known(idle);
  EXPECT_EQ(cuStreamQuery(idle.get()), CUDA_ERROR_NOT_READY) << "it waits for the operation";
  for (const auto& stream : {known(idle), known(busy)}) stream->complete(1, {});
  idle.synchronize();
  busy.synchronize();
  use_many_streams();
  EXPECT_TRUE(idle_stream.expired());
  EXPECT_TRUE(busy_stream.expired());
}

} // namespace
} // namespace whorl
