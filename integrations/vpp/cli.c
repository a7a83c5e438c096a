// The commands.
#include "gpu_classify.h"

static clib_error_t* gc_report(u8* error) {
  if (error == NULL) return NULL;
  clib_error_t* e = clib_error_return(0, "%v", error);
  vec_free(error);
  return e;
}

// The rest of the command's line as a C string, without blanks around it; NULL: nothing is left.
static char* gc_rest(unformat_input_t* input) {
  u8* text = NULL;
  if (!unformat(input, "%U", unformat_line, &text)) return NULL;
  while (vec_len(text) != 0 && (text[vec_len(text) - 1] <= ' ')) vec_dec_len(text, 1);
  u32 at = 0;
  while (at < vec_len(text) && text[at] <= ' ') ++at;
  if (at != 0) vec_delete(text, at, 0);
  if (vec_len(text) == 0) {
    vec_free(text);
    return NULL;
  }
  vec_add1(text, 0);
  return (char*)text;
}

static clib_error_t* gc_unknown(unformat_input_t* input, const char* expected) {
  return clib_error_return(0, "unknown input '%U'\n  expected: %s", format_unformat_error, input, expected);
}

static clib_error_t* gc_enable_fn(vlib_main_t* vm, unformat_input_t* all, vlib_cli_command_t* cmd) {
  unformat_input_t line, *input = &line;
  const int enable = cmd->function_arg;
  u32 sw_if_index = ~0;
  int output = 0;
  clib_error_t* error = NULL;
  if (!unformat_user(all, unformat_line_input, input)) return clib_error_return(0, "expected: %s", cmd->short_help);
  while (error == NULL && unformat_check_input(input) != UNFORMAT_END_OF_INPUT) {
    if (unformat(input, "output"))
      output = 1;
    else if (unformat(input, "input"))
      output = 0;
    else if (!unformat(input, "%U", unformat_vnet_sw_interface, vnet_get_main(), &sw_if_index))
      error = gc_unknown(input, "an interface ('show interface' lists them), input or output");
  }
  if (error == NULL && sw_if_index == ~0) error = clib_error_return(0, "expected: %s", cmd->short_help);
  if (error == NULL) error = gc_report(gc_enable(sw_if_index, output, enable));
  unformat_free(input);
  return error;
}

static clib_error_t* gc_rule_fn(vlib_main_t* vm, unformat_input_t* all, vlib_cli_command_t* cmd) {
  unformat_input_t line, *input = &line;
  clib_error_t* error = NULL;
  if (!unformat_user(all, unformat_line_input, input)) return clib_error_return(0, "expected: %s", cmd->short_help);
  const char* step = unformat(input, "add") ? "add" : unformat(input, "del") ? "delete" : NULL;
  char* rule = step != NULL ? gc_rest(input) : NULL;
  if (rule == NULL) {
    error = clib_error_return(0, "expected: %s", cmd->short_help);
  } else {
    u8* text = format(0, "%s %s%c", step, rule, 0);
    error = gc_report(gc_change_rules((char*)text));
    vec_free(text);
  }
  vec_free(rule);
  unformat_free(input);
  return error;
}

static clib_error_t* gc_file_fn(vlib_main_t* vm, unformat_input_t* all, vlib_cli_command_t* cmd) {
  unformat_input_t line, *input = &line;
  u8 *path = NULL, *format = NULL;
  clib_error_t* error = NULL;
  if (!unformat_user(all, unformat_line_input, input)) return clib_error_return(0, "expected: %s", cmd->short_help);
  if (unformat(input, "%s", &path)) {
    vec_terminate_c_string(path);
    if (unformat(input, "format %s", &format)) vec_terminate_c_string(format);
  }
  if (path == NULL || unformat_check_input(input) != UNFORMAT_END_OF_INPUT)
    error = clib_error_return(0, "expected: %s", cmd->short_help);
  else
    error = gc_report(gc_load_file((char*)path, (char*)format));
  vec_free(path);
  vec_free(format);
  unformat_free(input);
  return error;
}

static clib_error_t* gc_device_fn(vlib_main_t* vm, unformat_input_t* all, vlib_cli_command_t* cmd) {
  unformat_input_t line, *input = &line;
  u8* name = NULL;
  u32 mode = SLUICE_PERSISTENT;
  clib_error_t* error = NULL;
  if (!unformat_user(all, unformat_line_input, input)) return clib_error_return(0, "expected: %s", cmd->short_help);
  if (unformat(input, "%s", &name)) vec_terminate_c_string(name);
  if (unformat(input, "mode launch"))
    mode = SLUICE_LAUNCH;
  else if (unformat(input, "mode persistent"))
    mode = SLUICE_PERSISTENT;
  else if (unformat(input, "mode adaptive"))
    mode = SLUICE_ADAPTIVE;
  if (name == NULL)
    error = clib_error_return(0, "expected: %s", cmd->short_help);
  else if (unformat_check_input(input) != UNFORMAT_END_OF_INPUT)
    error = gc_unknown(input, "mode launch, persistent or adaptive");
  else
    error = gc_report(gc_set_device((char*)name, mode));
  vec_free(name);
  unformat_free(input);
  return error;
}

static clib_error_t* gc_default_fn(vlib_main_t* vm, unformat_input_t* input, vlib_cli_command_t* cmd) {
  if (unformat(input, "pass"))
    gc_main.drop_unmatched = 0;
  else if (unformat(input, "drop"))
    gc_main.drop_unmatched = 1;
  else
    return clib_error_return(0, "expected: %s", cmd->short_help);
  return NULL;
}

static clib_error_t* gc_mark_fn(vlib_main_t* vm, unformat_input_t* all, vlib_cli_command_t* cmd) {
  unformat_input_t line, *input = &line;
  u8* node = NULL;
  u32 mark;
  clib_error_t* error = NULL;
  if (!unformat_user(all, unformat_line_input, input)) return clib_error_return(0, "expected: %s", cmd->short_help);
  if (!unformat(input, "%u", &mark) || !(unformat(input, "next %s", &node) || unformat(input, "del")) ||
      unformat_check_input(input) != UNFORMAT_END_OF_INPUT) {
    error = clib_error_return(0, "expected: %s", cmd->short_help);
  } else {
    if (node != NULL) vec_terminate_c_string(node);
    error = gc_report(gc_next_of_mark(mark, (char*)node));
  }
  vec_free(node);
  unformat_free(input);
  return error;
}

// ---- show

static const char* gc_mode_name(u32 mode) {
  return mode == SLUICE_LAUNCH ? "launch" : mode == SLUICE_PERSISTENT ? "persistent" : "adaptive";
}

static void gc_show_device(vlib_main_t* vm) {
  gc_main_t* gm = &gc_main;
  if (gm->device == NULL) {
    vlib_cli_output(vm, "device cpu");
  } else {
    vlib_cli_output(vm, "device %s (%s), mode %s, %llu changes of mode", gm->device_name,
                    sluice_device_name(gm->device), gc_mode_name(gm->mode), gc_switches());
  }
  gc_worker_t* w;
  vec_foreach(w, gm->workers) {
    const u64* frames = w->frames;
    if (frames[GC_BY_DEVICE] + frames[GC_BY_HOST] + frames[GC_BY_OVERDUE] + frames[GC_BY_FAILED] != 0 ||
        w->head != w->tail)
      vlib_cli_output(
          vm, "  thread %u: %llu frames by the device, %llu by the worker, %llu overdue, %llu as it failed, %u waiting",
          w - gm->workers, frames[GC_BY_DEVICE], frames[GC_BY_HOST], frames[GC_BY_OVERDUE], frames[GC_BY_FAILED],
          w->tail - w->head);
    if (w->failure[0] != 0)
      vlib_cli_output(vm, "  thread %u: the device has failed, the worker looks up: %s", w - gm->workers, w->failure);
  }
}

static void gc_show_interfaces(vlib_main_t* vm, int output) {
  u32 i;
  u8* s = format(0, "%s", output ? "output of" : "input of");
  clib_bitmap_foreach(i, gc_main.enabled[output]) s =
      format(s, " %U", format_vnet_sw_if_index_name, vnet_get_main(), i);
  if (!clib_bitmap_is_zero(gc_main.enabled[output])) vlib_cli_output(vm, "%v", s);
  vec_free(s);
}

static clib_error_t* gc_show_fn(vlib_main_t* vm, unformat_input_t* input, vlib_cli_command_t* cmd) {
  gc_main_t* gm = &gc_main;
  sluice_acl_shape shape = {.size = sizeof shape};
  sluice_acl_measure(gm->acl, &shape);
  vlib_cli_output(vm, "libsluice %s (%s)", sluice_version(), sluice_build_revision());
  vlib_cli_output(vm, "%llu rules, generation %llu, algorithm %s, %llu tables, %llu slots, %llu bytes",
                  (u64)sluice_acl_size(gm->acl), sluice_acl_generation(gm->acl), sluice_acl_algorithm(gm->acl),
                  shape.tables, shape.slots, shape.bytes);
  vlib_cli_output(vm, "default %s", gm->drop_unmatched ? "drop" : "pass");
  gc_show_interfaces(vm, 0);
  gc_show_interfaces(vm, 1);
  gc_show_device(vm);
  return NULL;
}

static clib_error_t* gc_show_rules_fn(vlib_main_t* vm, unformat_input_t* input, vlib_cli_command_t* cmd) {
  gc_main_t* gm = &gc_main;
  const size_t n = sluice_acl_size(gm->acl) + 1;
  sluice_counter *counters = NULL, removed;
  sluice_errors* errors = NULL;
  vec_validate(counters, n - 1);
  // Changes come from this thread alone.
  if (sluice_acl_counters(gm->acl, counters, n, &removed, &errors) == 0) {
    vec_free(counters);
    return gc_report(gc_errors(errors));
  }
  vlib_cli_output(vm, "%8s %14s %16s  %s", "rule", "packets", "bytes", "text");
  for (u32 i = 1; i < n; ++i) {
    sluice_rule* rule = sluice_acl_rule(gm->acl, i, NULL);
    if (rule != NULL)
      vlib_cli_output(vm, "%8u %14llu %16llu  %s  (%s:%u)", i, counters[i].packets, counters[i].bytes, rule->text,
                      rule->file, rule->line);
    sluice_rule_free(rule);
  }
  vlib_cli_output(vm, "%8s %14llu %16llu", "none", counters[0].packets, counters[0].bytes);
  if (removed.packets != 0) vlib_cli_output(vm, "%8s %14llu %16llu", "removed", removed.packets, removed.bytes);
  vec_free(counters);
  return NULL;
}

static clib_error_t* gc_show_latency_fn(vlib_main_t* vm, unformat_input_t* input, vlib_cli_command_t* cmd) {
  vlib_cli_output(vm, "%U", format_gc_latency, NULL);
  return NULL;
}

static clib_error_t* gc_show_device_fn(vlib_main_t* vm, unformat_input_t* input, vlib_cli_command_t* cmd) {
  gc_show_device(vm);
  return NULL;
}

/*?
 * Classifies the IPv4 and IPv6 packets that an interface receives (input) or sends (output).
 ?*/
VLIB_CLI_COMMAND(gc_enable_command, static) = {
    .path = "gpu-classify enable",
    .short_help = "gpu-classify enable <interface> [input|output]",
    .function = gc_enable_fn,
    .function_arg = 1,
};
VLIB_CLI_COMMAND(gc_disable_command, static) = {
    .path = "gpu-classify disable",
    .short_help = "gpu-classify disable <interface> [input|output]",
    .function = gc_enable_fn,
    .function_arg = 0,
};
VLIB_CLI_COMMAND(gc_rule_command, static) = {
    .path = "gpu-classify rule",
    .short_help =
        "gpu-classify rule add [at <n>] <rule> | del <n>|<rule>, where <rule> is [proto <n>] [src <prefix>] "
        "[dst <prefix>] [sport <n>[-<n>]] [dport <n>[-<n>]] [tcpflags <v>/<m>] action pass|drop|mark <n>",
    .function = gc_rule_fn,
    .is_mp_safe = 1,
};
VLIB_CLI_COMMAND(gc_file_command, static) = {
    .path = "gpu-classify file",
    .short_help = "gpu-classify file <path> [format classbench|native|vpp|iptables[:<chain>]|nft[:[<table>/]<chain>]]",
    .function = gc_file_fn,
    .is_mp_safe = 1,
};
VLIB_CLI_COMMAND(gc_device_command, static) = {
    .path = "gpu-classify device",
    .short_help = "gpu-classify device cpu|emu|cuda[:<n>] [mode launch|persistent|adaptive]",
    .function = gc_device_fn,
    .is_mp_safe = 1,
};
VLIB_CLI_COMMAND(gc_default_command, static) = {
    .path = "gpu-classify default",
    .short_help = "gpu-classify default pass|drop",
    .function = gc_default_fn,
    .is_mp_safe = 1,
};
VLIB_CLI_COMMAND(gc_mark_command, static) = {
    .path = "gpu-classify mark",
    .short_help = "gpu-classify mark <n> next <node> | del",
    .function = gc_mark_fn,
};
VLIB_CLI_COMMAND(gc_show_command, static) = {
    .path = "show gpu-classify",
    .short_help = "show gpu-classify [rules|latency|device]",
    .function = gc_show_fn,
    .is_mp_safe = 1,
};
VLIB_CLI_COMMAND(gc_show_rules_command, static) = {
    .path = "show gpu-classify rules",
    .short_help = "show gpu-classify rules",
    .function = gc_show_rules_fn,
    .is_mp_safe = 1,
};
VLIB_CLI_COMMAND(gc_show_latency_command, static) = {
    .path = "show gpu-classify latency",
    .short_help = "show gpu-classify latency",
    .function = gc_show_latency_fn,
    .is_mp_safe = 1,
};
VLIB_CLI_COMMAND(gc_show_device_command, static) = {
    .path = "show gpu-classify device",
    .short_help = "show gpu-classify device",
    .function = gc_show_device_fn,
    .is_mp_safe = 1,
};
