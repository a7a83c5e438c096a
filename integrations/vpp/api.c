// The messages of sluice.api.
#include <vlibapi/api.h>
#include <vlibmemory/api.h>
#include <vnet/format_fns.h>

#include "gpu_classify.h"

#include <sluice.api_enum.h>
#include <sluice.api_types.h>

#define REPLY_MSG_ID_BASE gc_main.msg_id_base
#include <vlibapi/api_helper_macros.h>

// Every reply ends with a text, which is empty where all went well.
#define GC_REPLY(name, more)                                     \
  do {                                                           \
    int rv = error == NULL ? 0 : VNET_API_ERROR_INVALID_VALUE;   \
    REPLY_MACRO3(name, vec_len(error), ({                        \
                   more;                                         \
                   vl_api_vec_to_api_string(error, &rmp->error); \
                 }));                                            \
    vec_free(error);                                             \
  } while (0)

// A C string of a message's variable one.
static char* gc_string(void* mp, vl_api_string_t* from) {
  u8* text = vl_api_from_api_to_new_vec(mp, from);
  vec_add1(text, 0);
  return (char*)text;
}

static void vl_api_gpu_classify_enable_disable_t_handler(vl_api_gpu_classify_enable_disable_t* mp) {
  vl_api_gpu_classify_enable_disable_reply_t* rmp;
  u8* error = gc_enable(clib_net_to_host_u32(mp->sw_if_index), mp->output != 0, mp->enable != 0);
  const int rv = error == NULL ? 0 : VNET_API_ERROR_INVALID_SW_IF_INDEX;
  vec_free(error);
  REPLY_MACRO(VL_API_GPU_CLASSIFY_ENABLE_DISABLE_REPLY);
}

static void vl_api_gpu_classify_rule_add_del_t_handler(vl_api_gpu_classify_rule_add_del_t* mp) {
  vl_api_gpu_classify_rule_add_del_reply_t* rmp;
  char* rule = gc_string(mp, &mp->rule);
  // A second line would be a second step.
  u8* step = format(0, "%s %s%c", mp->is_add ? "add" : "delete", rule, 0);
  u8* error = strchr(rule, '\n') != NULL ? format(0, "the rule has more than one line") : gc_change_rules((char*)step);
  vec_free(step);
  vec_free(rule);
  GC_REPLY(VL_API_GPU_CLASSIFY_RULE_ADD_DEL_REPLY,
           rmp->generation = clib_host_to_net_u64(sluice_acl_generation(gc_main.acl)));
}

static void vl_api_gpu_classify_rule_replace_t_handler(vl_api_gpu_classify_rule_replace_t* mp) {
  vl_api_gpu_classify_rule_replace_reply_t* rmp;
  char* rule = gc_string(mp, &mp->rule);
  u8* step = format(0, "replace %u %s%c", clib_net_to_host_u32(mp->position), rule, 0);
  u8* error = strchr(rule, '\n') != NULL ? format(0, "the rule has more than one line") : gc_change_rules((char*)step);
  vec_free(step);
  vec_free(rule);
  GC_REPLY(VL_API_GPU_CLASSIFY_RULE_REPLACE_REPLY,
           rmp->generation = clib_host_to_net_u64(sluice_acl_generation(gc_main.acl)));
}

static void vl_api_gpu_classify_file_t_handler(vl_api_gpu_classify_file_t* mp) {
  vl_api_gpu_classify_file_reply_t* rmp;
  char* path = gc_string(mp, &mp->path);
  mp->format[sizeof mp->format - 1] = 0;
  u8* error = gc_load_file(path, mp->format[0] != 0 ? (char*)mp->format : NULL);
  vec_free(path);
  GC_REPLY(VL_API_GPU_CLASSIFY_FILE_REPLY, rmp->generation = clib_host_to_net_u64(sluice_acl_generation(gc_main.acl)));
}

static void vl_api_gpu_classify_device_t_handler(vl_api_gpu_classify_device_t* mp) {
  vl_api_gpu_classify_device_reply_t* rmp;
  char* device = gc_string(mp, &mp->device);
  u8* error =
      (u32)mp->mode > SLUICE_ADAPTIVE ? format(0, "mode %u is none", mp->mode) : gc_set_device(device, mp->mode);
  vec_free(device);
  GC_REPLY(VL_API_GPU_CLASSIFY_DEVICE_REPLY, );
}

static void vl_api_gpu_classify_default_t_handler(vl_api_gpu_classify_default_t* mp) {
  vl_api_gpu_classify_default_reply_t* rmp;
  const int rv = 0;
  gc_main.drop_unmatched = mp->drop != 0;
  REPLY_MACRO(VL_API_GPU_CLASSIFY_DEFAULT_REPLY);
}

static void vl_api_gpu_classify_mark_t_handler(vl_api_gpu_classify_mark_t* mp) {
  vl_api_gpu_classify_mark_reply_t* rmp;
  char* node = gc_string(mp, &mp->node);
  u8* error = gc_next_of_mark(clib_net_to_host_u32(mp->mark), node);
  vec_free(node);
  GC_REPLY(VL_API_GPU_CLASSIFY_MARK_REPLY, );
}

static void vl_api_gpu_classify_get_t_handler(vl_api_gpu_classify_get_t* mp) {
  vl_api_gpu_classify_get_reply_t* rmp;
  gc_main_t* gm = &gc_main;
  const int rv = 0;
  sluice_acl_shape shape = {.size = sizeof shape};
  sluice_acl_measure(gm->acl, &shape);
  u64 device = 0, host = 0, overdue = 0;
  gc_worker_t* w;
  vec_foreach(w, gm->workers) {
    device += w->frames[GC_BY_DEVICE];
    host += w->frames[GC_BY_HOST] + w->frames[GC_BY_FAILED];
    overdue += w->frames[GC_BY_OVERDUE];
  }
  REPLY_MACRO2(VL_API_GPU_CLASSIFY_GET_REPLY, ({
                 rmp->generation = clib_host_to_net_u64(sluice_acl_generation(gm->acl));
                 rmp->rules = clib_host_to_net_u64(sluice_acl_size(gm->acl));
                 rmp->tables = clib_host_to_net_u64(shape.tables);
                 rmp->slots = clib_host_to_net_u64(shape.slots);
                 rmp->bytes = clib_host_to_net_u64(shape.bytes);
                 rmp->frames_on_device = clib_host_to_net_u64(device);
                 rmp->frames_on_host = clib_host_to_net_u64(host);
                 rmp->frames_overdue = clib_host_to_net_u64(overdue);
                 rmp->switches = clib_host_to_net_u64(gc_switches());
                 rmp->drop_unmatched = gm->drop_unmatched;
                 rmp->mode = gm->mode;
                 snprintf((char*)rmp->algorithm, sizeof rmp->algorithm, "%s", sluice_acl_algorithm(gm->acl));
                 snprintf((char*)rmp->device, sizeof rmp->device, "%s", gm->device != NULL ? gm->device_name : "cpu");
               }));
}

static void vl_api_gpu_classify_clear_t_handler(vl_api_gpu_classify_clear_t* mp) {
  vl_api_gpu_classify_clear_reply_t* rmp;
  u8* error = gc_clear();
  const int rv = error == NULL ? 0 : VNET_API_ERROR_UNSPECIFIED;
  vec_free(error);
  REPLY_MACRO(VL_API_GPU_CLASSIFY_CLEAR_REPLY);
}

typedef struct {
  vl_api_registration_t* reg;
  u32 context;
} gc_dump_t;

static void gc_send_rule(void* context, u32 position, const sluice_rule* rule, const sluice_counter* counter) {
  const gc_dump_t* to = context;
  const size_t length = strlen(rule->text);
  vl_api_gpu_classify_rule_details_t* rmp = vl_msg_api_alloc_zero(sizeof *rmp + length);
  rmp->_vl_msg_id = htons(VL_API_GPU_CLASSIFY_RULE_DETAILS + REPLY_MSG_ID_BASE);
  rmp->context = to->context;
  rmp->position = htonl(position);
  rmp->action = rule->action;
  rmp->mark = htonl(rule->mark);
  rmp->packets = clib_host_to_net_u64(counter->packets);
  rmp->bytes = clib_host_to_net_u64(counter->bytes);
  rmp->line = htonl(rule->line);
  snprintf((char*)rmp->file, sizeof rmp->file, "%s", rule->file);
  rmp->rule.length = htonl(length);
  clib_memcpy_fast(rmp->rule.buf, rule->text, length);
  vl_api_send_msg(to->reg, (u8*)rmp);
}

static void vl_api_gpu_classify_rule_dump_t_handler(vl_api_gpu_classify_rule_dump_t* mp) {
  gc_dump_t to = {vl_api_client_index_to_registration(mp->client_index), mp->context};
  if (to.reg == NULL) return;
  char* match = gc_string(mp, &mp->match);
  const u32 count = clib_net_to_host_u32(mp->count);
  const gc_filter_t filter = {
      .from = clib_net_to_host_u32(mp->first),
      .count = count != 0 ? count : ~0,
      .hits = mp->hits,
      .match = match[0] != 0 ? match : NULL,
  };
  sluice_counter none;
  u8* error = gc_each_rule(&filter, gc_send_rule, &to, &none, NULL);
  vec_free(error);
  vec_free(match);
}

static void vl_api_gpu_classify_mark_dump_t_handler(vl_api_gpu_classify_mark_dump_t* mp) {
  vl_api_registration_t* reg = vl_api_client_index_to_registration(mp->client_index);
  if (reg == NULL) return;
  for (u32 mark = 0; mark < GC_MARKS; ++mark) {
    if (gc_main.target_of_mark[mark] == 0) continue;
    const gc_target_t* t = &gc_main.targets[gc_main.target_of_mark[mark] - 1];
    vl_api_gpu_classify_mark_details_t* rmp = vl_msg_api_alloc_zero(sizeof *rmp);
    rmp->_vl_msg_id = htons(VL_API_GPU_CLASSIFY_MARK_DETAILS + REPLY_MSG_ID_BASE);
    rmp->context = mp->context;
    rmp->mark = htonl(mark);
    rmp->packets = htonl(t->packets);
    snprintf((char*)rmp->node_ip4, sizeof rmp->node_ip4, "%s", t->node[0] != NULL ? t->node[0] : "");
    snprintf((char*)rmp->node_ip6, sizeof rmp->node_ip6, "%s", t->node[1] != NULL ? t->node[1] : "");
    vl_api_send_msg(reg, (u8*)rmp);
  }
}

static void vl_api_gpu_classify_latency_dump_t_handler(vl_api_gpu_classify_latency_dump_t* mp) {
  vl_api_registration_t* reg = vl_api_client_index_to_registration(mp->client_index);
  if (reg == NULL) return;
  for (u32 stage = 0; stage < GC_N_STAGE; ++stage) {
    const gc_times_t times = gc_times(stage);
    vl_api_gpu_classify_latency_details_t* rmp = vl_msg_api_alloc_zero(sizeof *rmp);
    rmp->_vl_msg_id = htons(VL_API_GPU_CLASSIFY_LATENCY_DETAILS + REPLY_MSG_ID_BASE);
    rmp->context = mp->context;
    snprintf((char*)rmp->stage, sizeof rmp->stage, "%s", gc_stage_names[stage]);
    rmp->frames = clib_host_to_net_u64(times.frames);
    rmp->p50_ns = clib_host_to_net_u64(times.p50_ns);
    rmp->p99_ns = clib_host_to_net_u64(times.p99_ns);
    rmp->p999_ns = clib_host_to_net_u64(times.p999_ns);
    vl_api_send_msg(reg, (u8*)rmp);
  }
}

#include <sluice.api.c>

clib_error_t* gc_api_init(vlib_main_t* vm) {
  api_main_t* am = vlibapi_get_main();
  static const u16 without_barrier[] = {
      VL_API_GPU_CLASSIFY_RULE_ADD_DEL, VL_API_GPU_CLASSIFY_RULE_REPLACE, VL_API_GPU_CLASSIFY_FILE,
      VL_API_GPU_CLASSIFY_DEVICE,       VL_API_GPU_CLASSIFY_DEFAULT,      VL_API_GPU_CLASSIFY_GET,
      VL_API_GPU_CLASSIFY_RULE_DUMP,    VL_API_GPU_CLASSIFY_MARK_DUMP,    VL_API_GPU_CLASSIFY_LATENCY_DUMP,
  };
  gc_main.msg_id_base = setup_message_id_table();
  for (u32 i = 0; i < ARRAY_LEN(without_barrier); ++i)
    vl_api_set_msg_thread_safe(am, gc_main.msg_id_base + without_barrier[i], 1);
  return NULL;
}
