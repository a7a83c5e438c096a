// An IPv4 table that changes while it is read: sail's arrays, copied on write. Host only.
//
// The control thread sets and removes routes (nothing that readers see changes), then publishes a generation: each /16
// with a change gets a new chunk, and a new root points to the new chunks and to all the old ones. A generation is a
// SailView; it never changes, so a batch that keeps its view sees one generation whole. What a later generation no
// longer uses is kept until the caller says that no reader has an earlier one.
//
//   cost of a publication: 256 KiB of root copied, and for each /16 with a change its routes painted into 256 entries
//
// What a generation's view points to is plain memory of this process: devices and files take an Image (build_routes).
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "memory/buffer.h"
#include "tables/lpm/rib.h"
#include "tables/lpm/sail.h"

namespace sluice {

class LiveFib4 {
 public:
  struct Options {
    uint32_t next_hops = 4096;   // ids that may ever be used: 1..next_hops, at most 60,000
    uint32_t spare = 3 * 65536;  // chunks beside one for each /16: shared ones and those that readers still hold
  };
  // Takes the IPv4 routes of a settled Rib and publishes generation 1. Errors: out of memory; a next hop past
  // options.next_hops; a table that needs more blocks than entries of two bytes can name.
  static Result<LiveFib4> create(const Rib& rib, const Options& options);
  static Result<LiveFib4> create(const Rib& rib) { return create(rib, Options()); }

  // The route's next hop from the next generation on; 0 removes it. Bits of `address` past `length` must be clear.
  // False: there was no such route to remove, or it had this next hop already.
  bool set(uint32_t address, uint8_t length, uint16_t next_hop);
  // The next hop of exactly this prefix as set last, or 0.
  uint32_t find(uint32_t address, uint8_t length) const;
  size_t size() const { return size_; }

  // Makes what was set since the last call a new generation. Errors: no memory left for it, because the table grew or
  // because release() was not called; the last generation stays and the changes are kept for another try.
  Result<void> publish();
  uint64_t generation() const { return generation_; }
  // Of the last generation. Valid until release() of a later one, and as long as this object lives.
  SailView view() const;
  // No reader has a view of a generation before this one any more.
  void release(uint64_t generation);

  // Chunks that the last publish() wrote.
  size_t last_changed() const { return last_changed_; }

 private:
  // A route longer than /16 by its last 16 bits; sorted, so that a route stands before those inside it.
  struct Long {
    uint32_t key;  // address bits << 8 | length
    uint16_t next_hop;
  };
  static constexpr uint32_t kNone = UINT32_MAX;
  struct Retired {
    uint64_t generation;  // the first that does not use it
    enum class Kind : uint8_t { kChunk, kBlock, kRoot } kind;
    uint32_t index;
  };

  LiveFib4() = default;
  void touch(uint32_t slot);
  bool set_short(uint32_t address, uint8_t length, uint16_t next_hop);
  uint16_t* chunk_at(uint32_t chunk) { return reinterpret_cast<uint16_t*>(chunks_.data()) + size_t{chunk} * 256; }
  uint16_t* block_at(uint32_t block) { return reinterpret_cast<uint16_t*>(blocks_.data()) + size_t{block} * 256; }
  uint32_t* root_at(uint32_t root) { return reinterpret_cast<uint32_t*>(roots_[root].data()); }
  // Paints the routes of a /16; kNone: memory ran out.
  uint32_t paint(uint32_t slot);
  uint32_t shared_chunk(uint16_t next_hop);
  void drop_chunk(uint32_t chunk, uint64_t generation);
  void give_back(const Retired& retired);

  std::vector<std::vector<Long>> long_ = std::vector<std::vector<Long>>(65536);
  std::vector<uint16_t> short_ = std::vector<uint16_t>(size_t{1} << 17);  // by 1 << length | leading bits, up to /16
  std::vector<uint16_t> cover_ = std::vector<uint16_t>(65536);            // the longest of those over each /16
  std::vector<uint8_t> cover_length_ = std::vector<uint8_t>(65536);       // its length + 1; 0: none
  std::vector<uint32_t> touched_;
  std::vector<bool> is_touched_ = std::vector<bool>(65536);
  size_t size_ = 0, last_changed_ = 0;

  Buffer chunks_, blocks_;
  std::vector<Buffer> roots_;
  std::vector<uint32_t> free_chunks_, free_blocks_, free_roots_;
  std::vector<uint32_t> shared_;  // by next hop: its chunk, or kNone
  std::vector<bool> is_shared_;   // by chunk
  std::vector<Retired> retired_;  // in order of generations
  uint32_t root_ = kNone;
  uint32_t next_hops_ = 0;
  uint64_t generation_ = 0;
};

}  // namespace sluice
