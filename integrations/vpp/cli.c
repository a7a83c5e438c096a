// The commands. Each reads its whole line before it does anything: a word that is not expected, that stands twice or
// that has no value behind it is an error, and nothing has changed.
#include "gpu_classify.h"

static clib_error_t* gc_report(u8* error) {
  if (error == NULL) return NULL;
  clib_error_t* e = clib_error_return(0, "%v", error);
  vec_free(error);
  return e;
}

// ---- words of a line

typedef struct {
  const char* help;
  u8* line;     // a C string, cut into words
  char** word;  // C strings in it
  u32 at;
  clib_error_t* error;
} gc_words_t;

// The words of the line, of which the first `few` are cut off and the rest is one word.
static gc_words_t gc_words(unformat_input_t* all, const vlib_cli_command_t* cmd, u32 few) {
  gc_words_t w = {.help = cmd->short_help};
  unformat_input_t line, *input = &line;
  if (unformat_user(all, unformat_line_input, input)) {
    uword c;
    while ((c = unformat_get_input(input)) != UNFORMAT_END_OF_INPUT) vec_add1(w.line, (u8)c);
    unformat_free(input);
  }
  while (vec_len(w.line) != 0 && vec_end(w.line)[-1] <= ' ') vec_dec_len(w.line, 1);
  vec_add1(w.line, 0);
  for (u8* at = w.line; *at != 0;) {
    if (*at <= ' ') {
      *at++ = 0;
      continue;
    }
    vec_add1(w.word, (char*)at);
    if (vec_len(w.word) > few) break;
    while (*at > ' ') ++at;
  }
  return w;
}
#define GC_ALL_WORDS 100000

static clib_error_t* gc_end(gc_words_t* w) {
  vec_free(w->line);
  vec_free(w->word);
  return w->error;
}

static char* gc_word(gc_words_t* w) {
  return w->error == NULL && w->at < vec_len(w->word) ? w->word[w->at++] : NULL;
}

// The next word, if it is this one.
static int gc_is(gc_words_t* w, const char* word) {
  if (w->error != NULL || w->at >= vec_len(w->word) || strcmp(w->word[w->at], word) != 0) return 0;
  w->at++;
  return 1;
}

static void gc_wrong(gc_words_t* w, const char* what, const char* word) {
  if (w->error == NULL) w->error = clib_error_return(0, "%s '%s'\n  expected: %s", what, word, w->help);
}

// Nothing but the words that were taken stands there, and at least those.
static int gc_done(gc_words_t* w, int all) {
  if (w->at < vec_len(w->word)) gc_wrong(w, "unknown word", w->word[w->at]);
  if (w->error == NULL && !all) w->error = clib_error_return(0, "expected: %s", w->help);
  return w->error == NULL;
}

// A number that stands behind `what`, decimal digits alone.
static u32 gc_number(gc_words_t* w, const char* what) {
  const char* word = gc_word(w);
  u64 n = 0;
  u32 i = 0;
  if (w->error != NULL) return 0;
  if (word == NULL) {
    w->error = clib_error_return(0, "'%s' has no number behind it\n  expected: %s", what, w->help);
    return 0;
  }
  for (; word[i] >= '0' && word[i] <= '9' && i < 10; ++i) n = n * 10 + (word[i] - '0');
  if (i == 0 || word[i] != 0 || n > 0xffffffff) gc_wrong(w, "not a number, 0 to 4294967295:", word);
  return n;
}

// ---- commands that change something

static clib_error_t* gc_enable_fn(vlib_main_t* vm, unformat_input_t* all, vlib_cli_command_t* cmd) {
  gc_words_t w = gc_words(all, cmd, GC_ALL_WORDS);
  u32 sw_if_index = ~0;
  int output = -1;
  for (char* word; (word = gc_word(&w)) != NULL;) {
    const int is_output = strcmp(word, "output") == 0;
    if (is_output || strcmp(word, "input") == 0) {
      if (output >= 0) gc_wrong(&w, "input or output stands there already:", word);
      output = is_output;
      continue;
    }
    unformat_input_t one;
    u32 found = ~0;
    unformat_init_string(&one, word, strlen(word));
    if (!unformat(&one, "%U", unformat_vnet_sw_interface, vnet_get_main(), &found) ||
        unformat_check_input(&one) != UNFORMAT_END_OF_INPUT)
      gc_wrong(&w, "neither an interface ('show interface' lists them) nor input or output:", word);
    else if (sw_if_index != ~0)
      gc_wrong(&w, "an interface stands there already:", word);
    sw_if_index = found;
    unformat_free(&one);
  }
  if (gc_done(&w, sw_if_index != ~0)) w.error = gc_report(gc_enable(sw_if_index, output == 1, cmd->function_arg));
  return gc_end(&w);
}

static clib_error_t* gc_rule_fn(vlib_main_t* vm, unformat_input_t* all, vlib_cli_command_t* cmd) {
  gc_words_t w = gc_words(all, cmd, 1);
  const char* step = gc_is(&w, "add") ? "add" : gc_is(&w, "del") ? "delete" : gc_is(&w, "replace") ? "replace" : NULL;
  const char* rule = step != NULL ? gc_word(&w) : NULL;
  if (gc_done(&w, rule != NULL)) {
    u8* text = format(0, "%s %s%c", step, rule, 0);
    w.error = gc_report(gc_change_rules((char*)text));
    vec_free(text);
  }
  return gc_end(&w);
}

static clib_error_t* gc_file_fn(vlib_main_t* vm, unformat_input_t* all, vlib_cli_command_t* cmd) {
  gc_words_t w = gc_words(all, cmd, GC_ALL_WORDS);
  const char *path = gc_word(&w), *format = NULL;
  int whole = path != NULL;
  if (gc_is(&w, "format")) whole &= (format = gc_word(&w)) != NULL;
  if (gc_done(&w, whole)) w.error = gc_report(gc_load_file(path, format));
  return gc_end(&w);
}

static clib_error_t* gc_device_fn(vlib_main_t* vm, unformat_input_t* all, vlib_cli_command_t* cmd) {
  gc_words_t w = gc_words(all, cmd, GC_ALL_WORDS);
  const char* name = gc_word(&w);
  u32 mode = SLUICE_PERSISTENT;
  if (gc_is(&w, "mode")) {
    mode = gc_is(&w, "launch")       ? SLUICE_LAUNCH
           : gc_is(&w, "persistent") ? SLUICE_PERSISTENT
           : gc_is(&w, "adaptive")   ? SLUICE_ADAPTIVE
                                     : ~0;
    const char* word = mode == ~0 ? gc_word(&w) : NULL;
    if (word != NULL) gc_wrong(&w, "no mode, which is launch, persistent or adaptive:", word);
  }
  if (gc_done(&w, name != NULL && mode != ~0)) w.error = gc_report(gc_set_device(name, mode));
  return gc_end(&w);
}

static clib_error_t* gc_default_fn(vlib_main_t* vm, unformat_input_t* all, vlib_cli_command_t* cmd) {
  gc_words_t w = gc_words(all, cmd, GC_ALL_WORDS);
  const int drop = gc_is(&w, "drop"), pass = !drop && gc_is(&w, "pass");
  if (gc_done(&w, drop || pass || vec_len(w.word) != 0)) gc_main.drop_unmatched = drop;
  return gc_end(&w);
}

static clib_error_t* gc_mark_fn(vlib_main_t* vm, unformat_input_t* all, vlib_cli_command_t* cmd) {
  gc_words_t w = gc_words(all, cmd, GC_ALL_WORDS);
  const u32 mark = gc_number(&w, "mark");
  const int del = gc_is(&w, "del");
  const char* node = !del && gc_is(&w, "next") ? gc_word(&w) : NULL;
  if (gc_done(&w, del || node != NULL)) w.error = gc_report(gc_next_of_mark(mark, node));
  return gc_end(&w);
}

static clib_error_t* gc_clear_fn(vlib_main_t* vm, unformat_input_t* all, vlib_cli_command_t* cmd) {
  gc_words_t w = gc_words(all, cmd, GC_ALL_WORDS);
  if (gc_done(&w, 1)) w.error = gc_report(gc_clear());
  return gc_end(&w);
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

static void gc_show_marks(vlib_main_t* vm) {
  const gc_main_t* gm = &gc_main;
  for (u32 mark = 0; mark < GC_MARKS; ++mark) {
    if (gm->target_of_mark[mark] == 0) continue;
    static const char* const packets[] = {"input", "output", "bridged input", "bridged output"};
    const gc_target_t* t = &gm->targets[gm->target_of_mark[mark] - 1];
    u8* s = format(0, "mark %u next", mark);
    for (u32 i = 0; i < 2; ++i) {
      if (t->node[i] != NULL && (i == 0 || t->node[0] == NULL || strcmp(t->node[0], t->node[1]) != 0))
        s = format(s, " %s", t->node[i]);
    }
    s = format(s, ", of");
    for (u32 i = 0, some = 0; i < 4; ++i) {
      if ((t->packets & 1u << i) != 0) s = format(s, "%s %s", some++ != 0 ? "," : "", packets[i]);
    }
    vlib_cli_output(vm, "%v", s);
    vec_free(s);
  }
}

static void gc_show_latency(vlib_main_t* vm) {
  vlib_cli_output(vm, "%-14s%14s%12s%12s%12s", "stage", "frames", "p50 us", "p99 us", "p99.9 us");
  for (u32 stage = 0; stage < GC_N_STAGE; ++stage) {
    const gc_times_t t = gc_times(stage);
    if (t.frames != 0)
      vlib_cli_output(vm, "%-14s%14llu%12.2f%12.2f%12.2f", gc_stage_names[stage], t.frames, t.p50_ns / 1e3,
                      t.p99_ns / 1e3, t.p999_ns / 1e3);
    else
      vlib_cli_output(vm, "%-14s%14llu", gc_stage_names[stage], t.frames);
  }
}

static void gc_show_rule(void* context, u32 position, const sluice_rule* rule, const sluice_counter* counter) {
  vlib_cli_output(context, "%8u %14llu %16llu  %s  (%s:%u)", position, counter->packets, counter->bytes, rule->text,
                  rule->file, rule->line);
}

static void gc_show_rules(vlib_main_t* vm, gc_words_t* w) {
  gc_filter_t filter = {.from = 0, .count = ~0};
  int count = 0;
  for (int more = 1; more != 0 && w->error == NULL;) {
    const char* word = w->at < vec_len(w->word) ? w->word[w->at] : "";
    if (gc_is(w, "from")) {
      if (filter.from != 0) gc_wrong(w, "stands twice:", word);
      filter.from = gc_number(w, word);
      if (filter.from == 0) gc_wrong(w, "no rule, which are numbered from 1:", "0");
    } else if (gc_is(w, "count")) {
      if (count++ != 0) gc_wrong(w, "stands twice:", word);
      filter.count = gc_number(w, word);
    } else if (gc_is(w, "hits")) {
      if (filter.hits++ != 0) gc_wrong(w, "stands twice:", word);
    } else if (gc_is(w, "match")) {
      if (filter.match != NULL) gc_wrong(w, "stands twice:", word);
      filter.match = gc_word(w);
      if (filter.match == NULL) gc_wrong(w, "nothing to look for behind", word);
    } else {
      more = 0;
    }
  }
  if (!gc_done(w, 1)) return;
  sluice_counter none, removed;
  vlib_cli_output(vm, "%8s %14s %16s  %s", "rule", "packets", "bytes", "text");
  w->error = gc_report(gc_each_rule(&filter, gc_show_rule, vm, &none, &removed));
  if (w->error == NULL) {
    vlib_cli_output(vm, "%8s %14llu %16llu", "none", none.packets, none.bytes);
    if (removed.packets != 0) vlib_cli_output(vm, "%8s %14llu %16llu", "removed", removed.packets, removed.bytes);
  }
}

// One command, not one for each first word: where a command below another fails, VPP runs the one above it, too.
static clib_error_t* gc_show_fn(vlib_main_t* vm, unformat_input_t* all, vlib_cli_command_t* cmd) {
  gc_main_t* gm = &gc_main;
  gc_words_t w = gc_words(all, cmd, GC_ALL_WORDS);
  if (gc_is(&w, "rules")) {
    gc_show_rules(vm, &w);
    return gc_end(&w);
  }
  const int latency = gc_is(&w, "latency"), device = !latency && gc_is(&w, "device");
  if (!gc_done(&w, 1)) return gc_end(&w);
  if (latency) gc_show_latency(vm);
  if (device) gc_show_device(vm);
  if (latency || device) return gc_end(&w);
  sluice_acl_shape shape = {.size = sizeof shape};
  sluice_acl_measure(gm->acl, &shape);
  vlib_cli_output(vm, "libsluice %s (%s)", sluice_version(), sluice_build_revision());
  vlib_cli_output(vm, "%llu rules, generation %llu, algorithm %s, %llu tables, %llu slots, %llu bytes",
                  (u64)sluice_acl_size(gm->acl), sluice_acl_generation(gm->acl), sluice_acl_algorithm(gm->acl),
                  shape.tables, shape.slots, shape.bytes);
  vlib_cli_output(vm, "default %s", gm->drop_unmatched ? "drop" : "pass");
  gc_show_marks(vm);
  gc_show_interfaces(vm, 0);
  gc_show_interfaces(vm, 1);
  gc_show_device(vm);
  gc_show_latency(vm);
  return gc_end(&w);
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
        "gpu-classify rule add [at <n>] <rule> | del <n>|<rule> | replace <n> <rule>, where <rule> is [proto <n>] [src "
        "<prefix>] "
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
VLIB_CLI_COMMAND(gc_clear_command, static) = {
    .path = "clear gpu-classify",
    .short_help = "clear gpu-classify",
    .function = gc_clear_fn,
};
VLIB_CLI_COMMAND(gc_show_command, static) = {
    .path = "show gpu-classify",
    .short_help = "show gpu-classify [rules [from <n>] [count <n>] [hits] [match <text>]|latency|device]",
    .function = gc_show_fn,
    .is_mp_safe = 1,
};
