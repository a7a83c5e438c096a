// The kernel's interfaces and neighbours as a run follows them, in namespaces of the test's own.
#include "exec/engine/neighbour_follower.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "net/text.h"
#include "ports/testing/two_hosts.h"

namespace sluice::neighbour_follower_test {
namespace {

using testing::kPatience;
using testing::NetNamespace;

// near 10.2.0.1 - 10.2.0.2 far.
class NeighbourFollowerTest : public testing::TwoHosts<::testing::Test> {
 protected:
  void SetUp() override {
    TwoHosts::SetUp();
    if (!ready()) return;
    cable("near", "far");
    run("ip addr add 10.2.0.1/24 dev near");
    run_on(*there_, "ip link set far address 02:00:00:00:00:04; ip addr add 10.2.0.2/24 dev far");
    const auto inside = here_->enter();
    auto made = NeighbourFollower::create();
    ASSERT_TRUE(made.ok()) << to_string(made.error());
    follower_ = std::move(*made);
    known_ = follower_->neighbours();
  }
  void TearDown() override { follower_.reset(); }

  static void run_on(const NetNamespace& where, const std::string& command) {
    const auto done = where.run(command);
    ASSERT_TRUE(done.ok()) << to_string(done.error());
  }
  void start(bool takes = true) {
    NeighbourFollower::Hooks hooks;
    hooks.publish = [this, takes] {
      // The first time it cannot be taken up.
      return ++published_ > 1 || takes;
    };
    hooks.link = [this](const KernelLink* before, const KernelLink* after) {
      const std::lock_guard lock(mutex_);
      links_.push_back((before == nullptr ? "none" : before->name + (before->up ? " up" : " down")) + " -> " +
                       (after == nullptr ? "gone" : after->name + (after->up ? " up" : " down")));
    };
    ASSERT_TRUE(follower_->start(std::move(hooks)).ok());
  }
  std::optional<Neighbours::Found> find(const char* next_hop) { return known_->find(next_hop, outputs_); }
  template <typename What>
  static bool comes(What&& what) {
    const auto end = std::chrono::steady_clock::now() + kPatience;
    while (!what() && std::chrono::steady_clock::now() < end) std::this_thread::sleep_for(std::chrono::milliseconds(2));
    return what();
  }
  bool said(const std::string& link) {
    const std::lock_guard lock(mutex_);
    return std::find(links_.begin(), links_.end(), link) != links_.end();
  }

  std::shared_ptr<Neighbours> known_;
  const std::vector<NeighbourOutput> outputs_ = {{0, "near"}};
  std::atomic<int> published_{0};
  std::mutex mutex_;
  std::vector<std::string> links_;
  std::unique_ptr<NeighbourFollower> follower_;
};

TEST_F(NeighbourFollowerTest, FindsAMacThatIsAskedForAndTellsOfIt) {
  const auto found = find("10.2.0.2");
  ASSERT_TRUE(found);
  EXPECT_FALSE(found->known);
  start(false);
  known_->ask(found->key);
  EXPECT_TRUE(comes([&] { return find("10.2.0.2")->known; }));
  EXPECT_EQ(to_string(find("10.2.0.2")->neighbour.destination), "02:00:00:00:00:04");
  EXPECT_TRUE(comes([&] { return published_ >= 2; })) << "a publication that could not be made is tried again";
  // Another MAC, and none.
  run_on(*here_, "ip neigh replace 10.2.0.2 lladdr 02:00:00:00:00:99 dev near nud permanent");
  EXPECT_TRUE(comes([&] { return to_string(find("10.2.0.2")->neighbour.destination) == "02:00:00:00:00:99"; }));
  const int before = published_;
  run_on(*here_, "ip neigh del 10.2.0.2 dev near");
  EXPECT_TRUE(comes([&] { return !find("10.2.0.2")->known && published_ > before; }));
  follower_->stop();
  follower_->stop();
}

TEST_F(NeighbourFollowerTest, AStaleNeighbourOfANextHopIsLookedFor) {
  ASSERT_TRUE(find("10.2.0.2"));
  run_on(*here_, "ip neigh replace 10.2.0.2 lladdr 02:00:00:00:00:04 dev near nud stale");
  start();
  EXPECT_TRUE(comes([&] {
    const auto now = here_->run("ip neigh show 10.2.0.2 dev near");
    return now.ok() && now->find("STALE") == std::string::npos;
  }));
  EXPECT_TRUE(find("10.2.0.2")->known);
}

TEST_F(NeighbourFollowerTest, LinksAreToldAndTheirAddressesFollowed) {
  start();
  run_on(*here_, "ip link set near down");
  EXPECT_TRUE(comes([&] { return said("near up -> near down"); }));
  run_on(*here_, "ip link set near up; ip addr add 10.3.0.1/24 dev near");
  EXPECT_TRUE(comes([&] { return said("near down -> near up") && find("10.3.0.7"); }));
  run_on(*here_, "ip link del near");
  EXPECT_TRUE(comes([&] { return said("near down -> gone") || said("near up -> gone"); }));
  EXPECT_FALSE(find("10.2.0.2"));
  EXPECT_GE(published_, 1);
}

// Tables that are changed by somebody else call for it too.
TEST_F(NeighbourFollowerTest, PublishesWhenItIsTold) {
  start();
  follower_->publish();
  EXPECT_TRUE(comes([&] { return published_ == 1; }));
}

// A publication takes its time, and the run ends meanwhile.
TEST_F(NeighbourFollowerTest, TellsChangesUpToTheEnd) {
  std::atomic<bool> inside{false}, released{false};
  NeighbourFollower::Hooks hooks;
  hooks.publish = [&] {
    inside = true;
    while (!released) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return true;
  };
  hooks.link = [this](const KernelLink* before, const KernelLink* after) {
    const std::lock_guard lock(mutex_);
    if (before != nullptr && after != nullptr && before->up && !after->up) links_.push_back("down");
  };
  ASSERT_TRUE(follower_->start(std::move(hooks)).ok());
  follower_->publish();
  ASSERT_TRUE(comes([&] { return inside.load(); }));
  run_on(*here_, "ip link set near down");
  std::thread releases([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    released = true;
  });
  follower_->stop();
  releases.join();
  EXPECT_TRUE(said("down"));
}

}  // namespace
}  // namespace sluice::neighbour_follower_test
