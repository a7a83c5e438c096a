// What the commands do. All of it in the main thread, where commands and API messages take turns.
#define _GNU_SOURCE
#include <sched.h>
#include <unistd.h>
#include <vnet/l2/l2_in_out_feat_arc.h>
#include <vnet/plugin/plugin.h>
#include <vpp/app/version.h>

#include "gpu_classify.h"

gc_main_t gc_main;
static vlib_node_registration_t gc_collect_node;

u8* gc_errors(sluice_errors* errors) {
  u8* text = format(0, "%s", sluice_errors_text(errors));
  while (vec_len(text) != 0 && text[vec_len(text) - 1] == '\n') vec_dec_len(text, 1);
  sluice_errors_free(errors);
  return text;
}

// Threads that a device starts do not stay on this one's processor.
static void gc_any_processor(cpu_set_t* before) {
  cpu_set_t all;
  memset(&all, 0xff, sizeof all);
  if (sched_getaffinity(0, sizeof *before, before) != 0) CPU_ZERO(before);
  sched_setaffinity(0, sizeof all, &all);
}
static void gc_this_processor(const cpu_set_t* before) {
  if (CPU_COUNT(before) != 0) sched_setaffinity(0, sizeof *before, before);
}

// ---- ways to a device

static void gc_free_order(gc_order_t* order) {
  gc_main.switches_retired += sluice_channel_switches(order->channel);
  sluice_channel_free(order->channel);
  clib_mem_free(order);
  gc_main.orders--;
}

void gc_collect(void) {
  gc_worker_t* w;
  vec_foreach(w, gc_main.workers) {
    gc_order_t* order = __atomic_exchange_n(&w->retired, NULL, __ATOMIC_ACQUIRE);
    while (order != NULL) {
      gc_order_t* next = order->next;
      gc_free_order(order);
      order = next;
    }
  }
}

static uword gc_collect_fn(vlib_main_t* vm, vlib_node_runtime_t* rt, vlib_frame_t* f) {
  uword* events = NULL;
  while (1) {
    // One order a worker stays with it.
    if (gc_main.orders <= vec_len(gc_main.workers))
      vlib_process_wait_for_event(vm);
    else
      vlib_process_wait_for_event_or_clock(vm, 1e-2);
    vlib_process_get_events(vm, &events);
    vec_reset_length(events);
    gc_collect();
  }
  return 0;
}

VLIB_REGISTER_NODE(gc_collect_node, static) = {
    .function = gc_collect_fn,
    .type = VLIB_NODE_TYPE_PROCESS,
    .name = "sluice-classify-collect",
};

u64 gc_switches(void) {
  u64 sum = gc_main.switches_retired;
  gc_worker_t* w;
  // What a worker holds is freed by this thread alone.
  vec_foreach(w, gc_main.workers) {
    gc_order_t* held = __atomic_load_n(&w->held, __ATOMIC_ACQUIRE);
    if (held != NULL) sum += sluice_channel_switches(held->channel);
  }
  return sum;
}

// Old generations stay while a worker looks up in one; there is room for few. False: a worker does not take its order.
static int gc_await_workers(void) {
  for (u32 tries = 0; tries < 20000; ++tries) {
    gc_collect();
    if (gc_main.orders <= vec_len(gc_main.workers)) return 1;
    usleep(50);
  }
  return 0;
}

// Opens a way to `device` for each worker, in the newest generation, and orders the workers to take it; all or none.
static u8* gc_order_channels(sluice_device* device, u32 mode) {
  gc_main_t* gm = &gc_main;
  gc_order_t** orders = NULL;
  sluice_errors* errors = NULL;
  cpu_set_t here;
  gc_worker_t* w;
  vec_validate(orders, vec_len(gm->workers) - 1);
  gc_any_processor(&here);
  for (u32 i = 0; i < vec_len(orders) && errors == NULL; ++i) {
    orders[i] = clib_mem_alloc(sizeof **orders);
    clib_memset(orders[i], 0, sizeof **orders);
    if (device == NULL) continue;
    sluice_channel_options options = SLUICE_CHANNEL_OPTIONS_INIT;
    options.mode = mode;
    options.burst = VLIB_FRAME_SIZE;
    options.flights = GC_FLIGHTS;
    orders[i]->channel = sluice_channel_open_acl(device, gm->acl, &options, &errors);
  }
  gc_this_processor(&here);
  gm->orders += vec_len(orders);
  if (errors != NULL) {
    gc_order_t** o;
    vec_foreach(o, orders) {
      if (*o != NULL)
        gc_free_order(*o);
      else
        gm->orders--;
    }
    vec_free(orders);
    return gc_errors(errors);
  }
  vec_foreach(w, gm->workers) {
    const u32 thread = w - gm->workers;
    if (w->waiting == NULL && device != NULL)
      w->waiting = clib_mem_alloc_aligned(GC_QUEUE * sizeof *w->waiting, CLIB_CACHE_LINE_BYTES);
    gc_order_t* unseen = __atomic_exchange_n(&w->order, orders[thread], __ATOMIC_ACQ_REL);
    if (unseen != NULL) gc_free_order(unseen);
    if (thread == 0)
      gc_take_order(w);
    else
      vlib_node_set_interrupt_pending(vlib_get_main_by_index(thread), gc_poll_node.index);
  }
  vec_free(orders);
  gc_collect();
  vlib_process_signal_event(vlib_get_main(), gc_collect_node.index, 0, 0);
  return NULL;
}

// A list has changed: devices get the new generation.
static u8* gc_renew(void) {
  gc_main_t* gm = &gc_main;
  if (gm->device == NULL) return NULL;
  u8* error = gc_order_channels(gm->device, gm->mode);
  if (error == NULL) return NULL;
  // Traffic is looked up in the new rules in any case.
  u8* text = format(0, "the rules are in effect, but device '%s' takes them not, so that the CPU looks up: %v",
                    gm->device_name, error);
  vec_free(error);
  error = gc_set_device("cpu", SLUICE_LAUNCH);
  vec_free(error);
  return text;
}

static u8* gc_busy(void) {
  return format(0, "a worker has not yet taken the change before: nothing was changed; try it again");
}

u8* gc_set_device(const char* name, u32 mode) {
  gc_main_t* gm = &gc_main;
  sluice_errors* errors = NULL;
  sluice_device* device = NULL;
  if (!gc_await_workers()) return gc_busy();
  if (strcmp(name, "cpu") != 0) {
    cpu_set_t here;
    gc_any_processor(&here);
    device = sluice_device_open(name, &errors);
    gc_this_processor(&here);
    if (device == NULL) return gc_errors(errors);
  } else if (gm->device == NULL) {
    return NULL;
  }
  u8* error = gc_order_channels(device, mode);
  if (error != NULL) {
    sluice_device_free(device);
    return error;
  }
  // Channels that are still in use keep the device before.
  sluice_device_free(gm->device);
  vec_free(gm->device_name);
  gm->device = device;
  gm->device_name = (char*)format(0, "%s%c", name, 0);
  gm->mode = mode;
  return NULL;
}

// ---- rules

// `tcpflags` is what VPP calls the native language's `tcp-flags`.
static u8* gc_native(const char* step) {
  static const char ours[] = "tcpflags";
  u8* text = NULL;
  for (const char* at = step; *at != 0;) {
    const size_t blank = strspn(at, " \t"), word = strcspn(at + blank, " \t");
    vec_add(text, at, blank);
    if (word == sizeof ours - 1 && strncasecmp(at + blank, ours, word) == 0)
      text = format(text, "tcp-flags");
    else
      vec_add(text, at + blank, word);
    at += blank + word;
  }
  vec_add1(text, 0);
  return text;
}

u8* gc_change_rules(const char* step) {
  sluice_errors* errors = NULL;
  if (!gc_await_workers()) return gc_busy();
  u8* text = gc_native(step);
  const int rv = sluice_acl_change(gc_main.acl, (char*)text, "gpu-classify", &errors);
  vec_free(text);
  return rv != 0 ? gc_errors(errors) : gc_renew();
}

u8* gc_load_file(const char* path, const char* format) {
  sluice_errors* errors = NULL;
  if (!gc_await_workers()) return gc_busy();
  if (sluice_acl_replace_file_as(gc_main.acl, path, format, &errors) != 0) return gc_errors(errors);
  return gc_renew();
}

// ---- nodes of marks

// Where a packet may be sent without that it comes back, or that a node finds in its buffer what is not there: nodes at
// which packets end, and the end of the arc of packets that come in. What else there is registers itself.
static const struct {
  const char *ip4, *ip6;
  u32 packets;
} gc_own_targets[] = {
    {"error-drop", "error-drop",
     GPU_CLASSIFY_INPUT | GPU_CLASSIFY_OUTPUT | GPU_CLASSIFY_L2_INPUT | GPU_CLASSIFY_L2_OUTPUT},
    {"ip4-drop", "ip6-drop", GPU_CLASSIFY_INPUT},
    {"ip4-punt", "ip6-punt", GPU_CLASSIFY_INPUT},
    {"ip4-lookup", "ip6-lookup", GPU_CLASSIFY_INPUT},
};

static char* gc_copy(const char* text) {
  return text != NULL && text[0] != 0 ? (char*)format(0, "%s%c", text, 0) : NULL;
}

// Those of VPP itself stand first, whoever comes first.
static void gc_add_own_targets(void) {
  if (gc_main.targets != NULL) return;
  for (u32 i = 0; i < ARRAY_LEN(gc_own_targets); ++i) {
    const gc_target_t target = {{gc_copy(gc_own_targets[i].ip4), gc_copy(gc_own_targets[i].ip6)},
                                gc_own_targets[i].packets};
    vec_add1(gc_main.targets, target);
  }
}

// What plug-ins call by gpu_classify_register_target.
__clib_export clib_error_t* gpu_classify_add_target(const char* ip4, const char* ip6, u32 packets) {
  const char* names[2] = {ip4, ip6};
  const u32 all = GPU_CLASSIFY_INPUT | GPU_CLASSIFY_OUTPUT | GPU_CLASSIFY_L2_INPUT | GPU_CLASSIFY_L2_OUTPUT;
  if (packets == 0 || (packets & ~all) != 0)
    return clib_error_return(0, "packets %u are none of GPU_CLASSIFY_...", packets);
  if (ip4 == NULL && ip6 == NULL) return clib_error_return(0, "a target without a node");
  gc_add_own_targets();
  for (u32 i = 0; i < 2; ++i) {
    if (names[i] == NULL) continue;
    const vlib_node_t* node = vlib_get_node_by_name(vlib_get_main(), (u8*)names[i]);
    if (node == NULL || node->type != VLIB_NODE_TYPE_INTERNAL)
      return clib_error_return(0, "there is no node '%s' that takes frames", names[i]);
    const gc_target_t* t;
    vec_foreach(t, gc_main.targets) {
      if ((t->node[0] != NULL && strcmp(t->node[0], names[i]) == 0) ||
          (t->node[1] != NULL && strcmp(t->node[1], names[i]) == 0))
        return clib_error_return(0, "node '%s' is a target already", names[i]);
    }
  }
  const gc_target_t target = {{gc_copy(ip4), gc_copy(ip6)}, packets};
  vec_add1(gc_main.targets, target);
  return NULL;
}

u8* gc_next_of_mark(u32 mark, const char* name) {
  vlib_main_t* vm = vlib_get_main();
  gc_main_t* gm = &gc_main;
  if (mark == 0) return format(0, "mark 0 is that of packets without a mark: it has no next node");
  if (mark >= GC_MARKS) return format(0, "mark %u has no next node: only marks below %u do", mark, GC_MARKS);
  if (name == NULL || name[0] == 0) {
    if (gm->target_of_mark[mark] == 0) return format(0, "mark %u has no next node", mark);
    for (u32 kind = 0; kind < GC_N_KIND; ++kind) gm->next_of_mark[kind][mark] = 0;
    gm->target_of_mark[mark] = 0;
    return NULL;
  }
  const gc_target_t *target = NULL, *t;
  u8* known = NULL;
  gc_add_own_targets();
  vec_foreach(t, gm->targets) {
    for (u32 i = 0; i < 2; ++i) {
      if (t->node[i] == NULL || (i == 1 && t->node[0] != NULL && strcmp(t->node[0], t->node[1]) == 0)) continue;
      if (strcmp(t->node[i], name) == 0) target = t;
      known = format(known, "%s%s", known != NULL ? ", " : "", t->node[i]);
    }
  }
  if (target == NULL) {
    u8* error = vlib_get_node_by_name(vm, (u8*)name) == NULL
                    ? format(0, "there is no node '%s'; nodes of marks: %v", name, known)
                    : format(0, "node '%s' is not registered as a node of marks, which are: %v", name, known);
    vec_free(known);
    return error;
  }
  vec_free(known);
  vlib_node_t* first = vlib_get_node_by_name(vm, (u8*)"sluice-classify-ip4");
  for (u32 kind = 0; kind < GC_N_KIND; ++kind) {
    const char* node = target->node[(kind & GC_IP6) != 0];
    // GPU_CLASSIFY_INPUT, OUTPUT, L2_INPUT, L2_OUTPUT, by the other bits of a kind.
    const int takes = node != NULL && (target->packets & 1u << (kind >> 1)) != 0;
    // Of the first sibling, and by that of all.
    gm->next_of_mark[kind][mark] =
        takes ? 1 + vlib_node_add_next(vm, first->index, vlib_get_node_by_name(vm, (u8*)node)->index) : GC_UNFIT;
  }
  gm->target_of_mark[mark] = 1 + (target - gm->targets);
  return NULL;
}

// ---- interfaces

// Bridged packets as well: an interface may become a member of a bridge domain later.
static int gc_feature(u32 sw_if_index, u32 kind, int enable) {
  static const char* const nodes[] = {
#define _(name, number, node, arc, before) node,
      foreach_gc_kind
#undef _
  };
  static const char* const arcs[] = {
#define _(name, number, node, arc, before) arc,
      foreach_gc_kind
#undef _
  };
  return (kind & GC_L2) != 0 ? vnet_l2_feature_enable_disable(arcs[kind], nodes[kind], sw_if_index, enable, 0, 0)
                             : vnet_feature_enable_disable(arcs[kind], nodes[kind], sw_if_index, enable, 0, 0);
}

u8* gc_enable(u32 sw_if_index, int output, int enable) {
  gc_main_t* gm = &gc_main;
  const u32 kinds[] = {0, GC_IP6, GC_L2, GC_L2 | GC_IP6};
  if (!vnet_sw_interface_is_valid(vnet_get_main(), sw_if_index)) return format(0, "no such interface");
  // Twice is once.
  if (clib_bitmap_get(gm->enabled[output], sw_if_index) == enable) return NULL;
  if (enable) {
    const u32 counted = clib_max(gm->counted, sw_if_index + 1);
    for (u32 fate = 0; fate < GC_N_FATE; ++fate) {
      for (u32 way = 0; way < 2; ++way) vlib_validate_simple_counter(&gm->fates[way][fate], counted - 1);
      vlib_zero_simple_counter(&gm->fates[output][fate], sw_if_index);
    }
    gm->counted = counted;
  }
  for (u32 i = 0; i < ARRAY_LEN(kinds); ++i) {
    const int rv = gc_feature(sw_if_index, kinds[i] | (output ? GC_OUTPUT : 0), enable);
    if (rv == 0) continue;
    while (i-- > 0) gc_feature(sw_if_index, kinds[i] | (output ? GC_OUTPUT : 0), !enable);
    return format(0, "a feature arc refuses it: error %d", rv);
  }
  gm->enabled[output] = clib_bitmap_set(gm->enabled[output], sw_if_index, enable);
  return NULL;
}

// An interface that has gone leaves nothing to one that gets its index.
static clib_error_t* gc_interface(vnet_main_t* vnm, u32 sw_if_index, u32 is_add) {
  gc_main_t* gm = &gc_main;
  if (is_add) return NULL;
  for (u32 kind = 0; kind < GC_N_KIND; ++kind) {
    if (clib_bitmap_get(gm->enabled[(kind & GC_OUTPUT) != 0], sw_if_index)) gc_feature(sw_if_index, kind, 0);
  }
  for (int output = 0; output < 2; ++output) gm->enabled[output] = clib_bitmap_set(gm->enabled[output], sw_if_index, 0);
  return NULL;
}
VNET_SW_INTERFACE_ADD_DEL_FUNCTION(gc_interface);

// ---- counters

u8* gc_clear(void) {
  gc_main_t* gm = &gc_main;
  sluice_errors* errors = NULL;
  gc_worker_t* w;
  if (sluice_acl_clear_counters(gm->acl, &errors) != 0) return gc_errors(errors);
  vec_foreach(w, gm->workers) {
    clib_memset(w->stages, 0, sizeof w->stages);
    clib_memset(w->frames, 0, sizeof w->frames);
  }
  for (u32 fate = 0; gm->counted != 0 && fate < GC_N_FATE; ++fate) {
    for (u32 way = 0; way < 2; ++way) vlib_clear_simple_counters(&gm->fates[way][fate]);
  }
  return NULL;
}

u8* gc_each_rule(const gc_filter_t* filter, gc_rule_fn_t* f, void* context, sluice_counter* none,
                 sluice_counter* removed) {
  gc_main_t* gm = &gc_main;
  const size_t n = sluice_acl_size(gm->acl) + 1;
  sluice_counter* counters = NULL;
  sluice_errors* errors = NULL;
  vec_validate(counters, n - 1);
  // Changes come from this thread alone.
  if (sluice_acl_counters(gm->acl, counters, n, removed, &errors) == 0) {
    vec_free(counters);
    return gc_errors(errors);
  }
  *none = counters[0];
  u32 shown = 0;
  for (u32 i = clib_max(filter->from, 1); i < n && shown < filter->count; ++i) {
    if (filter->hits && counters[i].packets == 0) continue;
    sluice_rule* rule = sluice_acl_rule(gm->acl, i, NULL);
    if (rule != NULL && (filter->match == NULL || strstr(rule->text, filter->match) != NULL ||
                         strstr(rule->file, filter->match) != NULL)) {
      f(context, i, rule, &counters[i]);
      ++shown;
    }
    sluice_rule_free(rule);
  }
  vec_free(counters);
  return NULL;
}

// ---- latencies

const char* const gc_stage_names[GC_N_STAGE] = {
#define _(name, text) text,
    foreach_gc_stage
#undef _
};

// The clocks that so many of the frames took at most: the upper end of a bucket.
static u64 gc_quantile(const gc_histogram_t* h, u64 frames, f64 share) {
  u64 seen = 0;
  for (u32 i = 0; i < GC_BUCKETS; ++i) {
    seen += h->frames[i];
    if (seen != 0 && seen >= share * frames) return i < 24 ? i : (8ull + (i & 7) + 1) << (i / 8 - 3);
  }
  return 0;
}

gc_times_t gc_times(gc_stage_t stage) {
  const f64 ns = 1e9 / vlib_get_main()->clib_time.clocks_per_second;
  gc_histogram_t sum = {};
  gc_times_t times = {};
  gc_worker_t* w;
  vec_foreach(w, gc_main.workers) for (u32 i = 0; i < GC_BUCKETS; ++i) {
    sum.frames[i] += w->stages[stage].frames[i];
    times.frames += w->stages[stage].frames[i];
  }
  if (times.frames == 0) return times;
  times.p50_ns = gc_quantile(&sum, times.frames, .5) * ns;
  times.p99_ns = gc_quantile(&sum, times.frames, .99) * ns;
  times.p999_ns = gc_quantile(&sum, times.frames, .999) * ns;
  return times;
}

// ---- start

// Part `sluice-classify` of startup.conf. It is called also where there is none. An error ends VPP.
static clib_error_t* gc_config(vlib_main_t* vm, unformat_input_t* input) {
  static const char empty[] = "# no rules\n";
  gc_main_t* gm = &gc_main;
  clib_error_t* error = NULL;
  char* algorithm = NULL;
  while (error == NULL && unformat_check_input(input) != UNFORMAT_END_OF_INPUT) {
    u8* word = NULL;
    if (!unformat(input, "%s", &word)) break;
    vec_terminate_c_string(word);
    if (strcmp((char*)word, "algorithm") != 0)
      error = clib_error_return(0, "sluice-classify: unknown word '%s': expected algorithm NAME", word);
    else if (algorithm != NULL)
      error = clib_error_return(0, "sluice-classify: 'algorithm' stands twice");
    else if (unformat(input, "%s", &algorithm))
      vec_terminate_c_string(algorithm);
    if (error == NULL && (algorithm == NULL || algorithm[0] == 0))
      error = clib_error_return(0, "sluice-classify: 'algorithm' has no name behind it");
    vec_free(word);
  }
  if (error == NULL) {
    sluice_errors* errors = NULL;
    sluice_acl_options options = SLUICE_ACL_OPTIONS_INIT;
    options.algorithm = algorithm;
    options.count = 1;
    gm->acl = sluice_acl_read(empty, sizeof empty - 1, "gpu-classify", &options, &errors);
    if (gm->acl == NULL) {
      u8* text = gc_errors(errors);
      error = algorithm != NULL ? clib_error_return(0, "sluice-classify: algorithm '%s': %v", algorithm, text)
                                : clib_error_return(0, "sluice-classify: %v", text);
      vec_free(text);
    }
  }
  vec_free(algorithm);
  return error;
}
VLIB_CONFIG_FUNCTION(gc_config, "sluice-classify");

// Once the threads are known.
static clib_error_t* gc_start(vlib_main_t* vm) {
  static char* const fates[2][GC_N_FATE] = {
#define _(name, text) "/sluice/input/" text,
      {foreach_gc_fate},
#undef _
#define _(name, text) "/sluice/output/" text,
      {foreach_gc_fate},
#undef _
  };
  gc_main_t* gm = &gc_main;
  gm->overdue_clocks = 0.01 * vm->clib_time.clocks_per_second;
  vec_validate_aligned(gm->workers, vlib_get_n_threads() - 1, CLIB_CACHE_LINE_BYTES);
  for (u32 way = 0; way < 2; ++way) {
    for (u32 fate = 0; fate < GC_N_FATE; ++fate)
      gm->fates[way][fate].name = gm->fates[way][fate].stat_segment_name = fates[way][fate];
  }
  return NULL;
}
VLIB_MAIN_LOOP_ENTER_FUNCTION(gc_start);

VLIB_INIT_FUNCTION(gc_api_init);

VLIB_PLUGIN_REGISTER() = {
    .version = "0.1.0",
    .description = "Access lists of Sluice on interfaces, by CPU or GPU (gpu-classify)",
};
