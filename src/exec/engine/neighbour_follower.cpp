// host only
#include "exec/engine/neighbour_follower.h"

#include <linux/neighbour.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "base/thread.h"

namespace sluice {
namespace {

constexpr int kMostLast = 64;  // reads at the end: who keeps changing interfaces does not keep the run

Neighbours::Link link_of(const KernelLink& link) {
  Neighbours::Link out;
  out.name = link.name;
  std::memcpy(out.mac.bytes, link.mac.data(), sizeof out.mac.bytes);
  out.mtu = static_cast<uint16_t>(std::clamp(link.mtu, 68u, 65'535u));
  for (const LinkAddress& a : link.addresses) out.addresses.push_back({a.address, a.length});
  return out;
}

}  // namespace

Result<std::unique_ptr<NeighbourFollower>> NeighbourFollower::create() {
  std::unique_ptr<NeighbourFollower> made(new NeighbourFollower());
  auto links = LinkWatch::create();
  if (!links) return std::move(links).error();
  auto watch = NeighbourWatch::create();
  if (!watch) return std::move(watch).error();
  made->links_ = std::move(*links);
  made->watch_ = std::move(*watch);
  for (const auto& [index, link] : made->links_->links()) made->neighbours_->set_link(index, link_of(link));
  made->watch_->for_each([&](const Neighbour& n) { made->take(n, false); });
  return made;
}

Result<void> NeighbourFollower::start(Hooks hooks) {
  hooks_ = std::move(hooks);
  event_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (event_ < 0) return system_error("eventfd", errno);
  neighbours_->on_ask([this] { wake(); });
  auto thread = start_thread([this] { follow(); });
  if (!thread) return std::move(thread).error();
  thread_ = std::move(*thread);
  return {};
}

void NeighbourFollower::stop() {
  stopping_ = true;
  if (thread_.joinable()) {
    wake();
    thread_.join();
  }
  if (event_ < 0) return;
  neighbours_->on_ask({});
  ::close(event_);
  event_ = -1;
}

void NeighbourFollower::wake() const {
  const uint64_t one = 1;
  (void)!::write(event_, &one, sizeof one);
}

void NeighbourFollower::publish() {
  publish_ = true;
  wake();
}

void NeighbourFollower::take_links(const KernelLink* before, const KernelLink* after) {
  bool changed = false;
  if (after != nullptr) {
    changed = neighbours_->set_link(after->index, link_of(*after));
  } else if (before != nullptr) {
    changed = neighbours_->remove_link(before->index);
  }
  if (changed) publish_ = true;
  if (hooks_.link) hooks_.link(before, after);
}

bool NeighbourFollower::take(const Neighbour& n, bool gone) {
  const NeighbourKey key{n.ifindex, n.address};
  return !gone && n.usable() ? neighbours_->set(key, n.mac) : neighbours_->forget(key);
}

void NeighbourFollower::follow() {
  uint64_t published_ns = 0, refreshed_ns = now_ns(), failing_ns = 0;
  bool failing = false, refused = false;  // what was said
  const auto told_of = [this](const KernelLink* before, const KernelLink* after) { take_links(before, after); };
  while (!stopping_) {
    uint64_t now = now_ns();
    uint64_t wait = refreshed_ns + kRefreshNs - std::min(refreshed_ns + kRefreshNs, now);
    if (publish_) wait = std::min(wait, published_ns + kPublishNs - std::min(published_ns + kPublishNs, now));
    std::array<pollfd, 3> fds{{{event_, POLLIN, 0}, {links_->fd(), POLLIN, 0}, {watch_->fd(), POLLIN, 0}}};
    // What could not be read stays readable.
    const bool reads = !failing || now >= failing_ns + kRetryNs;
    if (!reads) wait = std::min(wait, kRetryNs);
    (void)::poll(fds.data(), reads ? fds.size() : 1, static_cast<int>((wait + 999'999) / 1'000'000));
    uint64_t told = 0;
    (void)!::read(event_, &told, sizeof told);
    if (stopping_) break;
    if (reads) {
      auto done = links_->read(told_of);
      auto more = watch_->read([this](const Neighbour& n, bool gone) {
        if (take(n, gone)) publish_ = true;
      });
      if (done.ok()) done = std::move(more);
      if (!done && !failing)
        SLUICE_LOG(kWarning, "interfaces and neighbours of the kernel: {}", to_string(done.error()));
      failing = !done.ok();
      failing_ns = now_ns();
    }
    // The kernel says no where the interface is down or gone, or may not be asked: then neighbours stay unknown.
    for (const NeighbourKey& key : neighbours_->take_asked()) {
      const auto asked = watch_->resolve(key.ifindex, key.address);
      if (!asked && !refused) SLUICE_LOG(kWarning, "{}", to_string(asked.error()));
      refused |= !asked;
    }
    now = now_ns();
    if (now >= refreshed_ns + kRefreshNs) {
      refreshed_ns = now;
      // Packets do not pass through the kernel, so that it would leave stale neighbours as they are: as with packets of
      // its own, it is to look whether they are still there.
      neighbours_->each_next_hop([this](const NeighbourKey& key, bool known) {
        const Neighbour* n = known ? watch_->find(key.ifindex, key.address) : nullptr;
        if (n != nullptr && (n->state & NUD_STALE) != 0) (void)watch_->resolve(key.ifindex, key.address);
      });
    }
    if (publish_ && now >= published_ns + kPublishNs) {
      publish_ = false;
      if (hooks_.publish && !hooks_.publish()) publish_ = true;
      published_ns = now_ns();
    }
  }
  // What had happened by the end is still told: a publication may have taken its time.
  for (int left = kMostLast; left > 0; --left) {
    pollfd more{links_->fd(), POLLIN, 0};
    if (::poll(&more, 1, 0) <= 0) break;
    if (!links_->read(told_of)) break;
  }
}

}  // namespace sluice
