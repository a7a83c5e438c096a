// What the commands do. All of it in the main thread, where commands and API messages take turns.
#define _GNU_SOURCE
#include <sched.h>
#include <unistd.h>
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

u8* gc_change_rules(const char* step) {
  sluice_errors* errors = NULL;
  if (!gc_await_workers()) return gc_busy();
  if (sluice_acl_change(gc_main.acl, step, "gpu-classify", &errors) != 0) return gc_errors(errors);
  return gc_renew();
}

u8* gc_load_file(const char* path, const char* format) {
  sluice_errors* errors = NULL;
  if (!gc_await_workers()) return gc_busy();
  if (sluice_acl_replace_file_as(gc_main.acl, path, format, &errors) != 0) return gc_errors(errors);
  return gc_renew();
}

u8* gc_next_of_mark(u32 mark, const char* name) {
  vlib_main_t* vm = vlib_get_main();
  gc_main_t* gm = &gc_main;
  if (mark >= ARRAY_LEN(gm->next_of_mark))
    return format(0, "mark %u has no next node: only marks below %u do", mark, ARRAY_LEN(gm->next_of_mark));
  if (name == NULL || name[0] == 0) {
    gm->next_of_mark[mark] = 0;
    return NULL;
  }
  vlib_node_t* node = vlib_get_node_by_name(vm, (u8*)name);
  if (node == NULL || node->type != VLIB_NODE_TYPE_INTERNAL)
    return format(0, "there is no node '%s' that takes frames ('show vlib graph' lists them)", name);
  // Of the first sibling, and by that of all.
  vlib_node_t* first = vlib_get_node_by_name(vm, (u8*)"sluice-classify-ip4");
  gm->next_of_mark[mark] = vlib_node_add_next(vm, first->index, node->index);
  return NULL;
}

// ---- interfaces

static int gc_feature(u32 sw_if_index, int output, int enable) {
  int rv = vnet_feature_enable_disable(output ? "ip4-output" : "ip4-unicast",
                                       output ? "sluice-classify-ip4-output" : "sluice-classify-ip4", sw_if_index,
                                       enable, 0, 0);
  if (rv != 0) return rv;
  return vnet_feature_enable_disable(output ? "ip6-output" : "ip6-unicast",
                                     output ? "sluice-classify-ip6-output" : "sluice-classify-ip6", sw_if_index, enable,
                                     0, 0);
}

u8* gc_enable(u32 sw_if_index, int output, int enable) {
  gc_main_t* gm = &gc_main;
  if (!vnet_sw_interface_is_valid(vnet_get_main(), sw_if_index)) return format(0, "no such interface");
  // Twice is once.
  if (clib_bitmap_get(gm->enabled[output], sw_if_index) == enable) return NULL;
  const int rv = gc_feature(sw_if_index, output, enable);
  if (rv != 0) return format(0, "the feature arc refuses it: error %d", rv);
  gm->enabled[output] = clib_bitmap_set(gm->enabled[output], sw_if_index, enable);
  return NULL;
}

// An interface that has gone leaves nothing to one that gets its index.
static clib_error_t* gc_interface(vnet_main_t* vnm, u32 sw_if_index, u32 is_add) {
  gc_main_t* gm = &gc_main;
  if (is_add) return NULL;
  for (int output = 0; output < 2; ++output) {
    if (!clib_bitmap_get(gm->enabled[output], sw_if_index)) continue;
    gc_feature(sw_if_index, output, 0);
    gm->enabled[output] = clib_bitmap_set(gm->enabled[output], sw_if_index, 0);
  }
  return NULL;
}
VNET_SW_INTERFACE_ADD_DEL_FUNCTION(gc_interface);

// ---- latencies

// The clocks that so many of the frames took at most: the upper end of a bucket.
static u64 gc_quantile(const gc_histogram_t* h, u64 frames, f64 share) {
  u64 seen = 0;
  for (u32 i = 0; i < GC_BUCKETS; ++i) {
    seen += h->frames[i];
    if (seen != 0 && seen >= share * frames) return i < 24 ? i : (8ull + (i & 7) + 1) << (i / 8 - 3);
  }
  return 0;
}

u8* format_gc_latency(u8* s, va_list* args) {
  static const char* const names[] = {
#define _(name, text) text,
      foreach_gc_stage
#undef _
  };
  CLIB_UNUSED(void* nothing) = va_arg(*args, void*);
  const f64 ns = 1e9 / vlib_get_main()->clib_time.clocks_per_second;
  s = format(s, "%-14s%14s%12s%12s%12s\n", "stage", "frames", "p50 us", "p99 us", "p99.9 us");
  for (u32 stage = 0; stage < GC_N_STAGE; ++stage) {
    gc_histogram_t sum = {};
    u64 frames = 0;
    gc_worker_t* w;
    vec_foreach(w, gc_main.workers) for (u32 i = 0; i < GC_BUCKETS; ++i) {
      sum.frames[i] += w->stages[stage].frames[i];
      frames += w->stages[stage].frames[i];
    }
    s = format(s, "%-14s%14llu", names[stage], frames);
    if (frames != 0)
      s = format(s, "%12.2f%12.2f%12.2f", gc_quantile(&sum, frames, .5) * ns / 1e3,
                 gc_quantile(&sum, frames, .99) * ns / 1e3, gc_quantile(&sum, frames, .999) * ns / 1e3);
    s = format(s, "\n");
  }
  return s;
}

// ---- start

// Part `sluice-classify` of startup.conf.
static clib_error_t* gc_config(vlib_main_t* vm, unformat_input_t* input) {
  gc_main_t* gm = &gc_main;
  while (unformat_check_input(input) != UNFORMAT_END_OF_INPUT) {
    if (unformat(input, "algorithm %s", &gm->algorithm))
      vec_terminate_c_string(gm->algorithm);
    else
      return clib_error_return(0, "unknown input '%U'", format_unformat_error, input);
  }
  return NULL;
}
VLIB_CONFIG_FUNCTION(gc_config, "sluice-classify");

static clib_error_t* gc_start(vlib_main_t* vm) {
  static const char empty[] = "# no rules\n";
  gc_main_t* gm = &gc_main;
  sluice_errors* errors = NULL;
  sluice_acl_options options = SLUICE_ACL_OPTIONS_INIT;
  options.algorithm = gm->algorithm;
  options.count = 1;
  gm->acl = sluice_acl_read(empty, sizeof empty - 1, "gpu-classify", &options, &errors);
  if (gm->acl == NULL) {
    u8* text = gc_errors(errors);
    clib_error_t* error = clib_error_return(0, "gpu-classify: %v", text);
    vec_free(text);
    return error;
  }
  gm->overdue_clocks = 0.01 * vm->clib_time.clocks_per_second;
  vec_validate_aligned(gm->workers, vlib_get_n_threads() - 1, CLIB_CACHE_LINE_BYTES);
  return NULL;
}
VLIB_MAIN_LOOP_ENTER_FUNCTION(gc_start);

VLIB_INIT_FUNCTION(gc_api_init);

VLIB_PLUGIN_REGISTER() = {
    .version = "0.1.0",
    .description = "Access lists of Sluice on interfaces, by CPU or GPU (gpu-classify)",
};
