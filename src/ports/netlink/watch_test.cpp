// Links and neighbours are followed as the kernel changes them, also where it says more than anybody reads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/neighbour.h>
#include <poll.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "net/text.h"
#include "ports/netlink/link_watch.h"
#include "ports/netlink/neighbour_watch.h"
#include "ports/testing/net_namespace.h"
#include "ports/testing/two_hosts.h"

namespace sluice {
namespace {

using testing::kPatience;
using testing::NetNamespace;

class Watches : public testing::TwoHosts<::testing::Test> {
 protected:
  void SetUp() override {
    TwoHosts::SetUp();
    if (ready()) cable("near", "far");
  }
  void in(const NetNamespace& place, const std::string& command) {
    auto done = place.run(command);
    ASSERT_TRUE(done.ok()) << done.error().message;
  }
  // Reads until `true_now`, sleeping on the descriptor between.
  template <typename Watch, typename Changed, typename Condition>
  bool follow(Watch& watch, const Changed& changed, Condition true_now) {
    const auto end = std::chrono::steady_clock::now() + kPatience;
    while (std::chrono::steady_clock::now() < end) {
      auto read = watch.read(changed);
      EXPECT_TRUE(read.ok()) << to_string(read.error());
      if (true_now()) return true;
      pollfd ready{watch.fd(), POLLIN, 0};
      poll(&ready, 1, 1000);
    }
    return false;
  }
};

class LinkWatches : public Watches {
 protected:
  void SetUp() override {
    Watches::SetUp();
    if (HasFatalFailure() || IsSkipped()) return;
    const auto inside = here_->enter();
    auto watch = LinkWatch::create();
    ASSERT_TRUE(watch.ok()) << to_string(watch.error());
    watch_ = std::move(*watch);
  }
  bool until(const std::function<bool()>& condition) {
    return follow(
        *watch_,
        [&](const KernelLink* before, const KernelLink* after) {
          ASSERT_TRUE(before != nullptr || after != nullptr);
          EXPECT_TRUE(before == nullptr || after == nullptr || *before != *after);
          story_.push_back(before == nullptr  ? "+" + after->name
                           : after == nullptr ? "-" + before->name
                                              : before->name + (before->name != after->name ? ">" + after->name : ""));
        },
        condition);
  }
  std::unique_ptr<LinkWatch> watch_;
  std::vector<std::string> story_;
};

TEST_F(LinkWatches, KnowsWhatIsThereWhenItIsMade) {
  const KernelLink* near = watch_->find("near");
  ASSERT_NE(near, nullptr);
  EXPECT_TRUE(near->up);
  EXPECT_EQ(near->mtu, 1500u);
  EXPECT_EQ(watch_->find(near->index), near);
  const KernelLink* lo = watch_->find("lo");
  ASSERT_NE(lo, nullptr);
  ASSERT_FALSE(lo->addresses.empty());
  EXPECT_EQ(lo->addresses[0], (LinkAddress{*parse_ip("127.0.0.1"), 8}));
  EXPECT_EQ(watch_->find("far"), nullptr);
  EXPECT_EQ(watch_->find(9999), nullptr);
}

TEST_F(LinkWatches, FollowsStateMtuMacAndAddresses) {
  auto near = [&] { return *watch_->find("near"); };
  in(*here_, "ip link set near down");
  EXPECT_TRUE(until([&] { return !near().up && !near().carrier; }));
  in(*here_, "ip link set near mtu 1400 address 02:00:00:00:00:77 up");
  EXPECT_TRUE(until([&] {
    return near().up && near().carrier && near().mtu == 1400 &&
           near().mac == std::array<uint8_t, 6>{2, 0, 0, 0, 0, 0x77};
  }));
  in(*there_, "ip link set far down");
  EXPECT_TRUE(until([&] { return near().up && !near().carrier; }));
  in(*there_, "ip link set far up");
  EXPECT_TRUE(until([&] { return near().carrier; }));
  in(*here_, "sysctl -qw net.ipv6.conf.near.disable_ipv6=0; ip addr add 192.0.2.1/24 dev near");
  in(*here_, "ip addr add 198.51.100.1 peer 198.51.100.2/32 dev near; ip -6 addr add 2001:db8::1/64 dev near nodad");
  auto has = [&](const char* address, uint8_t length) {
    const auto all = near().addresses;
    return std::find(all.begin(), all.end(), LinkAddress{*parse_ip(address), length}) != all.end();
  };
  EXPECT_TRUE(until([&] { return has("192.0.2.1", 24) && has("198.51.100.1", 32) && has("2001:db8::1", 64); }));
  in(*here_, "ip addr del 192.0.2.1/24 dev near");
  EXPECT_TRUE(until([&] { return !has("192.0.2.1", 24) && has("198.51.100.1", 32); }));
}

TEST_F(LinkWatches, FollowsWhatIsAddedRenamedAndRemoved) {
  const int index = watch_->find("near")->index;
  in(*here_, "ip link set near name other");
  EXPECT_TRUE(until([&] { return watch_->find("other") != nullptr; }));
  EXPECT_EQ(watch_->find("near"), nullptr);
  EXPECT_EQ(watch_->find("other")->index, index);
  in(*here_, "ip link add more type veth peer name yet");
  EXPECT_TRUE(until([&] { return watch_->find("more") != nullptr && watch_->find("yet") != nullptr; }));
  in(*here_, "ip link del other");
  EXPECT_TRUE(until([&] { return watch_->find(index) == nullptr; }));
  EXPECT_THAT(story_, ::testing::IsSupersetOf({"near>other", "+more", "+yet", "-other"}));
}

TEST_F(LinkWatches, ReadsAllAgainWhereTheKernelHadNoRoom) {
  const auto inside = here_->enter();
  auto small = LinkWatch::create(4096);
  ASSERT_TRUE(small.ok());
  // Some thousand events while nobody reads: an interface that goes, one that comes, one that changes.
  in(*here_, "ip link add gone type veth peer name gone2");
  in(*here_,
     "for i in $(seq 300); do echo link set near mtu $((1000 + i)); echo addr add 203.0.113.$((i % 250 + 1))/32 dev "
     "near; "
     "echo addr del 203.0.113.$((i % 250 + 1))/32 dev near; done | ip -batch -; "
     "ip link del gone; ip link add fresh type veth peer name fresh2; ip link set near mtu 1234; "
     "ip addr add 203.0.113.7/32 dev near");
  unsigned changes = 0;
  EXPECT_TRUE(follow(
      **small, [&](const KernelLink*, const KernelLink*) { ++changes; },
      [&] { return (*small)->find("fresh") != nullptr && (*small)->find("near")->mtu == 1234; }));
  EXPECT_GE((*small)->losses(), 1u);
  EXPECT_GE(changes, 2u);
  EXPECT_EQ((*small)->find("gone"), nullptr);
  EXPECT_EQ((*small)->find("near")->addresses, (std::vector<LinkAddress>{{*parse_ip("203.0.113.7"), 32}}));
  // With the room it has by default nothing is lost.
  EXPECT_TRUE(until([&] { return watch_->find("fresh") != nullptr && watch_->find("near")->mtu == 1234; }));
  EXPECT_EQ(watch_->losses(), 0u);
}

class NeighbourWatches : public Watches {
 protected:
  void SetUp() override {
    Watches::SetUp();
    if (HasFatalFailure() || IsSkipped()) return;
    in(*here_,
       "sysctl -qw net.ipv6.conf.near.disable_ipv6=0; ip addr add 192.0.2.1/24 dev near; "
       "ip -6 addr add 2001:db8::1/64 dev near nodad; ip link set near address 02:00:00:00:00:01");
    in(*there_,
       "sysctl -qw net.ipv6.conf.far.disable_ipv6=0; ip addr add 192.0.2.2/24 dev far; "
       "ip -6 addr add 2001:db8::2/64 dev far nodad; ip link set far address 02:00:00:00:00:02");
    const auto inside = here_->enter();
    near_ = static_cast<int>(if_nametoindex("near"));
    auto watch = NeighbourWatch::create({near_});
    ASSERT_TRUE(watch.ok()) << to_string(watch.error());
    watch_ = std::move(*watch);
  }
  bool until(const std::function<bool()>& condition) {
    return follow(
        *watch_,
        [&](const Neighbour& n, bool gone) {
          ++(gone ? gone_ : changed_);
          last_ = n;
        },
        condition);
  }
  const Neighbour* find(const char* address) const { return watch_->find(near_, *parse_ip(address)); }
  std::unique_ptr<NeighbourWatch> watch_;
  int near_ = 0;
  unsigned changed_ = 0, gone_ = 0;
  Neighbour last_;
};

TEST_F(NeighbourWatches, FollowsWhatIsAddedAndDeleted) {
  in(*here_, "ip neigh add 192.0.2.9 lladdr 02:00:00:00:00:09 dev near nud permanent");
  in(*here_, "ip -6 neigh add 2001:db8::9 lladdr 02:00:00:00:00:0a dev near nud permanent");
  ASSERT_TRUE(until([&] { return find("192.0.2.9") != nullptr && find("2001:db8::9") != nullptr; }));
  EXPECT_EQ(find("192.0.2.9")->mac, (MacAddress{2, 0, 0, 0, 0, 9}));
  EXPECT_EQ(find("192.0.2.9")->state, NUD_PERMANENT);
  EXPECT_TRUE(find("192.0.2.9")->usable());
  EXPECT_EQ(find("2001:db8::9")->mac, (MacAddress{2, 0, 0, 0, 0, 10}));
  in(*here_, "ip neigh replace 192.0.2.9 lladdr 02:00:00:00:00:0b dev near nud permanent");
  EXPECT_TRUE(until([&] { return find("192.0.2.9")->mac == MacAddress{2, 0, 0, 0, 0, 11}; }));
  in(*here_, "ip neigh del 192.0.2.9 dev near");
  // What is deleted fails first and is forgotten then.
  EXPECT_TRUE(until([&] { return find("192.0.2.9") == nullptr || !find("192.0.2.9")->usable(); }));
  // Those that were there before are known from the start.
  const auto inside = here_->enter();
  auto later = NeighbourWatch::create({near_});
  ASSERT_TRUE(later.ok());
  ASSERT_NE((*later)->find(near_, *parse_ip("2001:db8::9")), nullptr);
  auto elsewhere = NeighbourWatch::create({near_ + 1000});
  ASSERT_TRUE(elsewhere.ok());
  EXPECT_EQ((*elsewhere)->size(), 0u);
}

TEST_F(NeighbourWatches, TheKernelResolvesWhatIsAskedFor) {
  for (const char* address : {"192.0.2.2", "2001:db8::2"}) {
    EXPECT_EQ(find(address), nullptr);
    auto asked = watch_->resolve(near_, *parse_ip(address));
    ASSERT_TRUE(asked.ok()) << to_string(asked.error());
    ASSERT_TRUE(until([&] { return find(address) != nullptr && find(address)->usable(); })) << address;
    EXPECT_EQ(find(address)->mac, (MacAddress{2, 0, 0, 0, 0, 2}));
    // Again is no error.
    EXPECT_TRUE(watch_->resolve(near_, *parse_ip(address)).ok());
  }
  // Nobody answers: the kernel says so.
  in(*here_, "sysctl -qw net.ipv4.neigh.near.mcast_solicit=1 net.ipv4.neigh.near.retrans_time_ms=50");
  ASSERT_TRUE(watch_->resolve(near_, *parse_ip("192.0.2.77")).ok());
  EXPECT_TRUE(until([&] { return find("192.0.2.77") != nullptr && (find("192.0.2.77")->state & NUD_FAILED) != 0; }));
  EXPECT_FALSE(find("192.0.2.77")->usable());
  auto nowhere = watch_->resolve(9999, *parse_ip("192.0.2.2"));
  ASSERT_FALSE(nowhere.ok());
  EXPECT_THAT(nowhere.error().message, ::testing::HasSubstr("192.0.2.2"));
}

TEST_F(NeighbourWatches, ForgetsThoseOfAnInterfaceThatIsGone) {
  in(*here_, "ip neigh add 192.0.2.9 lladdr 02:00:00:00:00:09 dev near nud permanent");
  ASSERT_TRUE(until([&] { return find("192.0.2.9") != nullptr; }));
  in(*here_, "ip link del near");
  EXPECT_TRUE(until([&] { return find("192.0.2.9") == nullptr; }));
  EXPECT_GE(gone_, 1u);
}

TEST_F(NeighbourWatches, ReadsAllAgainWhereTheKernelHadNoRoom) {
  const auto inside = here_->enter();
  auto small = NeighbourWatch::create({near_}, 4096);
  ASSERT_TRUE(small.ok());
  in(*here_,
     "for i in $(seq 250); do echo neigh add 192.0.2.$((i + 2)) lladdr 02:00:00:00:00:09 dev near nud permanent; done "
     "| ip -batch -");
  in(*here_, "for i in $(seq 100); do echo neigh del 192.0.2.$((i + 2)) dev near; done | ip -batch -");
  const auto usable = [&](const NeighbourWatch& watch) {
    unsigned n = 0;
    watch.for_each([&](const Neighbour& one) { n += one.usable() && one.address.family == 4 ? 1 : 0; });
    return n;
  };
  EXPECT_TRUE(follow(
      **small, [](const Neighbour&, bool) {}, [&] { return usable(**small) == 150; }))
      << usable(**small);
  EXPECT_GE((*small)->losses(), 1u);
  EXPECT_TRUE(until([&] { return usable(*watch_) == 150; }));
  EXPECT_EQ(watch_->losses(), 0u);
}

}  // namespace
}  // namespace sluice
