// The nodes: a frame of packets becomes a burst of keys, and their answers next nodes.
#include "gpu_classify.h"

#include <vnet/ip/ip4_packet.h>
#include <vnet/ip/ip6_packet.h>

static char* gc_error_strings[] = {
#define _(name, text) text,
    foreach_gc_error
#undef _
};

// ---- traces

typedef struct {
  u64 generation;
  u32 rule, action, mark;
  u8 on_device, unusable;
  char where[104];
  char text[160];
} gc_trace_t;

static u8* format_gc_trace(u8* s, va_list* args) {
  CLIB_UNUSED(vlib_main_t * vm) = va_arg(*args, vlib_main_t*);
  CLIB_UNUSED(vlib_node_t * node) = va_arg(*args, vlib_node_t*);
  const gc_trace_t* t = va_arg(*args, gc_trace_t*);
  const gc_main_t* gm = &gc_main;
  switch (t->action) {
    case SLUICE_PERMIT:
      s = format(s, "gpu-classify: pass");
      break;
    case SLUICE_DENY:
      s = format(s, "gpu-classify: drop");
      break;
    case SLUICE_MARK:
      s = format(s, "gpu-classify: mark %u", t->mark);
      break;
    default:
      s = t->unusable ? format(s, "gpu-classify: drop, no rule can judge it")
                      : format(s, "gpu-classify: %s, no rule matches", gm->drop_unmatched ? "drop" : "pass");
  }
  if (t->rule != 0) s = format(s, ", rule %u (%s) %s", t->rule, t->where, t->text);
  return format(s, ", generation %llu, by %s", t->generation, t->on_device ? "device" : "cpu");
}

// The rule as it stands now, which is the one that matched where the list is still of that generation.
static void gc_trace(vlib_main_t* vm, vlib_node_runtime_t* node, vlib_buffer_t* b, const sluice_match* m,
                     u64 generation, u8 on_device, u8 unusable) {
  gc_trace_t* t = vlib_add_trace(vm, node, b, sizeof *t);
  clib_memset(t, 0, sizeof *t);
  t->generation = generation;
  t->rule = m->rule;
  t->action = m->action;
  t->mark = m->mark;
  t->on_device = on_device;
  t->unusable = unusable;
  if (m->rule == 0) return;
  sluice_rule* rule = sluice_acl_rule(gc_main.acl, m->rule, NULL);
  if (rule != NULL && rule->generation == generation) {
    snprintf(t->where, sizeof t->where, "%s:%u", rule->file, rule->line);
    snprintf(t->text, sizeof t->text, "%s", rule->text);
  } else {
    snprintf(t->where, sizeof t->where, "the list has changed since");
  }
  sluice_rule_free(rule);
}

// ---- keys

// Fragments that keep a header from the rules, so that what they deny can be completed behind them (RFC 1858, RFC
// 3128): a first fragment of TCP without its whole header, or of another protocol without a field that rules test; a
// fragment of TCP with the offset 8. The headers of the packet are there.
static int gc_is_tiny(const sluice_key* key, const u8* ip, u32 captured) {
  if ((key->bits & SLUICE_KEY_FRAGMENT) == 0) return 0;
  if ((key->bits & SLUICE_KEY_LATER_FRAGMENT) == 0) {
    if ((key->bits & SLUICE_KEY_SHORT_L4) == 0) return 0;
    const int icmp = key->protocol == (key->family == 4 ? 1 : 58);
    return key->protocol == 6 || (icmp ? (key->bits & SLUICE_KEY_NO_FLAGS) != 0 : (key->bits & SLUICE_KEY_PORTS) == 0);
  }
  if (key->protocol != 6) return 0;
  if (key->family == 4) return (ip[6] & 0x1f) == 0 && ip[7] == 1;
  u8 next = ip[6];
  for (u32 at = 40; at + 8 <= captured;) {
    u32 bytes = next == 51 ? (ip[at + 1] + 2) * 4 : (ip[at + 1] + 1) * 8;
    if (next == 44) {
      // One with the offset 0 may stand before it.
      const u32 offset = ((u32)ip[at + 2] << 8 | ip[at + 3]) >> 3;
      if (offset != 0) return offset == 1;
      bytes = 8;
    }
    next = ip[at];
    at += bytes;
  }
  return 0;
}

// Everything that is not plain, by the library's parser. Returns whether rules can judge it; what they cannot judge has
// a key that none matches. Bytes are those of the IP
// packet, without what pads the frame.
static int __attribute__((noinline)) gc_key_slowly(sluice_key* key, const u8* ip, u32 captured, u32 wire) {
  u32 length = 0;
  if (captured >= 20 && ip[0] >> 4 == 4) length = (u32)ip[2] << 8 | ip[3];
  if (captured >= 40 && ip[0] >> 4 == 6 && (ip[4] | ip[5]) != 0) length = 40 + ((u32)ip[4] << 8 | ip[5]);
  if (length >= 20 && length < wire) wire = length;
  if (sluice_key_of_packet(ip, clib_min(captured, wire), wire, key) == 0 && !gc_is_tiny(key, ip, captured)) return 1;
  key->family = 0;
  return 0;
}

static_always_inline u64 gc_load64(const u8* from) {
  u64 word;
  clib_memcpy_fast(&word, from, 8);
  return word;
}
static_always_inline u32 gc_load32(const u8* from) {
  u32 word;
  clib_memcpy_fast(&word, from, 4);
  return word;
}

// Ports of TCP or UDP in host order, source in the low half; the flags byte of TCP in bits 40 to 47.
static_always_inline u64 gc_l4(const u8* l4, int tcp) {
  const u32 ports = clib_net_to_host_u32(gc_load32(l4));
  return (u64)(ports >> 16 | ports << 16) | (u64)(tcp ? l4[13] : 0) << 40;
}

static_always_inline void gc_store(sluice_key* key, u64 src_hi, u64 src_lo, u64 dst_hi, u64 dst_lo, u64 l4, u64 rest) {
  u64* to = (u64*)key;
  STATIC_ASSERT_SIZEOF(sluice_key, 48);
  to[0] = src_hi;
  to[1] = src_lo;
  to[2] = dst_hi;
  to[3] = dst_lo;
  to[4] = l4;
  to[5] = rest;
}

// IPv4 without options and fragmentation, TCP or UDP, whole headers in the first buffer: read here. The rest: above.
// Both give the same keys.
static_always_inline int gc_key4(sluice_key* key, const u8* ip, u32 captured, u32 wire) {
  const u64 w0 = gc_load64(ip), w1 = gc_load64(ip + 8);
  const u32 protocol = (u8)(w1 >> 8), total = clib_net_to_host_u16((u16)(w0 >> 16));
  const int tcp = protocol == 6;
  const u32 need = tcp ? 40 : 28;
  if (PREDICT_FALSE((((w0 ^ 0x45) & 0xff) | (w0 >> 48 & 0xff3f)) != 0 || (!tcp && protocol != 17) || captured < need ||
                    total < need || total > wire))
    return gc_key_slowly(key, ip, captured, wire);
  gc_store(key, 0, clib_net_to_host_u32((u32)(w1 >> 32)), 0, clib_net_to_host_u32(gc_load32(ip + 16)),
           gc_l4(ip + 20, tcp) | (u64)protocol << 48 | (w0 >> 10 & 0x3f) << 56,
           4 | SLUICE_KEY_PORTS << 8 | (u64)total << 32);
  return 1;
}

static_always_inline int gc_key6(sluice_key* key, const u8* ip, u32 captured, u32 wire) {
  const u64 w0 = clib_net_to_host_u64(gc_load64(ip));
  const u32 protocol = (u8)(w0 >> 8), total = 40 + (u32)(w0 >> 16 & 0xffff);
  const int tcp = protocol == 6;
  const u32 need = tcp ? 60 : 48;
  if (PREDICT_FALSE(w0 >> 60 != 6 || (!tcp && protocol != 17) || captured < need || total < need || total > wire))
    return gc_key_slowly(key, ip, captured, wire);
  gc_store(key, clib_net_to_host_u64(gc_load64(ip + 8)), clib_net_to_host_u64(gc_load64(ip + 16)),
           clib_net_to_host_u64(gc_load64(ip + 24)), clib_net_to_host_u64(gc_load64(ip + 32)),
           gc_l4(ip + 40, tcp) | (u64)protocol << 48 | (w0 >> 54 & 0x3f) << 56,
           6 | SLUICE_KEY_PORTS << 8 | (u64)total << 32);
  return 1;
}

// Returns the interface of all packets, or ~0 where they have several. The next node of a packet that no rule can judge
// is to drop it, which no match changes.
static_always_inline u32 gc_gather(vlib_main_t* vm, vlib_node_runtime_t* node, vlib_buffer_t** bufs, u32 n,
                                   sluice_key* keys, u16* nexts, u32 kind) {
  const int is_ip6 = (kind & GC_IP6) != 0, is_output = (kind & GC_OUTPUT) != 0, is_l2 = (kind & GC_L2) != 0;
  // Packets of one interface have one configuration: the next node is looked up when it changes.
  u32 config = ~0, config_after = ~0;
  u16 next = 0;
  const u32 first = vnet_buffer(bufs[0])->sw_if_index[is_output ? VLIB_TX : VLIB_RX];
  u32 others = 0;
  for (u32 i = 0; i < n; ++i) {
    if (i + 8 < n) {
      vlib_prefetch_buffer_header(bufs[i + 8], LOAD);
      clib_prefetch_store(&gpu_classify_mark(bufs[i + 8]));
    }
    if (i + 4 < n) {
      const u8* ahead = vlib_buffer_get_current(bufs[i + 4]);
      clib_prefetch_load((void*)ahead);
      if (is_output || is_ip6 || is_l2) clib_prefetch_load((void*)(ahead + 63));
    }
    vlib_buffer_t* b = bufs[i];
    const u32 skip = is_l2 ? vnet_buffer(b)->l2.l2_len : is_output ? vnet_buffer(b)->ip.save_rewrite_length : 0;
    const u8* ip = (const u8*)vlib_buffer_get_current(b) + skip;
    const u32 captured = b->current_length > skip ? b->current_length - skip : 0;
    const u32 wire = b->flags & VLIB_BUFFER_NEXT_PRESENT ? vlib_buffer_length_in_chain(vm, b) - skip : captured;
    const int usable = is_ip6 ? gc_key6(&keys[i], ip, captured, wire) : gc_key4(&keys[i], ip, captured, wire);
    // Of a packet that had this buffer before, another mark may stand there.
    gpu_classify_mark(b) = 0;
    others |= vnet_buffer(b)->sw_if_index[is_output ? VLIB_TX : VLIB_RX] ^ first;
    if (PREDICT_FALSE(b->current_config_index != config)) {
      config = b->current_config_index;
      vnet_feature_next_u16(&next, b);
      config_after = b->current_config_index;
    } else {
      b->current_config_index = config_after;
    }
    nexts[i] = next;
    if (PREDICT_FALSE(!usable)) {
      nexts[i] = GC_NEXT_DROP;
      b->error = node->errors[GC_ERROR_UNUSABLE];
    }
  }
  return others == 0 ? first : ~0;
}

// ---- answers

static_always_inline void gc_time(gc_worker_t* w, gc_stage_t stage, u64 clocks) {
  w->stages[stage].frames[gc_bucket(clocks)]++;
}

// `next`: as it was gathered. The next node of an arc does not drop.
static_always_inline gc_fate_t gc_fate(const sluice_match* m, u16 next, u8 drop_unmatched) {
  switch (m->action) {
    case SLUICE_PERMIT:
      return GC_FATE_PASSED;
    case SLUICE_MARK:
      return GC_FATE_MARKED;
    case SLUICE_NO_MATCH:
      if (PREDICT_FALSE(next == GC_NEXT_DROP)) return GC_FATE_UNUSABLE;
      return drop_unmatched ? GC_FATE_UNMATCHED_DROPPED : GC_FATE_UNMATCHED_PASSED;
    default:
      return GC_FATE_DROPPED;
  }
}

// Interfaces that were never enabled have no counters: a packet generator may send packets of such to a node.
static_always_inline void gc_count_fate(vlib_main_t* vm, int output, gc_fate_t fate, u32 interface, u32 packets) {
  vlib_simple_counter_main_t* of = &gc_main.fates[output][fate];
  if (packets != 0 && PREDICT_TRUE(interface < gc_main.counted))
    vlib_increment_simple_counter(of, vm->thread_index, interface, packets);
}

// Of a frame whose packets have several interfaces.
static void __attribute__((noinline))
gc_count_each(vlib_main_t* vm, const u32* from, const u8* fates, u32 n, int output) {
  for (u32 i = 0; i < n; ++i) {
    const u32 interface = vnet_buffer(vlib_get_buffer(vm, from[i]))->sw_if_index[output ? VLIB_TX : VLIB_RX];
    gc_count_fate(vm, output, fates[i], interface, 1);
  }
}

// Puts drops and marks over the next nodes of packets that pass, and hands all on. `node` enqueues; what is counted is
// counted on the node `counted`, which took the frame.
static_always_inline void gc_hand_on(vlib_main_t* vm, vlib_node_runtime_t* node, vlib_node_runtime_t* counted,
                                     u32* from, u16* nexts, const sluice_match* matches, u32 n, u32 interface, u32 kind,
                                     u64 generation, u8 on_device) {
  const gc_main_t* gm = &gc_main;
  const u8 drop_unmatched = gm->drop_unmatched;
  const int output = (kind & GC_OUTPUT) != 0;
  u32 fates[GC_N_FATE] = {};
  u8 fate_of[VLIB_FRAME_SIZE];
  STATIC_ASSERT(GC_FATE_PASSED == 0, "what most packets have");
  // A frame whose packets all pass is only counted. The next node of a packet that no rule can judge is to drop it.
  u32 permitted = 0, unmatched = 0;
  for (u32 i = 0; i < n; ++i) {
    permitted += matches[i].action == SLUICE_PERMIT;
    unmatched += (matches[i].action == SLUICE_NO_MATCH) & (nexts[i] != GC_NEXT_DROP);
  }
  const int all_pass = permitted + unmatched == n && (unmatched == 0 || !drop_unmatched) && interface != ~0 &&
                       !vm->trace_main.trace_enable;
  fates[GC_FATE_PASSED] = permitted;
  if (all_pass) {
    fates[GC_FATE_UNMATCHED_PASSED] = unmatched;
  } else {
    clib_memset_u8(fate_of, GC_FATE_PASSED, sizeof fate_of);
  }
  for (u32 i = 0; i < (all_pass ? 0 : n); ++i) {
    const sluice_match* m = &matches[i];
    if (PREDICT_TRUE(m->action == SLUICE_PERMIT)) continue;
    const gc_fate_t fate = gc_fate(m, nexts[i], drop_unmatched);
    fates[fate]++;
    fate_of[i] = fate;
    if (fate == GC_FATE_UNMATCHED_PASSED || fate == GC_FATE_UNUSABLE) continue;
    vlib_buffer_t* b = vlib_get_buffer(vm, from[i]);
    if (fate == GC_FATE_MARKED) {
      gpu_classify_mark(b) = m->mark;
      const u16 next = m->mark < GC_MARKS ? gm->next_of_mark[kind][m->mark] : 0;
      if (next == 0) continue;
      // A node that drops or punts counts it.
      b->error = counted->errors[next == GC_UNFIT ? GC_ERROR_UNFIT : GC_ERROR_STEERED];
      nexts[i] = next == GC_UNFIT ? GC_NEXT_DROP : next - 1;
      continue;
    }
    // The drop node counts it.
    b->error = counted->errors[fate == GC_FATE_DROPPED ? GC_ERROR_DROP : GC_ERROR_NO_MATCH_DROP];
    nexts[i] = GC_NEXT_DROP;
  }
  const u32 index = counted->node_index;
  if (fates[GC_FATE_PASSED] != 0) vlib_node_increment_counter(vm, index, GC_ERROR_PASS, fates[GC_FATE_PASSED]);
  if (fates[GC_FATE_UNMATCHED_PASSED] != 0)
    vlib_node_increment_counter(vm, index, GC_ERROR_NO_MATCH, fates[GC_FATE_UNMATCHED_PASSED]);
  if (fates[GC_FATE_MARKED] != 0) vlib_node_increment_counter(vm, index, GC_ERROR_MARK, fates[GC_FATE_MARKED]);
  if (PREDICT_TRUE(interface != ~0)) {
    for (u32 fate = 0; fate < GC_N_FATE; ++fate) gc_count_fate(vm, output, fate, interface, fates[fate]);
  } else {
    gc_count_each(vm, from, fate_of, n, output);
  }
  // The node that polls runs without a frame, which would say whether some are traced.
  if (PREDICT_FALSE(vm->trace_main.trace_enable)) {
    for (u32 i = 0; i < n; ++i) {
      vlib_buffer_t* b = vlib_get_buffer(vm, from[i]);
      if ((b->flags & VLIB_BUFFER_IS_TRACED) == 0) continue;
      gc_trace(vm, node, b, &matches[i], generation, on_device, fate_of[i] == GC_FATE_UNUSABLE);
      if (node != counted) vlib_trace_next_frame(vm, node, nexts[i]);
    }
  }
  vlib_buffer_enqueue_to_next(vm, node, from, nexts, n);
}

// ---- devices

VLIB_REGISTER_LOG_CLASS(gc_log, static) = {
    .class_name = "sluice",
    .subclass_name = "device",
};

// What a failed device had, the library has looked up in this thread.
static void gc_fetch(gc_worker_t* w, gc_waiting_t* f) {
  f->answered += sluice_channel_poll(w->channel, f->matches + f->answered, NULL, f->n - f->answered);
  if (PREDICT_FALSE(sluice_channel_failure(w->channel)[0] != 0)) f->by = GC_BY_FAILED;
}

// Has this thread look up what the device has not answered: all frames from this one on.
static void gc_settle(gc_worker_t* w, u32 at) {
  sluice_channel_settle(w->channel);
  for (; at != w->tail; ++at) {
    gc_waiting_t* f = &w->waiting[at % GC_QUEUE];
    if (f->answered == f->n) continue;
    f->by = GC_BY_OVERDUE;
    gc_fetch(w, f);
  }
}

void gc_take_order(gc_worker_t* w) {
  gc_order_t* order = __atomic_exchange_n(&w->order, NULL, __ATOMIC_ACQ_REL);
  if (order == NULL) return;
  if (w->channel != NULL) {
    for (u32 at = w->head; at != w->tail; ++at) {
      gc_waiting_t* f = &w->waiting[at % GC_QUEUE];
      if (f->answered < f->n) gc_fetch(w, f);
      if (f->answered < f->n) gc_settle(w, at);
    }
  }
  gc_order_t* old = w->held;
  w->channel = order->channel;
  w->held = order;
  w->failure[0] = 0;
  if (old == NULL) return;
  old->next = __atomic_load_n(&w->retired, __ATOMIC_RELAXED);
  while (!__atomic_compare_exchange_n(&w->retired, &old->next, old, 0, __ATOMIC_RELEASE, __ATOMIC_RELAXED))
    ;
}

static void gc_note_failure(gc_worker_t* w) {
  const char* why = sluice_channel_failure(w->channel);
  if (PREDICT_TRUE(why[0] == 0) || w->failure[0] != 0) return;
  snprintf(w->failure + 1, sizeof w->failure - 1, "%s", why + 1);
  __atomic_store_n(&w->failure[0], why[0], __ATOMIC_RELEASE);
  vlib_log_err(gc_log.class, "thread %u: the device has failed, the worker looks up: %s", w - gc_main.workers, why);
}

// Hands on, in their order, the frames whose answers are there. `now`: all, also those that the device still has.
static u32 gc_drain(vlib_main_t* vm, vlib_node_runtime_t* node, gc_worker_t* w, int now) {
  u32 packets = 0;
  static const gc_error_t counter_of[] = {
#define _(by, error) GC_ERROR_##error,
      foreach_gc_by
#undef _
  };
  for (; w->head != w->tail; ++w->head) {
    gc_waiting_t* f = &w->waiting[w->head % GC_QUEUE];
    if (f->answered < f->n) {
      gc_fetch(w, f);
      if (f->answered < f->n && (now || clib_cpu_time_now() - f->since > gc_main.overdue_clocks)) gc_settle(w, w->head);
      if (f->answered < f->n) break;
    }
    const u64 answered = clib_cpu_time_now();
    if (f->by == GC_BY_DEVICE) gc_time(w, GC_FLIGHT, answered - f->since);
    w->frames[f->by]++;
    vlib_node_increment_counter(vm, f->node_index, counter_of[f->by], f->n);
    gc_hand_on(vm, node, vlib_node_get_runtime(vm, f->node_index), f->buffers, f->nexts, f->matches, f->n, f->interface,
               f->kind, f->generation, f->by == GC_BY_DEVICE);
    gc_time(w, GC_HAND_ON, clib_cpu_time_now() - answered);
    packets += f->n;
  }
  if (w->channel != NULL) gc_note_failure(w);
  return packets;
}

// One that has failed is asked nothing more: the worker looks up, in the newest rules.
static_always_inline int gc_has_device(const gc_worker_t* w) {
  return w->channel != NULL && w->failure[0] == 0;
}

// The frame waits for the device, or for the frames before it.
static void __attribute__((noinline)) gc_put_off(vlib_main_t* vm, vlib_node_runtime_t* node, gc_worker_t* w,
                                                 const u32* from, const u16* nexts, u32 n, u32 interface, u32 kind) {
  if (w->tail - w->head == GC_QUEUE) gc_drain(vm, node, w, 1);
  gc_waiting_t* f = &w->waiting[w->tail % GC_QUEUE];
  clib_memcpy_fast(f->buffers, from, n * sizeof from[0]);
  clib_memcpy_fast(f->nexts, nexts, n * sizeof nexts[0]);
  f->n = n;
  f->node_index = node->node_index;
  f->interface = interface;
  f->kind = kind;
  f->since = clib_cpu_time_now();
  if (gc_has_device(w) && sluice_channel_submit(w->channel, w->keys, n) == n) {
    f->by = GC_BY_DEVICE;
    f->answered = 0;
    f->generation = sluice_channel_generation(w->channel);
  } else {
    f->by = w->failure[0] != 0 ? GC_BY_FAILED : GC_BY_HOST;
    f->generation = sluice_acl_classify(gc_main.acl, w->keys, n, f->matches);
    f->answered = n;
  }
  w->tail++;
  vlib_node_set_interrupt_pending(vm, gc_poll_node.index);
}

// ---- the nodes

static_always_inline uword gc_classify(vlib_main_t* vm, vlib_node_runtime_t* node, vlib_frame_t* frame, u32 kind) {
  gc_worker_t* w = &gc_main.workers[vm->thread_index];
  u32* from = vlib_frame_vector_args(frame);
  const u32 n = frame->n_vectors;
  vlib_buffer_t* bufs[VLIB_FRAME_SIZE];
  u16 nexts[VLIB_FRAME_SIZE];
  const u64 begin = clib_cpu_time_now();
  vlib_get_buffers(vm, from, bufs, n);
  if (PREDICT_FALSE(__atomic_load_n(&w->order, __ATOMIC_RELAXED) != NULL)) gc_take_order(w);
  const u32 interface = gc_gather(vm, node, bufs, n, w->keys, nexts, kind);
  const u64 gathered = clib_cpu_time_now();
  gc_time(w, GC_GATHER, gathered - begin);
  if (PREDICT_FALSE(gc_has_device(w) || w->head != w->tail)) {
    gc_put_off(vm, node, w, from, nexts, n, interface, kind);
    return n;
  }
  const u64 generation = sluice_acl_classify(gc_main.acl, w->keys, n, w->matches);
  const u64 found = clib_cpu_time_now();
  gc_time(w, GC_LOOKUP, found - gathered);
  gc_hand_on(vm, node, node, from, nexts, w->matches, n, interface, kind, generation, 0);
  gc_time(w, GC_HAND_ON, clib_cpu_time_now() - found);
  return n;
}

#define _(name, kind, node_name, arc, before)                                                          \
  VLIB_NODE_FN(gc_##name##_node)(vlib_main_t * vm, vlib_node_runtime_t * node, vlib_frame_t * frame) { \
    return gc_classify(vm, node, frame, kind);                                                         \
  }
foreach_gc_kind
#undef _

// An interrupt that it renews while frames wait: every loop, and at no cost while none do.
VLIB_NODE_FN(gc_poll_node)(vlib_main_t* vm, vlib_node_runtime_t* node, vlib_frame_t* frame) {
  gc_worker_t* w = &gc_main.workers[vm->thread_index];
  if (__atomic_load_n(&w->order, __ATOMIC_RELAXED) != NULL) gc_take_order(w);
  const u32 packets = gc_drain(vm, node, w, 0);
  if (w->head != w->tail) vlib_node_set_interrupt_pending(vm, node->node_index);
  return packets;
}

VLIB_REGISTER_NODE(gc_ip4_node) = {
    .name = "sluice-classify-ip4",
    .vector_size = sizeof(u32),
    .format_trace = format_gc_trace,
    .type = VLIB_NODE_TYPE_INTERNAL,
    .n_errors = GC_N_ERROR,
    .error_strings = gc_error_strings,
    .n_next_nodes = GC_N_NEXT,
    .next_nodes = {[GC_NEXT_DROP] = "error-drop"},
};

// Siblings have the same next nodes by the same numbers: what one has looked up another hands on.
#define GC_SIBLING(node, n, t, s)          \
  VLIB_REGISTER_NODE(node) = {             \
      .name = n,                           \
      .vector_size = sizeof(u32),          \
      .format_trace = format_gc_trace,     \
      .type = t,                           \
      .state = s,                          \
      .n_errors = GC_N_ERROR,              \
      .error_strings = gc_error_strings,   \
      .sibling_of = "sluice-classify-ip4", \
  }
GC_SIBLING(gc_ip6_node, "sluice-classify-ip6", VLIB_NODE_TYPE_INTERNAL, 0);
GC_SIBLING(gc_ip4_output_node, "sluice-classify-ip4-output", VLIB_NODE_TYPE_INTERNAL, 0);
GC_SIBLING(gc_ip6_output_node, "sluice-classify-ip6-output", VLIB_NODE_TYPE_INTERNAL, 0);
GC_SIBLING(gc_l2_ip4_node, "sluice-classify-l2-ip4", VLIB_NODE_TYPE_INTERNAL, 0);
GC_SIBLING(gc_l2_ip6_node, "sluice-classify-l2-ip6", VLIB_NODE_TYPE_INTERNAL, 0);
GC_SIBLING(gc_l2_ip4_output_node, "sluice-classify-l2-ip4-output", VLIB_NODE_TYPE_INTERNAL, 0);
GC_SIBLING(gc_l2_ip6_output_node, "sluice-classify-l2-ip6-output", VLIB_NODE_TYPE_INTERNAL, 0);
GC_SIBLING(gc_poll_node, "sluice-classify-poll", VLIB_NODE_TYPE_INPUT, VLIB_NODE_STATE_INTERRUPT);

#define _(name, kind, node, arc, before)             \
  VNET_FEATURE_INIT(gc_##name##_feature, static) = { \
      .arc_name = arc,                               \
      .node_name = node,                             \
      .runs_before = VNET_FEATURES(before),          \
  };
foreach_gc_kind
#undef _
