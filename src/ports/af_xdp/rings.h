// host only
// The four rings that an AF_XDP socket shares with the kernel (Documentation/networking/af_xdp.rst).
#pragma once

#include <linux/if_xdp.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/prefetch.h"

namespace sluice {

// One ring in memory of the kernel's. Its counters run freely; an entry's place is the counter's low bits.
template <typename Entry>
class XskRing {
 public:
  XskRing() = default;
  XskRing(std::byte* memory, const xdp_ring_offset& at, uint32_t entries)
      : producer_(reinterpret_cast<uint32_t*>(memory + at.producer)),
        consumer_(reinterpret_cast<uint32_t*>(memory + at.consumer)),
        flags_(reinterpret_cast<uint32_t*>(memory + at.flags)),
        entry_(reinterpret_cast<Entry*>(memory + at.desc)),
        entries_(entries) {}

  uint32_t entries() const { return entries_; }
  // The kernel wants a system call before it looks at this ring again.
  bool needs_wakeup() const { return entries_ != 0 && (load(flags_) & XDP_RING_NEED_WAKEUP) != 0; }
  // What was produced and not consumed, as of now.
  uint32_t held() const { return entries_ == 0 ? 0 : load(producer_) - load(consumer_); }

 protected:
  static uint32_t load(uint32_t* counter) { return std::atomic_ref(*counter).load(std::memory_order_acquire); }
  static void store(uint32_t* counter, uint32_t value) {
    std::atomic_ref(*counter).store(value, std::memory_order_release);
  }

  uint32_t* producer_ = nullptr;
  uint32_t* consumer_ = nullptr;
  uint32_t* flags_ = nullptr;
  Entry* entry_ = nullptr;
  uint32_t entries_ = 0;
  uint32_t mine_ = 0;    // this side's counter
  uint32_t theirs_ = 0;  // the other's, as of the last look
};

// Fill and TX: we produce.
template <typename Entry>
class XskProducer : public XskRing<Entry> {
 public:
  using XskRing<Entry>::XskRing;

  // Places that are free, by the last look unless that has fewer than `wanted`.
  uint32_t free(uint32_t wanted) {
    uint32_t n = this->entries_ - (this->mine_ - this->theirs_);
    if (n < wanted && this->entries_ != 0) {
      this->theirs_ = this->load(this->consumer_);
      n = this->entries_ - (this->mine_ - this->theirs_);
    }
    return n;
  }
  Entry& operator[](uint32_t i) { return this->entry_[(this->mine_ + i) & (this->entries_ - 1)]; }
  // The next n places are to be written soon: their lines, which the kernel has read on a core of its own, come here
  // all at a time and not each when it is written.
  void expect(uint32_t n) {
    for (uint32_t i = 0; i < n; i += 64 / sizeof(Entry)) prefetch_write(&(*this)[i]);
  }
  void submit(uint32_t n) { this->store(this->producer_, this->mine_ += n); }
};

// RX and completion: we consume.
template <typename Entry>
class XskConsumer : public XskRing<Entry> {
 public:
  using XskRing<Entry>::XskRing;

  // Entries that came, by the last look unless that has fewer than `wanted`.
  uint32_t available(uint32_t wanted) {
    if (this->theirs_ - this->mine_ < wanted && this->entries_ != 0) this->theirs_ = this->load(this->producer_);
    return this->theirs_ - this->mine_;
  }
  const Entry& operator[](uint32_t i) const { return this->entry_[(this->mine_ + i) & (this->entries_ - 1)]; }
  // The next n entries are to be read soon.
  void expect(uint32_t n) const {
    for (uint32_t i = 0; i < n; i += 64 / sizeof(Entry)) prefetch_read(&(*this)[i]);
  }
  void release(uint32_t n) { this->store(this->consumer_, this->mine_ += n); }
};

}  // namespace sluice
