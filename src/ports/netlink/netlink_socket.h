// host only
// A socket that speaks rtnetlink (rtnetlink(7)), by libmnl.
#pragma once

#include <linux/netlink.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "base/result.h"

struct mnl_socket;

namespace sluice {

class NetlinkSocket {
 public:
  using Message = std::function<void(const nlmsghdr*)>;

  // Hears of the groups (RTMGRP_*), and holds up to `receive_bytes` of what nobody has read yet, or as many as the
  // system lets it where it has no CAP_NET_ADMIN. Errors: the system's.
  static Result<NetlinkSocket> open(uint32_t groups, int receive_bytes = kReceiveBytes);
  // A table of 200,000 routes that changes at once fits.
  static constexpr int kReceiveBytes = 16 << 20;

  int fd() const;

  enum class Got : uint8_t {
    kMessages,
    kNothing,  // nothing now
    kLost,     // the kernel had no room: what it said is incomplete
  };
  // Hands over the messages of one datagram; never waits. Errors: the system's.
  Result<Got> read(const Message& message);

  // Forgets what came until now. After a loss: what came before it is older than what is lost, and nothing that follows
  // would put it right. False: it does not end, and is to be called again.
  Result<bool> forget();

  // Asks for all objects of `type` (RTM_GETLINK), of one family or of all (AF_UNSPEC), and hands each over. For a
  // socket without groups. Waits for the kernel, at most a few seconds. Errors: the system's; the table did not stop
  // changing.
  Result<void> dump(uint16_t type, uint8_t family, const Message& message);

  // Sends a request, hands over what is answered, and waits for its acknowledgement. Returns the kernel's errno, or 0.
  // For a socket without groups.
  Result<int> request(nlmsghdr* message, const Message& answer = {});

 private:
  struct Close {
    void operator()(mnl_socket* socket) const;
  };
  explicit NetlinkSocket(mnl_socket* socket) : socket_(socket), buffer_(1 << 16) {}
  // Bytes of the datagram in buffer_, or -errno.
  int64_t receive(bool wait);

  std::unique_ptr<mnl_socket, Close> socket_;
  std::vector<char> buffer_;
  uint32_t sequence_ = 0;
};

// How a table of the kernel is followed: by what a socket hears, and by requests where that was incomplete.
struct NetlinkWatch {
  NetlinkSocket events, requests;
  uint64_t losses = 0;    // how often messages were lost
  bool complete = false;  // false: the table has to be read anew

  static Result<NetlinkWatch> open(uint32_t groups, int receive_bytes);

  // Takes up what has changed, at most some hundred datagrams. Where the kernel had no room for all it said, read_all()
  // reads the whole table and sets `complete`. Errors: the system's.
  Result<void> read(const std::function<Result<void>()>& read_all, const NetlinkSocket::Message& apply);
};

}  // namespace sluice
