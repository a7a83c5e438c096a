// The plug-in's state: one access list of libsluice for all interfaces, and what each thread keeps for itself.
#pragma once

#include <sluice/sluice.h>
#include <vlib/vlib.h>
#include <vnet/feature/feature.h>
#include <vnet/vnet.h>

#include "gpu_classify_mark.h"

// Bursts on their way to a device, and frames that wait to be handed on in their order, of one thread. Queues are a
// power of two.
#define GC_FLIGHTS 8
#define GC_QUEUE 64

// `show errors` has room for 35 characters.
#define foreach_gc_error                               \
  _(PASS, "packets passed by a rule")                  \
  _(DROP, "packets dropped by a rule")                 \
  _(MARK, "packets marked by a rule")                  \
  _(NO_MATCH, "packets passed that no rule matches")   \
  _(NO_MATCH_DROP, "packets dropped, no rule matches") \
  _(UNUSABLE, "packets that no rule can judge")        \
  _(STEERED, "marked packets given to their node")     \
  _(UNFIT, "marked, but their node takes others")      \
  _(ON_DEVICE, "packets looked up by the device")      \
  _(ON_HOST, "looked up by worker: no room")           \
  _(OVERDUE, "looked up by worker: device late")       \
  _(FAILED, "looked up by worker: device failed")

typedef enum {
#define _(name, text) GC_ERROR_##name,
  foreach_gc_error
#undef _
      GC_N_ERROR,
} gc_error_t;

typedef enum { GC_NEXT_DROP, GC_N_NEXT } gc_next_t;

// Kinds of packets, a node each: what the node is called, its feature arc, and what it runs before there. The number of
// a kind is the sum of its bits.
#define GC_IP6 1
#define GC_OUTPUT 2
#define GC_L2 4
#define foreach_gc_kind                                                                           \
  _(ip4, 0, "sluice-classify-ip4", "ip4-unicast", "ip4-lookup")                                   \
  _(ip6, 1, "sluice-classify-ip6", "ip6-unicast", "ip6-lookup")                                   \
  _(ip4_output, 2, "sluice-classify-ip4-output", "ip4-output", "interface-output")                \
  _(ip6_output, 3, "sluice-classify-ip6-output", "ip6-output", "interface-output")                \
  _(l2_ip4, 4, "sluice-classify-l2-ip4", "l2-input-ip4", "l2-input-feat-arc-end")                 \
  _(l2_ip6, 5, "sluice-classify-l2-ip6", "l2-input-ip6", "l2-input-feat-arc-end")                 \
  _(l2_ip4_output, 6, "sluice-classify-l2-ip4-output", "l2-output-ip4", "l2-output-feat-arc-end") \
  _(l2_ip6_output, 7, "sluice-classify-l2-ip6-output", "l2-output-ip6", "l2-output-feat-arc-end")
#define GC_N_KIND 8

// Where packets of a mark go, of each kind: one more than a next node; 0: they go on as others do; GC_UNFIT: the node
// of the mark does not take packets of this kind, so that they are dropped.
#define GC_MARKS 256
#define GC_UNFIT 0xffff

// What happens to the packets of an interface, as counters in VPP's segment of statistics: /sluice/input/passed ...
#define foreach_gc_fate                     \
  _(PASSED, "passed")                       \
  _(DROPPED, "dropped")                     \
  _(MARKED, "marked")                       \
  _(UNMATCHED_PASSED, "unmatched-passed")   \
  _(UNMATCHED_DROPPED, "unmatched-dropped") \
  _(UNUSABLE, "unusable")

typedef enum {
#define _(name, text) GC_FATE_##name,
  foreach_gc_fate
#undef _
      GC_N_FATE,
} gc_fate_t;

// Nodes that packets of a mark may be sent to.
typedef struct {
  char* node[2];  // of IPv4, of IPv6; NULL: none
  u32 packets;    // bits of GPU_CLASSIFY_...
} gc_target_t;

// Where a frame's time goes. On the CPU: its keys are gathered, looked up, and the packets handed on. With a device
// GC_FLIGHT is in place of the lookup: from submission until its answers are fetched.
#define foreach_gc_stage   \
  _(GATHER, "gather keys") \
  _(LOOKUP, "look up")     \
  _(FLIGHT, "device")      \
  _(HAND_ON, "hand on")

typedef enum {
#define _(name, text) GC_##name,
  foreach_gc_stage
#undef _
      GC_N_STAGE,
} gc_stage_t;

// Of clocks per frame: eight buckets for each power of two.
#define GC_BUCKETS (64 * 8)
typedef struct {
  u64 frames[GC_BUCKETS];
} gc_histogram_t;

// A way to a device, as the main thread gives it to a worker and gets it back when it is replaced.
typedef struct gc_order {
  struct gc_order* next;
  sluice_channel* channel;  // NULL: look up in the worker
} gc_order_t;

// Who has looked a frame up, and the counter of its packets.
#define foreach_gc_by  \
  _(DEVICE, ON_DEVICE) \
  _(HOST, ON_HOST)     \
  _(OVERDUE, OVERDUE)  \
  _(FAILED, FAILED)

typedef enum {
#define _(by, error) GC_BY_##by,
  foreach_gc_by
#undef _
      GC_N_BY,
} gc_by_t;

// A frame whose answers are awaited, or that waits for those before it.
typedef struct {
  u32 buffers[VLIB_FRAME_SIZE];
  u16 nexts[VLIB_FRAME_SIZE];  // of packets that pass
  sluice_match matches[VLIB_FRAME_SIZE];
  u32 n, answered;
  u32 node_index;  // that took it
  u32 interface;   // of all its packets; ~0: they have several
  u8 kind;
  u64 generation;
  u64 since;  // clock
  u8 by;      // gc_by_t; of a frame whose answers are awaited: the device
} gc_waiting_t;

typedef struct {
  CLIB_CACHE_LINE_ALIGN_MARK(cacheline0);
  gc_order_t* order;    // to take: written by the main thread
  gc_order_t* retired;  // to free: read by the main thread
  gc_order_t* held;     // this one's way, or NULL
  sluice_channel* channel;
  u32 head, tail;  // frames that wait
  gc_waiting_t* waiting;
  u64 frames[GC_N_BY];
  char failure[200];  // of a device; its first byte is written last
  CLIB_CACHE_LINE_ALIGN_MARK(cacheline1);
  sluice_key keys[VLIB_FRAME_SIZE];
  sluice_match matches[VLIB_FRAME_SIZE];
  gc_histogram_t stages[GC_N_STAGE];
} gc_worker_t;

typedef struct {
  sluice_acl* acl;
  gc_worker_t* workers;  // by thread index
  u8 drop_unmatched;
  u16 next_of_mark[GC_N_KIND][GC_MARKS];
  vlib_simple_counter_main_t fates[2][GC_N_FATE];  // by interface: input, output
  u32 counted;                                     // interfaces that have them
  u64 overdue_clocks;
  // Of the main thread.
  sluice_device* device;  // NULL: CPU
  char* device_name;
  u32 mode;
  u32 orders;            // that are not back
  u64 switches_retired;  // of channels that are gone
  uword* enabled[2];     // bitmaps of interfaces: input, output
  gc_target_t* targets;
  u32 target_of_mark[GC_MARKS];  // one more than its index; 0: none
  u16 msg_id_base;
} gc_main_t;

extern gc_main_t gc_main;
extern vlib_node_registration_t gc_poll_node;

static_always_inline u32 gc_bucket(u64 clocks) {
  const u32 power = clocks < 8 ? 2 : 63 - count_leading_zeros(clocks);
  return clocks < 8 ? (u32)clocks : power * 8 + ((clocks >> (power - 3)) & 7);
}

// Takes the way that the main thread has ordered, after answering what is under way on the old one.
void gc_take_order(gc_worker_t* w);

// The commands. Errors: a text, which the caller frees with vec_free; NULL: done. A command that fails changes nothing.
// From the main thread; the list's changes need no barrier.
u8* gc_change_rules(const char* step);
u8* gc_load_file(const char* path, const char* format);
u8* gc_set_device(const char* name, u32 mode);
u8* gc_enable(u32 sw_if_index, int output, int enable);
u8* gc_next_of_mark(u32 mark, const char* node);
// Counters, times and the device's frames from 0 on. With a barrier.
u8* gc_clear(void);
// The text of errors of libsluice, which are freed.
u8* gc_errors(sluice_errors* errors);
// Frees what workers have given back.
void gc_collect(void);
// Changes of channels between launch and persistent mode.
u64 gc_switches(void);
// Times of frames in a stage, of all threads.
typedef struct {
  u64 frames;
  u64 p50_ns, p99_ns, p999_ns;
} gc_times_t;
gc_times_t gc_times(gc_stage_t stage);
extern const char* const gc_stage_names[GC_N_STAGE];

// Which rules are shown.
typedef struct {
  u32 from, count;    // positions, from 1
  int hits;           // those alone that have counted packets
  const char* match;  // those alone whose text or file has it; NULL: all
} gc_filter_t;
// Calls f(context, position, rule, counter) for each, and gives the counters of packets that no rule matched, and of
// rules that are gone.
typedef void gc_rule_fn_t(void* context, u32 position, const sluice_rule* rule, const sluice_counter* counter);
u8* gc_each_rule(const gc_filter_t* filter, gc_rule_fn_t* f, void* context, sluice_counter* none,
                 sluice_counter* removed);

clib_error_t* gc_api_init(vlib_main_t* vm);
