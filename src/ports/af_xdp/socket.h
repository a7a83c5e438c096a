// host only
// AF_XDP sockets over the chunks of a pool: one UMEM for all sockets of a run.
#pragma once

#include <linux/if_xdp.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "memory/frame_pool.h"
#include "ports/af_xdp/rings.h"
#include "ports/interface.h"

namespace sluice {

// Of a descriptor's `options`: the frame goes on in the next one.
inline constexpr uint32_t kXdpContinues = 1;  // XDP_PKT_CONTD, Linux 6.6

// A pool as sockets see it: bytes by their offset, and which chunk they lie in.
class XskMemory {
 public:
  // The one of this pool, as long as a socket uses it: sockets of a UMEM share its pages and the places where the
  // kernel maps them. Errors: a pool whose chunks AF_XDP does not take.
  static Result<std::shared_ptr<XskMemory>> of(const std::shared_ptr<FramePool>& pool);

  FramePool& pool() { return *pool_; }
  const FrameShape& shape() const { return shape_; }
  uint8_t* base() const { return base_; }
  uint64_t offset_of(const uint8_t* byte) const { return static_cast<uint64_t>(byte - base_); }
  uint32_t chunk_of(uint64_t offset) const {
    return static_cast<uint32_t>((static_cast<unsigned __int128>(offset) * reciprocal_) >> 64);
  }
  // Bytes of a piece: a page is the most that the kernel takes, and a chunk for jumbo frames has more.
  uint32_t piece_bytes() const { return std::min(shape().stride, kMostPieceBytes); }
  // Frames of several pieces come and go (Linux 6.6).
  bool in_pieces() const { return shape().stride > kMostPieceBytes; }
  // Whether the chunk at `offset` lies in two huge pages, which a device may not find side by side.
  bool crosses_pages(uint64_t offset, uint64_t bytes) const { return offset >> 21 != (offset + bytes - 1) >> 21; }

 private:
  friend class XskSocket;
  static constexpr uint32_t kMostPieceBytes = 4096;
  explicit XskMemory(std::shared_ptr<FramePool> pool);
  Result<void> register_at(int socket);

  const std::shared_ptr<FramePool> pool_;
  const FrameShape shape_;  // the pool's, which a call would give for each frame
  uint8_t* const base_;
  const uint64_t reciprocal_;  // of the stride, in 2^-64: exact for offsets below 2^64 / stride

  struct Member {
    int socket;
    bool zero_copy;
  };
  std::mutex mutex_;
  std::vector<Member> members_;  // bound, and open
  std::set<int> copying_;        // interfaces whose driver refused zero copy
};

// Chunks in the kernel's hands: the only account of them when a socket closes. One thread.
class ChunkSet {
 public:
  explicit ChunkSet(uint32_t chunks) : words_((chunks + 63) / 64) {}
  void add(uint32_t chunk) { words_[chunk / 64] |= uint64_t{1} << chunk % 64; }
  void remove(uint32_t chunk) { words_[chunk / 64] &= ~(uint64_t{1} << chunk % 64); }
  // Gives all of them back and returns how many.
  uint64_t give_all(XskMemory& memory);

 private:
  std::vector<uint64_t> words_;
};

// The socket of one queue, for RX, TX or both.
class XskSocket {
 public:
  struct Options {
    std::string name;  // of the interface, for messages
    int ifindex = 0;
    unsigned queue = 0;
    uint32_t rx_entries = 0, tx_entries = 0;  // powers of two; 0: no such ring
    bool zero_copy = true;                    // where the driver grants it
  };
  // Errors: the queue is another socket's, or is not there; memory that may not be locked; what the kernel lacks; a
  // missing capability, with the command that gives it.
  static Result<std::unique_ptr<XskSocket>> open(const std::shared_ptr<XskMemory>& memory, const Options& options);
  // The same, at no device.
  static Result<std::unique_ptr<XskSocket>> unbound(const std::shared_ptr<XskMemory>& memory, const Options& options);
  // Errors: this kernel has no such sockets, or this process may not have one.
  static Result<void> supported();
  // That nobody has a socket at that queue of the interface.
  static bool queue_is_free(int ifindex, unsigned queue);

  // Ends what is under way and gives all chunks back.
  ~XskSocket();
  XskSocket(const XskSocket&) = delete;
  XskSocket& operator=(const XskSocket&) = delete;

  int descriptor() const { return socket_.get(); }
  bool zero_copy() const { return zero_copy_; }
  XskMemory& memory() { return *memory_; }
  // Counters of the kernel's, by any thread.
  xdp_statistics statistics() const;
  // A piece at `offset`, as the kernel is told, and says when it has left: by a place `from` at or before it. Of a
  // frame in several the last is told by its chunk's first byte, so that the chunk goes back with it, the others by a
  // later one. (The kernel keeps a bit of its own in the lowest of some.)
  static constexpr uint64_t kNotLast = 8;
  static uint64_t address(uint64_t from, uint64_t offset) {
    return from | (offset - from) << XSK_UNALIGNED_BUF_OFFSET_SHIFT;
  }
  // Gives back what has left, and returns the pieces that have not.
  uint64_t complete();
  // The interface is gone: gives back what was to be sent, and returns how much that is. The kernel reads none of it
  // any more: what it has under way was copied.
  struct Abandoned {
    uint64_t chunks = 0, bytes = 0;
  };
  Abandoned abandon();
  // Makes the kernel send what is in the TX ring. False: the interface is gone.
  bool kick();

  XskProducer<uint64_t> fill;
  XskConsumer<xdp_desc> rx;
  XskProducer<xdp_desc> tx;
  XskConsumer<uint64_t> completion;
  ChunkSet receiving, sending;
  uint64_t sent = 0;  // pieces; of the thread that sends

 private:
  struct Mapping {
    void* at = nullptr;
    size_t bytes = 0;
  };
  XskSocket(std::shared_ptr<XskMemory> memory, const Options& options);
  static Result<FileDescriptor> make();
  Result<void> create();
  Result<void> map_rings();
  // 0, or errno.
  int bind_to(int shared_with, uint16_t flags);
  // False: the queue is in use.
  Result<bool> bind_anew();
  Error bind_error(int code) const;

  const std::shared_ptr<XskMemory> memory_;
  const Options options_;
  FileDescriptor socket_;
  std::vector<Mapping> mappings_;
  bool zero_copy_ = false;
  uint64_t completed_ = 0;
  bool abandoned_ = false;
};

}  // namespace sluice
