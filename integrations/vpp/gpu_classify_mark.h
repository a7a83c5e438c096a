// For other plug-ins: the mark of a packet, and nodes that packets of a mark are sent to.
#pragma once

#include <vlib/unix/plugin.h>
#include <vnet/buffer.h>

// In the second half of a buffer's metadata. Every packet has one that has passed an interface where the classification
// is enabled: N where its rule says `mark N`, else 0.
#define gpu_classify_mark(b) (vnet_buffer2(b)->unused[0])

// Packets that a node takes.
#define GPU_CLASSIFY_INPUT 1      // came in by an interface: the buffer begins with the IP header
#define GPU_CLASSIFY_OUTPUT 2     // leave by one: at the new link header, which is ip.save_rewrite_length long
#define GPU_CLASSIFY_L2_INPUT 4   // bridged, came in: at the link header, which is l2.l2_len long
#define GPU_CLASSIFY_L2_OUTPUT 8  // bridged, leave: the same

// Makes nodes known to `gpu-classify mark N next NODE`: `ip4` takes IPv4 packets, `ip6` IPv6 packets; either may be
// NULL, and both may be one node. Such a node hands a packet to no node that lies before the classification, as
// ip4-input does: the packet would come back for ever. Call it in the main thread, in an init function or later. An
// error is the caller's; there is one where sluice_plugin.so is not loaded.
static inline clib_error_t* gpu_classify_register_target(const char* ip4, const char* ip6, u32 packets) {
  clib_error_t* (*to)(const char*, const char*, u32) = (clib_error_t * (*)(const char*, const char*, u32))
      vlib_get_plugin_symbol("sluice_plugin.so", "gpu_classify_add_target");
  return to != NULL ? to(ip4, ip6, packets) : clib_error_return(0, "sluice_plugin.so is not loaded");
}
