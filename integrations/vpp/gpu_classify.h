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
  _(MALFORMED, "packets without usable headers")       \
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
  u16 next_of_mark[256];  // one more than the next node of marks below 256; 0: they go on as others do
  u64 overdue_clocks;
  // Of the main thread.
  sluice_device* device;  // NULL: CPU
  char* device_name;
  u32 mode;
  u32 orders;            // that are not back
  u64 switches_retired;  // of channels that are gone
  uword* enabled[2];     // bitmaps of interfaces: input, output
  char* algorithm;
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
// The text of errors of libsluice, which are freed.
u8* gc_errors(sluice_errors* errors);
// Frees what workers have given back.
void gc_collect(void);
// Changes of channels between launch and persistent mode.
u64 gc_switches(void);
format_function_t format_gc_latency;

clib_error_t* gc_api_init(vlib_main_t* vm);
