#include "net/address.h"

#include <gtest/gtest.h>
#include <net/if.h>

namespace whorl {
namespace {

constexpr unsigned kUp = IFF_UP | IFF_RUNNING;

TEST(InterfaceOrder, PutsFirstWhatOtherHostsReach) {
  const auto v4 = [](std::uint8_t a, std::uint8_t b) {
    return SocketAddress::ipv4({a, b, 3, 1}, 0);
  };
  const auto v6 = [](std::uint8_t a, std::uint8_t b) { return SocketAddress::ipv6({a, b}, 0); };
  const struct {
    const char* name;
    unsigned flags;
    SocketAddress address;
  } in_order[] = {
      {"eth0", kUp, v4(169, 253)},
      {"eth0", kUp, v6(0x20, 0x01)},
      {"docker0", kUp, v4(172, 17)},
      {"docker0", kUp, v6(0xfd, 0x00)},
      {"usb0", kUp, v4(169, 254)}, // a management controller's, or a direct cable
      {"lo", kUp | IFF_LOOPBACK, v4(127, 0)},
      {"lo", kUp | IFF_LOOPBACK, SocketAddress::ipv6({0}, 0)},
  };
  int before = -1;
  for (const auto& one : in_order) {
    const auto place = place_of_interface(one.name, one.flags, one.address);
    ASSERT_TRUE(place) << one.address.text();
    EXPECT_GT(*place, before) << one.name << " " << one.address.text();
    before = *place;
  }
  EXPECT_EQ(place_of_interface("docker0", kUp, v4(169, 254)),
            place_of_interface("eth0", kUp, v4(169, 254)));
  EXPECT_EQ(place_of_interface("eth1", IFF_UP, v4(10, 0)),
            place_of_interface("docker0", kUp, v4(172, 17)))
      << "without a carrier";
  EXPECT_FALSE(place_of_interface("eth0", kUp, v6(0xfe, 0x80))) << "needs an interface";
}

} // namespace
} // namespace whorl
